"""Real values that cannot be traced: they may be passed on.

In:   a value that no rule takes.
Out:  a variable that the program may bind, hand to a function or return; using it breaks the graph.

    def f(x, lock):
        return g(x, lock)       # nothing asks for the lock: one graph

Without this file the graph breaks where such a value is looked at first.
"""

import collections
import random
import threading
import types
import weakref
from typing import Any, NoReturn

import torch

from ...extras.extending import extends
from ...exceptions import Break
from ..base import RealVar, Source, Variable
from ..builder import Builder
from ..lookup import lookup
from ..registry import SHARED

plain_wrap = Builder.wrap_shared


class OpaqueVar(RealVar):
    """A real value that cannot be traced: it may be passed on; using it breaks the graph."""

    broken: Break

    def _refuse(self, *args: Variable) -> Any:
        raise self.broken


REFUSED = (
    *("as_constant", "real", "hash_key", "getattr", "setattr", "delattr", "call", "call_method"),
    *("truth", "iterate", "length", "getitem", "setitem", "delitem", "contains", "argument"),
)
extends(OpaqueVar, *REFUSED)(OpaqueVar._refuse)


# What has state of its own in C, or in each thread, and modules in C++.
UNTRACED: tuple[Any, ...] = (*weakref.ProxyTypes, threading.local, random.Random, weakref.ref)
# ... and containers of C that are rare in models.
UNTRACED += (collections.deque, types.MappingProxyType, super)


def is_untraced(value: Any) -> bool:
    kind = type(value)
    scripted = issubclass(kind, torch.nn.Module) and kind.__module__.startswith("torch.jit")
    return scripted or issubclass(kind, UNTRACED)


@SHARED.rule(test=is_untraced, order=5)
def refuse(builder: Builder, value: Any, source: Source) -> NoReturn:
    raise Break("object", f"a {type(value).__name__} is not traced", "use it outside")


@extends(Builder)
def wrap_shared(builder: Builder, value: Any, source: Source) -> Variable:
    try:
        return plain_wrap(builder, value, source)
    except Break as broken:
        builder.guard(source, "TYPE", "type({0}) is {pin}", type(value))
        return OpaqueVar(value, broken, source=source)


def compared_by_identity(variable: Variable) -> bool:
    return lookup(variable.python_type(), "__eq__")[1] is object.__eq__
