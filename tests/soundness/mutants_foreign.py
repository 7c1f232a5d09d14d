"""Mutants of foreign exceptions: one `except` clause is widened, or one part of the state is not
put back."""

import functools
from typing import Any

import minidynamo.convert_frame
import minidynamo.graph_capture
import minidynamo.guards
import minidynamo.undo
import miniinductor.foreign
from minidynamo.symbolic_eval import operations

from .mutants import mutant

CALLS = "foreign --modes eager --count 600"


def everything(*classes: type) -> tuple:
    """What a clause without a check would catch."""
    return classes or (Exception,)


def widened(module: Any, name: str) -> None:
    setattr(module, name, everything)


for _module, _name in (
    (minidynamo.convert_frame, "faults"),
    (minidynamo.graph_capture, "ours"),
    (operations, "ours"),
):
    _label = f"{_module.__name__}: {_name}() catches all"
    mutant(_label, CALLS)(functools.partial(widened, _module, _name))


@mutant("guards answer every exception", CALLS)
def guards_answer_everything() -> None:
    minidynamo.guards.is_foreign = lambda error: False


@mutant("a graph that raised is repeated whatever raised", CALLS)
def graphs_answer_everything() -> None:
    minidynamo.undo.is_foreign = lambda error: False


@mutant("handlers are not told", CALLS)
def handlers_are_not_told() -> None:
    miniinductor.foreign.is_of_a_handler = lambda trace: False


@mutant("what another thread sets is not told", CALLS)
def threads_are_not_told() -> None:
    miniinductor.foreign.was_set_from_outside = lambda error, trace: False


@mutant("the thread's state is not put back", CALLS)
def state_stays() -> None:
    miniinductor.foreign.ThreadState.put_back = lambda self, error=None: None
