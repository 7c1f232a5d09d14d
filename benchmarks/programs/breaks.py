"""Small programs that torch.compile captures whole, or nearly, each named after what it needs.

In:   nothing.   Out: `PROGRAMS`: name -> a function that makes (the program, its arguments) anew.

    >>> program, args = PROGRAMS["id_of_a_module"]()
    >>> minidynamo.compile(program, backend="eager")(*args)

`COUNTS` holds (graphs, breaks) for each.  Used by test_break_programs.py and `--suite programs`.
"""

from . import breaks_of_python, breaks_of_torch  # noqa: F401  (their programs join the table)
from .break_table import COUNTS, PROGRAMS, Make, Program

__all__ = ["COUNTS", "PROGRAMS", "Make", "Program"]
