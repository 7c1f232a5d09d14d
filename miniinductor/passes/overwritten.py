"""Copies over the whole of a tensor do not depend on what was there.

In:   a functional ATen graph, changed in place.  Out: how many copies are conversions now.

    e = empty_like(x)                   e = empty_like(x)       # nobody reads it: dead code
    m = copy(e, mask)           ->      m = _to_copy(mask, dtype=float32)

Dropout copies its mask over empty_like(x), and x is then needed neither for that nor in the
backward half.
"""

import torch
from torch import fx

from ..graph_passes import CLEANING, graph_pass
from ..more.alike import alike

aten = torch.ops.aten


@graph_pass(CLEANING, "copies over whole tensors", order=15)
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
