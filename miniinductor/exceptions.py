"""Why a graph is not compiled: what the stages raise, and what the driver answers.

    >>> try:
    ...     raise CannotTrace("it asks for the value of a tensor")      # a stage
    ... except NOT_COMPILED as reason:                                  # the driver
    ...     print(f"runs eagerly: {reason}")
    runs eagerly: it asks for the value of a tensor

All of them are refusals, not faults: the program is right, and has no compiled form here.  Where
one operation of the program is to blame, the error names it, and the driver compiles the graph
around it (pieces.py); else the whole graph runs eagerly.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class NotCompiled(Exception):
    """origins: names of the nodes of the captured graph that are to blame, if that is known."""

    origins: frozenset[str] = frozenset()


class CannotTrace(NotCompiled):
    """This program, on these arguments, is not traced."""


class DataDependent(CannotTrace):
    """The program asks for the *value* of a tensor; it cannot be traced whole."""


class CannotFunctionalize(NotCompiled):
    """A write that has no functional form here."""


class CannotLower(NotCompiled):
    """This graph cannot be lowered."""


class CompilerError(RuntimeError):
    """No C++ compiler, or it refused a kernel."""


NOT_COMPILED = (NotCompiled, CompilerError)


@contextlib.contextmanager
def blaming(meta: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """What is refused in the block is to be blamed on the operation of which `meta` tells."""
    try:
        yield
    except NotCompiled as error:
        error.origins = error.origins or meta().get("origins", frozenset())
        raise
