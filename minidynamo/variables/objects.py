"""Instances of Python classes: the attribute protocol on variables.

In:   attribute reads and writes, operators, calls.
Out:  the protocol's steps, inlining Python-level descriptors and `__getattr__`, guarding the
      entries that were read.

    >>> ObjectVar(Config, value=config, source=src).getattr(tx, "hidden_size")

Slots and other descriptors are coverage (`more/descriptors.py`), as are operators.  An instance's
`__dict__` is a `DictVar` (`fields`), so `obj.x`, `obj.__dict__['x']` and `vars(obj)`
see the same symbolic state; a subclass of dict, list or tuple keeps its contents in `payload`.
Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedObjectVariable).
"""

from __future__ import annotations

import types
from dataclasses import field
from typing import Any

from ..exceptions import Break
from .base import Frame, OutputGraph, Source, Variable, refusal
from .constant import ConstantVar
from .functions import BoundMethodVar
from .lookup import METHODS, MISSING, lookup


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

    # ---- attributes
    def getattr(self, tx: Frame, name: str) -> Variable:
        getter = self.own_special(tx, "__getattribute__")
        if getter is not None:
            return getter.call(tx, [ConstantVar(name)], {})
        return self.generic_getattr(tx, name)

    def generic_getattr(self, tx: Frame, name: str) -> Variable:
        """object.__getattribute__."""
        owner, found = lookup(self.cls, name)
        if found is not MISSING and not isinstance(found, METHODS):
            data = self.data_descriptor(tx, found, name)
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

    missing = refusal("attribute", ".{1} of {self}")  # (tx, name)

    def data_descriptor(self, tx: Frame, found: Any, name: str) -> Variable | None:
        """What a descriptor that goes before the instance's `__dict__` gives; None: it is none."""
        if isinstance(found, property) and found.fget is not None:
            return tx.output.wrap_pinned(found.fget).call(tx, [self], {})
        return self.read_descriptor(tx, found, name) if hasattr(type(found), "__set__") else None

    def class_attribute(self, tx: Frame, owner: Any, found: Any, name: str) -> Variable:
        """What a class attribute gives that goes after the instance's `__dict__`."""
        if isinstance(found, METHODS):
            cls = tx.output.wrap_pinned(self.cls)
            return method_of_class(tx, owner, found, name, self, cls)
        if hasattr(type(found), "__get__"):
            return self.bind_descriptor(tx, found, name)
        lookup(type(found), "__get__")  # guards that its class does not become a descriptor
        return tx.output.wrap_class_attribute(owner, found, name)

    # Other descriptors: slots, fields that C code keeps, those of Python classes (coverage).
    read_descriptor = bind_descriptor = write_descriptor = refusal(
        "attribute", "a descriptor of {self} is not traced"
    )

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
        elif self.fields is not None and not self.pinned:
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


def is_inherited(cls: type, name: str) -> bool:
    """Is its special method that of a base in C?  (`__setattr__ = dict.__setitem__` is not.)"""
    found = lookup(cls, name)[1]
    in_c = isinstance(found, (types.WrapperDescriptorType, types.MethodDescriptorType))
    return in_c and found.__name__ == name and found.__objclass__ in cls.__mro__


def fields_of(builder: OutputGraph, value: Any, source: Source) -> Any:
    """The `__dict__` of an object, read past a `__getattribute__` of its class."""
    plain = lookup(type(value), "__getattribute__")[1] is object.__getattribute__
    return builder.fields_of(value, source.instance_dict(plain))


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
        fields = fields_of(builder, value, source)
    return builder.replayed(variable_class(kind, value, fields, source=source))
