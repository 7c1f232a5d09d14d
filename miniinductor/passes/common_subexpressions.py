"""Common subexpressions: one node for equal calls.

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

from ..autograd.functionalize import is_view
from ..ops import exact_key
from ..sizes.symbols import size

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
