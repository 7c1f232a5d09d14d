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
from typing import Any

import torch
from torch import fx

from ..foreign import ours
from ..graph_passes import CLEANING, graph_pass
from ..lowering.extern import EXTERN
from ..sizes.symbols import alike
from .common_subexpressions import serves_too

aten = torch.ops.aten
PUTS = (aten.index_put.default, aten._unsafe_index_put.default)
LARGE = 1 << 20  # bytes
# a sum in another order rounds differently: too coarse for 16 bits
WIDE = (torch.float32, torch.float64)

LIBRARY = torch.library.Library("miniinductor", "FRAGMENT")
LIBRARY.define("lazy_zeros(int[] size, ScalarType dtype) -> Tensor")


def lazy_zeros(size: list[int], dtype: torch.dtype) -> torch.Tensor:
    """torch.zeros on the CPU, whose pages take memory and time when they are first touched."""
    count = math.prod(size) * dtype.itemsize
    try:
        memory = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except ours(OSError):  # so many maps a process may have; or there is no memory, as torch says
        return torch.zeros(size, dtype=dtype)
    storage = torch.frombuffer(memory, dtype=dtype).untyped_storage()
    return torch.empty(0, dtype=dtype).set_(storage, 0, size)


LIBRARY.impl("lazy_zeros", lazy_zeros, "CompositeExplicitAutograd")
EXTERN[torch.ops.miniinductor.lazy_zeros.default] = None  # by choice, no fallback


@graph_pass(CLEANING, "tables of zeros", order=40)
def accumulate_in_place(gm: fx.GraphModule) -> int:
    puts = [
        n for n in gm.graph.nodes if n.target in PUTS and accumulates(n) and is_zeros(n.args[0])
    ]
    return sum(added_to_sum(gm.graph, put) or in_lazy_zeros(gm.graph, put) for put in puts)


def accumulates(node) -> bool:
    return (list(node.args[3:]) or [node.kwargs.get("accumulate")]) == [True]


def is_zeros(node) -> bool:
    """A fresh contiguous tensor of zeros that only one node reads."""
    if not isinstance(node, fx.Node) or len(node.users) > 1:
        return False
    is_full = node.target is aten.full.default and node.args[1] == 0
    is_new = node.target in (aten.new_zeros.default, aten.zeros.default)
    return (is_full or is_new) and node.meta["val"].is_contiguous()


def added_to_sum(graph: fx.Graph, node: Any) -> bool:
    """Add the rows to what their table would be added to: was it possible?"""
    total = sum_with(node)
    if total is None:
        return False
    place, other = total
    with graph.inserting_before(place):
        put = graph.call_function(node.target, (other, *node.args[1:]), dict(node.kwargs))
    put.meta.update(node.meta)
    serves_too(put, [place])
    place.replace_all_uses_with(put)
    for gone in (place, node, node.args[0]):
        graph.erase_node(gone)
    return True


def in_lazy_zeros(graph: fx.Graph, node: Any) -> bool:
    """Add the rows into a table whose pages come from the system: was it worth it?"""
    zeros, value = node.args[0], node.args[0].meta["val"]
    if value.device.type != "cpu" or not all(isinstance(n, int) for n in value.shape):
        return False
    if value.numel() * value.dtype.itemsize < LARGE:
        return False
    with graph.inserting_before(zeros):
        target = torch.ops.miniinductor.lazy_zeros.default
        lazy = graph.call_function(target, (list(value.shape), value.dtype))
    lazy.meta.update(zeros.meta)
    zeros.replace_all_uses_with(lazy)
    graph.erase_node(zeros)
    return True


def sum_with(node: Any) -> tuple[Any, Any] | None:
    """(the addition that is all that is made of `node`, what it is added to), if the rows may be
    added to that instead."""
    place = next(iter(node.users))
    if len(node.users) > 1 or place.target is not aten.add.Tensor or place.kwargs:
        return None
    other = next((a for a in place.args if a is not node), None)
    while is_turned(other) and is_turned(other.args[0]):
        other = other.args[0].args[0]  # the transpose of a transpose: a weight's gradient
    if not isinstance(other, fx.Node) or other.op != "call_function":
        return None
    if other.target is operator.getitem or node.meta["val"].dtype not in WIDE:
        return None
    return (place, other) if alike(node.meta["val"], other.meta["val"]) else None


def is_turned(node) -> bool:
    return isinstance(node, fx.Node) and node.target is aten.t.default
