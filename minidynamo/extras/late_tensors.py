"""A graph break before which no tensor was met: may some follow?

In:   the compiler, the frame's code and its arguments, before the frame is given up.
Out:  True, and the frame is split there; else it runs as plain Python from then on.

    @minidynamo.compile
    def f(path):
        x = load(path)          # a graph break; the rest is worth a function of its own
        return x.relu() + 1
"""

import collections
import types
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from .. import hooks
from ..conversion import Conversion
from ..exceptions import NoTensors
from ..resume import is_resume_code
from ..symbolic_eval.evaluator import RootFrame
from .extending import extends

plain_judgement = Conversion.is_worth_it

TRIES = 4
# compiler -> file and line of a function -> how often it was split so
Tries = collections.Counter[tuple[str, int]]
tries: "weakref.WeakKeyDictionary[Any, Tries]" = weakref.WeakKeyDictionary()


def may_be_met(compiler: Any, code: types.CodeType, args: Sequence[Any]) -> bool:
    """Yes for a function that was given to `compile` itself, and where an argument is or holds a
    tensor.  A method of a module, or the rest of a function, is split a few times in that hope:
    all that it does may be NumPy's."""
    place = code.co_filename, code.co_firstlineno
    own = compiler.compiled_by_name.values()
    if place in [(compiled.co_filename, compiled.co_firstlineno) for compiled in own]:
        return True
    kinds = [type(value) for value in with_items(args)]
    if any(issubclass(kind, torch.Tensor) for kind in kinds):
        return True
    counts = tries.setdefault(compiler, Tries())
    counts[place] += 1
    method = any(issubclass(kind, torch.nn.Module) for kind in kinds)
    return (method or is_resume_code(code)) and counts[place] <= TRIES


def with_items(args: Sequence[Any]) -> list[Any]:
    """The arguments, with the items of a list, tuple or dict in its place."""
    found: list[Any] = []
    for value in args:
        if type(value) in (list, tuple):
            found += value
        elif type(value) is dict:
            found += value.values()
        else:
            found.append(value)
    return found


@extends(Conversion)
def is_worth_it(conversion: Conversion, frame: RootFrame) -> bool:
    try:
        return plain_judgement(conversion, frame)
    except NoTensors:
        if may_be_met(conversion.compiler, conversion.code, conversion.args):
            return True
        raise


hooks.RESETS.append(tries.clear)
