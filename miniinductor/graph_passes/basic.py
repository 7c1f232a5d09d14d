"""Common subexpressions, operations that do nothing, numbers that lie on another device, dead code.

In:   a functional ATen graph (an `fx.GraphModule`), changed in place.  Out: the number of nodes
      each pass removed.

    >>> optimize(gm)            # of x.clone().exp() + x.exp(), and x.sin(), which nobody uses
    {'numbers': 0, 'no-ops': 1, 'common subexpressions': 1, 'tables of zeros': 0, 'attention masks':
    0, 'dead code': 1}

Mirrors torch/_inductor/fx_passes/post_grad.py and torch/_functorch/compile_utils.py (fx_graph_cse).
"""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..autograd.functionalize import COUNTS_PLACES, is_needed, is_view
from ..lowering.extern import EXTERN
from ..lowering.registry import LOWERINGS
from ..ops import exact_key
from ..sizes.symbols import alike, size
from .registry import CLEANING, graph_pass, passes

aten = torch.ops.aten
RANDOM = torch.Tag.nondeterministic_seeded
STAY = {*EXTERN, aten._to_copy.default}  # these take tensors of several devices as eager does


def optimize(gm: fx.GraphModule) -> dict[str, int]:
    """Run the cleaning passes; name -> how many nodes each removed or changed."""
    counts = {one.name: one.run(gm) for one in passes(CLEANING)}
    gm.recompile()
    return counts


@graph_pass(CLEANING, "dead code", order=100)
def remove_dead_code(gm: fx.GraphModule) -> int:
    before = len(gm.graph.nodes)
    gm.graph.eliminate_dead_code(is_impure_node=is_needed)
    return before - len(gm.graph.nodes)


@graph_pass(CLEANING, "numbers", order=10)
def numbers_to_devices(gm: fx.GraphModule) -> int:
    """Tensors of no dimensions on the CPU that our kernels on a GPU would read (x[0] = 5, x *
    torch.tensor(2.)).

    What the graph itself makes of a Python number becomes one again; the others are copied to the
    GPU, once."""
    there = {}
    for node in list(gm.graph.nodes):
        value = node.meta.get("val")
        if (
            node.target in LOWERINGS
            and node.target not in STAY
            and isinstance(value, torch.Tensor)
            and value.device.type != "cpu"
        ):
            for given in node.all_input_nodes:
                number = given.meta["val"]
                if (
                    isinstance(number, torch.Tensor)
                    and number.device.type == "cpu"
                    and not number.dim()
                ):
                    if (given, value.device) not in there:
                        there[given, value.device] = on_device(gm, given, value.device)
                    node.replace_input_with(given, there[given, value.device])
    return len(there)


def on_device(gm: fx.GraphModule, node: fx.Node, device: torch.device) -> fx.Node:
    value = node.meta["val"]
    is_number = (
        node.target is aten.lift_fresh_copy.default
        and node.args[0].op == "get_attr"
        and not value.is_complex()
    )
    with gm.graph.inserting_after(node):
        if is_number:
            copy = gm.graph.call_function(
                aten.scalar_tensor.default,
                (getattr(gm, node.args[0].target).item(),),
                {"dtype": value.dtype, "device": device},
            )
        else:
            copy = gm.graph.call_function(aten._to_copy.default, (node,), {"device": device})
    with gm.meta["fake_mode"]:
        copy.meta = {
            **{k: v for k, v in node.meta.items() if k != "val"},
            "val": aten.empty.memory_format([], dtype=value.dtype, device=device),
        }
    return copy


@graph_pass(CLEANING, "no-ops", order=20)
def remove_no_ops(gm: fx.GraphModule) -> int:
    """Copies, casts and reshapes whose result is what they were given.

    A clone may be an output of its own (eager gives fresh memory): those that reach the output
    stay.
    """
    removed, graph = 0, gm.graph
    # as_strided counts from the start of the memory: with one in the graph, what stands in for a
    # copy must begin in its memory where the copy began (a part of an input does not)
    counts_offsets = any(node.target in COUNTS_PLACES for node in graph.nodes)
    targets = {
        aten.clone.default,
        aten._to_copy.default,
        aten.view.default,
        aten.expand.default,
        aten.lift_fresh_copy.default,
    }
    for node in list(graph.nodes):
        if node.target is aten.copy.default and all(isinstance(a, fx.Node) for a in node.args[:2]):
            # a copy over the whole of something (dropout's mask over empty_like(x)) needs x neither
            # now nor in the backward half
            over, source = (a.meta["val"] for a in node.args[:2])
            if alike(over, source.to(over.dtype)):
                node.target, node.args, node.kwargs = (
                    aten._to_copy.default,
                    node.args[1:2],
                    {"dtype": over.dtype},
                )
        if (
            node.target in targets
            and isinstance(node.args[0], fx.Node)
            and not any(u.op == "output" for u in node.users)
        ):
            source = node.args[0]
            copy, given = node.meta["val"], source.meta["val"]
            if alike(copy, given) and not (counts_offsets and offset(copy) != offset(given)):
                removed += stand_in(node, source)
    return removed


def offset(tensor: torch.Tensor) -> Any:
    return size(tensor.storage_offset())


def stand_in(node: fx.Node, source: fx.Node) -> bool:
    """Put `source` in place of `node`, which has the same value, where nobody sees whose memory it
    is: was it done?"""
    if reaches_output_by_views(node):
        return False
    if reaches_output_by_views(node, SHARING) and not is_private(source, node):
        return False
    node.replace_all_uses_with(source)
    node.graph.erase_node(node)
    return True


# What shares memory beside the views: an _unsafe_view is one of a copy that may be gone already.
SHARING = (operator.getitem, aten._unsafe_view.default)


def reaches_output_by_views(
    node: fx.Node, sharing: Sequence[Any] = (operator.getitem,), without: fx.Node | None = None
) -> bool:
    """Does an output share the memory of `node`, on a way that does not pass `without`?"""
    work, seen = [node], {without}
    while work:
        for user in work.pop().users:
            if user.op == "output":
                return True
            shares = is_view(user.target) or user.target in sharing
            if shares and user not in seen:
                seen.add(user)
                work.append(user)
    return False


def is_private(source: fx.Node, copy: fx.Node) -> bool:
    """Is the memory of `source` made in this graph, and does no output share it but through
    `copy`?"""
    while is_view(source.target) or source.target in SHARING:
        source = source.args[0]
    if source.op != "call_function":
        return False
    return not reaches_output_by_views(source, SHARING, without=copy)


@graph_pass(CLEANING, "common subexpressions", order=30)
def merge_common(gm: fx.GraphModule) -> int:
    """One node for equal calls.  Random ops are never merged."""
    seen: dict[Any, fx.Node] = {}
    removed = 0
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or RANDOM in getattr(node.target, "tags", ()):
            continue
        known = seen.setdefault((node.target, _freeze(node.args), _freeze(node.kwargs)), node)
        if known is not node:
            removed += stand_in(node, known)
    return removed


def _freeze(value: Any) -> Any:
    """A hashable key of a node's arguments, in which sizes are expressions."""
    return exact_key(
        fx.node.map_aggregate(
            value, lambda leaf: leaf if isinstance(leaf, fx.Node) else (type(leaf), size(leaf))
        )
    )
