"""What operations on instances of Python classes ask of their classes: items, lengths, `in`, `del`.

In:   an ObjectVar and operands.   Out: what the special method gives, traced.

    >>> config.getitem(tx, key)         # type(config).__getitem__(config, key)
"""

from __future__ import annotations

import types

from ...exceptions import Break
from ..base import Frame, Variable, extends
from ..constant import ConstantVar
from ..lookup import MISSING, lookup, type_text
from ..objects import ObjectVar


@extends(ObjectVar)
class ObjectOperations(ObjectVar):
    def delattr(self, tx: Frame, name: str) -> None:
        _, deleter = lookup(self.cls, "__delattr__")
        if isinstance(deleter, types.FunctionType):
            tx.output.wrap_pinned(deleter).call(tx, [self, ConstantVar(name)], {})
        else:
            self.generic_delattr(tx, name)

    def generic_delattr(self, tx: Frame, name: str) -> None:
        if isinstance(lookup(self.cls, name)[1], types.MemberDescriptorType):
            self.slot(tx, name)
            self.slots[name], self.mutated = None, True
        elif self.fields is None or self.pinned:
            raise Break("attribute", f"deleting .{name} of {self}")
        elif self.fields.get(tx, ConstantVar(name)) is None:
            self.missing(tx, name)
        else:
            self.fields.remove(tx, ConstantVar(name))

    def length(self, tx: Frame) -> int:
        return through(self, tx, "__len__", []).as_constant()

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        if lookup(self.cls, "__getitem__")[1] is MISSING:
            tx.raise_(TypeError, f"'{type_text(self.cls)}' object is not subscriptable")
        return through(self, tx, "__getitem__", [key])

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        if lookup(self.cls, "__setitem__")[1] is MISSING:
            tx.raise_(TypeError, f"'{type_text(self.cls)}' object does not support item assignment")
        through(self, tx, "__setitem__", [key, value])

    def delitem(self, tx: Frame, key: Variable) -> None:
        through(self, tx, "__delitem__", [key])

    def contains(self, tx: Frame, item: Variable) -> bool:
        if self.special(tx, "__contains__") is not None:
            return through(self, tx, "__contains__", [item]).truth(tx)
        if self.special(tx, "__iter__") is None and self.special(tx, "__getitem__") is None:
            raise Break("iteration", f"`in` of a {self.cls.__name__}")  # plain Python complains
        return Variable.contains(self, tx, item)


def through(self: ObjectVar, tx: Frame, name: str, args: list[Variable]) -> Variable:
    method = self.special(tx, name)
    if method is None:
        if name == "__len__":
            tx.raise_(TypeError, f"object of type '{type_text(self.cls)}' has no len()")
        raise Break("C function", f"{name} of a {self.cls.__name__}")
    return method.call(tx, args, {})
