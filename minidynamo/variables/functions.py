"""Callables: Python functions (inlined), closures and their cells, bound methods, C callables.

In:   arguments as variables.   Out: whatever inlining (`tx.inline`) or the rules for C callables
      give.

    >>> builder.wrap_pinned(fn).call(tx, [x], {})      # traces fn's bytecode in place

Mirrors torch/_dynamo/variables/functions.py (paper section 3.4, inlining).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable
from dataclasses import field
from typing import Any

import torch

from .base import Args, Frame, Lazy, Named, OutputGraph, RealVar, Source, Variable
from .registry import BY_VALUE, PINNED, by_identity


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
    """function.__get__(instance): a method that is written in Python, and traced."""

    function: Any
    instance: Variable
    cls: type = types.MethodType

    getattr = Variable.generic_getattr  # which refuses

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

    def truth(self, tx: Frame) -> bool:
        return True


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


# (Those that a program makes anew are guarded by their code alone: more/made_functions.py.)
BY_VALUE.rule(types.FunctionType)(by_identity)


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
    builder.guard_function(value)
    variable = function_of(builder, value, builder.tree.pinned(value))
    variable.source = None  # rebuilt, it is the object itself
    return variable


@PINNED.rule(*C_CALLABLES, test=lambda value: issubclass(type(value), C_CALLABLES), order=30)
def pinned_callable(builder: OutputGraph, value: Any) -> Variable:
    return CallableVar(value)
