"""Lowerings of parts of tensors, joined tensors, rarer views, and copies that only rearrange.

In:   slice, select, diagonal, unfold, as_strided; slice_scatter, select_scatter, which
      functionalization makes of `x[1:3] = y`; cat; flip, roll, repeat, pad.  Out: `View`s, copies
      of them; of writes and of joined tensors one `Pointwise`, whose body reads the part in which
      it is.

    slice_scatter(x, y, 0, 1, 3)[i]     is y[i - 1] where 1 <= i < 3, else x[i]
    cat(x, y)[i]                        is x[i] where i < 3, else y[i - 3], of an x with 3 rows
    flip:       index i of the result is index n - 1 - i of the base
    unfold:     index [i, k] of windows of 3, 2 apart, is index 2 * i + k of the base

Mirrors torch/_inductor/lowering.py (`slice_`, `slice_scatter`, `pointwise_cat`, `as_strided`,
`rev`, `constant_pad_nd`).
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from ..errors import CannotLower
from ..ir.loops import Buffer, Index, Layout, Reindex, TensorBox, same_layout
from ..ir.ops import Value, ops
from ..sizes.expressions import FloorDiv, Mod, Size
from ..sizes.prover import is_nonnegative
from ..sizes.symbols import extent, hint, is_symbolic, maximum, same, same_sizes, size, sizes
from .registry import Call, NotLowered, aten, cast, lower, made, normalize_dim, number, view
from .views import along, reshape_index


def between(i: sympy.Expr, low: Size | None, high: Size | None) -> Value:
    """low <= i < high as a runtime condition; low, high: a number, an index expression, or None."""
    at = ops.index_expr(i, torch.int64)
    pairs = [(ops.ge, low), (ops.lt, high)]
    tests = [test(at, number(n, torch.int64)) for test, n in pairs if n is not None]
    return functools.reduce(ops.logical_and, tests)


def minimum(a: Any, b: Any) -> Any:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return min(a, b)
    return size(sympy.Min(a, b))


def is_negative(n: Any) -> bool:
    """Is this number below 0?  Where that depends on the symbols, the answer is that of this run:
    tracing had to decide it, too, and a guard holds it."""
    if isinstance(n, (int, float)):
        return n < 0
    return not is_nonnegative(n) and (hint(n, 0) or 0) < 0


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
    if start == 0 and step == 1 and x.get_size() == call.value.size:
        return x
    reindex = lambda index: along(index, dim, lambda i: i * step + start)  # noqa: E731
    return view(call, x, call.value.size, reindex)


@lower(aten.select.int)
def select(call: Call, x: TensorBox, dim: int, position: Size) -> TensorBox:
    dim, position = dim_and_place(x, dim, position)
    return view(call, x, call.value.size, at_place(dim, position))


def at_place(dim: int, position: Size) -> Reindex:
    return lambda index: [*index[:dim], sympy.sympify(position), *index[dim:]]


def dim_and_place(x: TensorBox, dim: int, position: Size) -> tuple[int, Size]:
    """Both counted from the front."""
    dim = normalize_dim(dim, len(x.get_size()))
    return dim, position + x.get_size()[dim] if is_negative(position) else position


@lower(aten.unbind.int)
def unbind(call: Call, x: TensorBox, dim: int = 0) -> list[TensorBox]:
    dim = normalize_dim(dim, len(x.get_size()))
    return [view(call, x, piece.size, at_place(dim, k)) for k, piece in enumerate(call.value)]


@lower(aten.diagonal.default)
def diagonal(call: Call, x: TensorBox, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorBox:
    rank = len(x.get_size())
    dim1 = normalize_dim(dim1, rank)
    dim2 = normalize_dim(dim2, rank)

    def reindex(index: Index) -> Index:
        rest = iter(index[:-1])
        place = {dim1: index[-1] + max(-offset, 0), dim2: index[-1] + max(offset, 0)}
        return [place[k] if k in place else next(rest) for k in range(rank)]

    return view(call, x, call.value.size, reindex)


# --- writes ---------------------------------------------------------------------------------------
def equal(a: Any, b: Any) -> Value:
    """a == b of two index expressions, as a runtime condition."""
    return ops.eq(number(sympy.sympify(a), torch.int64), number(sympy.sympify(b), torch.int64))


def is_result(node: fx.Node) -> bool:
    """Does the program get this value?  (Not: is it copied into an input that was written.)"""
    for user in node.users:
        if user.op == "output":
            given: Any = user.args[0]  # (results, new values of written inputs), or results
            is_pair = len(given) == 2 and isinstance(given[0], (list, tuple))
            if node in (given[0] if is_pair else given):
                return True
    return False


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

    if is_result(call.node) and not call.value.is_dense:
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
    dim = normalize_dim(dim, len(size))
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


# --- joined tensors ---------------------------------------------------------------------------
@lower(aten.cat.default)
def cat(call: Call, tensors: Sequence[TensorBox], dim: int = 0) -> TensorBox:
    result, dim = call.value, normalize_dim(dim, len(call.value.size))
    parts = [box for box in tensors if 0 not in box.get_size()]
    if not 0 < len(parts) <= 8:
        raise NotLowered(f"cat of {'more than eight' if parts else 'empty'} tensors")
    loads = [box.make_loader() for box in parts]
    starts = list(itertools.accumulate([box.get_size()[dim] for box in parts[:-1]], initial=0))

    def element(k: int, index: Index) -> Value:
        value = loads[k](along(index, dim, lambda i: i - starts[k]))
        return cast(value, parts[k].dtype, result.dtype)

    def body(index: Index) -> Value:
        """Of two parts, the first with 3 rows: where(i < 3, first[i] if i < 3 else 0, second[i - 3]
        if i >= 3 else 0).  Masked, for memory beyond a part must not be read."""
        if len(parts) == 1:
            return element(0, index)
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


# --- rarer views, and copies of views -------------------------------------------------------------
@lower(aten.unfold.default)
def unfold(call: Call, x: TensorBox, dim: int, size: int, step: int) -> TensorBox:
    """Windows along one dimension, which come last in the result."""
    rank = len(x.get_size())
    if not rank:
        return view(call, x, call.value.size, lambda index: [])
    dim = normalize_dim(dim, rank)

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
    fake = node.meta["val"]
    if (storage_offset is None or same(storage_offset, fake.storage_offset())) and (
        same_sizes(size, fake.shape) and same_layout(size, stride, sizes(fake.stride()))
    ):
        return view(call, x, size, lambda index: index)
    numbers = (*size, *stride, storage_offset)
    if x.eager is None or is_symbolic(fake) or any(isinstance(n, sympy.Expr) for n in numbers):
        raise CannotLower("as_strided of a value that eager does not have, or with symbolic sizes")
    at = x.as_buffer_view(x.eager.stride if x.eager.is_dense else None)
    if not same_layout(at.size, at.stride, x.eager.stride):
        raise CannotLower("as_strided of a tensor that does not lie in memory as eager has it")
    buffer = call.lowerer.lowered.buffers[at.name]
    start = fake.storage_offset() - int(at.offset)  # where the buffer begins in eager's storage
    offset = (fake.storage_offset() if storage_offset is None else storage_offset) - start
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    held = extent(buffer.layout.size, buffer.layout.stride) or 0
    if offset < 0 or 0 not in size and last >= held:
        raise CannotLower("as_strided reaches beyond the tensor it is given")
    layout = Layout(x.device, x.dtype, tuple(size), tuple(stride), offset)
    return TensorBox(Buffer(at.name, layout, call.origins | x.origins))


def copied_view(*args: Any) -> TensorBox:
    """Index maths like a view, but memory of its own where it is stored: what eager copies."""
    return view(*args).copy()


@lower(aten.flip.default)
def flip(call: Call, x: TensorBox, dims: Sequence[int]) -> TensorBox:
    size = x.get_size()
    flipped = {normalize_dim(d, len(size)) for d in dims}

    def reindex(index: Index) -> Index:
        return [size[k] - 1 - i if k in flipped else i for k, i in enumerate(index)]

    return copied_view(call, x, size, reindex)


@lower(aten.repeat.default)
def repeat(call: Call, x: TensorBox, repeats: Sequence[Size]) -> TensorBox:
    own = x.get_size()
    skip = len(repeats) - len(own)

    def reindex(index: Index) -> Index:
        return [Mod(i, n) if n != 0 else i for n, i in zip(own, index[skip:])]

    return copied_view(call, x, call.value.size, reindex)


@lower(aten.roll.default)
def roll(call: Call, x: TensorBox, shifts: Sequence[Size], dims: Sequence[int] = ()) -> TensorBox:
    size = x.get_size()
    if not dims:  # of the flattened tensor
        count = sympy.prod(size)
        if not count:
            return x.copy()
        flat = view(call, x, [count], reshape_index(size, [count]))
        rolled = roll(call, flat, shifts, [0])
        return copied_view(call, rolled, size, reshape_index([count], size))
    by: dict[int, Size] = {}
    for dim, shift in zip(dims, shifts):
        dim = normalize_dim(dim, len(size))
        by[dim] = by.get(dim, 0) + shift

    def reindex(index: Index) -> Index:
        return [
            Mod(i + Mod(-by[k], size[k]), size[k]) if k in by and size[k] else i
            for k, i in enumerate(index)
        ]

    return copied_view(call, x, size, reindex)


@lower(aten.constant_pad_nd.default)
def constant_pad(call: Call, x: TensorBox, pad: Sequence[Size], value: float = 0) -> TensorBox:
    size = x.get_size()
    ends = [*zip(pad[::2], pad[1::2])][::-1]  # (before, after), of the last dimension first
    ends = [(0, 0)] * (len(size) - len(ends)) + ends
    load = x.make_loader()

    def reaches(n: Size) -> bool:
        """Out of x, perhaps?"""
        return not is_nonnegative(sympy.sympify(-n))

    def body(index: Index) -> Value:
        inside = [i - before for i, (before, _) in zip(index, ends)]
        tests = [
            between(i, 0 if reaches(before) else None, n if reaches(after) else None)
            for i, (before, after), n in zip(inside, ends, size)
            if reaches(before) or reaches(after)
        ]
        if not tests:
            return load(inside)
        is_inside = functools.reduce(ops.logical_and, tests)
        if not isinstance(value, sympy.Expr):
            return ops.masked(is_inside, lambda: load(inside), value)
        element = ops.masked(is_inside, lambda: load(inside), 0)
        return ops.where(is_inside, element, number(value, x.dtype))

    return made(call, body, x)
