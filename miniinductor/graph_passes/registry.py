"""Which passes run over a functional graph, in which order.

    @graph_pass(CLEANING, "tables of zeros", order=40)
    def accumulate_in_place(gm): ...              # changes gm in place; how many nodes it changed

    @graph_pass(LAYOUTS, "library kernels of the CPU", order=30)
    def for_cpu(gm, context): ...                 # the graph, or an equal one in its place

    >>> [one.name for one in passes(CLEANING)][:3]
    ['arithmetic with numbers', 'numbers', 'copies over whole tensors']

The core has the basic ones of the first stage, and lets every device choose layouts; `passes/` adds
the rest.  A pass with a `switch` runs where that option of `config` is on.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from .. import config, coverage
from ..records import CompileRecord


@dataclass
class Context:
    """What a pass may know, and what it leaves for the next one.

    written: (kind, name) of the placeholders and attributes that the graph writes.
    inference: no joint graph, whose convolutions have their layouts already.
    constants: nodes that depend on parameters alone, if those are frozen.
    frozen: what makes the constants again (passes/freezing.py).
    """

    record: CompileRecord
    inference: bool
    written: Sequence[tuple[str, str]] = ()
    decompositions: dict[Any, Callable[..., Any]] | None = None
    constants: Container[fx.Node] = ()
    frozen: Any = None


@dataclass(frozen=True)
class Pass:
    name: str
    order: int
    run: Callable[..., Any]
    switch: str = ""  # an option of `config`


Stage = dict[str, Pass]
CLEANING: Stage = {}  # (graph) -> count; for every graph
REWRITING: Stage = {}  # (graph, context) -> graph; for inference
LAYOUTS: Stage = {}  # (graph, context) -> graph; for each graph that is lowered


def graph_pass(stage: Stage, name: str, order: int, switch: str = "") -> Callable:
    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        stage[name] = Pass(name, order, run, switch)
        return run

    return register


def passes(stage: Stage) -> list[Pass]:
    """Those that are switched on, in order."""
    coverage.load()
    found = [one for one in stage.values() if not one.switch or getattr(config, one.switch)]
    return sorted(found, key=lambda one: one.order)


def changed(stage: Stage, gm: fx.GraphModule, context: Context) -> fx.GraphModule:
    """The graph after the passes of a stage, or another in its place.  `REWRITING` puts library
    kernels where the graph computes what they do; `LAYOUTS` gives those the layouts they want."""
    for one in passes(stage):
        gm = one.run(gm, context)
        context.record.keep_step(one.name, gm)
    return gm
