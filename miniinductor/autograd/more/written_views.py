"""Writes through views: reshaped, sliced, transposed, conjugated ones; written tensors keep their
strides.

In:   a write, while a graph is functionalized.
Out:  the new value, laid out in memory as eager's is.

    x[:3].add_(1)           ->   x1 = slice_scatter(x, add(slice(x, 0, 0, 3), 1), 0, 0, 3)
    x.t().add_(1)           ->   x1 = t(add(t(x), 1))
    x.index_copy_(...)      ->   x1 = index_copy(x, ...), copied into the strides of x
"""

from collections.abc import Callable
from typing import Any

import torch

from ...hooks import extends
from ...ir import same_layout
from ...sizes.symbols import same_sizes, sizes
from ..functionalize import INVERSES, LAZY_VIEWS, RENAMED, Functionalizer, Inverse, Node, output_of

aten = torch.ops.aten

RENAMED |= {
    aten.bernoulli_.float: aten.bernoulli.p,
    aten.normal_.default: aten.normal_functional.default,
    aten.zero_.default: aten.zeros_like.default,
    aten.rrelu_with_noise.default: aten.rrelu_with_noise_functional.default,
    aten.rrelu_with_noise_.default: aten.rrelu_with_noise_functional.default,
    aten._native_batch_norm_legit.default: aten._native_batch_norm_legit_functional.default,
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
def turned(made: Functionalizer, like: Node, view: Node, value: Node) -> tuple:
    return view.args[0], made.emit(like, view.target, (value, *view.args[1:]))


@inverts(aten.permute.default)
def permuted(made: Functionalizer, like: Node, view: Node, value: Node) -> tuple:
    source, dims = view.args
    order = [0] * len(dims)
    for i, d in enumerate(dims):
        order[d % len(dims)] = i
    return source, made.emit(like, aten.permute.default, (value, order))


@inverts(*LAZY_VIEWS)
def computed(made: Functionalizer, like: Node, view: Node, value: Node) -> tuple:
    """Each is its own inverse."""
    return view.args[0], made.emit(like, LAZY_VIEWS[view.target], (value,))


@extends(Functionalizer)
class CarefulFunctionalizer(Functionalizer):
    def in_layout_of(self, node: Node, value: Node) -> Node:
        """`value` in the strides that `node` has: what a write leaves lies where it lay.  (The
        functional form of index_copy_ gives a contiguous tensor, whatever it is given.)  Of a
        tensor with holes only the order of its strides is kept."""
        given, before = value.meta["val"], node.meta["val"]
        wanted = torch.empty_like(before)
        shape, strides = sizes(before.shape), given.stride()
        if any(same_layout(shape, t.stride(), strides) for t in (before, wanted)):
            return value
        return self.copied_into(node, wanted, value)

    def copied_into(self, node: Node, wanted: torch.Tensor, value: Node) -> Node:
        """`value` in new memory with the strides of the tensor `wanted`."""
        place = {"dtype": wanted.dtype, "device": wanted.device}
        memory = self.emit(
            node, aten.empty_strided.default, (list(wanted.shape), list(wanted.stride())), place
        )
        return self.emit(node, aten.copy.default, (memory, value))

    def result(self, node: Node) -> Node:
        """What `node` holds when the program has ended.  A tensor that was written has the strides
        that it had before, also where no element's place depends on them: in dimensions of size 1,
        and without elements."""
        value, wanted = self.read(node), node.meta["val"]
        if not isinstance(wanted, torch.Tensor) or node.op != "call_function":
            return value
        if self.root[node] is not node:
            return self.whole_view(node, value)
        results = output_of(self.old).all_input_nodes
        shared = sum(self.root.get(n) is self.root[node] for n in results) > 1
        if not self.version[node] or shared:
            return value
        if same_sizes(wanted.stride(), value.meta["val"].stride()):
            return value
        return self.copied_into(node, wanted, value)

    def whole_view(self, node: Node, value: Node) -> Node:
        """A written view of memory that the program made: where its new value lies otherwise than
        the view, the view is taken of the written memory."""
        lies_alike = same_sizes(node.meta["val"].stride(), value.meta["val"].stride())
        if lies_alike or self.root[node].op != "call_function":
            return value
        args, kwargs = self.arguments(node)
        return self.emit(node, LAZY_VIEWS.get(node.target, node.target), args, kwargs)
