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
import typing
from typing import Any

import torch

from miniinductor.errors import ours

from ..errors import Break
from .base import Args, Frame, Named, RealVar, Variable, lookup

try:
    import numpy

    kinds = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
    NUMBERS = {getattr(numpy, name) for name in kinds.split()}
    NUMPY = NUMBERS | {numpy.bool_}
    ARRAYS: tuple[type, ...] = (numpy.ndarray,)
except ours(ImportError):  # torch works without it
    NUMBERS, NUMPY, ARRAYS = set(), set(), ()

LITERALS = {int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)}
# classes of values, of which a program may have subclasses: their objects may have fields
VALUES = (str, bytes, int, float, complex)
CONSTANT_TYPES = LITERALS | {range, slice, types.CodeType, torch._C._SDPBackend}
CONSTANT_TYPES |= {torch.dtype, torch.device, torch.layout, torch.memory_format}
CONSTANT_TYPES |= {torch.finfo, torch.iinfo} | NUMPY

HASHED_BY_IDENTITY = (
    *(type, types.FunctionType, types.BuiltinFunctionType),
    *(types.GenericAlias, types.UnionType, typing._Final),
)


def is_constant_value(value: Any) -> bool:
    """May `value` live in a ConstantVar?"""
    kind = type(value)
    if kind is slice:
        return all(map(is_constant_value, (value.start, value.stop, value.step)))
    return kind in CONSTANT_TYPES or issubclass(kind, enum.Enum)


def argument_of(value: Any) -> Any:
    """The constant as torch's functions take it."""
    if type(value) is slice:
        return slice(argument_of(value.start), argument_of(value.stop), argument_of(value.step))
    if type(value) in NUMBERS:
        return value.item()
    if type(value) in NUMPY:  # a bool of NumPy's is no bool to torch
        raise Break("argument", f"NumPy's {type(value).__name__} as an argument of torch")
    return value


class ConstantVar(RealVar):
    """`value` itself.  Reading it was guarded by equality and type when it came from a source."""

    def is_constant(self) -> bool:
        return True

    as_constant = RealVar.real

    def argument(self, part: Any) -> Any:
        return argument_of(self.value)

    def hash_key(self, tx: Frame) -> Any:
        if type(self.value) is slice or self.value != self.value:
            raise Break("hash", f"{self} as a key: only the same NaN finds it, and a slice none")
        return self.value

    def truth(self, tx: Frame) -> bool:
        return bool(self.value)

    def length(self, tx: Frame) -> int:
        return tx.fold(len, self.value).value

    def is_member_with(self, name: str) -> bool:
        """A member of an enumeration that has this itself?  (Not `upper` of `E(str, Enum)`.)"""
        kind, mixed_in = type(self.value), (*CONSTANT_TYPES, tuple)
        return issubclass(kind, enum.Enum) and lookup(kind, name)[0] not in mixed_in

    def getattr(self, tx: Frame, name: str) -> Variable:
        if not self.is_member_with(name):
            return tx.fold(getattr, self.value, name)
        if name not in ("name", "value") or lookup(type(self.value), name)[0] is not enum.Enum:
            raise Break("attribute", f".{name} of {self}, which is neither its name nor its value")
        fields = tx.output.fields_of(self.value, tx.output.tree.pinned(self.value).instance_dict())
        return fields.get(tx, ConstantVar(f"_{name}_"))  # the member has `_name_` and `_value_`

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        """A method of an immutable object is called now."""
        if self.is_member_with(name):
            return self.getattr(tx, name).call(tx, args, kwargs)
        if type(self.value) is str and name == "join" and len(args) == 1:
            items = [item.as_constant() for item in tx.listed_fast(args[0])]
            return tx.fold(self.value.join, items)
        if name in ("__enter__", "__exit__"):
            raise Break("context", f"{self} is entered by a call, or left where it was not entered")
        return tx.computed(lambda *a, **k: getattr(self.value, name)(*a, **k), args, kwargs)

    iterate = Variable.iterated

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        return tx.fold(lambda: self.value[key.as_constant()])

    def contains(self, tx: Frame, item: Variable) -> bool:
        return tx.fold(lambda: item.as_constant() in self.value).value

    def __repr__(self) -> str:
        if type(self.value) is int and abs(self.value) >> 1000:  # which may have no text
            return "a large constant int"
        return f"constant {self.value!r:.200}"
