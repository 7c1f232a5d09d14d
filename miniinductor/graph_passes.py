"""Which passes clean every functional graph, in which order.  The core has one: dead code.

In:   a functional ATen graph (an `fx.GraphModule`).  Out: the same, changed in place, and how many
      nodes each pass removed.

    @graph_pass(CLEANING, "tables of zeros", order=40)
    def accumulate_in_place(gm): ...              # changes gm in place; how many nodes it changed

    >>> optimize(gm)            # of x.clone().exp() + x.exp(), and x.sin(), which nobody uses
    {'arithmetic with numbers': 0, 'numbers': 0, 'copies over whole tensors': 0, 'no-ops': 1,
    'common subexpressions': 1, 'tables of zeros': 0, 'attention masks': 0, 'dead code': 1}

`passes/` adds the rest: equal calls become one in passes/common_subexpressions.py.  Two more stages
(passes/stages.py) put library kernels into a graph, and choose layouts.  A pass with a `switch`
runs where that option of `config` is on.  Mirrors torch/_inductor/fx_passes/post_grad.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from . import config, coverage
from .autograd.functionalize import is_needed


@dataclass(frozen=True)
class Pass:
    name: str
    order: int
    run: Callable[..., Any]
    switch: str = ""  # an option of `config`


Stage = dict[str, Pass]
CLEANING: Stage = {}  # (graph) -> count; for every graph


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
