"""Programs in the style of public libraries and examples, written here, tiny.

In:   nothing.   Out: `PROGRAMS`: name -> what takes a compiler and gives `step`, which is called
      with 0, 1, 2... and returns what is to be compared.

    >>> step = PROGRAMS["neural_ode"](minidynamo.compile)
    >>> step(0)

Some need an installed package; they raise ImportError where it is absent.
"""

from . import styles_of_learning, styles_of_science  # noqa: F401  (their programs join the table)
from .style_table import PROGRAMS

__all__ = ["PROGRAMS"]
