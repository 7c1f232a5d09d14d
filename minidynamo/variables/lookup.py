"""Where Python finds an attribute: the walk over a class and its bases, and what of it is guarded.

In:   a class and a name.   Out: what the first class on the way defines, without running
      descriptors; at the end of an attempt, guards that the same walks find the same.

    >>> lookup(bool, "bit_length")
    (<class 'int'>, <method 'bit_length' of 'int' objects>)

Classes of C cannot change; those of torch and the standard library are guarded, too, where they
can (`can_change`), but what their attributes hold is taken as fixed (`trusted`).
Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedObjectVariable.lookup_class_mro_attr).
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

from .base import OutputGraph

# Of the binary operators' methods: __add__, __radd__, __iadd__...
BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
MISSING = object()
TRUSTED_PACKAGES = frozenset(
    """
    torch builtins collections abc typing functools enum dataclasses contextlib math operator
    itertools types inspect numbers copy warnings os sys re logging threading contextvars
    _contextvars numpy random time string weakref _weakref _thread _collections_abc _abc
    genericpath posixpath io packaging importlib
    """.split()
)
IMMUTABLE_TYPE, HEAP_TYPE = 1 << 8, 1 << 9  # Py_TPFLAGS_IMMUTABLETYPE, Py_TPFLAGS_HEAPTYPE
METHODS = (types.FunctionType, staticmethod, classmethod)
DESCRIPTORS_OF_C = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)


def trusted(module_name: object) -> bool:
    """Is this module taken as unchangeable (torch, the standard library)?  A program may give a
    module any object as its name, or none."""
    # PyTorch: the same, by skip lists.
    return type(module_name) is str and module_name.partition(".")[0] in TRUSTED_PACKAGES


def is_programs(found: object) -> bool:
    """Is this a Python function of the program's, by where its globals are?"""
    inner = getattr(found, "__func__", found)
    return isinstance(inner, types.FunctionType) and not trusted(inner.__globals__.get("__name__"))


def in_c_or_library(found: object) -> bool:
    """Is this a method of C code, or one that a library wrote in Python?  A variable may then
    implement it; the program's own functions and properties are traced."""
    return isinstance(found, DESCRIPTORS_OF_C) or (
        isinstance(found, METHODS) and not is_programs(found)
    )


def can_change(cls: type) -> bool:
    """May a program write attributes of this class?  Those of C may not be written."""
    return bool(cls.__flags__ & HEAP_TYPE) and not cls.__flags__ & IMMUTABLE_TYPE


# What `lookup` was asked in this attempt (by who has no frame at hand; one is traced at a time):
# classes whose MRO was walked (a dictionary has an order),
# and (class, name) -> what this class itself defines, or MISSING.
WALKED: dict[type, None] = {}
FOUND: dict[tuple[type, str], Any] = {}


def forget_lookups() -> None:
    WALKED.clear()
    FOUND.clear()


def lookup(cls: type, name: str, owners: Iterable[type] | None = None) -> tuple[Any, Any]:
    """(owner, attribute) in the MRO, or in a part of it (`owners`); or (None, MISSING).  No
    descriptor is run.

    What it found, and where it found nothing, is guarded at the end (`guard_classes`).
    """
    WALKED[cls] = None
    for owner in cls.__mro__ if owners is None else owners:
        found = FOUND[owner, name] = owner.__dict__.get(name, MISSING)
        if found is not MISSING:
            return owner, found
    return None, MISSING


def guard_classes(output: OutputGraph) -> None:
    """`lookup` must find the same again: each class on the way keeps its bases, what it does not
    define stays undefined, and what it defines stays the same kind of descriptor.  The value of a
    class attribute that is none is guarded where it is read."""
    for cls in filter(can_change, WALKED):
        output.guard(output.tree.pinned(cls), "MRO", "{0}.__mro__ == {pin}", cls.__mro__)
    for (cls, name), found in FOUND.items():
        if not can_change(cls):
            continue
        if found is MISSING:
            output.guard_undefined(cls, name)
            continue
        source = output.tree.pinned(cls).child("class_item", name)
        if hasattr(type(found), "__get__") or found is None:  # `__hash__ = None`
            output.guard(source, "ID", "{0} is {pin}", found)
        elif "ID" not in source.guards and "EQUALS" not in source.guards:
            output.guard(source, "TYPE", "type({0}) is {pin}", type(found))
    forget_lookups()
