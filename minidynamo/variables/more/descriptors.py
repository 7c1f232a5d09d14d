"""Attributes of instances that their classes compute or keep elsewhere: descriptors and slots.

In:   what `lookup` found on the class, which has `__get__` or `__set__`.
Out:  what reading it gives; what writing it does.

    >>> point.getattr(tx, "x")          # class Point: __slots__ = ("x",)
"""

import collections
import functools
import types
import weakref
from typing import Any, NoReturn

import torch

from ...extras.extending import extends
from ...exceptions import Break, ObservedException
from ..base import Frame, Variable
from ..constant import ConstantVar
from ..lookup import HEAP_TYPE, MISSING, lookup
from ..objects import ObjectVar
from .functions import bound_descriptor


# The type of the descriptors `first` and `second`; each knows the index of its item.
FIELD = type(vars(collections.namedtuple("Pair", "first second"))["first"])
# Types of C that look attributes up in a way of their own.
OWN_LOOKUP = {types.MethodType, types.GenericAlias, types.UnionType, *weakref.ProxyTypes}
plain_getattr = ObjectVar.generic_getattr
plain_protocol = ObjectVar.getattr


@extends(ObjectVar)
class Descriptors(ObjectVar):
    def generic_getattr(self, tx: Frame, name: str) -> Variable:
        if self.cls in OWN_LOOKUP:  # list[int].append is list's
            return tx.fold_pinned(getattr, self.real(), name)
        if name == "__class__" and lookup(self.cls, name)[0] is object:
            return tx.output.wrap_pinned(self.cls)
        return plain_getattr(self, tx, name)

    def getattr(self, tx: Frame, name: str) -> Variable:
        """The class's `__getattr__` answers for attributes that are not there."""
        try:
            return plain_protocol(self, tx, name)
        except ObservedException as raised:
            _, fallback = lookup(self.cls, "__getattr__")
            if not issubclass(raised.var.python_type(), AttributeError) or fallback is MISSING:
                raise
            return self.fallback_getattr(tx, name, fallback)

    def fallback_getattr(self, tx: Frame, name: str, fallback: Any) -> Variable:
        return tx.output.wrap_pinned(fallback).call(tx, [self, ConstantVar(name)], {})

    def unknown(self, found: Any, name: str) -> Break:
        kind = type(found).__name__
        return Break("attribute", f"the descriptor {kind} of {self.cls.__name__}.{name}")

    def read_descriptor(self, tx: Frame, found: Any, name: str) -> Variable | None:
        if isinstance(found, types.MemberDescriptorType):
            is_dict = name == "__dict__" and self.fields is not None  # of a SimpleNamespace
            return self.fields if is_dict else self.slot(tx, name)
        if isinstance(found, types.GetSetDescriptorType):
            return self.field_of_c(tx, name)
        if type(found) is FIELD and self.payload is not None:
            return self.payload.item(tx, found.__reduce__()[1][0])
        if isinstance(found, property):
            text = f"property {name!r} of {self.cls.__name__!r} object has no getter"
            tx.raise_(AttributeError, text)
        if not hasattr(type(found), "__get__"):
            return None
        raise self.unknown(found, name)

    def bind_descriptor(self, tx: Frame, found: Any, name: str) -> Variable:
        if isinstance(found, functools.cached_property):
            value = tx.output.wrap_pinned(found.func).call(tx, [self], {})
            self.fields.store(tx, ConstantVar(name), value)
            return value
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return bound_descriptor(found, self)
        raise self.unknown(found, name)

    def write_descriptor(
        self, tx: Frame, owner: Any, found: Any, name: str, value: Variable
    ) -> None:
        if isinstance(found, property):
            if found.fset is None:
                text = f"property {name!r} of {self.cls.__name__!r} object has no setter"
                tx.raise_(AttributeError, text)
            tx.output.wrap_pinned(found.fset).call(tx, [self, value], {})
        elif self.is_slot(owner, found, name):
            self.slots[name], self.mutated = value, True
        else:
            raise self.unknown(found, name)

    def missing(self, tx: Frame, name: str) -> NoReturn:
        in_c = not self.cls.__flags__ & HEAP_TYPE
        if in_c and self.value is not None and hasattr(self.value, name):
            raise Break("attribute", f".{name} of {self}, which C code looks up elsewhere")
        tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def field_of_c(self, tx: Frame, name: str) -> Variable:
        """What C code computes when it is read."""
        if name == "__dict__" and self.fields is not None:
            return self.fields
        if name in self.slots:
            return self.slots[name]
        if self.value is not None:
            return tx.output.wrap(tx.run_now(getattr, self.value, name), self.source.attr(name))
        raise Break("attribute", f"{self.cls.__name__}.{name} is kept by C code")

    def slot(self, tx: Frame, name: str) -> Variable:
        """What lies in one of the object's slots."""
        if name in self.slots:
            return self.slots[name].realize(tx)
        if self.value is None or not hasattr(self.value, name):
            if self.value is not None and self.source is not None:
                tx.output.guard(self.source, ("ABSENT", name), "not hasattr({0}, {pin})", name)
            self.missing(tx, name)
        return tx.output.wrap(getattr(self.value, name), self.source.attr(name))

    def is_slot(self, owner: Any, found: Any, name: str) -> bool:
        """Is this attribute one of the program's slots?  A context's `to_save` is written like
        one."""
        if isinstance(found, types.GetSetDescriptorType):
            return owner is torch._C._FunctionBase
        if not isinstance(found, types.MemberDescriptorType):
            return False
        if owner is not torch._C._FunctionBase and name not in vars(owner).get("__slots__", ()):
            raise Break("attribute", f"{owner.__name__}.{name} is kept by C code")
        return True
