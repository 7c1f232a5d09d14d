"""View lowerings: index maths, no copies.

In:   reshape, transpose, expand, split ...  Out: `View`s; of tril, which has zeros, a `Pointwise`.

    transpose:  index [i, j] of the result is index [j, i] of the base
    view:       the flat position is cut again, as x // n and x % n only where sizes do not line up

    >>> i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    >>> reshape_index((4, 8), (32,))([i])               # x.view(32)[i] is x[i // 8, i % 8]
    [FloorDiv(i, 8), Mod(i, 8)]
    >>> reshape_index((4, 8), (2, 2, 8))([i, 1, j])   # no division: only the first dimension is cut
    [2*i + 1, j]

parts.py has others, and joined tensors.  Mirrors
torch/_inductor/ir.py (View, SliceView, ExpandView ...).
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from ..ir.loops import Index, Reindex, TensorBox
from ..ir.ops import Value, ops
from ..sizes.expressions import FloorDiv, Mod, Size, flatten
from ..sizes.symbols import hint, same, sizes
from .registry import Call, aten, broadcast_index, lower, made, normalize_dim, view


def reshape_index(old: Sequence[Size], new: Sequence[Size]) -> Reindex:
    """index into shape `new` -> index into shape `old` (same number of elements), with few
    divisions.

    Dimensions are matched in groups of equal product: within a group the index is made flat, then
    cut again.
    """
    old = sizes(old)
    new = sizes(new)
    groups = _groups_of_equal_product(old, new)

    def reindex(index: Index) -> Index:
        result = [sympy.Integer(0)] * len(old)
        for old_dims, new_dims in groups:
            rest = flatten([index[k] for k in new_dims], [new[k] for k in new_dims])
            inside = [k for k in old_dims if old[k] != 1]
            for k in reversed(inside[1:]):
                result[k] = Mod(rest, old[k])
                rest = FloorDiv(rest, old[k])
            if inside:
                result[inside[0]] = rest
        return result

    return reindex


def _groups_of_equal_product(
    old: Sequence[Size], new: Sequence[Size]
) -> list[tuple[list[int], list[int]]]:
    """Neighbouring dimensions of both shapes that have as many elements: (4, 8, 3) and (32, 3) are
    ([0, 1], [0]) and ([2], [1])."""
    groups = []
    i = j = 0
    while i < len(old) and j < len(new):
        old_dims, new_dims = [i], [j]
        size_old, size_new = old[i], new[j]
        i, j = i + 1, j + 1
        while not same(size_old, size_new) and (i < len(old) or j < len(new)):
            is_behind = i < len(old) and hint(size_old, 1) < hint(size_new, 1)
            if is_behind or j == len(new):
                old_dims.append(i)
                size_old = size_old * old[i]
                i += 1
            else:
                new_dims.append(j)
                size_new = size_new * new[j]
                j += 1
        groups.append((old_dims, new_dims))
    # dimensions of size 1 at the end
    return [*groups, (list(range(i, len(old))), list(range(j, len(new))))]


@lower(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
)
def reshape(call: Call, x: TensorBox, *args: Any) -> TensorBox:
    old, new = x.get_size(), call.value.size
    if old == new:
        return x
    if 0 in new:
        return view(call, x, new, lambda index: [sympy.Integer(0)] * len(old))
    return view(call, x, new, reshape_index(old, new))


@lower(aten.permute.default)
def permute(call: Call, x: TensorBox, dims: Any) -> TensorBox:
    rank = len(x.get_size())
    position = {normalize_dim(d, rank): k for k, d in enumerate(dims)}
    return view(call, x, call.value.size, lambda index: [index[position[k]] for k in range(rank)])


@lower(aten.transpose.int, aten.t.default)
def transpose(call: Call, x: TensorBox, a: int = 0, b: int = 1) -> TensorBox:
    rank = len(x.get_size())
    if rank < 2:
        return x
    order = list(range(rank))
    a, b = normalize_dim(a, rank), normalize_dim(b, rank)
    order[a], order[b] = order[b], order[a]
    return permute(call, x, order)


@lower(aten.expand.default)
def expand(call: Call, x: TensorBox, size: Sequence[Size], implicit: bool = False) -> TensorBox:
    own, new = x.get_size(), call.value.size
    return x if own == new else view(call, x, new, broadcast_index(own, new))


def along(index: Index, dim: int, function: Callable[[sympy.Expr], sympy.Expr]) -> Index:
    return [function(i) if k == dim else i for k, i in enumerate(index)]


@lower(aten.split.Tensor, aten.split_with_sizes.default)
def split(call: Call, x: TensorBox, sizes: Any, dim: int = 0) -> list[TensorBox]:
    dim = normalize_dim(dim, len(x.get_size()))
    starts = itertools.accumulate([piece.size[dim] for piece in call.value], initial=0)
    return [
        view(call, x, piece.size, functools.partial(shifted, dim=dim, by=start))
        for piece, start in zip(call.value, starts)
    ]


def shifted(index: Index, dim: int, by: Size) -> Index:
    return along(index, dim, lambda i: i + by)


@lower(aten.tril.default, aten.triu.default)
def triangle(call: Call, x: TensorBox, diagonal: int = 0) -> TensorBox:
    load, keeps = x.make_loader(), ops.le if call.name == "tril" else ops.ge

    def body(index: Index) -> Value:
        row, column = (ops.index_expr(i, torch.int64) for i in (index[-2] + diagonal, index[-1]))
        return ops.where(keeps(column, row), load(index), ops.constant(0, x.dtype))

    return made(call, body, x)
