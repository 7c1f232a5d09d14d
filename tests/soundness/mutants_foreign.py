"""Mutants of foreign exceptions: one `except` clause is widened, or one part of the state is not
put back.

Not here, since only one of some thousand moments shows it: `FakeMode` (C++ finds a fake mode in its
place and ends the process).
"""

import functools
from typing import Any

import minidynamo.convert.conversion
import minidynamo.convert.convert_frame
import minidynamo.graph.output_graph
import minidynamo.guards.guards
import minidynamo.shapes.symbolic_numbers
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
    minidynamo.convert.conversion.is_foreign = lambda error: False


@mutant("handlers are not told", COMPILING)
def handlers_are_not_told() -> None:
    miniinductor.errors.is_given = lambda frame, interrupted: False


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
