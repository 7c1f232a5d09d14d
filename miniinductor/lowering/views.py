"""Lowerings of views, of parts of tensors, of joined tensors, and of copies that only rearrange.

In:   reshape, transpose, expand, split, slice, select, unfold ...  Out: `View`s: index maths, no
      copies.
In:   slice_scatter, select_scatter, which functionalization makes of `x[1:3] = y`; cat.  Out: one
      `Pointwise`, whose body reads the part in which it is.
In:   flip, roll, repeat.  Out: copies of `View`s.

    transpose:  index [i, j] of the result is index [j, i] of the base
    view:       the flat position is cut again, as x // n and x % n only where sizes do not line up
    flip:       index i of the result is index n - 1 - i of the base
    slice_scatter(x, y, 0, 1, 3)[i]     is y[i - 1] where 1 <= i < 3, else x[i]
    cat(x, y)[i]                        is x[i] where i < 3, else y[i - 3], of an x with 3 rows

Mirrors torch/_inductor/ir.py (View, SliceView, ExpandView ...) and torch/_inductor/lowering.py
(`slice_`, `slice_scatter`, `pointwise_cat`, `as_strided`, `rev`).
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from ..autograd.functionalize import is_as_before
from ..devices import recomputes
from ..errors import CannotLower
from ..ir.loops import Buffer, Index, Layout, Reindex, TensorBox, same_layout
from ..ir.ops import Value, ops
from ..sizes.expressions import FloorDiv, Mod, Size
from ..sizes.symbols import extent, hint, is_symbolic, reshape_index, size
from .registry import (
    Call,
    NotLowered,
    aten,
    broadcast_index,
    cast,
    lower,
    made,
    normalize_dim,
    number,
    view,
)


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
    position = {d % rank: k for k, d in enumerate(dims)}
    return view(call, x, call.value.size, lambda index: [index[position[k]] for k in range(rank)])


@lower(aten.transpose.int, aten.t.default)
def transpose(call: Call, x: TensorBox, a: int = 0, b: int = 1) -> TensorBox:
    rank = len(x.get_size())
    if rank < 2:
        return x
    order = list(range(rank))
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
    dim %= len(x.get_size())
    starts = itertools.accumulate([piece.size[dim] for piece in call.value], initial=0)

    def behind(start: Size) -> Reindex:
        return lambda index: along(index, dim, lambda i: i + start)

    pairs = zip(call.value, starts)
    return [view(call, x, piece.size, behind(start)) for piece, start in pairs]


@lower(aten.unbind.int)  # (whole: eager refuses a write to one of several views)
def unbind(call: Call, x: TensorBox, dim: int = 0) -> list[TensorBox]:
    dim %= len(x.get_size())
    return [view(call, x, piece.size, at(dim, k)) for k, piece in enumerate(call.value)]


def at(dim: int, position: Size) -> Reindex:
    return lambda index: [*index[:dim], sympy.sympify(position), *index[dim:]]


# --- parts ----------------------------------------------------------------------------------------
def between(i: sympy.Expr, low: Size | None, high: Size | None) -> Value:
    """low <= i < high as a runtime condition; low, high: a number, an index expression, or None."""
    at = ops.index_expr(i, torch.int64)
    pairs = [(ops.ge, low), (ops.lt, high)]
    tests = [test(at, number(n, torch.int64)) for test, n in pairs if n is not None]
    return functools.reduce(ops.logical_and, tests)


def is_negative(n: Any) -> bool:
    """Is this number below 0?  Where that depends on the symbols, the answer is that of this run:
    tracing had to decide it, too, and a guard holds it."""
    return hint(n, 0) < 0


def slice_start(start: Size | None, length: Size) -> Size:
    """Where a slice begins, counted from the front; as in Python, no further than the end."""
    start = 0 if start is None else start
    start = start + length if is_negative(start) else start
    return size(sympy.Min(sympy.Max(start, 0), length))


@lower(aten.slice.Tensor)
def slice_tensor(
    call: Call,
    x: TensorBox,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> TensorBox:
    dim %= len(x.get_size())
    start = slice_start(start, x.get_size()[dim])
    if start == 0 and step == 1 and x.get_size() == call.value.size:
        return x
    reindex = lambda index: along(index, dim, lambda i: i * step + start)  # noqa: E731
    return view(call, x, call.value.size, reindex)


@lower(aten.select.int)
def select(call: Call, x: TensorBox, dim: int, position: Size) -> TensorBox:
    return view(call, x, call.value.size, at(*dim_and_place(x, dim, position)))


def dim_and_place(x: TensorBox, dim: int, position: Size) -> tuple[int, Size]:
    """Both counted from the front."""
    dim %= len(x.get_size())
    return dim, position + x.get_size()[dim] if is_negative(position) else position


@lower(aten.diagonal.default)
def diagonal(call: Call, x: TensorBox, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorBox:
    rank = len(x.get_size())
    dim1, dim2 = dim1 % rank, dim2 % rank

    def reindex(index: Index) -> Index:
        rest = iter(index[:-1])
        place = {dim1: index[-1] + max(-offset, 0), dim2: index[-1] + max(offset, 0)}
        return [place[k] if k in place else next(rest) for k in range(rank)]

    return view(call, x, call.value.size, reindex)


# --- writes ---------------------------------------------------------------------------------------
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

    if not call.value.is_dense and any(user.op == "output" for user in call.node.users):
        raise NotLowered("eager's result keeps the gaps between the elements of a strided input")

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
    dim %= len(size)
    start, count = slice_start(start, size[dim]), source.get_size()[dim]
    if count == 0:
        return x.copy()

    def written(index: Index) -> Value:
        end = start + (count - 1) * step + 1
        test = None
        if (start, count) != (0, size[dim]):
            test = between(index[dim], start if start != 0 else None, end)
        if step != 1:
            on_step = equal(Mod(index[dim] - Mod(start, step), step), 0)
            test = on_step if test is None else ops.logical_and(test, on_step)
        return test

    def place(index: Index) -> Index:
        return along(index, dim, lambda i: FloorDiv(i - start, step))

    return partly(call, x, source, written, place)


@lower(aten.select_scatter.default)
def select_scatter(
    call: Call, x: TensorBox, source: TensorBox, dim: int, position: Size
) -> TensorBox:
    dim, position = dim_and_place(x, dim, position)

    def place(index: Index) -> Index:
        return [*index[:dim], *index[dim + 1 :]]

    return partly(call, x, source, lambda index: equal(index[dim], position), place, anywhere=True)


# --- rarer views ----------------------------------------------------------------------------------
@lower(aten.unfold.default)
def unfold(call: Call, x: TensorBox, dim: int, size: int, step: int) -> TensorBox:
    """Windows along one dimension, which come last in the result."""
    dim = normalize_dim(dim, len(x.get_size()))

    def reindex(index: Index) -> Index:
        return along(index[:-1], dim, lambda i: i * step + index[-1])

    return view(call, x, call.value.size, reindex)


@lower(aten.as_strided.default)
def as_strided(
    call: Call,
    x: TensorBox,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> TensorBox:
    """Another view of x's memory; x must lie there as eager has it."""
    node: Any = call.node.args[0]
    fake, eager = node.meta["val"], x.eager
    first = fake.storage_offset() if storage_offset is None else storage_offset
    if is_as_before(fake, size, stride, first):
        return view(call, x, size, lambda index: index)
    if (
        eager is None
        or is_symbolic(fake)
        or not all(type(n) is int for n in (*size, *stride, first))
    ):
        raise CannotLower("as_strided of a value that eager does not have, or with symbolic sizes")
    at = x.as_buffer_view(eager.stride if eager.is_dense else None)
    memory = call.lowerer.lowered.buffers[at.name].layout
    # where the buffer begins in eager's storage: that offset less the buffer's own
    offset = first - fake.storage_offset() + int(at.offset)
    end, held = extent(size, stride, offset), extent(memory.size, memory.stride)
    is_within = offset >= 0 and isinstance(held, int) and end <= held
    if not is_within or not same_layout(at.size, at.stride, eager.stride):
        raise CannotLower("as_strided of a tensor that lies otherwise, or reaches beyond it")
    layout = Layout(x.device, x.dtype, tuple(size), tuple(stride), offset)
    return TensorBox(Buffer(at.name, layout, call.origins | x.origins))


# --- joined tensors, and copies of views ----------------------------------------------------------
@lower(aten.cat.default)
def cat(call: Call, tensors: Sequence[TensorBox], dim: int = 0) -> TensorBox:
    result, dim = call.value, normalize_dim(dim, len(call.value.size))
    parts = [box for box in tensors if 0 not in box.get_size()]
    if len(parts) > 8:
        raise NotLowered("cat of more than eight tensors")
    if result.dtype is torch.float16 and not recomputes(result.device):
        raise NotLowered("eager copies 16 bits as they are")
    loads = [box.make_loader() for box in parts]
    starts = list(itertools.accumulate([box.get_size()[dim] for box in parts[:-1]], initial=0))

    def element(k: int, index: Index) -> Value:
        value = loads[k](along(index, dim, lambda i: i - starts[k]))
        return cast(value, parts[k].dtype, result.dtype)

    def body(index: Index) -> Value:
        """Two parts, of which the first has 3 rows, give where(i < 3, first[i] if i < 3 else 0,
        second[i - 3] if i >= 3 else 0).  Loads are masked: memory after a part must not be read."""
        if len(parts) < 2:
            return element(0, index) if parts else number(0, result.dtype)
        end = value = None
        for k in reversed(range(len(parts))):
            inside = between(index[dim], starts[k] if k else None, end)
            piece = ops.masked(inside, functools.partial(element, k, index), 0)
            if value is not None:
                piece = ops.where(between(index[dim], None, end), piece, value)
            value = piece
            end = starts[k]
        return value

    return made(call, body, *tensors)


@lower(aten.flip.default)
def flip(call: Call, x: TensorBox, dims: Sequence[int]) -> TensorBox:
    size = x.get_size()
    flipped = {d % len(size) for d in dims}

    def reindex(index: Index) -> Index:
        return [size[k] - 1 - i if k in flipped else i for k, i in enumerate(index)]

    return view(call, x, size, reindex).copy()


@lower(aten.repeat.default)
def repeat(call: Call, x: TensorBox, repeats: Sequence[Size]) -> TensorBox:
    own = x.get_size()
    skip = len(repeats) - len(own)

    def reindex(index: Index) -> Index:
        return [Mod(i, n) if n != 0 else i for n, i in zip(own, index[skip:])]

    return view(call, x, call.value.size, reindex).copy()


@lower(aten.roll.default)
def roll(call: Call, x: TensorBox, shifts: Sequence[Size], dims: Sequence[int] = ()) -> TensorBox:
    size = x.get_size()
    if not dims and len(size) > 1:
        raise NotLowered("a roll of the flattened tensor")

    def reindex(index: Index) -> Index:
        for dim, shift in zip(dims or [0], shifts):
            n = size[dim]
            index = along(index, dim % len(size), lambda i: Mod(i + Mod(-shift, n), n))
        return index

    return view(call, x, size, reindex).copy() if size and 0 not in size else x.copy()
