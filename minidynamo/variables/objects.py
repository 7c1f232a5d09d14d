"""Instances of Python classes: the attribute protocol on variables.

In:   attribute reads and writes, operators, calls.
Out:  the protocol's steps, inlining Python-level descriptors and `__getattr__`, guarding the
      entries that were read.

    >>> ObjectVar(Config, value=config, source=src).getattr(tx, "hidden_size")

An instance's `__dict__` is a `DictVar` (`fields`), so `obj.x`, `obj.__dict__['x']` and `vars(obj)`
see the same symbolic state; a subclass of dict, list or tuple keeps its contents in `payload`.
Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedObjectVariable).
"""

import collections
import functools
import types

import torch

from ..exceptions import Break, ObservedException
from .base import Variable, current
from .constant import ConstantVar
from .containers import TupleVar
from .functions import BoundMethodVar, CallableVar
from .lookup import HEAP_TYPE, METHODS, MISSING, lookup, type_text
from .wrap_containers import dict_of, list_of, tuple_of


def method_of_class(tx, owner, found, name, instance, cls):
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


def truth_by_methods(tx, variable):
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

    __slots__ = ("cls", "value", "fields", "slots", "payload", "init_args", "pinned")

    def __init__(self, cls, value=None, source=None, fields=None, payload=None, pinned=False):
        self.source, self.mutated, self.cls, self.value, self.fields, self.payload = (
            source,
            False,
            cls,
            value,
            fields,
            payload,
        )
        self.slots, self.init_args, self.pinned = {}, None, pinned

    def identity(self):
        return self if self.value is None else self.value

    def receiver(self):
        """The `self` that methods, properties and descriptors are given."""
        return self

    def real(self):
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

    def immutable(self):
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

    def hash_key(self, tx):
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
            tx.raise_(TypeError, f"unhashable type: '{self.cls.__name__}'")
        return self.real() if not isinstance(self.payload, TupleVar) else self.payload.hash_key(tx)

    # ---- attributes
    def getattr(self, tx, name):
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

    def fallback_getattr(self, tx, name, fallback):
        return tx.output.wrap_pinned(fallback).call(tx, [self, ConstantVar(name)], {})

    def generic_getattr(self, tx, name):
        """object.__getattribute__."""
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

    def missing(self, tx, name):
        in_c = not self.cls.__flags__ & HEAP_TYPE
        if in_c and self.value is not None and hasattr(self.value, name):
            raise Break("attribute", f".{name} of {self}, which C code looks up elsewhere")
        tx.raise_(AttributeError, f"'{type_text(self.cls)}' object has no attribute '{name}'")

    def data_descriptor(self, tx, owner, found, name):
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
            if name == "__dict__" and self.fields is not None:
                return self.fields
            if name in self.slots:
                return self.slots[name]
            if name == "args" and self.init_args is not None:
                return TupleVar(list(self.init_args))
            if (
                name == "__context__"
                and "__traceback__" in self.slots
                and not tx.output.nothing_handled()
            ):
                raise Break("exception", "what else is being handled, around this frame")
            if name in ("__cause__", "__context__", "__traceback__") and self.value is None:
                return ConstantVar(None)
            if self.value is not None:
                return tx.output.wrap(tx.run_now(getattr, self.value, name), self.source.attr(name))
            raise Break("attribute", f"{self.cls.__name__}.{name} is kept by C code")
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

    def slot(self, tx, name):
        if name in self.slots:
            if self.slots[name] is None:
                self.missing(tx, name)
            return self.slots[name].realize(tx)
        if self.value is None and issubclass(self.cls, BaseException):
            if issubclass(self.cls, StopIteration) and name == "value":
                return self.init_args[0] if self.init_args else ConstantVar(None)
            if name == "__suppress_context__":
                return ConstantVar(False)
            raise Break("attribute", f"{self.cls.__name__}.{name} is kept by C code")
        if self.value is None or not hasattr(self.value, name):
            if self.value is not None and self.source is not None:
                tx.output.guard(self.source, ("ABSENT", name), "not hasattr({0}, {key})", name)
            self.missing(tx, name)
        return tx.output.wrap(getattr(self.value, name), self.source.attr(name))

    def class_attribute(self, tx, owner, found, name):
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

    def setattr(self, tx, name, value):
        _, setter = lookup(self.cls, "__setattr__")
        if isinstance(setter, types.FunctionType):
            tx.output.wrap_pinned(setter).call(tx, [self, ConstantVar(name), value], {})
        else:
            self.generic_setattr(tx, name, value)

    def generic_setattr(self, tx, name, value):
        """object.__setattr__."""
        owner, found = lookup(self.cls, name)
        if isinstance(found, property):
            if found.fset is None:
                tx.raise_(
                    AttributeError,
                    f"property {name!r} of {self.cls.__name__!r} object has no setter",
                )
            tx.output.wrap_pinned(found.fset).call(tx, [self, value], {})
        elif (
            issubclass(self.cls, BaseException)
            and hasattr(type(found), "__set__")
            and owner.__module__ == "builtins"
        ):
            self.set_exception_attribute(tx, name, value)
        elif (
            isinstance(found, types.MemberDescriptorType)
            or isinstance(found, types.GetSetDescriptorType)
            and owner is torch._C._FunctionBase
        ):
            if owner is not torch._C._FunctionBase and name not in owner.__dict__.get(
                "__slots__", ()
            ):  # a context's `to_save` is written like a slot
                raise Break("attribute", f"{owner.__name__}.{name} is kept by C code")
            self.slots[name], self.mutated = value, True
        elif found is not MISSING and isinstance(
            lookup(type(found), "__set__")[1], types.FunctionType
        ):
            tx.output.wrap_pinned(found).call_method(tx, "__set__", [self, value], {})
        elif (
            self.fields is None
            and found is MISSING
            and not self.pinned
            and self.cls.__module__ != "builtins"
        ):
            self.missing(tx, name)
        elif (
            self.fields is None
            or self.pinned
            or found is not MISSING
            and hasattr(type(found), "__set__")
        ):
            raise Break("attribute", f"setting .{name} of {self}")
        else:
            self.fields.store(tx, ConstantVar(name), value)

    def set_exception_attribute(self, tx, name, value):
        """What BaseException keeps itself, where the value is right; plain Python complains of
        others."""
        kind = value.python_type()
        link = name in ("__cause__", "__context__") and (
            issubclass(kind, BaseException) or kind is type(None)
        )
        traceback = name == "__traceback__" and (
            kind is type(None) or value is self.slots.get(name)
        )
        if self.value is not None or not (
            link or traceback or name == "__suppress_context__" and kind is bool
        ):
            raise Break("attribute", f"setting {self.cls.__name__}.{name}")
        self.slots[name] = value
        if name == "__cause__":
            self.slots["__suppress_context__"] = ConstantVar(True)

    def delattr(self, tx, name):
        _, deleter = lookup(self.cls, "__delattr__")
        if isinstance(deleter, types.FunctionType):
            tx.output.wrap_pinned(deleter).call(tx, [self, ConstantVar(name)], {})
        else:
            self.generic_delattr(tx, name)

    def generic_delattr(self, tx, name):
        if issubclass(self.cls, BaseException) and hasattr(
            type(lookup(self.cls, name)[1]), "__set__"
        ):
            raise Break("attribute", f"deleting {self.cls.__name__}.{name}")
        if isinstance(lookup(self.cls, name)[1], types.MemberDescriptorType):
            self.slot(tx, name)
            self.slots[name], self.mutated = None, True
        elif self.fields is None or self.pinned:
            raise Break("attribute", f"deleting .{name} of {self}")
        elif self.fields.get(tx, ConstantVar(name)) is None:
            self.missing(tx, name)
        else:
            self.fields.remove(tx, ConstantVar(name))

    # ---- operations, through the class
    def special(self, tx, name):
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

    def call(self, tx, args, kwargs):
        method = self.special(tx, "__call__")
        if method is None:
            tx.raise_(TypeError, f"'{type_text(self.cls)}' object is not callable")
        if isinstance(method, BoundMethodVar) and isinstance(method.function, CallableVar):
            return tx.call_c(self.real(), args, kwargs)
        return method.call(tx, args, kwargs)

    def truth(self, tx):
        return truth_by_methods(tx, self)

    def length(self, tx):
        return self._through(tx, "__len__", []).as_constant()

    def _through(self, tx, name, args):
        method = self.special(tx, name)
        if method is None:
            if name == "__len__":
                tx.raise_(TypeError, f"object of type '{type_text(self.cls)}' has no len()")
            raise Break("C function", f"{name} of a {self.cls.__name__}")
        return method.call(tx, args, {})

    def getitem(self, tx, key):
        if lookup(self.cls, "__getitem__")[1] is MISSING:
            tx.raise_(TypeError, f"'{type_text(self.cls)}' object is not subscriptable")
        return self._through(tx, "__getitem__", [key])

    def setitem(self, tx, key, value):
        if lookup(self.cls, "__setitem__")[1] is MISSING:
            tx.raise_(TypeError, f"'{self.cls.__name__}' object does not support item assignment")
        self._through(tx, "__setitem__", [key, value])

    def delitem(self, tx, key):
        self._through(tx, "__delitem__", [key])

    def contains(self, tx, item):
        if self.special(tx, "__contains__") is not None:
            return self._through(tx, "__contains__", [item]).truth(tx)
        if self.special(tx, "__iter__") is None and self.special(tx, "__getitem__") is None:
            raise Break("iteration", f"`in` of a {self.cls.__name__}")  # plain Python complains
        return super().contains(tx, item)

    def iterate(self, tx):
        return tx.iter_of(self).rest(tx)

    def call_method(self, tx, name, args, kwargs):
        return self.getattr(tx, name).call(tx, args, kwargs)

    def reconstruct(self, cg):
        cg.object(self)

    def __repr__(self):
        return f"{self.cls.__name__} object" + (
            f" {self.source.name()}" if self.source is not None and not self.pinned else ""
        )


def wrap_object(builder, value, source):
    """An instance of a class that no rule knows."""
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
    variable = ObjectVar(kind, value, source, fields)
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
