"""View lowerings: index maths, no copies.

In:   reshape, transpose, slice, expand, cat, pad ...  Out: `View`s; ops that join tensors become
      one `Pointwise`.

    transpose:  index [i, j] of the result is index [j, i] of the base
    view:       the flat position is cut again, as x // n and x % n only where sizes do not line up

    >>> i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    >>> reshape_index((4, 8), (32,))([i])               # x.view(32)[i] is x[i // 8, i % 8]
    [FloorDiv(i, 8), Mod(i, 8)]
    >>> reshape_index((4, 8), (2, 2, 8))([i, 1, j])     # no division: only the first dimension is cut
    [2*i + 1, j]

Mirrors torch/_inductor/ir.py (View, SliceView, ExpandView ...).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from ..exceptions import CannotLower
from ..ir import Buffer, Index, Layout, Reindex, TensorBox, same_layout
from ..ops import Value, ops
from ..sizes.expressions import FloorDiv, Mod, Size
from ..sizes.intervals import is_nonnegative
from ..sizes.symbols import hint, is_dense, is_negative, maximum, minimum, same, sizes
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


def _shift(index: Index, dim: int, function: Callable[[sympy.Expr], sympy.Expr]) -> Index:
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
        call, x, call.value.shape, lambda index: _shift(index, dim, lambda i: i * step + start)
    )


@lower(aten.select.int)
def select(call: Call, x: TensorBox, dim: int, position: Size) -> TensorBox:
    dim, position = _dim_and_place(x, dim, position)
    return view(call, x, call.value.shape, _at(dim, position))


def _at(dim: int, position: Size) -> Reindex:
    return lambda index: [*index[:dim], sympy.sympify(position), *index[dim:]]


def _dim_and_place(x: TensorBox, dim: int, position: Size) -> tuple[int, Size]:
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
    return lambda index: _shift(index, dim, lambda i: i + start)


@lower(aten.unbind.int)
def unbind(call: Call, x: TensorBox, dim: int = 0) -> list[TensorBox]:
    dim = normalize_dim(dim, len(x.get_size()))
    return [view(call, x, piece.shape, _at(dim, k)) for k, piece in enumerate(call.value)]


@lower(aten.diagonal.default)
def diagonal(call: Call, x: TensorBox, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorBox:
    rank = len(x.get_size())
    dim1 = normalize_dim(dim1, rank)
    dim2 = normalize_dim(dim2, rank)

    def reindex(index: Index) -> Index:
        rest = iter(index[:-1])
        place = {dim1: index[-1] + max(-offset, 0), dim2: index[-1] + max(offset, 0)}
        return [place[k] if k in place else next(rest) for k in range(rank)]

    return view(call, x, call.value.shape, reindex)


@lower(aten.unfold.default)
def unfold(call: Call, x: TensorBox, dim: int, size: int, step: int) -> TensorBox:
    """Windows along one dimension, which come last in the result."""
    rank = len(x.get_size())
    if not rank:
        return view(call, x, call.value.shape, lambda index: [])
    dim = normalize_dim(dim, rank)
    return view(
        call,
        x,
        call.value.shape,
        lambda index: _shift(index[:-1], dim, lambda i: i * step + index[-1]),
    )


@lower(aten.as_strided.default)
def as_strided(
    call: Call,
    x: TensorBox,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> TensorBox:
    """Another view of x's memory; x must lie there as eager has it."""
    fake = x.fake
    if not isinstance(fake, torch.Tensor) or any(
        isinstance(n, sympy.Expr) for n in (*size, *stride, storage_offset)
    ):
        raise CannotLower("as_strided of a value that eager does not have, or with symbolic sizes")
    at = x.as_buffer_view(tuple(fake.stride()) if is_dense(fake) else None)
    if not same_layout(at.size, at.stride, fake.stride()):
        raise CannotLower("as_strided of a tensor that does not lie in memory as eager has it")
    buffer = call.lowerer.lowered.buffers[at.name]
    start = fake.storage_offset() - int(at.offset)  # where the buffer begins in eager's storage
    offset = (fake.storage_offset() if storage_offset is None else storage_offset) - start
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    if (
        offset < 0
        or 0 not in size
        and last
        > sum((int(n) - 1) * int(s) for n, s in zip(buffer.layout.size, buffer.layout.stride))
    ):
        raise CannotLower("as_strided reaches beyond the tensor it is given")
    layout = Layout(x.device, x.dtype, tuple(size), tuple(stride), offset)
    return TensorBox(Buffer(at.name, layout, call.origins | x.origins))


def copied_view(*args: Any) -> TensorBox:
    """Index maths like a view, but memory of its own where it is stored: what eager copies."""
    return view(*args).copy()


def _remainder(a: Any, b: Any) -> sympy.Expr:
    return Mod(sympy.sympify(a), sympy.sympify(b))


@lower(aten.flip.default)
def flip(call: Call, x: TensorBox, dims: Sequence[int]) -> TensorBox:
    size = x.get_size()
    flipped = {normalize_dim(d, len(size)) for d in dims}
    return copied_view(
        call,
        x,
        size,
        lambda index: [size[k] - 1 - i if k in flipped else i for k, i in enumerate(index)],
    )


@lower(aten.repeat.default)
def repeat(call: Call, x: TensorBox, repeats: Sequence[Size]) -> TensorBox:
    own = x.get_size()
    skip = len(repeats) - len(own)
    return copied_view(
        call,
        x,
        call.value.shape,
        lambda index: [_remainder(i, n) if n != 0 else i for n, i in zip(own, index[skip:])],
    )


@lower(aten.roll.default)
def roll(call: Call, x: TensorBox, shifts: Sequence[Size], dims: Sequence[int] = ()) -> TensorBox:
    size = x.get_size()
    if not dims:  # of the flattened tensor
        count = sympy.prod(size)
        flat = view(call, x, [count], reshape_index(size, [count]))
        return (
            copied_view(call, roll(call, flat, shifts, [0]), size, reshape_index([count], size))
            if count
            else x.copy()
        )
    by: dict[int, Size] = {}
    for dim, shift in zip(dims, shifts):
        dim = normalize_dim(dim, len(size))
        by[dim] = by.get(dim, 0) + shift
    return copied_view(
        call,
        x,
        size,
        lambda index: [
            _remainder(i + _remainder(-by[k], size[k]), size[k]) if k in by and size[k] else i
            for k, i in enumerate(index)
        ],
    )


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
                load(_shift(index, dim, lambda i: i - start)), dtype, result.dtype
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


@lower(aten.constant_pad_nd.default)
def constant_pad(call: Call, x: TensorBox, pad: Sequence[Size], value: float = 0) -> TensorBox:
    size = x.get_size()
    before: list[Size] = [0] * len(size)
    after: list[Size] = [0] * len(size)
    for k in range(len(pad) // 2):
        before[len(size) - 1 - k] = pad[2 * k]
        after[len(size) - 1 - k] = pad[2 * k + 1]
    load = x.make_loader()

    def reaches(n: Size) -> bool:
        """Out of x, perhaps?"""
        return not is_nonnegative(sympy.sympify(-n))

    def body(index: Index) -> Value:
        inside = [i - b for i, b in zip(index, before)]
        tests = [
            between(i, 0 if reaches(b) else None, n if reaches(a) else None)
            for i, b, a, n in zip(inside, before, after, size)
            if reaches(b) or reaches(a)
        ]
        if not tests:
            return load(inside)
        return ops.masked(functools.reduce(ops.logical_and, tests), lambda: load(inside), value)

    return made(call, body, x)


def equal(a: Any, b: Any) -> Value:
    """a == b of two index expressions, as a runtime condition."""
    return ops.eq(number(sympy.sympify(a), torch.int64), number(sympy.sympify(b), torch.int64))


def partly(
    call: Call,
    x: TensorBox,
    source: TensorBox,
    written: Callable[[Index], Value | None],
    place: Reindex,
    anywhere: bool = False,
) -> TensorBox:
    """x, but where written(index) is true (None: everywhere) the element of `source` at
    place(index).  anywhere: that is always one."""
    load = x.make_loader()
    load_source = source.make_loader()

    def body(index: Index) -> Value:
        test = written(index)

        def new() -> Value:
            return cast(load_source(place(index)), source.dtype, x.dtype)

        if test is None:
            return new()
        value = new() if anywhere else ops.masked(test, new, 0)
        return ops.where(test, value, load(index))

    return made(call, body, x, source)


@lower(aten.slice_scatter.default)
def slice_scatter(
    call: Call,
    x: TensorBox,
    source: TensorBox,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> TensorBox:
    size = x.get_size()
    dim = normalize_dim(dim, len(size))
    start, count = slice_start(start, size[dim]), source.get_size()[dim]
    if count == 0:
        return x.copy()

    def written(index: Index) -> Value:
        end = start + (count - 1) * step + 1
        test = (
            between(index[dim], start if start != 0 else None, end)
            if (start, count) != (0, size[dim])
            else None
        )
        if step != 1:
            on_step = equal(Mod(index[dim] - _remainder(start, step), sympy.sympify(step)), 0)
            test = on_step if test is None else ops.logical_and(test, on_step)
        return test

    return partly(
        call,
        x,
        source,
        written,
        lambda index: _shift(index, dim, lambda i: FloorDiv(i - start, sympy.sympify(step))),
    )


@lower(aten.diagonal_scatter.default)
def diagonal_scatter(
    call: Call, x: TensorBox, source: TensorBox, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> TensorBox:
    rank = len(x.get_size())
    dim1, dim2 = normalize_dim(dim1, rank), normalize_dim(dim2, rank)
    row = lambda index: index[dim1] - max(-offset, 0)  # noqa: E731

    def written(index: Index) -> Value:
        test = equal(row(index), index[dim2] - max(offset, 0))
        return (
            ops.logical_and(test, between(row(index), 0, None)) if offset else test
        )  # not above or left of where the diagonal starts

    return partly(
        call,
        x,
        source,
        written,
        lambda index: [*[i for k, i in enumerate(index) if k not in (dim1, dim2)], row(index)],
    )


@lower(aten.select_scatter.default)
def select_scatter(
    call: Call, x: TensorBox, source: TensorBox, dim: int, position: Size
) -> TensorBox:
    dim, position = _dim_and_place(x, dim, position)
    return partly(
        call,
        x,
        source,
        lambda index: equal(index[dim], position),
        lambda index: [*index[:dim], *index[dim + 1 :]],
        anywhere=True,
    )


@lower(aten.tril.default, aten.triu.default)
def triangle(call: Call, x: TensorBox, diagonal: int = 0) -> TensorBox:
    load, keeps = x.make_loader(), ops.le if call.name == "tril" else ops.ge

    def body(index: Index) -> Value:
        row, column = (ops.index_expr(i, torch.int64) for i in (index[-2] + diagonal, index[-1]))
        return ops.where(keeps(column, row), load(index), ops.constant(0, x.dtype))

    return made(call, body, x)
