"""The cleaning passes are run in order; of these, the core has dead code.

In:   a functional ATen graph (an `fx.GraphModule`), changed in place.  Out: the number of nodes
      each pass removed.

    >>> optimize(gm)            # of x.clone().exp() + x.exp(), and x.sin(), which nobody uses
    {'arithmetic with numbers': 0, 'numbers': 0, 'copies over whole tensors': 0, 'no-ops': 1,
    'common subexpressions': 1, 'tables of zeros': 0, 'attention masks': 0, 'dead code': 1}

Equal calls become one in passes/common_subexpressions.py.
Mirrors torch/_inductor/fx_passes/post_grad.py.
"""

from collections.abc import Callable

from torch import fx

from ..autograd.functionalize import is_needed
from .registry import CLEANING, graph_pass, passes


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
