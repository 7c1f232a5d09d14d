"""Objects whose end the program may notice: a lock, a temporary file, what a weak reference sees.

In:   a frame at its graph break.
Out:  locals that the replacement code keeps though nothing reads them, and arguments that it lets
      go, so that such objects die where they die in plain Python.

    def f(x, file):
        file = None             # the file is closed here, and not when `f` returns
        print("a graph break")

Without this file they live a little longer, or shorter.
"""

from collections.abc import Collection

import torch

from .extending import extends
from .. import hooks
from ..replacement import Tail
from ..symbolic_eval.evaluator import RootFrame
from ..variables.base import Lazy, Variable, peek
from ..variables.constant import is_constant_value
from ..variables.more.exceptions import INSTANCES
from ..variables.more.opaque import OpaqueVar
from ..variables.objects import ObjectVar


@extends(Tail)
class NoticedEnds(Tail):
    def unbind(self, live: Collection[str]) -> None:
        for name in self.frame.bound:
            if self.has_ended(name, live) and name not in self.code.co_cellvars:
                self.emit("DELETE_FAST", name)

    def has_ended(self, name: str, live: Collection[str]) -> bool:
        """Is the value that the argument `name` had no longer held by the frame?  Not where it was
        deleted, nor where the name is bound anew, nothing reads it, and the program may notice the
        end of the old value."""
        value, was = self.frame.locals.get(name), self.frame.bound[name]
        if value is None:
            return True
        rebound = name not in live and value.source is not was.source
        return rebound and end_is_noticed(was)


def kept(tail: Tail) -> set[str]:
    """Locals whose end the program may notice, or that the frame's exceptions know."""
    deleted = deleted_by_python(tail.frame)
    return {
        name
        for name, value in tail.frame.locals.items()
        if end_is_noticed(value) or id(value) in tail.variable_temps and type(value) in INSTANCES
        if name != deleted
    }


hooks.KEPT.append(kept)


def deleted_by_python(frame: RootFrame) -> str | None:
    """The name that the instruction deletes at which the frame is split (see finalizers.py)."""
    if frame.split is None:
        return None
    operation = frame.info.operations[frame.split[0]]
    return operation.arg if operation.op == "DELETE_FAST" else None


def end_is_noticed(value: Variable) -> bool:
    """Does this local hold an argument whose end the program may notice (a lock, a temporary file),
    whether it is read again or not?  An object made here can be noticed only once it is rebuilt for
    something else."""
    if value.source is None or value.source.kind != "local":
        return False
    held = peek(value)
    if type(held) is Lazy:
        return not (is_constant_value(held.value) or issubclass(type(held.value), torch.Tensor))
    return isinstance(held, (ObjectVar, OpaqueVar))
