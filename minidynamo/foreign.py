"""Exceptions that are not the compiler's to answer: miniinductor's file of this name says which,
and what is promised.

In:   the exception that is being handled.   Out: what an `except` clause may catch.

    >>> except ours(TypeError): ...         # not one that a signal handler raised
    >>> except faults() as error: ...       # a fault of the compiler
"""

from miniinductor.foreign import ThreadState, faults, is_fault, is_foreign, ours, remembered

__all__ = ["ThreadState", "faults", "is_fault", "is_foreign", "ours", "remembered"]
