"""Functions, methods and callables of C from outside, and those that the entry holds.

In:   a function and its source.
Out:  its variable: guarded by its identity where it lies in a fixed object; else by its code, and
      by its defaults where those are used.  Defaults of a fixed function that are constants need no
      guards of their own.

    def step(x, scale):
        return apply(x, lambda y: y * scale)        # another lambda each time, of the same code
"""

from __future__ import annotations

import functools
import types
import typing
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from .base import Lazy, OutputGraph, Source, Variable
from .constant import ConstantVar, is_constant_value
from .functions import BoundMethodVar, CallableVar, FunctionVar, MethodVar, PartialVar
from .lookup import trusted
from .registry import BY_VALUE, PINNED, SHARED, by_identity


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


@PINNED.rule(types.FunctionType)
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


@PINNED.rule(*C_CALLABLES, test=lambda value: issubclass(type(value), C_CALLABLES), order=30)
def pinned_callable(builder: OutputGraph, value: Any) -> Variable:
    return CallableVar(value)


@BY_VALUE.rule(types.FunctionType)
def wrap_function(builder: OutputGraph, value: Any, source: Source) -> Variable:
    if source.root().kind == "pinned":
        if source.kind != "pinned":
            builder.guard(source, "ID", "{0} is {pin}", value)
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
    """As many defaults, for the same names: their values are guarded where they are used."""
    names = list(function.__kwdefaults__ or ())
    check = f"len({{0}}.__defaults__ or ()) == {len(function.__defaults__ or ())}"
    builder.guard(source, "DEFAULTS", f"{check} and [*({{0}}.__kwdefaults__ or ())] == {names!r}")


@SHARED.rule(types.CellType)
def wrap_cell(builder: OutputGraph, cell: Any, source: Source) -> Variable:
    return builder.wrap_cell(cell, source)


@BY_VALUE.rule(*C_CALLABLES)
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


@SHARED.rule(types.MethodType)
def wrap_method(builder: OutputGraph, value: Any, source: Source) -> Variable:
    function = builder.wrap(value.__func__, source.attr("__func__"))
    instance = builder.wrap(value.__self__, source.attr("__self__"))
    return BoundMethodVar(function, instance, source=source)


def is_typing(value: Any) -> bool:
    """list[int], typing.List, a TypeVar: C code and typing's classes know what to do with them."""
    aliases = (types.GenericAlias, typing._Final)
    return isinstance(value, aliases) or getattr(type(value), "__module__", "") == "typing"


class TypingVar(CallableVar):
    """It is an index of others: Callable[[T], int]."""

    as_constant = CallableVar.real


@PINNED.rule(test=is_typing, order=40)
def pinned_typing(builder: OutputGraph, value: Any) -> Variable:
    return TypingVar(value)


def is_fixed_callable(value: Any) -> bool:
    """A callable of C without attributes of its own: operator.itemgetter(0)."""
    kind = type(value)
    plain = trusted(kind.__module__) and not hasattr(kind, "__dict__")
    return callable(value) and plain and not isinstance(value, weakref.ref)


BY_VALUE.rule(test=lambda value: issubclass(type(value), typing._Final), order=20)(by_identity)
PINNED.rule(test=is_fixed_callable, order=60)(pinned_callable)


@SHARED.rule(functools.partial)
def wrap_partial(builder: OutputGraph, value: Any, source: Source) -> PartialVar:
    """As many arguments, for the same names; the rest is guarded where it is used."""
    lengths = f"len({{0}}.args) == {len(value.args)} and [*{{0}}.keywords] == {{pin}}"
    builder.guard(source, "LENGTH", lengths, list(value.keywords))
    wrap = builder.wrap
    args = [wrap(a, source.attr("args").item(n)) for n, a in enumerate(value.args)]
    kwargs = {k: wrap(v, source.attr("keywords").item(k)) for k, v in value.keywords.items()}
    return PartialVar(wrap(value.func, source.attr("func")), args, kwargs, source=source)
