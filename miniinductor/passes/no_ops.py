"""Operations that do nothing: copies, casts and reshapes whose result is what they were given;
and copies over the whole of a tensor, which do not depend on what was there.

In:   a functional ATen graph, changed in place.  Out: how many nodes have gone, or were changed.

    x.to(torch.float32).exp()       ->      x.exp()         # of a float32 tensor

    e = empty_like(x)                       e = empty_like(x)       # nobody reads it: dead code
    m = copy(e, mask)               ->      m = _to_copy(mask, dtype=float32)

Dropout copies its mask over empty_like(x), and x is then needed neither for that nor in the
backward half.

Mirrors torch/_inductor/fx_passes/post_grad.py (`remove_noop_ops`).
"""

from typing import Any

import torch
from torch import fx

from ..autograd.functionalize import COUNTS_PLACES
from ..sizes.symbols import alike
from ..sizes.symbols import size
from .common_subexpressions import stand_in

aten = torch.ops.aten
NO_OPS = {
    aten.clone.default,
    aten._to_copy.default,
    aten.view.default,
    aten.expand.default,
    aten.lift_fresh_copy.default,
}


def remove_no_ops(gm: fx.GraphModule) -> int:
    """Copies, casts and reshapes whose result is what they were given.

    A clone may be an output of its own (eager gives fresh memory): those that reach the output
    stay.
    """
    removed = 0
    # as_strided counts from the start of the memory.  So where one is in the graph, what stands in
    # for a copy must begin at the same place in its memory as the copy does in its own.
    counts_offsets = any(node.target in COUNTS_PLACES for node in gm.graph.nodes)
    for node in list(gm.graph.nodes):
        if node.target not in NO_OPS or any(user.op == "output" for user in node.users):
            continue
        source: Any = node.args[0]
        if not isinstance(source, fx.Node):
            continue
        copy, given = node.meta["val"], source.meta["val"]
        if alike(copy, given) and not (counts_offsets and offset(copy) != offset(given)):
            removed += stand_in(node, source)
    return removed


def offset(tensor: torch.Tensor) -> Any:
    return size(tensor.storage_offset())


# --- copies over whole tensors --------------------------------------------------------------------
aten = torch.ops.aten


def forget_overwritten(gm: fx.GraphModule) -> int:
    return sum(map(forgets, gm.graph.find_nodes(op="call_function", target=aten.copy.default)))


def forgets(node: fx.Node) -> bool:
    """Make a copy a conversion, if it is over a whole tensor; says whether that was done."""
    over, source = node.args[:2]
    if not isinstance(over, fx.Node) or not isinstance(source, fx.Node):
        return False
    wanted = over.meta["val"]
    if not alike(wanted, source.meta["val"].to(wanted.dtype)):
        return False
    node.target, node.args = aten._to_copy.default, (source,)
    node.kwargs = {"dtype": wanted.dtype}
    return True
