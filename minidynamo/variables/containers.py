"""Containers, instances and functions from outside, and those that the entry holds.

In:   a real object and its source.
Out:  its variable, and guards on what was asked at once: a list's length, no key of a dictionary;
      the identity of a function that lies in a fixed object, else its code.

    >>> dict_of(builder, {"a": x}, source).items["a"]       # (ConstantVar("a"), Lazy(x, ...))

Items, attributes and defaults are wrapped when they are read.  An instance of a program's subclass
of dict or list is an ObjectVar, whose contents are its `payload`; the class may have an `__len__`
or `__setitem__` of its own, which guards and the code behind the graph must not run.
Mirrors torch/_dynamo/variables/builder.py (wrap_listlike, _wrap for dicts and functions).
"""

from __future__ import annotations

import collections
import functools
import gc
import types
import typing
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from miniinductor.errors import ours

from ..errors import Break
from ..guards.checks import exact_key
from .base import BINARY, MISSING, Lazy, OutputGraph, Source, Variable, current, lookup, trusted
from .constant import HASHED_BY_IDENTITY, ConstantVar, is_constant_value
from .dicts import DictVar, ListVar, ProxyVar, SetVar, TupleVar
from .functions import BoundMethodVar, CallableVar, CellVar, FunctionVar, MethodVar, PartialVar
from .objects import ObjectVar, fields_of
from .registry import BY_VALUE, PINNED, SHARED, by_identity


@SHARED(list)
def list_of(builder: OutputGraph, value: Any, source: Source) -> ListVar:
    return builder.replayed(ListVar(items_of(builder, value, source), source=source))


@SHARED(tuple, torch.Size)
def tuple_of(builder: OutputGraph, value: Any, source: Source) -> TupleVar:
    items = items_of(builder, value, source)
    return builder.replayed(TupleVar(items, type(value), source=source))


def items_of(builder: OutputGraph, value: Any, source: Source) -> list[Variable]:
    """The items of a list or tuple, whose number is guarded."""
    kind = "TUPLE" if type(value) is tuple else "LENGTH"
    builder.guard(source, kind, f"len({{0}}) == {len(value)}")
    return [Lazy(item, source.item(n)) for n, item in enumerate(value)]


@SHARED(dict, collections.OrderedDict, collections.defaultdict)
def dict_of(builder: OutputGraph, value: Any, source: Source) -> DictVar:
    variable: Any = items_of_dict(builder, value, source, type(value))
    if type(value) is collections.defaultdict:
        variable.factory = Lazy(value.default_factory, source.attr("default_factory"))
    if type(value).__dictoffset__:  # such as `state_dict()._metadata`
        if value.__dict__:
            raise Break("attribute", "an OrderedDict that has attributes")
        builder.guard(source, "NO_ATTRIBUTES", "not {0}.__dict__")
    return builder.replayed(variable)


def items_of_dict(
    builder: OutputGraph, value: Any, source: Source, cls: type, kind: str = "item"
) -> DictVar:
    """A dictionary's variable of this class.  kind: as `pairs_of` takes it."""
    if dict.__contains__(value, "__builtins__"):
        raise Break("dictionary", "a module's globals as a dictionary")
    pairs = real_pairs(value)
    items = pairs_of(builder, pairs, source, kind)
    return DictVar(items, cls, source=source, real_keys=[key for key, _ in pairs])


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
        items[variable.hash_key(current())] = (variable, Lazy(item, child))
    return items


def result_dict(output: OutputGraph, value: dict) -> DictVar:
    pairs = [(output.wrap_result(k), output.wrap_result(v)) for k, v in value.items()]
    return DictVar({k.hash_key(current()): (k, v) for k, v in pairs})


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


@SHARED(set, frozenset)
def set_of(builder: OutputGraph, value: Any, source: Source) -> SetVar:
    if not all(is_constant_value(item) or isinstance(item, HASHED_BY_IDENTITY) for item in value):
        raise Break("set", "a set with elements that are not constants")
    check = "{{*map(exact_key, {0})}} == {pin}"
    builder.guard(source, "ELEMENTS", check, {*map(exact_key, value)})
    items = {item: builder.wrap_pinned(item) for item in value}
    return builder.replayed(SetVar(items, type(value), value, source=source))


def result_set(builder: OutputGraph, value: Any) -> SetVar:
    """A set that a folded call gave."""
    return SetVar({item: builder.wrap_result(item) for item in value}, type(value), value)


# ---- what the standard library's own classes hold
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


@SHARED(types.MappingProxyType)
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
    variable = items_of_dict(builder, value, source, base, "dict_item")
    variable.keys_text = builder.tree.pinned(base).key + ".keys({0})"
    return variable


CONTENTS: dict[type, Callable[..., Variable]] = {
    collections.OrderedDict: contents_of_dict,
    dict: contents_of_dict,
    list: contents_of_list,
}


def wrap_instance(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """An instance of a class of the program's that inherits from a container."""
    if is_plain_named_tuple(type(value)):
        items = enumerate(tuple.__iter__(value))
        fields = [Lazy(item, source.child("tuple_item", n)) for n, item in items]
        return TupleVar(fields, type(value), source=source)
    if issubclass(type(value), tuple):
        raise Break("object", f"a {type(value).__name__}, of a subclass of tuple")
    variable = wrap_object(builder, value, source)
    base = next(base for base in CONTENTS if issubclass(type(value), base))
    variable.payload = CONTENTS[base](builder, value, source, base)
    builder.sourced.insert(-1, variable.payload)  # its writes are repeated with the instance's
    return variable


# ---- instances of classes that no rule knows better
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


def wrap_optimizer(builder: OutputGraph, value: Any, source: Source) -> ObjectVar:
    if not builder.policy.fresh_modules:
        builder.modules.append(value)  # its entries, which hold its parameters, go with it
    return wrap_object(builder, value, source)


# ---- functions, methods and callables from outside
C_CALLABLES = (
    *(types.BuiltinFunctionType, types.MethodWrapperType, functools._lru_cache_wrapper),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, torch._ops.OpOverload, torch._ops.OpOverloadPacket),
    type(torch.ops.aten),
)


def function_of(builder: OutputGraph, fn: Any, source: Source) -> FunctionVar:
    """FunctionVar of a real function; defaults and cells are read through `source`."""

    def read(name: str, pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Lazy]:
        return {key: Lazy(value, source.attr(name).item(key)) for key, value in pairs}

    defaults = read("__defaults__", enumerate(fn.__defaults__ or ()))
    named = read("__kwdefaults__", (fn.__kwdefaults__ or {}).items())
    cells = enumerate(fn.__closure__ or ())
    closure = tuple(builder.wrap_cell(cell, source.child("closure", n)) for n, cell in cells)
    parts = fn.__code__, fn.__globals__, fn.__qualname__, tuple(defaults.values()), named, closure
    return FunctionVar(fn, *parts, source=source)


def closure_of(builder: OutputGraph, function: Any, code: types.CodeType) -> tuple[CellVar, ...]:
    """A variable for each cell of the function's closure."""
    tree, closure = builder.tree, []
    for n, (name, cell) in enumerate(zip(code.co_freevars, function.__closure__ or ())):
        closure.append(builder.wrap_cell(cell, tree.free_cell(n), tree.free(n, name)))
        closure[-1].cell = name
    return tuple(closure)


@PINNED(types.FunctionType)
def pinned_function(builder: OutputGraph, value: Any) -> Variable:
    """`guard_function` guards which tuple the defaults are: constants in it need no guard."""
    builder.guard_function(value)
    variable = function_of(builder, value, builder.tree.pinned(value))
    variable.source = None  # rebuilt, it is the object itself
    variable.defaults = tuple(
        ConstantVar(default.value) if is_constant_value(default.value) else default
        for default in variable.defaults
    )
    return variable


@BY_VALUE(types.FunctionType)
def wrap_function(builder: OutputGraph, value: Any, source: Source) -> Variable:
    if source.root().kind == "pinned":
        if source.kind != "pinned":
            builder.guard_fixed(source, value)
        return builder.wrap_pinned(value)
    known = builder.memo.get(id(value))
    if known is None:
        builder.guard(source, "TYPE", "type({0}) is {pin}", types.FunctionType)
        builder.guard(source, "CODE", "{0}.__code__ is {pin}", value.__code__)
        guard_defaults(builder, value, source)
        known = builder.memo[id(value)] = (function_of(builder, value, source), value)
    elif known[0].source is not source:
        builder.guard_pair("{0} is {1}", source, known[0].source)
    return known[0]


def guard_defaults(builder: OutputGraph, function: Any, source: Source) -> None:
    """Guard the number and the names of a function's defaults; values are guarded where they are
    used."""
    names = list(function.__kwdefaults__ or ())
    check = f"len({{0}}.__defaults__ or ()) == {len(function.__defaults__ or ())}"
    builder.guard(source, "DEFAULTS", f"{check} and [*({{0}}.__kwdefaults__ or ())] == {names!r}")


BY_VALUE(types.ModuleType)(by_identity)


@BY_VALUE(*C_CALLABLES)
def wrap_c_callable(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """What C code gives is held by reference; a method of an object is its name on that object."""
    kind = type(value)
    if kind is types.BuiltinMethodType and not isinstance(
        value.__self__, (types.ModuleType, type, type(None))
    ):
        check = f"type({{0}}) is {{pin}} and {{0}}.__name__ == {value.__name__!r}"
        builder.guard(source, "METHOD", check, kind)
        instance = builder.wrap(value.__self__, source.attr("__self__"))
        method: Any = MethodVar(instance, value.__name__, source=source)
        method.given = value
        return method
    if kind is types.BuiltinFunctionType:
        builder.guard(source, "EQ", "{0} == {pin}", value)
    else:
        same = "{0} == {pin}" if kind is types.MethodWrapperType else "{0} is {pin}"
        builder.guard(source, "ID", same, value)
    return builder.wrap_pinned(value)


@SHARED(types.MethodType)
def wrap_method(builder: OutputGraph, value: Any, source: Source) -> Variable:
    function = builder.wrap(value.__func__, source.attr("__func__"))
    instance = builder.wrap(value.__self__, source.attr("__self__"))
    return BoundMethodVar(function, instance, source=source)


# list[int], typing.List, a TypeVar: C code and typing's classes know what to do with them.
TYPING = (types.GenericAlias, types.UnionType, typing._Final, typing.TypeVar)


class TypingVar(CallableVar):
    """A type of `typing`, which may be an index of others: Callable[[T], int]."""

    as_constant = CallableVar.real


def is_fixed_callable(value: Any) -> bool:
    """A callable of C without attributes of its own: operator.itemgetter(0)."""
    kind = type(value)
    plain = trusted(kind.__module__) and not hasattr(kind, "__dict__")
    return callable(value) and plain and not isinstance(value, weakref.ref)


@SHARED(functools.partial)
def wrap_partial(builder: OutputGraph, value: Any, source: Source) -> PartialVar:
    """Guard the number and the names of the arguments; the rest is guarded where it is used."""
    lengths = f"len({{0}}.args) == {len(value.args)} and [*{{0}}.keywords] == {{pin}}"
    builder.guard(source, "LENGTH", lengths, list(value.keywords))
    wrap = builder.wrap
    args = [wrap(a, source.attr("args").item(n)) for n, a in enumerate(value.args)]
    kwargs = {k: wrap(v, source.attr("keywords").item(k)) for k, v in value.keywords.items()}
    return PartialVar(wrap(value.func, source.attr("func")), args, kwargs, source=source)
