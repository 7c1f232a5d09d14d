"""The paper's comparison of ways to capture: does the graph still do what the program does?

In:   a model's name (at a tiny size: speed is not asked here).  Out: a row: for each mechanism
      "works", "wrong result" or "cannot", the cause, and the seconds that capture took.

    >>> compare("actor-critic")["state"]["torch.jit.trace"]
    'works'

Each captures the model in eval mode from one batch.  Then it has to agree with plain Python

    1. on other values, and one row more in the batch,
    2. after `model.train()`: dropout and batch norms do something else then.

A mechanism that refuses, or raises where Python does not, cannot; one that answers something else
without a word gives a wrong result.  The lazy tensors are ours, in miniature (`prior/lazy.py`).
"""

import copy
import inspect
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

import minidynamo

from .. import public_models
from ..runner import relative_error, tensors_of
from .measure import OURS, PEER, Row
from .models import MODELS, build
from .others import OTHERS

sys.path.append(str(Path(__file__).parents[2] / "notebooks"))  # where `prior` lies
from prior import LazyTensor, lazy  # noqa: E402

COLUMN = "mechanisms"  # of `--suite paper`
WORKS, WRONG, CANNOT = "works", "wrong result", "cannot"
TRACE, SCRIPT = "torch.jit.trace", "torch.jit.script"
LAZY, SYMBOLIC = "lazy tensors (ours)", "fx.symbolic_trace"
Inputs = dict[str, Any]


class AsTuple(torch.nn.Module):
    """A model as torch.jit.trace takes one: positions instead of names, a tuple as the result."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values: Any) -> tuple[torch.Tensor, ...]:
        return tuple(tensors_of(self.model(**dict(zip(self.names, values)))))


class ByName(torch.nn.Module):
    """A traced `AsTuple`, called by name again."""

    def __init__(self, traced: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.traced, self.names = traced, names

    def forward(self, **inputs: Any) -> Any:
        return self.traced(*(inputs[name] for name in self.names))


def by_trace(model: torch.nn.Module, inputs: Inputs) -> Callable:
    names = list(inputs)
    values = tuple(inputs.values())
    return ByName(torch.jit.trace(AsTuple(model, names), values, check_trace=False), names)


def by_symbols(model: torch.nn.Module, inputs: Inputs) -> Callable:
    """With what is not given kept at its default, as those who use it on such models do."""
    parameters = inspect.signature(model.forward).parameters.values()
    fixed = {
        p.name: p.default
        for p in parameters
        if p.name not in inputs and p.default is not inspect.Parameter.empty
    }
    return torch.fx.symbolic_trace(model, concrete_args=fixed)


def by_lazy_tensors(model: torch.nn.Module, inputs: Inputs) -> Callable:
    def run(**arguments: Any) -> Any:
        waiting = {
            name: lazy(value) if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
        return computed(model(**waiting))

    return run


def computed(value: Any) -> Any:
    """The values of nested lazy tensors."""
    if isinstance(value, LazyTensor):
        return value.compute()
    if isinstance(value, dict):
        return {name: computed(part) for name, part in value.items()}
    return [computed(part) for part in value] if isinstance(value, (list, tuple)) else value


MECHANISMS: dict[str, Callable[[torch.nn.Module, Inputs], Callable]] = {
    OURS: lambda model, inputs: minidynamo.compile(model, backend="eager"),
    PEER: lambda model, inputs: torch.compile(model, backend="eager"),
    TRACE: by_trace,
    SCRIPT: lambda model, inputs: torch.jit.script(model),
    SYMBOLIC: by_symbols,
    LAZY: by_lazy_tensors,
}


def other_inputs(name: str) -> Inputs:
    """Other values, and one row more in the batch."""
    torch.manual_seed(1)
    if MODELS[name] == "others":
        return OTHERS[name](3)[1]
    if MODELS[name] == "transformers":
        return public_models.build(name, seed=1, batch=3)[1]
    inputs = build(name, small=True)[1]
    return {"x": torch.randn(3, *inputs["x"].shape[1:])}


def compare(name: str, column: str = COLUMN, device: str = "cpu", peer: bool = True) -> Row:
    """A row; like `measure.measure`, whose arguments it has."""
    row: Row = {"name": name, "group": MODELS[name], "column": column}
    row |= {"state": {}, "cause": {}, "seconds": {}}
    torch.set_num_threads(1)
    try:
        model, first, _ = build(name, small=True)
        batches = [first, other_inputs(name)]
    except ImportError as missing:
        return row | {"absent": str(missing)}
    with torch.no_grad():
        for label in MECHANISMS:
            state, cause = judged(label, copy.deepcopy(model), batches, row)
            row["state"][label] = state
            if cause:
                row["cause"][label] = cause
    return row


def judged(label: str, model: torch.nn.Module, batches: list[Inputs], row: Row) -> tuple[str, str]:
    """(state, cause) of one mechanism; its seconds are entered into the row."""
    plain = copy.deepcopy(model)
    forget()
    try:
        start = time.perf_counter()
        graph = MECHANISMS[label](model, batches[0])
        found = called(graph, batches[0])
        row["seconds"][label] = time.perf_counter() - start
        expected = called(plain, batches[0])
    except Exception as problem:
        return CANNOT, shortened(problem)
    if label == OURS:
        frames = minidynamo.records.frames
        row["graphs"] = sum(frame.graph is not None for frame in frames)
        row["breaks"] = [b.reason[:100] for frame in frames for b in frame.graph_breaks][:5]
    if not same(found, expected):
        return WRONG, "the same inputs"
    try:
        if not same(called(graph, batches[1]), called(plain, batches[1])):
            return WRONG, "other inputs"
    except Exception as problem:
        return CANNOT, f"other inputs: {shortened(problem)}"
    state, cause = after_train(graph, model, plain, batches[0])
    if state == WRONG and label == PEER and draws_of_numpy(plain, batches[0]):
        return WORKS, "it draws numpy's numbers by torch: not judged in training mode"
    return state, cause


def after_train(
    graph: Callable, model: torch.nn.Module, plain: torch.nn.Module, inputs: Inputs
) -> tuple[str, str]:
    """Does the graph follow `model.train()`?  What was captured is told, too, if it can be."""
    for one in (model, plain, graph):
        if isinstance(one, torch.nn.Module):
            one.train()
    try:
        expected = called(plain, inputs)
    except Exception:  # a model that does not train on such a batch
        return WORKS, ""
    try:
        found = called(graph, inputs)
    except Exception as problem:
        return CANNOT, f"after train(): {shortened(problem)}"
    return (WORKS, "") if same(found, expected) else (WRONG, "after train()")


def draws_of_numpy(model: torch.nn.Module, inputs: Inputs) -> bool:
    """Do its results depend on numpy's random numbers?"""
    return not same(called(model, inputs, of_numpy=1), called(model, inputs))


def called(function: Callable, inputs: Inputs, of_numpy: int = 0) -> list[torch.Tensor]:
    """Floating-point results, of random numbers from one seed: SpecAugment draws numpy's."""
    torch.manual_seed(0)
    numpy.random.seed(of_numpy)
    random.seed(0)
    found = tensors_of(function(**copy.deepcopy(inputs)))
    return [tensor.detach().clone() for tensor in found if tensor.is_floating_point()]


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    """The graph is run as it is: but for the order of sums the results are eager's."""
    if [tensor.shape for tensor in found] != [tensor.shape for tensor in expected]:
        return False
    return relative_error(found, expected) < 1e-4


def shortened(problem: Exception) -> str:
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"[:160]


def forget() -> None:
    minidynamo.reset()
    torch.compiler.reset()


def table(rows: list[Row]) -> dict[str, Row]:
    """{mechanism: how many models it works for, ..., its seconds (geometric mean)}."""
    from .tables import mean

    measured = [row for row in rows if row.get("state")]
    found = {}
    for label in MECHANISMS:
        states = [row["state"][label] for row in measured]
        seconds = [row["seconds"][label] for row in measured if label in row["seconds"]]
        found[label] = {state: states.count(state) for state in (WORKS, WRONG, CANNOT)}
        found[label]["seconds"] = mean(seconds)
    return found
