"""Instances, classes, nn.Modules, `super()`: Python's attribute protocol on variables.

In:   attribute reads and writes, calls of classes.
Out:  the protocol's steps, inlining Python-level descriptors and `__getattr__`, guarding the
      entries that were read.

    >>> ObjectVar(Config, value=config, source=src).getattr(tx, "hidden_size")

An instance's `__dict__` is a `DictVar` (`fields`), so `obj.x`, `obj.__dict__['x']` and `vars(obj)`
see the same symbolic state; a subclass of dict, list or tuple keeps its contents in `payload`.
Mirrors torch/_dynamo/variables/user_defined.py and nn_module.py.
"""

import array
import collections
import enum
import functools
import itertools
import operator
import types
import weakref

import torch

from ..exceptions import Break, ObservedException
from ..guards import MODULE_TABLES, literal
from ..originals import NN_MODULE
from .base import RealVar, Variable, current
from .constant import ConstantVar
from .containers import DictVar, ListVar, SetVar, TupleVar
from .functions import BOUND, BoundMethodVar, CallableVar, PartialVar

MISSING = object()
TRUSTED_PACKAGES = {
    "torch",
    "builtins",
    "collections",
    "abc",
    "typing",
    "functools",
    "enum",
    "dataclasses",
    "contextlib",
    "math",
    "operator",
    "itertools",
    "types",
    "inspect",
    "numbers",
    "copy",
    "warnings",
    "os",
    "sys",
    "re",
    "logging",
    "threading",
    "contextvars",
    "_contextvars",
    "numpy",
    "random",
    "time",
    "string",
    "weakref",
    "_weakref",
    "_thread",
    "_collections_abc",
    "_abc",
    "genericpath",
    "posixpath",
    "io",
    "packaging",
    "importlib",
}
ANY_ARGUMENTS = (
    StopIteration,
    StopAsyncIteration,
    SystemExit,
    AttributeError,
    NameError,
    ImportError,
)  # these exceptions take
OF_EVERY_CLASS = (
    "__name__",
    "__qualname__",
    "__module__",
    "__mro__",
    "__bases__",
    "__doc__",
    "__class__",
    "__dict__",
    "__subclasses__",
    "__flags__",
    "__base__",
    "mro",
)  # these attributes are asked of `type`, and not of the bases
NO_INSTANCES = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION
IMMUTABLE_TYPE, HEAP_TYPE = 1 << 8, 1 << 9  # Py_TPFLAGS_IMMUTABLETYPE, Py_TPFLAGS_HEAPTYPE
CALLING = ("__call__", "_wrapped_call_impl", "_call_impl")  # what runs the hooks, then `forward`
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def trusted(module_name):
    """Is this module taken as unchangeable (torch, the standard library)?  # PyTorch: the same, by
    skip lists."""
    return (module_name or "").partition(".")[0] in TRUSTED_PACKAGES


def is_programs(found: object) -> bool:
    """Is this a Python function of the program's, by where its globals are?"""
    inner = getattr(found, "__func__", found)
    return isinstance(inner, types.FunctionType) and not trusted(inner.__globals__.get("__name__"))


def can_change(cls: type) -> bool:
    """May a program write attributes of this class?  Those of C may not be written."""
    return bool(cls.__flags__ & HEAP_TYPE) and not cls.__flags__ & IMMUTABLE_TYPE


def lookup(cls, name):
    """(owner, attribute) in the MRO, or (None, MISSING): type(obj).__mro__ without running
    descriptors.

    What it found, and where it found nothing, is guarded at the end (`guard_classes`).
    """
    return lookup_in(cls, cls.__mro__, name)


def lookup_in(cls, owners, name):
    """The same in a part of the MRO of `cls`."""
    LOOKUPS.starts[cls] = True
    for owner in owners:
        if name in owner.__dict__:
            found = owner.__dict__[name]
            LOOKUPS.found[owner, name] = found
            return owner, found
        LOOKUPS.absent[owner].add(name)
    return None, MISSING


METHODS = (types.FunctionType, staticmethod, classmethod)
OWN_LOOKUP = {  # types of C that look attributes up in a way of their own
    types.MethodType,
    types.GenericAlias,
    types.UnionType,
    weakref.ProxyType,
    weakref.CallableProxyType,
}


def type_text(cls):
    """A type as CPython's messages name it: those written in C with their module."""
    made_in_python = cls.__flags__ & HEAP_TYPE and "__module__" in cls.__dict__
    if cls.__module__ == "builtins" or made_in_python and cls not in DOTTED:
        return cls.__name__
    return f"{cls.__module__}.{cls.__name__}"


# Types of C that are made like Python's own: their module is said, too.
DOTTED = {functools.partial, *(t for t in vars(itertools).values() if isinstance(t, type))}
DOTTED |= {collections.deque, collections.defaultdict, operator.itemgetter}
DOTTED |= {operator.attrgetter, operator.methodcaller, array.array}


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


class Lookups:
    """What `lookup` was asked in this attempt."""

    def __init__(self):
        self.starts = {}  # class whose MRO was walked
        self.absent = collections.defaultdict(set)  # class -> names that it does not define
        self.found = {}  # (class, name) -> what it defines

    def clear(self):
        self.__init__()


LOOKUPS = Lookups()


def guard_classes(output):
    """`lookup` must find the same again: each class on the way keeps its bases, what it does not
    define stays undefined, and what it defines stays the same kind of descriptor.  The value of a
    class attribute that is none is guarded where it is read."""
    for cls in filter(can_change, LOOKUPS.starts):
        output.guard(output.tree.pinned(cls), "MRO", "{0}.__mro__ == {pin}", cls.__mro__)
    for cls, names in LOOKUPS.absent.items():
        if can_change(cls):
            check = f"{{0}}.__dict__.keys().isdisjoint({literal(tuple(sorted(names)))})"
            output.guard(output.tree.pinned(cls), "ABSENT", check)
    for (cls, name), found in LOOKUPS.found.items():
        if not can_change(cls):
            continue
        source = output.tree.pinned(cls).child("class_item", name)
        if hasattr(type(found), "__get__") or found is None:
            output.guard(source, "ID", "{0} is {pin}", found)
        elif "ID" not in source.guards and "EQUALS" not in source.guards:
            output.guard(source, "TYPE", "type({0}) is {pin}", type(found))
    LOOKUPS.clear()


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
            tx.raise_(TypeError, f"unhashable type: '{type_text(self.cls)}'")
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
            tx.raise_(TypeError, f"'{type_text(self.cls)}' object does not support item assignment")
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


class MemberVar(ObjectVar):
    """A member of an enumeration, where its attributes are read; everywhere else it is a
    constant."""

    __slots__ = ()

    def receiver(self):
        return ConstantVar(self.value)


class ModuleVar(ObjectVar):
    """torch.nn.Module: parameters, buffers and submodules live in dicts of their own; calling runs
    `forward`."""

    __slots__ = ()

    def table(self, tx, name):
        found = self.fields.get(tx, ConstantVar(name))
        if found is None:
            return DictVar({})
        if not isinstance(found, DictVar):
            raise Break("module", f"a {self.cls.__name__} whose {name} is no dictionary")
        return found

    def fallback_getattr(self, tx, name, fallback):
        if fallback is not NN_MODULE["__getattr__"]:
            return super().fallback_getattr(tx, name, fallback)
        return self.module_getattr(tx, name)

    def module_getattr(self, tx, name):
        """nn.Module.__getattr__."""
        for table in MODULE_TABLES:
            found = self.table(tx, table).get(tx, ConstantVar(name))
            if found is not None:
                return found
        tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def generic_getattr(self, tx, name):
        # The same as below, without raising the AttributeError that leads to __getattr__.
        if (
            lookup(self.cls, name)[1] is MISSING
            and lookup(self.cls, "__getattr__")[1] is NN_MODULE["__getattr__"]
            and self.fields.get(tx, ConstantVar(name)) is None
        ):
            return self.module_getattr(tx, name)
        return super().generic_getattr(tx, name)

    def getitem(self, tx, key):
        if (
            self.cls is torch.nn.ModuleList
            and key.is_constant()
            and isinstance(key.as_constant(), slice)
        ):
            children = [value for _, value in self.table(tx, "_modules").pairs(tx)]
            return ModuleListVar(children[key.as_constant()], torch.nn.ModuleList)
        return super().getitem(tx, key)

    def setattr(self, tx, name, value):
        setter = lookup(self.cls, "__setattr__")[1]
        if setter is NN_MODULE["__setattr__"]:
            self.module_setattr(tx, name, value)
        else:
            super().setattr(tx, name, value)

    def module_setattr(self, tx, name, value):
        """nn.Module.__setattr__, where it only stores."""
        kind = value.python_type()
        if issubclass(kind, (torch.nn.Parameter, torch.nn.Module)):
            raise Break(
                "module",
                f"assigning a {kind.__name__} to self.{name} in forward",
                "assign it in __init__",
            )
        if name in self.table(tx, "_parameters").items or name in self.table(tx, "_modules").items:
            raise Break("module", f"replacing the parameter or submodule self.{name} in forward")
        buffers = self.table(tx, "_buffers")
        if name in buffers.items:
            tx.output.as_input(buffers.source.item(name))
            buffers.store(tx, ConstantVar(name), value)
        else:
            self.generic_setattr(tx, name, value)

    def call(self, tx, args, kwargs):
        if any(lookup(self.cls, name)[1] is not NN_MODULE[name] for name in CALLING):
            return super().call(tx, args, kwargs)
        output = tx.output
        output.guard_no_global_hooks()
        hooks = {}
        for name in HOOKS:
            if name not in self.fields.items:
                raise Break("module", f"a {self.cls.__name__} without {name}")
            if lookup(self.cls, name)[0] is not None:
                raise Break("module", f"{self.cls.__name__}.{name} is the program's own")
            hooks[name] = self.value.__dict__[name]
        for name in hooks:
            if not hooks[name]:
                output.guard(self.fields.source.item(name), "NO_HOOKS", "not {0}")
        if any(hooks.values()):
            from ..polyfills import call_with_hooks

            if self.value._backward_hooks or self.value._backward_pre_hooks:
                raise Break("module", f"backward hooks of {self.cls.__name__}")
            return output.wrap_pinned(call_with_hooks).call(
                tx,
                [
                    self,
                    TupleVar(list(args)),
                    DictVar({k: (ConstantVar(k), v) for k, v in kwargs.items()}),
                ],
                {},
            )
        with output.inside_module(self):
            return self.getattr(tx, "forward").call(tx, args, kwargs)


class ModuleListVar(TupleVar):
    """A slice of a ModuleList, made in this frame: walked, indexed, measured."""

    __slots__ = ()

    def is_constant(self):
        return False

    def getitem(self, tx, key):
        found = self.index_of(tx, key)
        return (
            ModuleListVar(self.items[found], self.cls)
            if isinstance(found, slice)
            else super().getitem(tx, key)
        )

    def reconstruct(self, cg):
        cg.call_object(torch.nn.ModuleList, TupleVar(self.items))


class ClassVar(RealVar):
    """A class.  Calling it makes an instance: `__new__`, `__init__`, traced."""

    __slots__ = ()

    def is_constant(self):
        return True

    def as_constant(self):
        return self.value

    def getattr(self, tx, name):
        cls = self.value
        if name in OF_EVERY_CLASS:
            return self.own_attribute(tx, name)
        owner, found = lookup(cls, name)
        meta_owner, meta = lookup(type(cls), name)
        if (
            meta is not MISSING
            and (found is MISSING or isinstance(meta, property))
            and type(cls) is not type
        ):
            if isinstance(meta, types.FunctionType):
                return BoundMethodVar(tx.output.wrap_pinned(meta), self)
            if isinstance(meta, property):
                return tx.output.wrap_pinned(meta.fget).call(tx, [self], {})
        if found is MISSING:
            if meta is not MISSING:
                if not hasattr(type(meta), "__get__"):
                    return tx.output.wrap_class_attribute(meta_owner, meta, name)
                if callable(meta):
                    return BoundMethodVar.of_descriptor(meta, self)
                return self.own_attribute(tx, name)
            tx.raise_(AttributeError, f"type object '{cls.__name__}' has no attribute '{name}'")
        if isinstance(found, METHODS):
            return method_of_class(tx, owner, found, name, None, self)
        if isinstance(found, property) or hasattr(type(found), "__get__"):
            return tx.fold_pinned(getattr, cls, name)
        return tx.output.wrap_class_attribute(owner, found, name)

    def special(self, tx, name):
        """The special method that the metaclass defines, bound, or None."""
        owner, found = lookup(type(self.value), name)
        if found is MISSING or found is None:
            return None
        if not isinstance(found, types.FunctionType):
            raise Break("class", f"{name} of the metaclass {type(self.value).__name__}")
        return BoundMethodVar(tx.output.wrap_class_attribute(owner, found, name), self)

    def truth(self, tx):
        return truth_by_methods(tx, self)

    def own_attribute(self, tx, name):
        """What `type` itself answers: a name, the bases, a docstring..."""
        cls = self.value
        LOOKUPS.starts[cls] = True  # guards the MRO
        value = tx.run_now(getattr, cls, name)
        if can_change(cls) and (value is None or isinstance(value, (str, dict))):
            return tx.output.wrap(value, tx.output.tree.pinned(cls).attr(name))
        return tx.fold_pinned(getattr, cls, name)

    def guard_members(self, tx):
        """The members of an enumeration are these."""
        for name in ("_member_names_", "_member_map_", "_value2member_map_"):
            owner, found = lookup(self.value, name)
            if found is not MISSING and can_change(owner):
                source = tx.output.tree.pinned(owner).child("class_item", name)
                tx.output.guard(source, "MEMBERS", "{0} == {pin}", type(found)(found))

    def setattr(self, tx, name, value):
        raise Break("attribute", f"setting {self.value.__name__}.{name} on the class")

    def getitem(self, tx, key):
        if isinstance(self.value, enum.EnumMeta):
            self.guard_members(tx)
        if isinstance(self.value, enum.EnumMeta) or hasattr(self.value, "__class_getitem__"):
            return tx.fold_pinned(lambda: self.value[key.as_constant()])
        return super().getitem(tx, key)

    def iterate(self, tx):
        if isinstance(self.value, enum.EnumMeta):
            self.guard_members(tx)
            return (ConstantVar(member) for member in tx.run_now(list, self.value))
        tx.raise_(TypeError, f"'{type(self.value).__name__}' object is not iterable")

    def contains(self, tx, item):
        self.guard_members(tx)
        return tx.fold(lambda: item.as_constant() in self.value).value

    def length(self, tx):
        self.guard_members(tx)
        return tx.fold(len, self.value).value

    def call(self, tx, args, kwargs):
        if isinstance(self.value, enum.EnumMeta):
            self.guard_members(tx)
        return tx.call_class(self.value, args, kwargs)

    def __repr__(self):
        return f"the class {self.value.__qualname__}"


def guard_concrete(tx, cls):
    """No abstract methods are given to `cls` later: `__abstractmethods__` is looked up in its own
    dictionary alone."""
    name = "__abstractmethods__"
    if name not in vars(cls):
        LOOKUPS.absent[cls].add(name)
    elif can_change(cls):
        source = tx.output.tree.pinned(cls).child("class_item", name)
        tx.output.guard(source, "ID", "{0} is {pin}", vars(cls)[name])


def instantiate(tx, cls, args, kwargs):
    """type.__call__: an object of a Python class, its `__new__` and `__init__` traced."""
    meta_call = lookup(type(cls), "__call__")[1]
    if type(cls) is not type and isinstance(meta_call, types.FunctionType):
        raise Break("class", f"the metaclass {type(cls).__name__} overrides __call__")
    if getattr(cls, "__abstractmethods__", None):
        raise Break("class", f"{cls.__name__} is abstract")
    guard_concrete(tx, cls)
    if lookup(cls, "__del__")[1] is not MISSING:
        raise Break("class", f"{cls.__name__} has a finalizer", "make the object outside")
    owner, new = lookup(cls, "__new__")
    if isinstance(new, staticmethod) and isinstance(new.__func__, types.FunctionType):
        made = tx.output.wrap_pinned(new.__func__).call(
            tx, [tx.output.wrap_pinned(cls), *args], kwargs
        )
    else:
        made = allocate(tx, cls, args)
    if cls not in made.python_type().__mro__ or not isinstance(made, ObjectVar):
        return made
    owner, init = lookup(cls, "__init__")
    if isinstance(init, types.FunctionType):
        result = BoundMethodVar(tx.output.wrap_class_attribute(owner, init, "__init__"), made).call(
            tx, args, kwargs
        )
        if result.identity() is not None:
            tx.raise_(
                TypeError, f"__init__() should return None, not '{result.python_type().__name__}'"
            )
    elif made.payload is not None and not isinstance(made.payload, TupleVar):
        initialise_payload(tx, made.payload, args, kwargs)
    elif issubclass(cls, BaseException):
        initialise_exception(cls, made, args, kwargs)
    elif init is object.__init__ and (args or kwargs) and not isinstance(new, staticmethod):
        tx.raise_(TypeError, f"{cls.__name__}() takes no arguments")
    elif init is not object.__init__:
        raise Break("class", f"{cls.__name__}.__init__ is C code")
    return made


def allocate(tx, cls, args=(), new=None):
    """new(cls) for allocators that are object's or a container's; `new` is cls.__new__ unless one
    was called by name."""
    new = new or lookup(cls, "__new__")[1]
    fields = DictVar({}) if cls.__dictoffset__ else None
    if new is object.__new__ and not cls.__flags__ & NO_INSTANCES:
        if issubclass(cls, torch.nn.Module):
            raise Break(
                "module", f"making a {cls.__name__} in a compiled frame", "make modules in __init__"
            )
        return ObjectVar(cls, fields=fields)
    for base, make in (
        (collections.OrderedDict, lambda: DictVar({}, collections.OrderedDict)),
        (dict, lambda: DictVar({})),
        (list, lambda: ListVar([])),
        (set, lambda: SetVar({})),
    ):
        if issubclass(cls, base) and new is base.__new__:
            return ObjectVar(cls, fields=fields, payload=make())
    if issubclass(cls, BaseException):
        made = ObjectVar(cls, fields=fields)
        initialise_exception(cls, made, args, {})
        return made
    raise Break("class", f"{cls.__name__} is allocated by C code")


def initialise_exception(cls, made, args, kwargs):
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


def initialise_payload(tx, payload, args, kwargs):
    """dict.__init__, list.__init__, set.__init__."""
    if isinstance(payload, DictVar):
        payload.call_method(tx, "update", args, kwargs)
        return
    if kwargs or len(args) > 1:
        raise Break("arguments", "the arguments of a container's __init__()")
    payload.method_clear(tx)
    if args:
        payload.call_method(
            tx, "extend" if isinstance(payload, ListVar) else "update", list(args), {}
        )


class WeakRefVar(RealVar):
    """A weak reference from outside.  A call of it gives the object, which something alive must
    still hold: see `OutputGraph.lets_go`."""

    __slots__ = ()
    hash_key, real = Variable.hash_key, Variable.real

    def getattr(self, tx, name):
        if isinstance(lookup(type(self.value), name)[1], types.MemberDescriptorType):
            return tx.output.wrap(getattr(self.value, name), self.source.attr(name))
        return tx.method_of(self, name)

    def call(self, tx, args, kwargs):
        if args or kwargs:
            raise Break("arguments", "the arguments of a weak reference")
        found = self.value()
        if tx.output.lets_go(found):
            raise Break(
                "object",
                "what a weak reference refers to, after writes that may have let it go",
                "hold the object itself",
            )
        return tx.output.wrap(found, self.source.child("call"))


class TracebackVar(Variable):
    """The traceback of an exception that was raised `where` (user's stack, root step): only the
    real one can tell more."""

    __slots__ = ("kind", "where")
    cls = types.TracebackType

    def reconstruct(self, cg):
        raise Break(
            "exception", f"the traceback of a {self.kind.__name__} that was caught", "", *self.where
        )


class SuperVar(Variable):
    """super(cls, obj)."""

    __slots__ = ("start", "object")
    cls = super

    def getattr(self, tx, name):
        bound_to_class = (
            isinstance(self.object, ClassVar) and self.start in self.object.value.__mro__
        )  # else in a metaclass
        mro = (self.object.value if bound_to_class else self.object.python_type()).__mro__
        owner, found = lookup_in(mro[0], mro[mro.index(self.start) + 1 :], name)
        if found is MISSING:
            return tx.method_of(self, name)
        if name == "__class__":  # its own, not the object's
            return tx.output.wrap_pinned(super)
        if name == "__new__":
            return tx.output.wrap_pinned(
                found.__func__ if isinstance(found, staticmethod) else found
            )
        if not bound_to_class and isinstance(self.object, ObjectVar):
            if isinstance(found, property):
                return tx.output.wrap_pinned(found.fget).call(tx, [self.object], {})
            return self.object.class_attribute(tx, owner, found, name)
        instance, cls = (
            (None, self.object)
            if bound_to_class
            else (self.object, tx.output.wrap_pinned(self.object.python_type()))
        )
        if isinstance(found, types.ClassMethodDescriptorType):
            raise Break("class", f"super().{name}, a class method in C")
        if isinstance(found, METHODS):
            return method_of_class(tx, owner, found, name, instance, cls)
        return (
            tx.output.wrap_pinned(found)
            if instance is None
            else BoundMethodVar.of_descriptor(found, instance)
            if type(found) in BOUND
            else BoundMethodVar(tx.output.wrap_pinned(found), instance)
        )

    def reconstruct(self, cg):
        cg.call_object(super, ClassVar(self.start), self.object)


def partial_of(tx, value, source):
    """A real functools.partial, its parts read through `source`."""
    wrap = tx.output.wrap
    args = [wrap(a, source.attr("args").item(n)) for n, a in enumerate(value.args)]
    kwargs = {k: wrap(v, source.attr("keywords").item(k)) for k, v in value.keywords.items()}
    return PartialVar(wrap(value.func, source.attr("func")), args, kwargs, value, source=source)
