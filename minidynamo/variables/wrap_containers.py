"""Containers from outside: lists, tuples and dictionaries whose items are wrapped when read.

In:   a real container and its source.
Out:  its variable, and guards on what was asked at once: a list's length, no key of a dictionary.

    >>> dict_of(builder, {"a": x}, source).items["a"]       # (ConstantVar("a"), Lazy(x, ...))

Mirrors torch/_dynamo/variables/builder.py (wrap_listlike, _wrap for dicts).
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import torch

from ..exceptions import Break
from ..foreign import ours
from .base import Lazy, OutputGraph, Source, Variable
from .constant import ConstantVar, is_constant_value
from .containers import DictVar, ListVar, TupleVar
from .registry import KEYS, SHARED


def list_of(builder: OutputGraph, value: Any, source: Source, base: type = list) -> ListVar:
    exact = type(value) is list
    values = value if exact else list.__getitem__(value, slice(None))
    length = "len({0})" if exact else "list.__len__({0})"  # a program's class may have its own
    builder.guard(source, "LENGTH", f"{length} == {len(values)}")
    child = "item" if exact else "list_item"
    return ListVar(
        [Lazy(item, source.child(child, n)) for n, item in enumerate(values)], source=source
    )


def tuple_of(builder: OutputGraph, value: Any, source: Source, base: type = tuple) -> TupleVar:
    exact = type(value) in (tuple, torch.Size)
    kind = type(value) if exact or hasattr(type(value), "_fields") else tuple
    length = "len({0})" if exact else "tuple.__len__({0})"
    builder.guard(source, "LENGTH", f"{length} == {tuple.__len__(value)}")
    child = "item" if type(value) is kind else "tuple_item"
    items = [Lazy(item, source.child(child, n)) for n, item in enumerate(tuple.__iter__(value))]
    return TupleVar(items, kind, source=source)


def dict_of(builder: OutputGraph, value: Any, source: Source, base: type = dict) -> DictVar:
    """`base`: of an instance of a subclass, the class whose methods answer for it."""
    if dict.__contains__(value, "__builtins__"):
        raise Break("dictionary", "a module's globals as a dictionary")
    exact = type(value) in (dict, collections.OrderedDict, collections.defaultdict)
    pairs = pairs_of(value)
    items = {}
    for key, item in pairs:
        variable = wrap_key(builder, key)
        if type(key) in (str, int, bool, type(None)):
            child = source.child("item" if exact else "dict_item", key)
        else:
            child = source.child("pinned_item", builder.tree.pinned(key).key)
        items[variable.hash_key(builder.frame)] = (variable, Lazy(item, child))
    factory = None
    if type(value) is collections.defaultdict and value.default_factory is not None:
        factory = Lazy(value.default_factory, source.attr("default_factory"))
    keys = [key for key, _ in pairs]
    kind = type(value) if exact else base
    answering = None if exact else base
    return DictVar(items, kind, factory, source=source, real_keys=keys, base=answering)


def pairs_of(value: Any) -> list[tuple[Any, Any]]:
    """Keys and values in the order that the program sees: dict.items() of an OrderedDict forgets
    move_to_end()."""
    kind = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    try:
        return [*kind.items(value)]
    except ours(KeyError, RuntimeError):
        raise Break("dictionary", "an OrderedDict that was written by dict's methods") from None


def wrap_key(builder: OutputGraph, key: Any) -> Variable:
    """The variable of a key of a dictionary."""
    if is_constant_value(key):
        return ConstantVar(key)
    rule = KEYS.of(key)
    if rule is None:
        raise Break("dictionary", f"a dictionary with a {type(key).__name__} as a key")
    return rule(builder, key)


def wrapped(build: Callable) -> Callable:
    """The rule for a container that is exactly of a type which `build` knows."""

    def rule(builder: OutputGraph, value: Any, source: Source) -> Variable:
        if type(value).__dictoffset__:
            guard_no_attributes(builder, value, source)
        variable = build(builder, value, source)
        builder.sourced.append(variable)
        return variable

    return rule


def guard_no_attributes(builder: OutputGraph, value: Any, source: Source) -> None:
    """A container that may have attributes of its own (an OrderedDict) has none."""
    if value.__dict__:
        raise Break("attribute", f"a {type(value).__name__} with attributes")
    builder.guard(source, "NO_ATTRIBUTES", "not {0}.__dict__")


SHARED.rule(list)(wrapped(list_of))
SHARED.rule(tuple, torch.Size)(wrapped(tuple_of))
SHARED.rule(dict, collections.OrderedDict, collections.defaultdict)(wrapped(dict_of))
