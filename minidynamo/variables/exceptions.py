"""Exceptions: instances whose arguments, links and traceback C code keeps.

In:   a class of exceptions and its arguments.   Out: an object that can be raised while tracing.

    >>> initialise_exception(ValueError, made, [ConstantVar('text')], {})

Mirrors torch/_dynamo/variables/builtin.py (ExceptionVariable).
"""

import types

from ..exceptions import Break
from .base import Variable

# Exceptions with fields of their own in C that take any arguments all the same.
ANY_ARGUMENTS = (
    StopIteration,
    StopAsyncIteration,
    SystemExit,
    AttributeError,
    NameError,
    ImportError,
)


class TracebackVar(Variable):
    """The traceback of an exception that was raised `where` (user's stack, root step): only the
    real one can tell more."""

    __slots__ = ("kind", "where")
    cls = types.TracebackType

    def reconstruct(self, cg):
        raise Break(
            "exception", f"the traceback of a {self.kind.__name__} that was caught", "", *self.where
        )


def initialise_exception(cls, made, args, kwargs):
    """BaseException.__init__, and those of C that take any arguments by position; the others look
    at theirs."""
    base = next(b for b in cls.__mro__ if b.__module__ == "builtins")
    if (
        kwargs
        or made.value is not None
        or base.__basicsize__ > BaseException.__basicsize__
        and not issubclass(cls, ANY_ARGUMENTS)
    ):
        raise Break("class", f"{cls.__name__} is made by C code")
    made.init_args = list(args)
