"""Which passes change a functional graph, in which order.

In:   a functional ATen graph (an `fx.GraphModule`).  Out: of `CLEANING` the same graph, changed in
      place, and how many nodes each pass removed; of the layouts of library kernels an equal graph
      in its place.

    >>> optimize(gm)            # of x.clone().exp() + x.exp(), and x.sin(), which nobody uses
    {'arithmetic with numbers': 0, 'numbers': 0, 'copies over whole tensors': 0, 'no-ops': 1,
    'common subexpressions': 1, 'attention masks': 0, 'dead code': 1}

The driver (compile.py) runs them; `passes/` has them, but for dead code.  Mirrors
torch/_inductor/fx_passes/post_grad.py.
"""

from collections.abc import Callable

from torch import fx

from ..autograd.functionalize import is_needed
from ..records import CompileRecord
from .attention_masks import drop_attention_masks
from .gpu_layouts import optimize_for_gpu
from .library_layouts import for_cpu
from .no_ops import forget_overwritten, merge_common, remove_no_ops
from .numbers import compute_numbers, numbers_to_devices


def remove_dead_code(gm: fx.GraphModule) -> int:
    before = len(gm.graph.nodes)
    gm.graph.eliminate_dead_code(is_impure_node=is_needed)
    return before - len(gm.graph.nodes)


# for every graph: a pass changes it in place, and says how many nodes it removed or changed
CLEANING: dict[str, Callable[[fx.GraphModule], int]] = {
    "arithmetic with numbers": compute_numbers,
    "numbers": numbers_to_devices,
    "copies over whole tensors": forget_overwritten,
    "no-ops": remove_no_ops,
    "common subexpressions": merge_common,
    "attention masks": drop_attention_masks,
    "dead code": remove_dead_code,
}


def optimize(
    gm: fx.GraphModule, keep_step: Callable[[str, fx.GraphModule], None] | None = None
) -> dict[str, int]:
    """Run the cleaning passes; name -> how many nodes each removed or changed.  keep_step(name, gm)
    is called after each that did."""
    counts = {}
    for name, run in CLEANING.items():
        counts[name] = run(gm)
        if counts[name] and keep_step is not None:
            keep_step(name, gm)
    gm.recompile()
    return counts


def laid_out_joint(gm: fx.GraphModule, record: CompileRecord) -> fx.GraphModule:
    """A joint graph in the layouts of library kernels, before it is cut in two."""
    gm = optimize_for_gpu(gm, record, products=False)
    record.keep_step("convolutions of a GPU", gm)
    return gm


def laid_out(gm: fx.GraphModule, record: CompileRecord) -> fx.GraphModule:
    """A graph that is lowered in the layouts of library kernels.  (Half of a joint graph has those
    of its convolutions already.)"""
    is_inference = record.joint_graph is None
    gm = optimize_for_gpu(gm, record, convolutions=is_inference)
    record.keep_step("devices", gm)
    gm = for_cpu(gm, record, is_inference)
    record.keep_step("library kernels of the CPU", gm)
    return gm
