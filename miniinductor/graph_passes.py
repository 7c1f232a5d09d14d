"""Which passes change a functional graph, in which stage and order.

In:   a functional ATen graph (an `fx.GraphModule`).  Out: of `CLEANING` the same graph, changed in
      place, and how many nodes each pass removed; of the other stages a graph in its place.

    @graph_pass(CLEANING, "no-ops", order=20)
    def remove_no_ops(gm): ...                    # changes gm in place; how many nodes it changed

    @graph_pass(LAYOUTS, "library kernels of the CPU", order=30)
    def for_cpu(gm, context): ...                 # the graph, or an equal one in its place

    >>> optimize(gm)            # of x.clone().exp() + x.exp(), and x.sin(), which nobody uses
    {'arithmetic with numbers': 0, 'numbers': 0, 'copies over whole tensors': 0, 'no-ops': 1,
    'common subexpressions': 1, 'attention masks': 0, 'dead code': 1}

The driver (compile.py) runs the stages; `passes/` has their passes, but for dead code.  A pass with
a `switch` runs where that option of `config` is on.  Mirrors
torch/_inductor/fx_passes/post_grad.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from . import config, coverage
from .autograd.functionalize import is_needed
from .records import CompileRecord


@dataclass(frozen=True)
class Pass:
    name: str
    order: int
    run: Callable[..., Any]
    switch: str = ""  # an option of `config`


Stage = dict[str, Pass]
CLEANING: Stage = {}  # (graph) -> count; for every graph
JOINT: Stage = {}  # (graph, context) -> graph; layouts of a joint graph, before it is cut in two
LAYOUTS: Stage = {}  # (graph, context) -> graph; for each graph that is lowered


@dataclass
class Context:
    """What a pass may know, and what it leaves for the next one.

    inference: no joint graph, whose convolutions have their layouts already.
    """

    record: CompileRecord
    inference: bool


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
    """The graph after the passes of a stage, or another in its place."""
    for one in passes(stage):
        gm = one.run(gm, context)
        context.record.keep_step(one.name, gm)
    return gm


def optimize(
    gm: fx.GraphModule, keep_step: Callable[[str, fx.GraphModule], None] | None = None
) -> dict[str, int]:
    """Run the cleaning passes; name -> how many nodes each removed or changed.  keep_step(name, gm)
    is called after each that did."""
    counts = {}
    for one in passes(CLEANING):
        counts[one.name] = one.run(gm)
        if counts[one.name] and keep_step is not None:
            keep_step(one.name, gm)
    gm.recompile()
    return counts


@graph_pass(CLEANING, "dead code", order=100)
def remove_dead_code(gm: fx.GraphModule) -> int:
    before = len(gm.graph.nodes)
    gm.graph.eliminate_dead_code(is_impure_node=is_needed)
    return before - len(gm.graph.nodes)
