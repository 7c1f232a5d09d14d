"""Exceptions: instances whose arguments, links and traceback C code keeps.

In:   a class of exceptions and its arguments.   Out: an object that can be raised while tracing.

    >>> made = ExceptionVar(ValueError, fields=DictVar({}))
    >>> initialise_exception(ValueError, made, [text], {})

Mirrors torch/_dynamo/variables/builtin.py (ExceptionVariable).
"""

import functools
import sys
import types
from typing import Any

from ..errors import Break
from .base import Args, Codegen, Frame, Named, OutputGraph, RealVar, Variable
from .constant import ConstantVar
from .dicts import TupleVar
from .objects import ObjectVar

# Exceptions with fields of their own in C that take any arguments all the same.
ANY_ARGUMENTS: tuple[type, ...] = (StopIteration, StopAsyncIteration, SystemExit)
ANY_ARGUMENTS += (AttributeError, NameError, ImportError)


def new_exception(cls: Any, args: Any, fields: Any) -> Any:
    """An exception that the traced program made."""
    made = cls.__new__(cls, *args)
    # sets .args, and StopIteration's .value
    next(b for b in cls.__mro__ if b.__module__ == "builtins").__init__(made, *args)
    made.__dict__.update(fields)
    return made


def nothing_handled(output: OutputGraph) -> bool:
    """Does the frame run outside of all `except` blocks?  Guarded if so."""
    if not output.handling:
        output.guard(output.tree.pinned(sys.exc_info), "HANDLING", "{0}()[1] is None")
    return not output.handling


class TracebackVar(Variable):
    """The traceback of an exception that was raised `where` (user's stack, root step): only the
    real one can tell more."""

    where: tuple
    cls = types.TracebackType

    def reconstruct(self, cg: Codegen) -> None:
        raise Break("exception", "the traceback of an exception that was caught", "", *self.where)


class ExceptionVar(ObjectVar):
    """An exception.  `init_args` are its arguments; `slots` hold the links to other exceptions and
    the traceback, which BaseException keeps in C."""

    def field_of_c(self, tx: Frame, name: str) -> Variable:
        if name not in self.slots:
            if name == "args" and self.init_args is not None:
                return TupleVar(list(self.init_args))
            raised = "__traceback__" in self.slots
            if name == "__context__" and raised and not nothing_handled(tx.output):
                raise Break("exception", "what else is being handled, around this frame")
            if name in ("__cause__", "__context__", "__traceback__") and self.value is None:
                return ConstantVar(None)
        return super().field_of_c(tx, name)

    def slot(self, tx: Frame, name: str) -> Variable:
        if name in self.slots or self.value is not None:
            return super().slot(tx, name)
        if issubclass(self.cls, StopIteration) and name == "value":
            return self.init_args[0] if self.init_args else ConstantVar(None)
        if name == "__suppress_context__":
            return ConstantVar(False)
        raise Break("attribute", f"{self.cls.__name__}.{name} is kept by C code")

    def generic_setattr(self, tx: Frame, name: str, value: Variable) -> None:
        """Of BaseException's own fields, `raise ... from ...` writes one."""
        right = issubclass(value.python_type(), (BaseException, type(None)))
        if name == "__cause__" and self.value is None and right:
            self.slots[name], self.slots["__suppress_context__"] = value, ConstantVar(True)
        else:
            super().generic_setattr(tx, name, value)

    def reconstruct(self, cg: Codegen) -> None:
        if self.value is not None:
            cg.load_const(self.value)
            return
        if "__traceback__" in self.slots:
            cg.value(self.slots["__traceback__"])  # refuses
        if self.slots:
            raise Break("reconstruct", "an exception that is linked to another one")
        cg.call_object(
            new_exception,
            RealVar(self.cls),
            functools.partial(cg.build, "BUILD_TUPLE", self.init_args or []),
            self.push_fields(cg),
        )


def initialise_exception(cls: type, made: ObjectVar, args: Args, kwargs: Named) -> None:
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
