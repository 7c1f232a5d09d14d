"""View lowerings: index maths, no copies.

In:   reshape, transpose, slice, expand, cat, pad ...  Out: `View`s; ops that join tensors become
      one `Pointwise`.

    transpose:  index [i, j] of the result is index [j, i] of the base
    view:       the flat position is cut again, as x // n and x % n only where sizes do not line up

    >>> i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    >>> reshape_index((4, 8), (32,))([i])               # x.view(32)[i] is x[i // 8, i % 8]
    [FloorDiv(i, 8), Mod(i, 8)]
    >>> reshape_index((4, 8), (2, 2, 8))([i, 1, j])   # no division: only the first dimension is cut
    [2*i + 1, j]

Mirrors torch/_inductor/ir.py (View, SliceView, ExpandView ...).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from ..ir import Index, Reindex, TensorBox
from ..ops import Value, ops
from ..sizes.expressions import FloorDiv, Mod, Size
from ..sizes.symbols import hint, is_negative, maximum, minimum, same, sizes
from .registry import (
    Call,
    NotLowered,
    aten,
    cast,
    lower,
    made,
    normalize_dim,
    number,
    view,
)


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
        for these, those in groups:
            flat = sympy.Integer(0)
            for k in those:
                flat = flat * new[k] + index[k]
            rest = sympy.expand(flat) if len(those) > 1 else flat
            inside = [k for k in these if old[k] != 1]
            for k in reversed(inside[1:]):
                result[k] = Mod(rest, sympy.sympify(old[k]))
                rest = FloorDiv(rest, sympy.sympify(old[k]))
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
    while i < len(old) or j < len(new):
        these: list[int] = []
        those: list[int] = []
        size_old: Size = 1
        size_new: Size = 1
        while i < len(old) or j < len(new):
            if these and those and same(size_old, size_new):
                break
            is_behind = bool(those) and hint(size_old, 1) < hint(size_new, 1)
            if i < len(old) and (not these or j == len(new) or is_behind):
                these.append(i)
                size_old = size_old * old[i]
                i += 1
            else:
                those.append(j)
                size_new = size_new * new[j]
                j += 1
        groups.append((these, those))
    return groups


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
    old, new = x.get_size(), tuple(call.value.shape)
    if old == new:
        return x
    if 0 in new:
        return view(call, x, new, lambda index: [sympy.Integer(0)] * len(old))
    return view(call, x, new, reshape_index(old, new))


@lower(aten.permute.default)
def permute(call: Call, x: TensorBox, dims: Any) -> TensorBox:
    rank = len(x.get_size())
    position = {normalize_dim(d, rank): k for k, d in enumerate(dims)}
    return view(call, x, call.value.shape, lambda index: [index[position[k]] for k in range(rank)])


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
    own, new = x.get_size(), tuple(call.value.shape)
    skip = len(new) - len(own)

    def reindex(index: Index) -> Index:
        return [sympy.Integer(0) if n == 1 else i for n, i in zip(own, index[skip:])]

    return x if own == new else view(call, x, new, reindex)


def along(index: Index, dim: int, function: Callable[[sympy.Expr], sympy.Expr]) -> Index:
    return [function(i) if k == dim else i for k, i in enumerate(index)]


def slice_start(start: Size | None, size: Size) -> Size:
    start = 0 if start is None else start
    return minimum(maximum(start + size if is_negative(start) else start, 0), size)


@lower(aten.slice.Tensor)
def slice_tensor(
    call: Call,
    x: TensorBox,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> TensorBox:
    dim = normalize_dim(dim, len(x.get_size()))
    size = x.get_size()[dim]
    start = slice_start(start, size)
    if start == 0 and step == 1 and x.get_size() == tuple(call.value.shape):
        return x
    return view(
        call, x, call.value.shape, lambda index: along(index, dim, lambda i: i * step + start)
    )


@lower(aten.select.int)
def select(call: Call, x: TensorBox, dim: int, position: Size) -> TensorBox:
    dim, position = dim_and_place(x, dim, position)
    return view(call, x, call.value.shape, at_place(dim, position))


def at_place(dim: int, position: Size) -> Reindex:
    return lambda index: [*index[:dim], sympy.sympify(position), *index[dim:]]


def dim_and_place(x: TensorBox, dim: int, position: Size) -> tuple[int, Size]:
    """Both counted from the front."""
    dim = normalize_dim(dim, len(x.get_size()))
    return dim, position + x.get_size()[dim] if is_negative(position) else position


@lower(aten.split.Tensor, aten.split_with_sizes.default)
def split(call: Call, x: TensorBox, sizes: Any, dim: int = 0) -> list[TensorBox]:
    dim = normalize_dim(dim, len(x.get_size()))
    pieces = []
    start: Size = 0
    for piece in call.value:
        pieces.append(view(call, x, piece.shape, _from(dim, start)))
        start += piece.shape[dim]
    return pieces


def _from(dim: int, start: Size) -> Reindex:
    return lambda index: along(index, dim, lambda i: i + start)


# --- several tensors, or parts of one -------------------------------------------------------------
def between(i: sympy.Expr, low: Size | None, high: Size | None) -> Value:
    """low <= i < high as a runtime condition; low, high: a number, an index expression, or None."""
    at = ops.index_expr(i, torch.int64)
    tests = [
        test(at, number(limit, torch.int64))
        for test, limit in ((ops.ge, low), (ops.lt, high))
        if limit is not None
    ]
    return functools.reduce(ops.logical_and, tests)


@lower(aten.cat.default)
def cat(call: Call, tensors: Sequence[TensorBox], dim: int = 0) -> TensorBox:
    result = call.value
    parts = [t for t in tensors if t.get_size() != (0,) or len(result.shape) == 1]
    dim = normalize_dim(dim, len(result.shape))
    loads = [(t.make_loader(), t.dtype, t.get_size()[dim]) for t in parts if 0 not in t.get_size()]
    if not 0 < len(loads) <= 8:
        raise NotLowered(f"cat of {'more than eight' if loads else 'empty'} tensors")
    starts = [sum((size for _, _, size in loads[:k]), 0) for k in range(len(loads))]

    def body(index: Index) -> Value:
        end = value = None
        for (load, dtype, _), start in reversed(list(zip(loads, starts))):
            inner = lambda load=load, dtype=dtype, start=start: cast(  # noqa: E731
                load(along(index, dim, lambda i: i - start)), dtype, result.dtype
            )
            if len(loads) == 1:
                return inner()
            piece = ops.masked(between(index[dim], None if start == 0 else start, end), inner, 0)
            value = (
                piece if value is None else ops.where(between(index[dim], None, end), piece, value)
            )
            end = start
        return value

    return made(call, body, *tensors)


@lower(aten.tril.default, aten.triu.default)
def triangle(call: Call, x: TensorBox, diagonal: int = 0) -> TensorBox:
    load, keeps = x.make_loader(), ops.le if call.name == "tril" else ops.ge

    def body(index: Index) -> Value:
        row, column = (ops.index_expr(i, torch.int64) for i in (index[-2] + diagonal, index[-1]))
        return ops.where(keeps(column, row), load(index), ops.constant(0, x.dtype))

    return made(call, body, x)
