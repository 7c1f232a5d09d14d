"""Containers from outside: lists, tuples and dictionaries whose items are wrapped when read.

In:   a real container and its source.
Out:  its variable, and guards on what was asked at once: a list's length, no key of a dictionary.

    >>> dict_of(builder, {"a": x}, source).items["a"]       # (ConstantVar("a"), Lazy(x, ...))

An OrderedDict, and instances of a program's subclasses, are coverage (more/container_classes.py).
Mirrors torch/_dynamo/variables/builder.py (wrap_listlike, _wrap for dicts).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..exceptions import Break
from .base import Lazy, OutputGraph, Source, Variable
from .containers import DictVar, ListVar, TupleVar
from .registry import SHARED


@SHARED.rule(list)
def list_of(builder: OutputGraph, value: Any, source: Source) -> ListVar:
    return builder.replayed(ListVar(items_of(builder, value, source), source=source))


@SHARED.rule(tuple, torch.Size)
def tuple_of(builder: OutputGraph, value: Any, source: Source) -> TupleVar:
    items = items_of(builder, value, source)
    return builder.replayed(TupleVar(items, type(value), source=source))


def items_of(builder: OutputGraph, value: Any, source: Source) -> list[Variable]:
    """The items of a list or tuple, whose number is guarded."""
    builder.guard(source, "LENGTH", f"len({{0}}) == {len(value)}")
    return [Lazy(item, source.item(n)) for n, item in enumerate(value)]


@SHARED.rule(dict)
def dict_of(builder: OutputGraph, value: Any, source: Source) -> DictVar:
    if "__builtins__" in value:
        raise Break("dictionary", "a module's globals as a dictionary")
    items = pairs_of(builder, value.items(), source)
    return builder.replayed(DictVar(items, source=source, real_keys=list(value)))


def pairs_of(
    builder: OutputGraph, pairs: Iterable[tuple[Any, Any]], source: Source, kind: str = "item"
) -> dict[Any, tuple[Variable, Variable]]:
    """The items of a `DictVar`.  kind: of the source of an item that a constant names."""
    items: dict[Any, tuple[Variable, Variable]] = {}
    for key, item in pairs:
        variable = builder.wrap_key(key)
        if type(key) in (str, int, bool, type(None)):
            child = source.child(kind, key)
        else:
            child = source.child("pinned_item", builder.tree.pinned(key).key)
        items[variable.hash_key(builder.frame)] = (variable, Lazy(item, child))
    return items
