"""Real values that cannot be traced: they may be passed on.

In:   a value that no rule takes.
Out:  a variable that the program may bind, hand to a function or return; using it breaks the graph.

    def f(x, lock):
        return g(x, lock)       # nothing asks for the lock: one graph
"""

import collections
import random
import threading
import weakref
from typing import Any, NoReturn, cast

import torch

from ...exceptions import Break
from ...sources import KINDS
from ..base import Args, Frame, Named, OutputGraph, RealVar, Source, Variable
from ..lookup import lookup
from ..registry import SHARED

KINDS["call"] = "{p}()"


class OpaqueVar(RealVar):
    """A real value that cannot be traced: it may be passed on; using it breaks the graph."""

    broken: Break

    def _refuse(self: Any, *args: Any) -> Any:
        raise self.broken

    refused = cast(Any, _refuse)
    as_constant = real = hash_key = getattr = setattr = delattr = call = call_method = refused
    truth = iterate = length = getitem = setitem = delitem = contains = argument = refused


# What has state of its own in C, or in each thread, and modules in C++.
UNTRACED: tuple[Any, ...] = (*weakref.ProxyTypes, threading.local, random.Random)
# ... and containers of C that are rare in models.
UNTRACED += (collections.deque, super)


def is_untraced(value: Any) -> bool:
    kind = type(value)
    scripted = issubclass(kind, torch.nn.Module) and kind.__module__.startswith("torch.jit")
    return scripted or issubclass(kind, UNTRACED)


class WeakRefVar(OpaqueVar):
    """A weak reference: a call gives its object, which plain Python may have let go by then if
    the frame has written anything."""

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        if args or kwargs or any(known.mutated for known in tx.output.sourced):
            raise self.broken
        return tx.output.wrap(self.value(), self.source.child("call"))


@SHARED.rule(test=lambda value: issubclass(type(value), weakref.ref), order=5)
def wrap_weak_reference(builder: OutputGraph, value: Any, source: Source) -> WeakRefVar:
    broken = Break("object", "a weak reference is not traced", "hold the object itself")
    return WeakRefVar(value, broken, source=source)


@SHARED.rule(test=is_untraced, order=5)
def refuse(builder: OutputGraph, value: Any, source: Source) -> NoReturn:
    raise Break("object", f"a {type(value).__name__} is not traced", "use it outside")


def compared_by_identity(variable: Variable) -> bool:
    return lookup(variable.python_type(), "__eq__")[1] is object.__eq__
