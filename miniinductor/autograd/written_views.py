"""Writes through views: how the tensor that was viewed is made anew.

In:   a write to a view, while a graph is functionalized.
Out:  the view's source, and its new value.

    x[:3].add_(1)                        ->   x1 = slice_scatter(x, x[:3] + 1, 0, 0, 3)
    x.t().add_(1)                        ->   x1 = t(add(t(x), 1))
    a, b = x.split(2);  b.mul_(3)        ->   x1 = slice_scatter(x, b * 3, 0, 2, 4)
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ..errors import CannotFunctionalize
from ..ir.loops import same_layout
from ..sizes.symbols import same, same_sizes, sizes

if TYPE_CHECKING:
    from .functionalize import Functionalizer

aten = torch.ops.aten
Node: TypeAlias = Any  # an fx.Node, of whose arguments its own types know too little
# How a write through a view reaches the tensor that was viewed: (functionalizer, the node that is
# written, a view on its way, the view's new value) -> (the view's source, the source's new value).
Inverse: TypeAlias = Callable[["Functionalizer", Node, Node, Node], tuple[Node, Node]]
INVERSES: dict[Any, Inverse] = {}
# views that only set a bit, which kernels do not see: the ops that compute their values
LAZY_VIEWS = {
    aten._neg_view.default: aten.neg.default,
    aten._conj.default: aten._conj_physical.default,
}
# what counts places from the start of a tensor's memory, wherever in it the tensor begins
COUNTS_PLACES = {
    aten.as_strided.default,
    aten.as_strided_copy.default,
    aten.as_strided_scatter.default,
}


def inverts(*ops: Any) -> Callable[[Inverse], Inverse]:
    """Decorator: this function pushes writes through views that these ops make."""

    def register(inverse: Inverse) -> Inverse:
        INVERSES.update(dict.fromkeys(ops, inverse))
        return inverse

    return register


@inverts(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
)
def reshaped(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    source = view.args[0]
    return source, made.emit(like, aten.reshape.default, (value, list(source.meta["val"].shape)))


# views that select: the inverse scatters into the old value
SCATTERS = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
}


@inverts(*SCATTERS)
def selected(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    source, *rest = view.args
    arguments = (made.read(source), value, *rest)
    return source, made.emit(like, SCATTERS[view.target], arguments, view.kwargs)


@inverts(aten.t.default, aten.transpose.int)
def turned(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    return view.args[0], made.emit(like, view.target, (value, *view.args[1:]))


@inverts(aten.permute.default)
def permuted(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    source, dims = view.args
    order = [0] * len(dims)
    for i, d in enumerate(dims):
        order[d % len(dims)] = i
    return source, made.emit(like, aten.permute.default, (value, order))


@inverts(*LAZY_VIEWS)
def computed(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    """Each is its own inverse."""
    return view.args[0], made.emit(like, LAZY_VIEWS[view.target], (value,))


# --- pieces of a split ----------------------------------------------------------------------------
PIECES = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}


@inverts(operator.getitem)
def written_piece(made: "Functionalizer", like: Node, piece: Node, value: Node) -> tuple:
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
def written_places(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    """Of a view of all elements in their order, such as pooling makes."""
    source, size, stride, *offset = view.args
    whole = source.meta["val"]
    start = offset[0] if offset and offset[0] is not None else whole.storage_offset()
    rows = [math.prod(size[k + 1 :]) for k in range(len(size))]
    is_all = start == whole.storage_offset() and math.prod(size) == whole.numel()
    if not (is_all and whole.is_contiguous() and list(stride) == rows):
        raise CannotFunctionalize("write through as_strided to a part, or in another order")
    return reshaped(made, like, view, value)


def check_memory(node: Node, args: tuple) -> None:
    """Raise CannotFunctionalize if this op, of `COUNTS_PLACES`, is given a tensor that was written,
    and whose new value begins elsewhere in its memory, or lies there in other strides."""
    before, now = node.args[0].meta["val"], args[0].meta["val"]
    if now is not before and not same_sizes(places(before), places(now)):
        raise CannotFunctionalize(f"{node.target} of a tensor that was written")


def places(tensor: torch.Tensor) -> tuple:
    """What says where its elements lie, and how large their memory is."""
    return *tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().nbytes()


def is_as_before(
    source: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> bool:
    """Does as_strided() give the same elements at the same places?  (Pooling of channels-last
    images changes the strides of sizes of 1.)"""
    at_start = offset is None or same(offset, source.storage_offset())
    return (
        at_start
        and same_sizes(source.shape, size)
        and same_layout(sizes(size), sizes(stride), sizes(source.stride()))
    )
