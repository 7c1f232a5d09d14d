"""Programs in the style of public ones, small, for `--suite programs` and for the tests.

Files: breaks*.py (one feature of Python or torch each), storms.py (numbers that change in each
call), vision.py (image sizes that change), styles*.py (what libraries and examples do).
"""

from collections.abc import Callable
from typing import Any

Compile = Callable[[Callable], Callable]  # minidynamo.compile, or another compiler
Step = Callable[[int], Any]  # call number n of a program, and what is to be compared
Program = Callable[[Compile], Step]
