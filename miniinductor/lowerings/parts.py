"""Lowerings of parts of a tensor whose place is known: reads, and writes, which functionalization
makes of `x[1:3] = y`.

In:   slice, select, diagonal; slice_scatter, select_scatter.  Out: `View`s; of
      writes one `Pointwise`: where(written, y, x).

    slice_scatter(x, y, 0, 1, 3)[i]     is y[i - 1] where 1 <= i < 3, else x[i]

Mirrors torch/_inductor/lowering.py (`slice_`, `slice_scatter`, `select_scatter`).
"""

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import fx

from ..ir import Index, Reindex, TensorBox
from ..lowering.registry import (
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
from ..lowering.views import along
from ..ops import Value, ops
from ..sizes.expressions import FloorDiv, Mod, Size
from ..sizes.prover import is_nonnegative
from ..sizes.symbols import maximum
from ..sizes.symbols import hint, size
from .joined import between


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
