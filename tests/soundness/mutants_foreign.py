"""Mutants of foreign exceptions: one `except` clause is widened, or one part of the state is not
put back.

Not here, since only one of some thousand moments shows them, and tests/test_soundness_foreign.py
raises at that moment: `remembered` (C++ answers what arrives in `SymNode.maybe_as_int`),
`replaced_by` (torch's `__exit__` fails after a cut-short `__enter__`) and `FakeMode` (C++ finds a
fake mode in its place and ends the process).
"""

import functools
from typing import Any

import torch

import minidynamo.convert.convert_frame
import minidynamo.graph.output_graph
import minidynamo.guards.guards
import minidynamo.shapes.symbolic_numbers
import minidynamo.convert.graph_errors
import miniinductor.errors
from minidynamo.evaluate import operations

from .mutants import mutant

COMPILING = "foreign --modes eager --count 1200 --only first|shape|build|warm"
STEADY = "foreign --modes eager --count 1200 --only guards|calls"


def everything(*classes: type) -> tuple:
    """What a clause without a check would catch."""
    return classes or (Exception,)


def widened(module: Any, name: str) -> None:
    setattr(module, name, everything)


for _module, _name in (
    (minidynamo.convert.convert_frame, "faults"),
    (minidynamo.graph.output_graph, "ours"),
    (operations, "ours"),
):
    _label = f"{_module.__name__}: {_name}() catches all"
    mutant(_label, COMPILING)(functools.partial(widened, _module, _name))


@mutant("guards answer every exception", STEADY)
def guards_answer_everything() -> None:
    minidynamo.guards.guards.is_foreign = lambda error: False


@mutant("a graph that raised is repeated whatever raised", STEADY)
def graphs_answer_everything() -> None:
    minidynamo.convert.graph_errors.is_foreign = lambda error: False


@mutant("handlers are not told", COMPILING)
def handlers_are_not_told() -> None:
    miniinductor.errors.is_of_a_handler = lambda trace: False


@mutant("what another thread sets is not told", COMPILING)
def threads_are_not_told() -> None:
    miniinductor.errors.was_set_from_outside = lambda error, trace: False


@mutant("the thread's state is not put back", COMPILING)
def state_stays() -> None:
    miniinductor.errors.ThreadState.put_back = lambda self, error=None: None


@mutant(
    "functions of Python answer C++", "foreign --modes eager,aot_eager --count 1200 --only shape"
)
def python_answers() -> None:
    for kind, answers in minidynamo.shapes.symbolic_numbers.ANSWERS.items():
        told = [in_python(answer()) for answer in answers]
        minidynamo.shapes.symbolic_numbers.ANSWERS[kind] = tuple(told)


def in_python(answer: bool) -> Any:
    return lambda: answer


@mutant(
    "torch adds words", "foreign --modes aot_eager --count 2400 --only async.runtime.*(first|shape)"
)
def words_are_added() -> None:
    torch.fx.Interpreter.extra_traceback = property(lambda self: True, lambda self, value: None)
