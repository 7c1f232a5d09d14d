"""Operations on instances: what their classes say of calls, truth, items, lengths, `in`, `del`; the
real object, and code that makes it again.

In:   an ObjectVar and operands.   Out: what the special method gives, traced.

    >>> config.getitem(tx, key)         # type(config).__getitem__(config, key)
"""

import collections
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...extras.extending import extends
from ...exceptions import Break
from ..base import Args, Codegen, Frame, Named, OutputGraph, Source, Variable, current
from ..constant import ConstantVar
from ..containers import named
from ..lookup import MISSING, lookup
from ..objects import ObjectVar, is_inherited, wrap_object
from ..registry import SHARED
from .asked_identity import note_key
from .dictionaries import mapping
from .descriptors import Descriptors
from .writing_calls import commit_call


def new_object(cls: Any, fields: Any, slots: Any, payload: Any) -> Any:
    """An instance of `cls` with this __dict__, these slots and these contents; `__init__` was
    traced, not run again."""
    base: Any = next(
        (b for b in (collections.OrderedDict, dict, list, set) if issubclass(cls, b)), object
    )
    if issubclass(cls, tuple):
        made, payload = tuple.__new__(cls, payload), None
    else:
        made = cls() if cls is types.SimpleNamespace else base.__new__(cls)
    if payload is not None:
        if isinstance(made, dict):
            for key, value in payload.items():
                base.__setitem__(made, key, value)
        else:
            (list.extend if base is list else set.update)(made, payload)
    if fields:
        object.__getattribute__(made, "__dict__").update(fields)
    for name, value in (slots or {}).items():
        object.__setattr__(made, name, value)
    return made


plain_argument = ObjectVar.argument


@extends(ObjectVar)
class ObjectOperations(Descriptors):
    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        method = self.special(tx, name) if name.startswith("__") else None
        return (method or self.getattr(tx, name)).call(tx, args, kwargs)

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        return tx.iter_of(self).rest(tx)

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        method = self.special(tx, "__call__")
        if method is None:
            tx.raise_(TypeError, f"'{self.cls.__name__}' object is not callable")
        if is_inherited(self.cls, "__call__"):
            return tx.call_c(self.real(), args, kwargs)
        return method.call(tx, args, kwargs)

    def truth(self, tx: Frame) -> bool:
        for name, kind in (("__bool__", bool), ("__len__", int)):
            method = self.special(tx, name)
            if method is not None:
                found = method.call(tx, [], {})
                if not issubclass(found.python_type(), kind):
                    raise Break("truth", f"{name} of a {self.cls.__name__} gave {found}")
                return found.truth(tx)
        return True

    def delattr(self, tx: Frame, name: str) -> None:
        deleter = self.own_special(tx, "__delattr__")
        if deleter is not None:
            deleter.call(tx, [ConstantVar(name)], {})
        else:
            self.generic_delattr(tx, name)

    def generic_delattr(self, tx: Frame, name: str) -> None:
        descriptor = lookup(type(lookup(self.cls, name)[1]), "__delete__")[1] is not MISSING
        if descriptor or self.fields is None or self.pinned:
            raise Break("attribute", f"deleting .{name} of {self}")
        elif self.fields.get(tx, ConstantVar(name)) is None:
            self.missing(tx, name)
        else:
            self.fields.remove(tx, ConstantVar(name))

    def length(self, tx: Frame) -> int:
        found = through(self, tx, "__len__", []).as_constant()
        if not isinstance(found, int) or found < 0:
            raise Break("length", f"len() of a {self.cls.__name__} gave {found!r:.50}")
        return found

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        if lookup(self.cls, "__getitem__")[1] is MISSING:
            tx.raise_(TypeError, f"'{self.cls.__name__}' object is not subscriptable")
        return through(self, tx, "__getitem__", [key])

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        if lookup(self.cls, "__setitem__")[1] is MISSING:
            tx.raise_(TypeError, f"'{self.cls.__name__}' object does not support item assignment")
        through(self, tx, "__setitem__", [key, value])

    def delitem(self, tx: Frame, key: Variable) -> None:
        through(self, tx, "__delitem__", [key])

    def contains(self, tx: Frame, item: Variable) -> bool:
        if self.special(tx, "__contains__") is not None:
            return through(self, tx, "__contains__", [item]).truth(tx)
        if self.special(tx, "__iter__") is None and self.special(tx, "__getitem__") is None:
            raise Break("iteration", f"`in` of a {self.cls.__name__}")  # plain Python complains
        return Variable.contains(self, tx, item)

    def real(self) -> Any:
        if self.value is None or self.mutated or (self.fields is not None and self.fields.mutated):
            raise Break(
                "constant", f"{self} was made or changed in this frame; a real object is needed"
            )
        if self.source is not None and self.source.kind != "pinned":
            output = current().output
            if self.cls.__weakrefoffset__:  # the entry does not hold it, and goes with it
                output.guard(self.source, "ID", f"id({{0}}) == {id(self.value)}")
                output.modules.append(self.value)
            else:
                output.guard(self.source, "ID", "{0} is {pin}", self.value)
        return self.value

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        """An object of a subclass of int or float is a number to torch."""
        for kind in (int, float):
            if isinstance(self.value, kind):
                return kind.__pos__(self.real())
        return plain_argument(self, part)

    def immutable(self) -> bool:
        """May C code be called on the real object while tracing?  What C hashes by value does not
        change (a pattern, a Decimal)."""
        method = lookup(self.cls, "__hash__")[1]
        if self.pinned or self.source is not None and self.source.kind == "pinned":
            return True
        return isinstance(method, types.WrapperDescriptorType) and method is not object.__hash__

    def hash_key(self, tx: Frame) -> Any:
        method, equal = lookup(self.cls, "__hash__")[1], lookup(self.cls, "__eq__")[1]
        if method is object.__hash__ and equal is object.__eq__:
            note_key(tx, self)
            return self.identity()
        if self.value is not None and self.pinned:
            return self.value
        if method is None:
            tx.raise_(TypeError, f"unhashable type: '{self.cls.__name__}'")
        return Variable.hash_key(self, tx)

    def reconstruct(self, cg: Codegen) -> None:
        if self.value is not None:
            cg.load_const(self.value)
            return
        cg.call_object(
            new_object,
            functools.partial(cg.pinned, self.cls),
            self.push_fields(cg),
            functools.partial(mapping, cg, named(self.slots)),
            ConstantVar(None)
            if self.payload is None
            else functools.partial(self.payload.contents, cg),
        )

    def push_fields(self, cg: Codegen) -> Callable[[], None]:
        """What pushes a dict of its `__dict__`."""
        return functools.partial(mapping, cg, {} if self.fields is None else self.fields.items)

    def replay(self, cg: Codegen) -> None:
        if not self.mutated or self.source is None:
            return
        for name, value in self.slots.items():
            commit_call(cg, object.__setattr__, self, ConstantVar(name), value)


def through(self: ObjectVar, tx: Frame, name: str, args: list[Variable]) -> Variable:
    method = self.special(tx, name)
    if method is None:
        if name == "__len__":
            tx.raise_(TypeError, f"object of type '{self.cls.__name__}' has no len()")
        raise Break("C function", f"{name} of a {self.cls.__name__}")
    return method.call(tx, args, {})


@SHARED.rule(test=lambda value: issubclass(type(value), torch.optim.Optimizer), order=98)
def wrap_optimizer(builder: OutputGraph, value: Any, source: Source) -> ObjectVar:
    builder.modules.append(value)  # its entries, which hold its parameters, go with it
    return wrap_object(builder, value, source)
