"""Instances of Python classes: the attribute protocol on variables.

In:   attribute reads and writes, operators, calls.
Out:  the protocol's steps, inlining Python-level descriptors and `__getattr__`, guarding the
      entries that were read.

    >>> ObjectVar(Config, value=config, source=src).getattr(tx, "hidden_size")

An instance's `__dict__` is a `DictVar` (`fields`), so `obj.x`, `obj.__dict__['x']` and `vars(obj)`
see the same symbolic state; a subclass of dict, list or tuple keeps its contents in `payload`.
Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedObjectVariable).
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, NoReturn

import torch

from .. import runtime
from ..exceptions import Break, ObservedException
from .base import Args, Codegen, Frame, Named, OutputGraph, Source, Variable, current
from .constant import ConstantVar
from .containers import TupleVar, named
from .functions import BoundMethodVar, CallableVar
from .lookup import HEAP_TYPE, METHODS, MISSING, OWN_LOOKUP, lookup, type_text
from .wrap_containers import dict_of, list_of, tuple_of


def method_of_class(
    tx: Frame, owner: Any, found: Any, name: str, instance: Variable | None, cls: Variable
) -> Variable:
    """One of `METHODS` as `instance` sees it (None: as the class does)."""
    if isinstance(found, types.FunctionType):
        function = tx.output.wrap_class_attribute(owner, found, name)
        return function if instance is None else BoundMethodVar(function, instance)
    if (
        isinstance(found, classmethod)
        and hasattr(type(found.__func__), "__get__")
        and not isinstance(found.__func__, types.FunctionType)
    ):
        raise Break("attribute", f"a classmethod around a {type(found.__func__).__name__}")
    function = tx.output.wrap_class_attribute(owner, found, name)
    return BoundMethodVar(function, cls) if isinstance(found, classmethod) else function


def truth_by_methods(tx: Frame, variable: Any) -> bool:
    """bool(): what the class's `__bool__` or `__len__` says (PyObject_IsTrue)."""
    for name, kind in (("__bool__", bool), ("__len__", int)):
        method = variable.special(tx, name)
        if method is not None:
            found = method.call(tx, [], {})
            if not issubclass(found.python_type(), kind):
                raise Break("truth", f"{name} of a {variable.python_type().__name__} gave {found}")
            return found.truth(tx)
    return True


class ObjectVar(Variable):
    """An instance of a Python class: real (`value`) or made in this frame."""

    shared = True
    cls: type
    value: Any = None
    fields: Any = None  # its __dict__, a DictVar
    payload: Any = None  # the contents of a subclass of list, dict, tuple, set
    pinned: bool = False
    slots: dict[str, Any] = field(default_factory=dict, init=False)
    init_args: list[Variable] | None = field(default=None, init=False)  # of an exception

    def identity(self) -> Any:
        return self if self.value is None else self.value

    def receiver(self) -> Variable:
        """The `self` that methods, properties and descriptors are given."""
        return self

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

    def immutable(self) -> bool:
        """May C code be called on the real object while tracing?  What C hashes by value does not
        change (a pattern, a Decimal)."""
        method = lookup(self.cls, "__hash__")[1]
        return (
            self.pinned
            or self.source is not None
            and self.source.kind == "pinned"
            or isinstance(method, types.WrapperDescriptorType)
            and method is not object.__hash__
        )

    def hash_key(self, tx: Frame) -> Any:
        _, method = lookup(self.cls, "__hash__")
        if method is object.__hash__:
            return self.identity()
        if self.value is not None and self.pinned:
            return self.value
        if isinstance(method, types.FunctionType):
            return (
                ("hashed", self.cls, tuple(p[1].hash_key(tx) for p in self.fields.items.values()))
                if "__dataclass_params__" in dir(self.cls)
                else super().hash_key(tx)
            )
        if method is None:
            tx.raise_(TypeError, f"unhashable type: '{type_text(self.cls)}'")
        return self.real() if not isinstance(self.payload, TupleVar) else self.payload.hash_key(tx)

    # ---- attributes
    def getattr(self, tx: Frame, name: str) -> Variable:
        _, getter = lookup(self.cls, "__getattribute__")
        try:
            if isinstance(getter, types.FunctionType):
                return tx.output.wrap_pinned(getter).call(tx, [self, ConstantVar(name)], {})
            return self.generic_getattr(tx, name)
        except ObservedException as raised:
            _, fallback = lookup(self.cls, "__getattr__")
            if not issubclass(raised.var.python_type(), AttributeError) or fallback is MISSING:
                raise
            return self.fallback_getattr(tx, name, fallback)

    def fallback_getattr(self, tx: Frame, name: str, fallback: Any) -> Variable:
        return tx.output.wrap_pinned(fallback).call(tx, [self, ConstantVar(name)], {})

    def generic_getattr(self, tx: Frame, name: str) -> Variable:
        """object.__getattribute__."""
        if self.cls in OWN_LOOKUP:  # list[int].append is list's
            return tx.fold_pinned(getattr, self.real(), name)
        if name == "__class__" and lookup(self.cls, name)[0] is object:
            return tx.output.wrap_pinned(self.cls)
        owner, found = lookup(self.cls, name)
        if found is not MISSING and not isinstance(found, METHODS):
            data = self.data_descriptor(tx, owner, found, name)
            if data is not None:
                return data
        if self.fields is not None:
            if name == "__dict__":
                return self.fields
            own = self.fields.get(tx, ConstantVar(name))
            if own is not None:
                return own
        if found is MISSING:
            self.missing(tx, name)
        return self.class_attribute(tx, owner, found, name)

    def missing(self, tx: Frame, name: str) -> NoReturn:
        in_c = not self.cls.__flags__ & HEAP_TYPE
        if in_c and self.value is not None and hasattr(self.value, name):
            raise Break("attribute", f".{name} of {self}, which C code looks up elsewhere")
        tx.raise_(AttributeError, f"'{type_text(self.cls)}' object has no attribute '{name}'")

    def data_descriptor(
        self, tx: Frame, owner: type | None, found: Any, name: str
    ) -> Variable | None:
        """What a data descriptor of the class gives, or None if `found` is none."""
        if isinstance(found, property):
            if found.fget is None:
                tx.raise_(
                    AttributeError,
                    f"property {name!r} of {self.cls.__name__!r} object has no getter",
                )
            return tx.output.wrap_pinned(found.fget).call(tx, [self.receiver()], {})
        if isinstance(found, types.DynamicClassAttribute) and found.fget is not None:
            return tx.output.wrap_pinned(found.fget).call(tx, [self.receiver()], {})
        if isinstance(found, types.MemberDescriptorType):
            return self.slot(tx, name)
        if isinstance(found, types.GetSetDescriptorType):
            return self.field_of_c(tx, name)
        kind = type(found)
        if hasattr(kind, "__set__") and hasattr(kind, "__get__"):
            if isinstance(lookup(kind, "__get__")[1], types.FunctionType):
                return tx.output.wrap_pinned(found).call_method(
                    tx, "__get__", [self.receiver(), tx.output.wrap_pinned(self.cls)], {}
                )
            raise Break(
                "attribute", f"the descriptor {kind.__name__} of {self.cls.__name__}.{name}"
            )
        return None

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
            if self.slots[name] is None:
                self.missing(tx, name)
            return self.slots[name].realize(tx)
        if self.value is None or not hasattr(self.value, name):
            if self.value is not None and self.source is not None:
                tx.output.guard(self.source, ("ABSENT", name), "not hasattr({0}, {key})", name)
            self.missing(tx, name)
        return tx.output.wrap(getattr(self.value, name), self.source.attr(name))

    def class_attribute(self, tx: Frame, owner: type | None, found: Any, name: str) -> Variable:
        """A non-data class attribute, bound to this instance."""
        if isinstance(found, METHODS):
            return method_of_class(
                tx, owner, found, name, self.receiver(), tx.output.wrap_pinned(self.cls)
            )
        if isinstance(found, functools.cached_property):
            value = tx.output.wrap_pinned(found.func).call(tx, [self.receiver()], {})
            self.fields.store(tx, ConstantVar(name), value)
            return value
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return BoundMethodVar.of_descriptor(found, self.receiver())
        if isinstance(found, types.BuiltinFunctionType):
            return tx.output.wrap_class_attribute(owner, found, name)
        getter = lookup(type(found), "__get__")[1]
        if isinstance(getter, types.FunctionType):
            return tx.output.wrap_pinned(found).call_method(
                tx, "__get__", [self.receiver(), tx.output.wrap_pinned(self.cls)], {}
            )
        if getter is not MISSING:
            if isinstance(found, (functools.partialmethod, functools._lru_cache_wrapper)):
                return BoundMethodVar(tx.output.wrap_pinned(found), self)
            raise Break(
                "attribute", f"the descriptor {type(found).__name__} of {self.cls.__name__}.{name}"
            )
        return tx.output.wrap_class_attribute(owner, found, name)

    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        _, setter = lookup(self.cls, "__setattr__")
        if isinstance(setter, types.FunctionType):
            tx.output.wrap_pinned(setter).call(tx, [self, ConstantVar(name), value], {})
        else:
            self.generic_setattr(tx, name, value)

    def generic_setattr(self, tx: Frame, name: str, value: Variable) -> None:
        """object.__setattr__."""
        owner, found = lookup(self.cls, name)
        if isinstance(found, property):
            if found.fset is None:
                text = f"property {name!r} of {self.cls.__name__!r} object has no setter"
                tx.raise_(AttributeError, text)
            tx.output.wrap_pinned(found.fset).call(tx, [self, value], {})
        elif self.is_slot(owner, found, name):
            self.slots[name] = value
            self.mutated = True
        elif isinstance(lookup(type(found), "__set__")[1], types.FunctionType):
            tx.output.wrap_pinned(found).call_method(tx, "__set__", [self, value], {})
        elif found is not MISSING and hasattr(type(found), "__set__") or self.pinned:
            raise Break("attribute", f"setting .{name} of {self}")
        elif self.fields is not None:
            self.fields.store(tx, ConstantVar(name), value)
        elif found is MISSING and self.cls.__module__ != "builtins":
            self.missing(tx, name)
        else:
            raise Break("attribute", f"setting .{name} of {self}")

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

    # ---- operations, through the class
    def special(self, tx: Frame, name: str) -> Variable | None:
        """The bound special method, or None.  Looked up on the class, as Python does."""
        owner, found = lookup(self.cls, name)
        if (
            found is MISSING
            or found is None
            or isinstance(found, types.WrapperDescriptorType)
            and found.__objclass__ is object
        ):
            return None
        return self.class_attribute(tx, owner, found, name)

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        method = self.special(tx, "__call__")
        if method is None:
            tx.raise_(TypeError, f"'{type_text(self.cls)}' object is not callable")
        if isinstance(method, BoundMethodVar) and isinstance(method.function, CallableVar):
            return tx.call_c(self.real(), args, kwargs)
        return method.call(tx, args, kwargs)

    def truth(self, tx: Frame) -> bool:
        return truth_by_methods(tx, self)

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        return tx.iter_of(self).rest(tx)

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        return self.getattr(tx, name).call(tx, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        if self.value is not None:
            cg.load_const(self.value)
            return
        slots = {name: value for name, value in self.slots.items() if value is not None}
        cg.call_object(
            runtime.new_object,
            cg.constant(self.cls),
            self.push_fields(cg),
            functools.partial(cg.mapping, named(slots)),
            ConstantVar(None) if self.payload is None else cg.emitter(self.payload.contents),
        )

    def push_fields(self, cg: Codegen) -> Callable[[], None]:
        """What pushes a dict of its `__dict__`."""
        return functools.partial(cg.mapping, {} if self.fields is None else self.fields.items)

    def replay(self, cg: Codegen) -> None:
        if not self.mutated or self.source is None:
            return
        for name, value in self.slots.items():
            if value is None:
                cg.commit_call(object.__delattr__, self, ConstantVar(name))
            else:
                cg.commit_call(object.__setattr__, self, ConstantVar(name), value)

    def __repr__(self) -> str:
        return f"{self.cls.__name__} object" + (
            f" {self.source.name()}" if self.source is not None and not self.pinned else ""
        )


# Whose objects lie in one piece, made in the frame or from outside: not modules.
INSTANCES: set[type[ObjectVar]] = {ObjectVar}


def wrap_object(
    builder: OutputGraph, value: Any, source: Source, variable_class: type[ObjectVar] = ObjectVar
) -> ObjectVar:
    """An instance of a class that no rule knows better."""
    kind = type(value)
    fields = None
    own = next((vars(cls)["__dict__"] for cls in kind.__mro__ if "__dict__" in vars(cls)), None)
    if type(own) not in (types.GetSetDescriptorType, types.MemberDescriptorType, type(None)):
        raise Break("object", f"a {kind.__name__}, which answers __dict__ itself")
    if kind.__dictoffset__ and own is not None:
        plain = lookup(kind, "__getattribute__")[1] is object.__getattribute__
        fields = builder.fields_of(value, source.instance_dict(plain))
    if isinstance(value, torch.optim.Optimizer):
        builder.modules.append(value)  # its entries, which hold its parameters, go with it
    variable = variable_class(kind, value, fields, source=source)
    for base, payload_of in PAYLOADS.items():
        if isinstance(value, base):
            variable.payload = payload_of(builder, value, source, base)
            builder.sourced.append(variable.payload)
            break
    builder.sourced.append(variable)
    return variable


# Containers that a class of the program may inherit from -> what wraps the contents.
PAYLOADS = {
    collections.OrderedDict: dict_of,
    dict: dict_of,
    list: list_of,
    tuple: tuple_of,
}
