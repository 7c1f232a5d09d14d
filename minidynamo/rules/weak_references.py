"""weakref.ref(x) in a frame, as `weakref.WeakKeyDictionary` and `WeakSet` make them for each look.

    states = weakref.WeakKeyDictionary()
    x * states[module]          # its source: self.data[ref(key)]

In, out: see `symbolic_eval.registry`.  `x` is from outside: its own end is plain Python's matter,
and the entry does not hold it.
Mirrors torch/_dynamo/variables/misc.py (WeakRefVariable).
"""

import weakref
from typing import Any

import torch

from ..exceptions import Break
from ..symbolic_eval.registry import rule
from ..variables.base import Args, Codegen, Frame, Named, RealVar, Variable, peek
from ..variables.constant import ConstantVar
from ..variables.containers import DictVar
from ..variables.more.weak_references import WeakRefVar, hashed_by_identity, lets_go
from ..variables.objects import ObjectVar
from ..variables.tensor import TensorVar
from .same_objects import fixed_object


class NewWeakRefVar(WeakRefVar):
    """One that the frame made; `value` is one that is equal to it."""

    shared = True
    of: Variable
    callback: Variable

    hash_key = RealVar.hash_key

    def identity(self) -> Any:
        return self.value if self.callback.identity() is None else self

    def getattr(self, tx: Frame, name: str) -> Variable:
        return tx.method_of(self, name)

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        if args or kwargs or lets_go(tx.output, self.value()):
            raise Break("object", "what a weak reference refers to, after writes")
        return self.of

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(weakref.ref, self.of, self.callback)


class LocalWeakRefVar(Variable):
    """One to an object of this call: a tensor that it was given, or what the frame made."""

    shared = True
    of: Variable
    cls = weakref.ref

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        frame: Any = tx
        while frame is not None and not args and not kwargs:
            if any(peek(value) is self.of for value in frame.locals.values()):
                return self.of
            frame = frame.parent
        raise Break("object", "what a weak reference refers to, which no local variable holds")

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(weakref.ref, self.of)


def is_of_this_call(tx: Frame, value: Variable) -> bool:
    """May a weak reference to it be made, and is it another object in each call?"""
    if isinstance(value, TensorVar):
        return value.source is None or value.source.kind == "local"
    if type(value) is DictVar and value.source is None:
        return bool(value.cls.__weakrefoffset__)
    made_here = type(value) is ObjectVar and value.value is None and value.payload is None
    return made_here and bool(value.cls.__weakrefoffset__)


@rule(weakref.ref)
def _ref(tx: Frame, value: Variable, callback: Variable = ConstantVar(None), /) -> Variable:
    if is_of_this_call(tx, value) and callback.identity() is None:
        return LocalWeakRefVar(value)
    real = object_at_hand(tx, value)
    if real is None or not hashed_by_identity(type(real)):
        raise Break("object", f"a weak reference to {value}", "make it outside of f")
    return NewWeakRefVar(weakref.ref(real), value, callback)


def object_at_hand(tx: Frame, value: Variable) -> Any:
    """The real object, if it is the same one in every call of this entry; else None."""
    found = fixed_object(tx, value)
    if found is not None or not isinstance(value, ObjectVar) or value.value is None:
        return None if isinstance(found, torch.Tensor) else found
    if not value.cls.__weakrefoffset__:
        return None
    tx.output.guard(value.source, "ID", f"id({{0}}) == {id(value.value)}")
    tx.output.modules.append(value.value)  # the entry goes with it
    return value.value
