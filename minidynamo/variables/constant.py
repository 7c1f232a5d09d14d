"""Constants: numbers, strings, None, dtypes, devices, enums... and whatever pure call can be folded
on them.

In:   a Python value that is immutable and compared by value or is a singleton.
Out:  operations run for real; their exceptions become the traced program's exceptions.

    >>> tx.binary("+", ConstantVar(3), ConstantVar(4))      # ConstantVar(7)

Mirrors torch/_dynamo/variables/constant.py.
"""

from __future__ import annotations

import enum
import types
from typing import Any

import torch

from ..exceptions import Break
from ..guards import constant_check
from .base import Frame, OutputGraph, RealVar, Source, Variable
from .registry import BY_VALUE

LITERALS = {int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)}
CONSTANT_TYPES = LITERALS | {range, slice, types.CodeType, torch._C._SDPBackend}
CONSTANT_TYPES |= {torch.dtype, torch.device, torch.layout, torch.memory_format}
CONSTANT_TYPES |= {torch.finfo, torch.iinfo}


def is_constant_value(value: Any) -> bool:
    """May `value` live in a ConstantVar?"""
    kind = type(value)
    if kind is slice:
        return all(map(is_constant_value, (value.start, value.stop, value.step)))
    return kind in CONSTANT_TYPES or issubclass(kind, enum.Enum)


class ConstantVar(RealVar):
    """`value` itself.  Reading it was guarded by equality and type when it came from a source."""

    def is_constant(self) -> bool:
        return True

    def as_constant(self) -> Any:
        return self.value

    def argument(self, part: Any) -> Any:
        return self.value

    def hash_key(self, tx: Frame) -> Any:
        kind = type(self.value)
        if kind.__hash__ is None:  # a slice has no hash before Python 3.12
            tx.raise_(TypeError, f"unhashable type: {kind.__name__!r}")
        if self.value != self.value:
            raise Break("hash", "a NaN as a key, which only the same object finds")
        return self.value

    def truth(self, tx: Frame) -> bool:
        return bool(self.value)

    def length(self, tx: Frame) -> int:
        return tx.fold(len, self.value).value


BY_IDENTITY = (enum.Enum, torch.dtype, torch.layout, torch.memory_format)


@BY_VALUE.rule(*CONSTANT_TYPES - {slice}, test=is_constant_value, order=10)
def wrap_constant(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """A constant at `source`; an int is a symbol if the policy of sizes says so."""
    if type(value) is int and builder.policy.of_int(value, source):
        builder.guard(source, "TYPE", "type({0}) is int")
        return builder.symbolic_int(value, source)
    check, pin = constant_check(value)
    if isinstance(pin, BY_IDENTITY):
        check = "{0} is {pin}"
    builder.guard(source, "EQUALS", check, pin)
    # another NaN may lie there later: containers find it as the object that it is
    return ConstantVar(value, source=source if value != value else None)
