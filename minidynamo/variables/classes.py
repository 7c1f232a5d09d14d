"""Classes, held by reference.  What calling one makes is asked of the rules (`calls.call_class`);
attributes and operators of classes are coverage (`more/classes.py`).

In:   arguments as variables.   Out: an instance.

    >>> ClassVar(Config).call(tx, [], {"hidden_size": ConstantVar(8)})      # an ObjectVar

Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedClassVariable).
"""

from __future__ import annotations

import typing
from typing import Any

from .base import Args, Frame, Named, OutputGraph, RealVar, Source, Variable
from .registry import BY_VALUE, PINNED


class ClassVar(RealVar):
    """A class.  Calling it makes an instance: `__new__`, `__init__`, traced."""

    getattr, truth = RealVar.generic_getattr, Variable.truth  # which a metaclass may say

    def is_constant(self) -> bool:
        return True

    def as_constant(self) -> Any:
        return self.value

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return tx.call_class(self.value, args, kwargs)

    def __repr__(self) -> str:
        return f"the class {self.value.__qualname__}"


@BY_VALUE.rule(type, test=lambda value: issubclass(type(value), (type, typing._Final)), order=20)
def wrap_class(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """A class, typing.List and the like."""
    builder.guard(source, "ID", "{0} is {pin}", value)
    return builder.wrap_pinned(value)


@PINNED.rule(test=lambda value: issubclass(type(value), type), order=10)
def pinned_class(builder: OutputGraph, value: Any) -> Variable:
    return ClassVar(value)
