"""Containers from outside: lists, tuples and dictionaries whose items are wrapped when read.

In:   a real container and its source.
Out:  its variable, and guards on what was asked at once: a list's length, no key of a dictionary.

    >>> dict_of(builder, {"a": x}, source).items["a"]       # (ConstantVar("a"), Lazy(x, ...))

An OrderedDict, and instances of a program's subclasses, are coverage (more/container_classes.py).
Mirrors torch/_dynamo/variables/builder.py (wrap_listlike, _wrap for dicts).
"""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..exceptions import Break
from ..foreign import ours
from ..guards import NAMES
from ..sources import KINDS
from .base import Lazy, OutputGraph, Source, Variable
from .containers import DictVar, ListVar, ProxyVar, TupleVar
from .lookup import BINARY, MISSING, lookup
from .objects import ObjectVar, wrap_object
from .registry import RESULTS, SHARED


# the methods of the program's class are not asked
for _type in (dict, list, tuple):
    KINDS[f"{_type.__name__}_item"] = f"{_type.__name__}.__getitem__({{p}}, {{k!r}})"


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


@RESULTS.rule(dict)
def result_of_call(output: OutputGraph, value: dict) -> DictVar:
    pairs = [(output.wrap_result(k), output.wrap_result(v)) for k, v in value.items()]
    return DictVar({k.hash_key(output.frame): (k, v) for k, v in pairs})


# What a named tuple must have from tuple, or not at all: else it is an instance of its class.
SPECIAL = [
    *(f"__{kind}{name}__" for kind in ("", "r", "i") for name in BINARY),
    *"__lt__ __le__ __eq__ __ne__ __gt__ __ge__ __hash__ __bool__ __len__ __iter__".split(),
    *"__contains__ __getitem__ __setitem__ __delitem__ __reversed__ __call__ __init__".split(),
    *"__neg__ __pos__ __invert__ __abs__ __int__ __float__ __index__ __enter__ __next__".split(),
    *"__getattribute__ __getattr__ __setattr__ __delattr__ __length_hint__ __divmod__".split(),
]


def is_plain_named_tuple(cls: type) -> bool:
    """A class with `_fields` whose objects have no `__dict__` and no operators of their own."""
    if not hasattr(cls, "_fields") or cls.__new__ is tuple.__new__ or cls.__dictoffset__:
        return False
    known = vars(object) | vars(tuple)
    return all(lookup(cls, name)[1] is known.get(name, MISSING) for name in SPECIAL)


@RESULTS.rule(
    test=lambda value: isinstance(value, tuple) and is_plain_named_tuple(type(value)), order=5
)
def named_result(output: OutputGraph, value: Any) -> Variable:
    return TupleVar([output.wrap_result(item) for item in value], type(value))


@SHARED.rule(
    test=lambda value: issubclass(type(value), tuple) and is_plain_named_tuple(type(value))
)
def wrap_named_tuple(builder: OutputGraph, value: Any, source: Source) -> TupleVar:
    items = enumerate(tuple.__iter__(value))
    return TupleVar(
        [Lazy(item, source.child("tuple_item", n)) for n, item in items], type(value), source=source
    )


# ---- what the standard library's own classes hold
@SHARED.rule(collections.OrderedDict, collections.defaultdict)
def special_dict(builder: OutputGraph, value: Any, source: Source) -> Variable:
    pairs = real_pairs(value)
    items = pairs_of(builder, pairs, source)
    keys = [key for key, _ in pairs]
    variable: Any = DictVar(items, type(value), source=source, real_keys=keys)
    if type(value) is collections.defaultdict and value.default_factory is not None:
        variable.factory = Lazy(value.default_factory, source.attr("default_factory"))
    if type(value).__dictoffset__:  # such as `state_dict()._metadata`
        if value.__dict__:
            raise Break("attribute", "an OrderedDict that has attributes")
        builder.guard(source, "NO_ATTRIBUTES", "not {0}.__dict__")
    return builder.replayed(variable)


def real_pairs(value: Any) -> list[tuple[Any, Any]]:
    """Keys and values in the order that the program sees: dict.items() of an OrderedDict forgets
    move_to_end()."""
    if not isinstance(value, collections.OrderedDict):
        return [*dict.items(value)]
    try:
        pairs = [*collections.OrderedDict.items(value)]
    except ours(KeyError, RuntimeError):
        pairs = None
    # dict.__setitem__() and the like leave the order alone: then len() and iter() disagree.
    if pairs is None or len(pairs) != dict.__len__(value):
        raise Break("dictionary", "an OrderedDict that was written by dict's methods")
    return pairs


KINDS["behind"] = "get_referents({p})[0]"
NAMES["get_referents"] = gc.get_referents


@SHARED.rule(types.MappingProxyType)
def wrap_mapping_proxy(builder: OutputGraph, value: Any, source: Source) -> ProxyVar:
    behind = gc.get_referents(value)[0]
    if type(behind) not in (dict, collections.OrderedDict):
        raise Break("dictionary", f"a mappingproxy of a {type(behind).__name__}")
    return ProxyVar(builder.wrap(behind, source.child("behind")), source=source)


# ---- what an instance of a program's class holds
def contents_of_list(builder: OutputGraph, value: Any, source: Source, base: type) -> ListVar:
    values = list.__getitem__(value, slice(None))
    builder.guard(source, "LENGTH", f"list.__len__({{0}}) == {len(values)}")
    items = [Lazy(item, source.child("list_item", n)) for n, item in enumerate(values)]
    return ListVar(items, source=source)


def contents_of_dict(builder: OutputGraph, value: Any, source: Source, base: type) -> DictVar:
    if dict.__contains__(value, "__builtins__"):
        raise Break("dictionary", "a module's globals as a dictionary")
    pairs = real_pairs(value)
    items = pairs_of(builder, pairs, source, "dict_item")
    keys = [key for key, _ in pairs]
    keys_text = builder.tree.pinned(base).key + ".keys({0})"
    return DictVar(items, base, source=source, real_keys=keys, keys_text=keys_text)


CONTENTS: dict[type, Callable[..., Variable]] = {
    collections.OrderedDict: contents_of_dict,
    dict: contents_of_dict,
    list: contents_of_list,
}


@SHARED.rule(test=lambda value: issubclass(type(value), (tuple, *CONTENTS)), order=99)
def wrap_instance(builder: OutputGraph, value: Any, source: Source) -> ObjectVar:
    """An instance of a class of the program's that inherits from a container."""
    if issubclass(type(value), tuple):
        raise Break("object", f"a {type(value).__name__}, of a subclass of tuple")
    variable = wrap_object(builder, value, source)
    base = next(base for base in CONTENTS if issubclass(type(value), base))
    variable.payload = CONTENTS[base](builder, value, source, base)
    builder.sourced.insert(-1, variable.payload)  # its writes are repeated with the instance's
    return variable
