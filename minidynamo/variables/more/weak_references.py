"""Weak references and weak proxies from outside, also as keys of dictionaries and sets.

In:   a call of a weak reference.   Out: the object that it refers to.

    >>> WeakRefVar(weakref.ref(module), source).call(tx, [], {})

What the keys of a `WeakKeyDictionary` refer to may die while the frame runs; they are then gone.
A key whose object the program has at hand is there; those of others are not walked or counted once
something was written.

Mirrors torch/_dynamo/variables/misc.py (WeakRefVariable).
"""

import types
import weakref
from typing import Any

import torch

from ...exceptions import Break
from ...reconstruct import Codegen
from ...sources import KINDS
from ..base import Args, Frame, Named, OutputGraph, RealVar, Source, Variable
from ..constant import is_constant_value
from ..functions import CellVar
from ..lookup import lookup
from ..registry import BY_VALUE, SHARED
from .dictionary_keys import KEYS
from .opaque import OpaqueVar

KINDS["call"] = "{p}()"


def lets_go(output: OutputGraph, value: Any) -> bool:
    """May `value`, which was alive when the frame began, be gone by now in plain Python: has
    anything been written, or a parameter been rebound that may have held it?"""
    cells = [variable for variable, _ in output.memo.values() if type(variable) is CellVar]
    if any(known.mutated for known in (*output.sourced, *cells, *output.root.cells.values())):
        return True
    if any(module.written for module in output.globals.values()):
        return True
    for name, bound in output.root.bound.items():
        now = getattr(output.root.locals.get(name), "source", None)
        if name in output.root.cells or now is bound.source:
            continue
        was = bound.value
        if was is value or not is_constant_value(was) and not isinstance(was, torch.Tensor):
            return True
    return False


class WeakRefVar(RealVar):
    """A weak reference from outside.  A call of it gives the object, which something alive must
    still hold: see `lets_go`."""

    hash_key, real = Variable.hash_key, Variable.real

    def getattr(self, tx: Frame, name: str) -> Variable:
        if isinstance(lookup(type(self.value), name)[1], types.MemberDescriptorType):
            return tx.output.wrap(getattr(self.value, name), self.source.attr(name))
        return tx.method_of(self, name)

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        if args or kwargs:
            raise Break("arguments", "the arguments of a weak reference")
        found = self.value()
        if lets_go(tx.output, found):
            raise Break(
                "object",
                "what a weak reference refers to, after writes that may have let it go",
                "hold the object itself",
            )
        return tx.output.wrap(found, self.source.child("call"))


class WeakKeyVar(WeakRefVar):
    """A weak reference that is a key of a dictionary or an element of a set.  It is equal to each
    other one to its object."""

    hash_key = RealVar.hash_key

    def realize(self, tx: Frame) -> Variable:
        if lets_go(tx.output, self.value()):
            raise Break("dictionary", "weak keys that are walked after writes that may end them")
        return self

    def reconstruct(self, cg: Codegen) -> None:  # once dead it would stay
        raise Break("reconstruct", "a dictionary whose weak keys are stored again")


def hashed_by_identity(kind: type) -> bool:
    """Are its objects equal to themselves alone?"""
    plain = lookup(kind, "__eq__")[1] is object.__eq__
    return plain and lookup(kind, "__hash__")[1] is object.__hash__


@KEYS.rule(test=lambda key: is_weak_reference(key))
def weak_key(builder: OutputGraph, key: Any) -> Variable:
    found = key()
    if found is None or not hashed_by_identity(type(found)):
        raise Break("dictionary", f"a weak reference to a {type(found).__name__} as a key")
    return WeakKeyVar(key)


def is_weak_reference(value: Any) -> bool:
    return issubclass(type(value), weakref.ref) and type(value).__call__ is weakref.ref.__call__


@SHARED.rule(test=is_weak_reference)
def wrap_weak_reference(builder: OutputGraph, value: Any, source: Source) -> WeakRefVar:
    return WeakRefVar(value, source=source)


@BY_VALUE.rule(*weakref.ProxyTypes)
def wrap_weak_proxy(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """Whatever one asks a proxy it is asked of its object: only its type is known."""
    builder.guard(source, "TYPE", "type({0}) is {pin}", type(value))
    return OpaqueVar(value, Break("object", "a weak proxy is not traced"), source=source)
