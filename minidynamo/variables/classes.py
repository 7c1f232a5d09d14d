"""Classes, held by reference.  What calling one makes is asked of the rules (`calls.call_class`);
attributes and operators of classes are coverage (`more/classes.py`).

In:   arguments as variables.   Out: an instance.

    >>> ClassVar(Config).call(tx, [], {"hidden_size": ConstantVar(8)})      # an ObjectVar

Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedClassVariable).
"""

from __future__ import annotations

from typing import Any

from .base import Args, Frame, Named, RealVar, Variable
from .registry import BY_VALUE, PINNED, by_identity


class ClassVar(RealVar):
    """A class.  Calling it makes an instance: `__new__`, `__init__`, traced."""

    # refused: a metaclass may have a say in both
    getattr, truth = RealVar.generic_getattr, Variable.truth

    def is_constant(self) -> bool:
        return True

    def as_constant(self) -> Any:
        return self.value

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return tx.call_class(self.value, args, kwargs)


def is_class(value: Any) -> bool:
    return issubclass(type(value), type)


BY_VALUE.rule(type, test=is_class, order=20)(by_identity)
PINNED.rule(test=is_class, order=10)(lambda builder, value: ClassVar(value))
