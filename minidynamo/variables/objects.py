"""Instances of Python classes, and exceptions: the attribute protocol on variables.

In:   attribute reads and writes, operators, calls.
Out:  the protocol's steps, inlining properties, special methods and `__getattr__`, guarding the
      entries that were read; code that makes the object again.

    >>> ObjectVar(Config, value=config, source=src).getattr(tx, "hidden_size")

Descriptors that are written in Python break the graph.  An instance's `__dict__` is a `DictVar`
(`fields`), so `obj.x`, `obj.__dict__['x']` and `vars(obj)` see the same symbolic state; a subclass
of dict or list keeps its contents in `payload`.  Of an exception C code keeps the arguments
(`init_args`), and the links to other exceptions and the traceback (`slots`).
Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedObjectVariable) and builtin.py
(ExceptionVariable).
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable
from dataclasses import field
from typing import Any, NoReturn

import torch

from ..errors import Break, ObservedException
from .base import (
    HEAP_TYPE,
    METHODS,
    MISSING,
    Args,
    Codegen,
    Frame,
    Named,
    OutputGraph,
    RealVar,
    Source,
    Variable,
    current,
    lookup,
)
from .constant import ConstantVar
from .dicts import DictVar, TupleVar, named, replace_dict
from .functions import BoundMethodVar, bound_descriptor


def method_of_class(
    tx: Frame, owner: Any, found: Any, name: str, instance: Variable | None, cls: Variable
) -> Variable:
    """One of `METHODS` as `instance` sees it (None: as the class does)."""
    function = tx.output.wrap_class_attribute(owner, found, name)
    if isinstance(found, types.FunctionType):
        return function if instance is None else BoundMethodVar(function, instance)
    if not isinstance(found, classmethod):
        return function
    inner = found.__func__
    if hasattr(type(inner), "__get__") and not isinstance(inner, types.FunctionType):
        raise Break("attribute", f"a classmethod around a {type(inner).__name__}")
    return BoundMethodVar(function, cls)


def through(name: str) -> Callable[..., Any]:
    """What an operation does by this special method of the object's class: (tx, what it is
    given)."""

    def operation(self: ObjectVar, tx: Frame, *args: Variable) -> Variable:
        method = self.special(tx, name)
        if method is None:
            raise Break("C function", f"{name} of a {self.cls.__name__}")
        return method.call(tx, list(args), {})

    return operation


class ObjectVar(Variable):
    """An instance of a Python class: real (`value`) or made in this frame."""

    shared = True
    cls: type
    value: Any = None
    fields: Any = None  # its __dict__, a DictVar
    payload: Any = None  # the contents of a subclass of list, dict, tuple, set
    slots: dict[str, Any] = field(default_factory=dict, init=False)
    init_args: list[Variable] | None = field(default=None, init=False)  # of an exception

    def identity(self) -> Any:
        return self if self.value is None else self.value

    # ---- attributes
    def getattr(self, tx: Frame, name: str) -> Variable:
        """The class's `__getattr__` answers for attributes that are not there."""
        try:
            getter = self.own_special(tx, "__getattribute__")
            if getter is not None:
                return getter.call(tx, [ConstantVar(name)], {})
            return self.generic_getattr(tx, name)
        except ObservedException as raised:
            _, fallback = lookup(self.cls, "__getattr__")
            if not issubclass(raised.var.python_type(), AttributeError) or fallback is MISSING:
                raise
            return self.fallback_getattr(tx, name, fallback)

    def generic_getattr(self, tx: Frame, name: str) -> Variable:
        """object.__getattribute__."""
        if name == "__dict__" and self.fields is not None:
            return self.fields
        if name == "__class__" and lookup(self.cls, name)[0] is object:
            return tx.output.wrap_pinned(self.cls)
        owner, found = lookup(self.cls, name)
        if found is not MISSING and not isinstance(found, METHODS):
            data = self.data_descriptor(tx, found, name)
            if data is not None:
                return data
        if self.fields is not None:
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
        tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def data_descriptor(self, tx: Frame, found: Any, name: str) -> Variable | None:
        """What a descriptor that goes before the instance's `__dict__` gives; None: it is none."""
        if isinstance(found, property) and found.fget is not None:
            return tx.call_fixed(found.fget, self)
        if not hasattr(type(found), "__set__"):
            return None
        if isinstance(found, types.MemberDescriptorType):
            return self.slot(tx, name)
        if isinstance(found, types.GetSetDescriptorType):
            return self.field_of_c(tx, name)
        raise self.unknown(found, name)

    def class_attribute(self, tx: Frame, owner: Any, found: Any, name: str) -> Variable:
        """What a class attribute gives that goes after the instance's `__dict__`."""
        if isinstance(found, METHODS):
            cls = tx.output.wrap_pinned(self.cls)
            return method_of_class(tx, owner, found, name, self, cls)
        if hasattr(type(found), "__get__"):
            return self.bind_descriptor(tx, found, name)
        lookup(type(found), "__get__")  # guards that its class does not become a descriptor
        return tx.output.wrap_class_attribute(owner, found, name)

    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        setter = self.own_special(tx, "__setattr__")
        if setter is not None:
            setter.call(tx, [ConstantVar(name), value], {})
        else:
            self.generic_setattr(tx, name, value)

    def generic_setattr(self, tx: Frame, name: str, value: Variable) -> None:
        """object.__setattr__."""
        owner, found = lookup(self.cls, name)
        if lookup(type(found), "__set__")[1] is not MISSING:
            self.write_descriptor(tx, owner, found, name, value)
        elif self.fields is not None:
            self.fields.store(tx, ConstantVar(name), value)
        else:
            raise Break("attribute", f"setting .{name} of {self}")

    # ---- operations, through the class
    def special(self, tx: Frame, name: str) -> Variable | None:
        """The bound special method, or None.  Looked up on the class, as Python does."""
        owner, found = lookup(self.cls, name)
        if found is None:
            raise Break("class", f"{self.cls.__name__}.{name}, which is None")
        if found is MISSING or is_inherited(self.cls, name) and found.__objclass__ is object:
            return None  # what every object has
        return self.class_attribute(tx, owner, found, name)

    def own_special(self, tx: Frame, name: str) -> Variable | None:
        """The bound special method, unless a type of C answers in its own way."""
        return None if is_inherited(self.cls, name) else self.special(tx, name)

    def fallback_getattr(self, tx: Frame, name: str, fallback: Any) -> Variable:
        return tx.call_fixed(fallback, self, ConstantVar(name))

    def unknown(self, found: Any, name: str) -> Break:
        kind = type(found).__name__
        return Break("attribute", f"the descriptor {kind} of {self.cls.__name__}.{name}")

    def bind_descriptor(self, tx: Frame, found: Any, name: str) -> Variable:
        is_cached = isinstance(found, functools.cached_property) and found.attrname == name
        if is_cached and self.fields is not None:
            value = tx.call_fixed(found.func, self)
            self.fields.store(tx, ConstantVar(name), value)
            return value
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return bound_descriptor(found, self)
        if isinstance(found, functools._lru_cache_wrapper):  # `logger.warning_once` of transformers
            return BoundMethodVar(tx.output.wrap_pinned(found), self)
        raise self.unknown(found, name)

    def write_descriptor(
        self, tx: Frame, owner: Any, found: Any, name: str, value: Variable
    ) -> None:
        if isinstance(found, property) and found.fset is not None:
            tx.call_fixed(found.fset, self, value)
        elif self.is_slot(owner, found, name):
            self.slots[name], self.mutated = value, True
        else:
            raise self.unknown(found, name)

    def field_of_c(self, tx: Frame, name: str) -> Variable:
        """What C code computes when it is read."""
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
            if self.value is not None:
                tx.output.guard(self.source, ("NO_SLOT", name), "not hasattr({0}, {pin})", name)
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

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        method = self.special(tx, name) if name.startswith("__") else None
        return (method or self.getattr(tx, name)).call(tx, args, kwargs)

    iterate = Variable.iterated

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        if is_inherited(self.cls, "__call__"):
            return tx.call_c(self.real(), args, kwargs)
        method = self.special(tx, "__call__")
        return super().call(tx, args, kwargs) if method is None else method.call(tx, args, kwargs)

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
        if descriptor or self.fields is None:
            raise Break("attribute", f"deleting .{name} of {self}")
        elif self.fields.get(tx, ConstantVar(name)) is None:
            self.missing(tx, name)
        else:
            self.fields.remove(tx, ConstantVar(name))

    def length(self, tx: Frame) -> int:
        found = through("__len__")(self, tx).as_constant()
        if not isinstance(found, int) or found < 0:
            raise Break("length", f"len() of a {self.cls.__name__} gave {found!r:.50}")
        return found

    getitem, setitem, delitem = map(through, ("__getitem__", "__setitem__", "__delitem__"))

    def contains(self, tx: Frame, item: Variable) -> bool:
        if self.special(tx, "__contains__") is not None:
            return through("__contains__")(self, tx, item).truth(tx)
        if self.special(tx, "__iter__") is None and self.special(tx, "__getitem__") is None:
            raise Break("iteration", f"`in` of a {self.cls.__name__}")  # plain Python complains
        return Variable.contains(self, tx, item)

    def real(self) -> Any:
        if self.value is None or self.mutated or (self.fields is not None and self.fields.mutated):
            raise Break(
                "constant", f"{self} was made or changed in this frame; a real object is needed"
            )
        if self.source.kind != "pinned":
            output = current().output
            if self.cls.__weakrefoffset__:  # the entry does not hold it, and goes with it
                output.guard(self.source, "ID", f"id({{0}}) == {id(self.value)}")
                output.modules.append(self.value)
            else:
                output.guard_fixed(self.source, self.value)
        return self.value

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        """An object of a subclass of int or float is a number to torch."""
        for kind in (int, float):
            if isinstance(self.value, kind):
                return kind.__pos__(self.real())
        return super().argument(part)

    def immutable(self) -> bool:
        """May C code be called on the real object while tracing?  What C hashes by value does not
        change (a pattern, a Decimal)."""
        method = lookup(self.cls, "__hash__")[1]
        if self.source is not None and self.source.kind == "pinned":
            return True
        return isinstance(method, types.WrapperDescriptorType) and method is not object.__hash__

    def hash_key(self, tx: Frame) -> Any:
        method, equal = lookup(self.cls, "__hash__")[1], lookup(self.cls, "__eq__")[1]
        if method is object.__hash__ and equal is object.__eq__:
            tx.output.note_key(self)
            return self.identity()
        if method is None:
            tx.raise_(TypeError, f"unhashable type: '{self.cls.__name__}'")
        return Variable.hash_key(self, tx)

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(
            new_object,
            RealVar(self.cls),
            (self.fields or DictVar({})).contents,
            DictVar(named(self.slots)).contents,
            ConstantVar(None) if self.payload is None else self.payload.contents,
        )

    def replay(self, cg: Codegen) -> None:
        for name, value in self.slots.items():
            cg.commit_call(object.__setattr__, self, ConstantVar(name), value)

    def __repr__(self) -> str:
        where = f" {self.source.name()}" if self.source else ""
        return f"{self.cls.__name__} object{where}"


def is_inherited(cls: type, name: str) -> bool:
    """Is the class's special method inherited from a base in C?  (`__setattr__ = dict.__setitem__`
    is not.)"""
    found = lookup(cls, name)[1]
    in_c = isinstance(found, (types.WrapperDescriptorType, types.MethodDescriptorType))
    return in_c and found.__name__ == name and found.__objclass__ in cls.__mro__


def fields_of(builder: OutputGraph, value: Any, source: Source) -> Any:
    """The `__dict__` of an object, read past a `__getattribute__` of its class."""
    plain = lookup(type(value), "__getattribute__")[1] is object.__getattribute__
    return builder.fields_of(value, source.instance_dict(plain))


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
    if isinstance(made, dict):
        replace_dict(made, payload)
    elif payload is not None:
        base.__init__(made, payload)
    if fields:
        object.__getattribute__(made, "__dict__").update(fields)
    for name, value in slots.items():
        object.__setattr__(made, name, value)
    return made


# Exceptions with fields of their own in C that take any arguments all the same.
ANY_ARGUMENTS: tuple[type, ...] = (StopIteration, StopAsyncIteration, SystemExit)
ANY_ARGUMENTS += (AttributeError, NameError, ImportError)


def new_exception(cls: Any, args: Any, fields: Any) -> Any:
    """An exception that the traced program made."""
    made = cls.__new__(cls, *args)
    # sets .args, and StopIteration's .value
    next(b for b in cls.__mro__ if b.__module__ == "builtins").__init__(made, *args)
    made.__dict__.update(fields)
    return made


def nothing_handled(output: OutputGraph) -> bool:
    """Does the frame run outside of all `except` blocks?  Guarded if so."""
    if not output.handling:
        output.guard(output.tree.pinned(sys.exc_info), "HANDLING", "{0}()[1] is None")
    return not output.handling


class TracebackVar(Variable):
    """The traceback of an exception that was raised `where` (user's stack, root step): only the
    real one can tell more."""

    where: tuple
    cls = types.TracebackType

    def reconstruct(self, cg: Codegen) -> None:
        raise Break("exception", "the traceback of an exception that was caught", "", *self.where)


class ExceptionVar(ObjectVar):
    """An exception.  `init_args` are its arguments; `slots` hold the links to other exceptions and
    the traceback, which BaseException keeps in C."""

    def field_of_c(self, tx: Frame, name: str) -> Variable:
        if name not in self.slots:
            if name == "args" and self.init_args is not None:
                return TupleVar(list(self.init_args))
            raised = "__traceback__" in self.slots
            if name == "__context__" and raised and not nothing_handled(tx.output):
                raise Break("exception", "what else is being handled, around this frame")
            if name in ("__cause__", "__context__", "__traceback__") and self.value is None:
                return ConstantVar(None)
        return super().field_of_c(tx, name)

    def slot(self, tx: Frame, name: str) -> Variable:
        if name in self.slots or self.value is not None:
            return super().slot(tx, name)
        if issubclass(self.cls, StopIteration) and name == "value":
            return self.init_args[0] if self.init_args else ConstantVar(None)
        raise Break("attribute", f"{self.cls.__name__}.{name} is kept by C code")

    def generic_setattr(self, tx: Frame, name: str, value: Variable) -> None:
        """`raise ... from ...` writes `__cause__`; no other field of BaseException may be
        written."""
        right = issubclass(value.python_type(), (BaseException, type(None)))
        if name == "__cause__" and self.value is None and right:
            self.slots[name], self.slots["__suppress_context__"] = value, ConstantVar(True)
        else:
            super().generic_setattr(tx, name, value)

    def reconstruct(self, cg: Codegen) -> None:
        if "__traceback__" in self.slots:
            cg.value(self.slots["__traceback__"])  # refuses
        if self.slots:
            raise Break("reconstruct", "an exception that is linked to another one")
        cg.call_object(
            new_exception,
            RealVar(self.cls),
            TupleVar(self.init_args or []).contents,
            self.fields.contents,
        )


def initialise_exception(cls: type, made: ObjectVar, args: Args, kwargs: Named) -> None:
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
