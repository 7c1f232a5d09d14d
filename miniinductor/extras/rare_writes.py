"""Writes through views that few programs write through: pieces of a split, places in memory.

In:   a write to such a view, while a graph is functionalized.
Out:  the tensor that it is a view of, and its new value.

    a, b = x.split(2);  b.mul_(3)               ->   x = slice_scatter(x, b * 3, 0, 2, 4)
    x.as_strided((2,), (3,), 1).zero_()         ->   x = index_put(x, [the places], zeros)
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

from ..autograd.functionalize import Functionalizer, Node, in_its_memory
from ..autograd.more.written_views import inverts
from ..exceptions import CannotFunctionalize
from .careful_writes import is_as_before
from ..sizes.symbols import same_sizes

aten = torch.ops.aten
PIECES = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}


@inverts(operator.getitem)
def written_piece(made: Functionalizer, like: Node, piece: Node, value: Node) -> tuple:
    """A write to one output of split or unbind: (the tensor that was split, its new value)."""
    call, index = piece.args
    source = call.args[0]
    if call.target not in PIECES:
        raise CannotFunctionalize(f"write to an output of {call.target}")
    is_unbind = call.target is aten.unbind.int
    place = 1 if is_unbind else 2
    dim = call.args[place] if len(call.args) > place else call.kwargs.get("dim", 0)
    if is_unbind:
        where = (made.read(source), value, dim, index)
        return source, made.emit(piece, aten.select_scatter.default, where)
    sizes = [p.shape[dim] for p in call.meta["val"]]
    start = sum(sizes[:index])
    between = (made.read(source), value, dim, start, start + sizes[index])
    return source, made.emit(piece, aten.slice_scatter.default, between)


@inverts(aten.as_strided.default)
def written_places(made: Functionalizer, like: Node, view: Node, value: Node) -> tuple:
    """(aten.as_strided_scatter counts the offset from the start of the storage, which several
    buffers of generated code share.)"""
    source, *where = view.args
    return source, in_places(made, like, source, value, *where)


def in_places(
    made: Functionalizer,
    like: Node,
    source: Node,
    value: Node,
    size: Sequence[Any],
    stride: Sequence[Any],
    offset: Any = None,
) -> Node:
    """`source` with `value` at the places that as_strided(size, stride, offset) reads."""
    whole = source.meta["val"]
    start = (whole.storage_offset() if offset is None else offset) - whole.storage_offset()
    if not whole.is_contiguous() or start < 0:
        raise CannotFunctionalize("write through as_strided of a tensor that is not contiguous")
    shape, rows = list(whole.shape), [math.prod(size[k + 1 :]) for k in range(len(size))]
    if start == 0 and math.prod(size) == whole.numel() and list(stride) == rows:
        return made.emit(like, aten.reshape.default, (value, shape))
    place = {"device": whole.device}
    at = made.emit(like, aten.full.default, ([1], start), {"dtype": torch.int64, **place})
    for n, step in zip(size, stride):  # the position of each element, dimension by dimension
        counted = made.emit(like, aten.arange.default, (n,), place)
        steps = made.emit(like, aten.mul.Tensor, (counted, step))
        column = made.emit(like, aten.unsqueeze.default, (at, 1))
        sums = made.emit(like, aten.add.Tensor, (column, steps))
        at = made.emit(like, aten.reshape.default, (sums, [-1]))
    flat = made.emit(like, aten.reshape.default, (made.read(source), [-1]))
    values = made.emit(like, aten.reshape.default, (value, [-1]))
    new = made.emit(like, aten.index_put.default, (flat, [at], values))
    new.meta["in_range"] = True  # the places are those of a view
    return made.emit(like, aten.reshape.default, (new, shape))


@in_its_memory.replaced
def in_its_new_memory(node: Node, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Arguments of as_strided, which counts strides and offset of its own.  The tensor that stands
    for a written one may begin elsewhere in its memory, or lie there in other strides."""
    names = [argument.name for argument in node.target._schema.arguments]
    written = (dict(zip(names, node.args)) | node.kwargs)["self"]
    given = dict(zip(names, args)) | kwargs
    before, now = written.meta["val"], given["self"].meta["val"]
    if now is before:
        return args, kwargs
    if not same_sizes(before.stride(), now.stride()):
        raise CannotFunctionalize("as_strided of a written tensor whose new value lies otherwise")
    offset = given.get("storage_offset")
    if offset is not None:
        offset += now.storage_offset() - before.storage_offset()
        if not (isinstance(offset, int) and offset >= 0):
            raise CannotFunctionalize("as_strided begins before the tensor that it is given")
        given["storage_offset"] = offset
    if not holds(now, given["size"], given["stride"], given.get("storage_offset")):
        raise CannotFunctionalize("as_strided reaches beyond the new value of a written tensor")
    return tuple(given[name] for name in names if name in given), {}


def holds(
    tensor: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> bool:
    """Do all places of such a view lie in the tensor's memory?  No, where that is not certain."""
    if is_as_before(tensor, size, stride, offset):
        return True
    start = tensor.storage_offset() if offset is None else offset
    if not all(type(n) is int for n in (*tensor.shape, *tensor.stride(), *size, *stride, start)):
        return False
    held = tensor.untyped_storage().nbytes() // tensor.element_size()
    last = start + sum((n - 1) * step for n, step in zip(size, stride))
    return 0 in size or last < held
