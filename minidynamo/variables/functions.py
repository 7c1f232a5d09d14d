"""Callables: Python functions (inlined), closures and their cells, bound methods, C callables.

In:   arguments as variables.   Out: whatever inlining (`tx.inline`) or the rules for C callables
      give.

    >>> builder.wrap_pinned(fn).call(tx, [x], {})      # traces fn's bytecode in place

Mirrors torch/_dynamo/variables/functions.py (paper section 3.4, inlining).
"""

from __future__ import annotations

import functools
import types
from dataclasses import field
from typing import Any

import torch

from .base import Args, Frame, Lazy, Named, OutputGraph, RealVar, Source, Variable
from .constant import ConstantVar, is_constant_value
from .registry import BY_VALUE, PINNED


class CellVar(Variable):
    """A closure cell: `content` is None while unbound."""

    cls = types.CellType
    content: Any = None
    cell: Any = None  # the real cell, or the name of a cell variable of the compiled frame

    def load(self, tx: Frame) -> Any:
        if type(self.content) is Lazy:
            self.content = self.content.realize(tx)
        return self.content

    def store(self, value: Variable) -> None:
        self.content, self.mutated = value, True


class FunctionVar(Variable):
    """A Python function: a real one (`fn`) or one made in this frame (`fn` None)."""

    cls = types.FunctionType
    fn: Any
    code: types.CodeType
    globals: dict
    name: str
    defaults: tuple = ()
    kwdefaults: dict = field(default_factory=dict)
    closure: tuple = ()

    def identity(self) -> Any:
        return self if self.fn is None else self.fn

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return tx.call_function(self, args, kwargs)


class BoundMethodVar(Variable):
    """function.__get__(instance)."""

    function: Any
    instance: Variable
    cls: type = types.MethodType

    getattr = Variable.generic_getattr

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return self.function.call(tx, [self.instance, *args], kwargs)


class MethodVar(Variable):
    """A method found by name on a variable that implements it natively (list.append, tensor.view,
    str.join...)."""

    instance: Variable
    name: str
    native = True

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return self.instance.call_method(tx, self.name, args, kwargs)


class CallableVar(RealVar):
    """A C callable or torch function: builtins, method descriptors, slot wrappers, `torch.*`; the
    rules decide."""

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return tx.call_c(self.value, args, kwargs)


# ---- functions, methods and callables from outside
C_CALLABLES = (
    *(types.BuiltinFunctionType, types.MethodWrapperType, functools._lru_cache_wrapper),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, torch._ops.OpOverload, torch._ops.OpOverloadPacket),
    type(torch.ops.aten),
)


@BY_VALUE.rule(types.FunctionType)
def wrap_function(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """A Python function: one that lies in a fixed object is guarded by its identity; others by
    their code, and by their defaults where those are used."""
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


def function_of(builder: OutputGraph, fn: Any, source: Source) -> FunctionVar:
    """FunctionVar of a real function; defaults and cells are read through `source`."""
    defaults, kwdefaults, closure = [], {}, []
    for n, value in enumerate(fn.__defaults__ or ()):
        defaults.append(Lazy(value, source.attr("__defaults__").item(n)))
    for name, value in (fn.__kwdefaults__ or {}).items():
        kwdefaults[name] = Lazy(value, source.attr("__kwdefaults__").item(name))
    for n, cell in enumerate(fn.__closure__ or ()):
        closure.append(builder.wrap_cell(cell, source.child("closure", n)))
    parts = fn.__code__, fn.__globals__, fn.__qualname__
    return FunctionVar(fn, *parts, tuple(defaults), kwdefaults, tuple(closure), source=source)


@PINNED.rule(types.FunctionType)
def pinned_function(builder: OutputGraph, value: Any) -> Variable:
    builder.guard_function(value)
    variable = function_of(builder, value, builder.tree.pinned(value))
    variable.defaults = tuple(map(constant_at_once, variable.defaults))
    variable.source = None
    return variable


def constant_at_once(default: Lazy) -> Variable:
    """`guard_function` guards which tuple the defaults are: constants in it need no guard."""
    return ConstantVar(default.value) if is_constant_value(default.value) else default


@PINNED.rule(*C_CALLABLES, test=lambda value: issubclass(type(value), C_CALLABLES), order=30)
def pinned_callable(builder: OutputGraph, value: Any) -> Variable:
    return CallableVar(value)
