"""Gradients of tables: an embedding's gradient is rows added into a table of zeros, mostly zeros.

In:   a functional ATen graph, changed in place.  Out: how many tables were saved.

    z = new_zeros(x, [50257, 768])              ->  z = lazy_zeros([50257, 768])  # on the CPU
    g = index_put(z, [ids], rows, accumulate=True)
    total = add(h, g)  # a weight used twice    ->  total = index_put(h, [ids], rows, True)

The first saves writing zeros: the system hands out pages of zeros when they are touched.  The
second saves the table and its sum.
# PyTorch: fills and adds; sparse=True gradients are the user's way out.
"""

import math
import mmap
import operator

import torch
from torch import fx

from ..graph_passes.registry import CLEANING, graph_pass
from ..lowering.extern import EXTERN
from ..sizes.symbols import alike

aten = torch.ops.aten
PUTS = (aten.index_put.default, aten._unsafe_index_put.default)
LARGE = 1 << 20  # bytes
WIDE = (
    torch.float32,
    torch.float64,
)  # a sum in another order rounds differently: too coarse for 16 bits

LIBRARY = torch.library.Library("miniinductor", "FRAGMENT")
LIBRARY.define("lazy_zeros(int[] size, ScalarType dtype) -> Tensor")


def lazy_zeros(size, dtype):
    """torch.zeros on the CPU, whose pages take memory and time when they are first touched."""
    memory = mmap.mmap(
        -1, math.prod(size) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    return torch.empty(0, dtype=dtype).set_(
        torch.frombuffer(memory, dtype=dtype).untyped_storage(), 0, size
    )


LIBRARY.impl("lazy_zeros", lazy_zeros, "CompositeExplicitAutograd")
EXTERN[torch.ops.miniinductor.lazy_zeros.default] = None  # by choice, no fallback


@graph_pass(CLEANING, "tables of zeros", order=40)
def accumulate_in_place(gm):
    saved, graph = 0, gm.graph
    for node in graph.nodes:
        if (
            node.target not in PUTS
            or (list(node.args[3:]) or [node.kwargs.get("accumulate")]) != [True]
            or not _is_zeros(node.args[0])
        ):
            continue
        zeros, value = node.args[0], node.args[0].meta["val"]
        total = _sum_with(node)
        if total is not None:
            place, other = total
            with graph.inserting_before(place):
                put = graph.call_function(node.target, (other, *node.args[1:]), dict(node.kwargs))
            put.meta.update(node.meta)
            place.replace_all_uses_with(put)
            graph.erase_node(place)
            graph.erase_node(node)
            graph.erase_node(zeros)
        elif (
            value.device.type == "cpu"
            and all(isinstance(n, int) for n in value.shape)
            and value.numel() * value.dtype.itemsize >= LARGE
        ):
            with graph.inserting_before(zeros):
                lazy = graph.call_function(
                    torch.ops.miniinductor.lazy_zeros.default, (list(value.shape), value.dtype)
                )
            lazy.meta.update(zeros.meta)
            zeros.replace_all_uses_with(lazy)
            graph.erase_node(zeros)
        else:
            continue
        saved += 1
    return saved


def _is_zeros(node):
    """A fresh contiguous tensor of zeros that only one node reads."""
    return (
        isinstance(node, fx.Node)
        and len(node.users) == 1
        and node.meta["val"].is_contiguous()
        and (
            node.target in (aten.new_zeros.default, aten.zeros.default)
            or node.target is aten.full.default
            and node.args[1] == 0
        )
    )


def _sum_with(node):
    """(the addition that is all that is made of `node`, what it is added to), if the rows may be
    added to that instead."""
    place = next(iter(node.users))
    if (
        len(node.users) > 1
        or place.target is not aten.add.Tensor
        or place.kwargs
        or node.meta["val"].dtype not in WIDE
    ):
        return None
    other = next((a for a in place.args if a is not node), None)
    while (
        isinstance(other, fx.Node)
        and other.target is aten.t.default
        and other.args[0].target is aten.t.default
    ):
        other = other.args[0].args[0]  # the transpose of a transpose: a weight's gradient
    if (
        not isinstance(other, fx.Node)
        or other.op != "call_function"
        or other.target is operator.getitem
    ):
        return None
    return (place, other) if alike(node.meta["val"], other.meta["val"]) else None
