"""Why a graph is not compiled: what the stages raise, and the driver answers by running it eagerly.

    >>> try:
    ...     raise CannotTrace("it asks for the value of a tensor")      # a stage
    ... except NOT_COMPILED as reason:                                  # the driver
    ...     print(f"runs eagerly: {reason}")
    runs eagerly: it asks for the value of a tensor

All of them are refusals, not faults: the program is right, and has no compiled form here.
"""


class CannotTrace(Exception):
    """This program, on these arguments, is not traced; it runs eagerly."""


class DataDependent(CannotTrace):
    """The program asks for the *value* of a tensor; it cannot be traced whole."""


class CannotFunctionalize(Exception):
    """A write that has no functional form here; the graph runs eagerly."""


class CannotLower(Exception):
    """This graph cannot be compiled; it runs eagerly."""


class CompilerError(RuntimeError):
    """No C++ compiler, or it refused a kernel."""


NOT_COMPILED = (CannotTrace, CannotFunctionalize, CannotLower, CompilerError)
