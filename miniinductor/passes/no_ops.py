"""Operations that do nothing: copies, casts and reshapes whose result is what they were given;
and copies over the whole of a tensor, which do not depend on what was there.

In:   a functional ATen graph, changed in place.  Out: how many nodes have gone, or were changed.

    x.to(torch.float32).exp()       ->      x.exp()         # of a float32 tensor

    e = empty_like(x)                       e = empty_like(x)       # nobody reads it: dead code
    m = copy(e, mask)               ->      m = _to_copy(mask, dtype=float32)

Dropout copies its mask over empty_like(x), and x is then needed neither for that nor in the
backward half.

Mirrors torch/_inductor/fx_passes/post_grad.py (`remove_noop_ops`).

Common subexpressions: one node for equal calls.

In:   a functional ATen graph, changed in place.  Out: how many nodes have gone.

    x.exp() + x.exp().sin()     ->      one exp, read twice

A node may stand in for another only if nobody can see whose memory it is: not where both reach the
outputs, since eager gives fresh memory.
Mirrors torch/_functorch/compile_utils.py (fx_graph_cse).
"""

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from ..autograd.functionalize import COUNTS_PLACES, is_view
from ..ir.ops import exact_key
from ..sizes.symbols import alike, size

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


aten = torch.ops.aten
RANDOM = torch.Tag.nondeterministic_seeded


def stand_in(node: fx.Node, source: fx.Node) -> bool:
    """Put `source` in place of `node`, which has the same value, if nobody can see whose memory it
    is.  Says whether that was done."""
    if reaches_output_by_views(node):
        return False
    if reaches_output_by_views(node, SHARING) and not is_private(source, node):
        return False
    node.replace_all_uses_with(source)
    node.graph.erase_node(node)
    return True


# What shares memory with its argument beside the views.  (An _unsafe_view is a view of a copy, and
# that copy may be gone already.)
SHARING = (operator.getitem, aten._unsafe_view.default)


def reaches_output_by_views(
    node: fx.Node, sharing: tuple = (operator.getitem,), without: fx.Node | None = None
) -> bool:
    """Does an output share the memory of `node`?  Ways through the node `without` do not count."""
    work = [node]
    while work:
        for user in work.pop().users:
            if user.op == "output":
                return True
            if user is not without and (is_view(user.target) or user.target in sharing):
                work.append(user)
    return False


def is_private(source: Any, copy: fx.Node) -> bool:
    """Is the memory of `source` made in this graph, and shared by no output, unless by way of
    `copy`?"""
    while is_view(source.target) or source.target in SHARING:
        source = source.args[0]
    is_made = source.op == "call_function"
    return is_made and not reaches_output_by_views(source, SHARING, without=copy)


def merge_common(gm: fx.GraphModule) -> int:
    """One node for equal calls.  Random ops are never merged."""
    seen: dict[Any, fx.Node] = {}
    removed = 0
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or RANDOM in getattr(node.target, "tags", ()):
            continue
        known = seen.setdefault((node.target, frozen((node.args, node.kwargs))), node)
        if known is not node and stand_in(node, known):
            serves_too(known, [node])
            removed += 1
    return removed


def serves_too(node: fx.Node, replaced: Iterable[fx.Node]) -> None:
    """Write down that `node` computes what these computed."""
    names = [name for one in (node, *replaced) for name in one.meta.get("traced", ())]
    node.meta["traced"] = tuple(dict.fromkeys(names))


def frozen(value: Any) -> Any:
    """A hashable key of a node's arguments.  Sizes in it are expressions, and 1 is not 1.0."""

    def exact(leaf: Any) -> Any:
        return leaf if isinstance(leaf, fx.Node) else (type(leaf), size(leaf))

    return exact_key(fx.node.map_aggregate(value, exact))
