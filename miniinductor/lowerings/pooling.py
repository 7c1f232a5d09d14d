"""Pooling over two or three dimensions: max, average, adaptive.

In:   max_pool2d, avg_pool3d, ...  Out: a `Pointwise` that reads every element of its window; where
      windows are large, a `Reduction` over the window.

    avg_pool2d(x, 3, padding=1):  the window of output i starts at i*stride - 1; what lies outside x
                                  counts as 0
    adaptive_avg_pool2d(x, 7):    the window of output i: floor(i*n / 7) up to ceil((i+1)*n / 7);
                                  sizes differ by one

Mirrors torch/_inductor/lowering.py (`max_pool2d_with_indices`, `avg_pool2d`,
`_adaptive_avg_pool2d`).  Left out: max pools with large windows, fractional pools (they run as
eager kernels).
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._prims_common import suggest_memory_format

from ..ir import Index, Reduction, TensorBox
from ..lowering.reductions import accumulate_dtype
from ..lowering.registry import (
    READ_SEVERAL_TIMES,
    Call,
    NotLowered,
    aten,
    cast,
    lower,
    made,
    number,
)
from ..ops import Value, ops
from ..sizes.expressions import FloorDiv, Size
from ..sizes.prover import is_nonnegative
from .joined import between

UNROLLED = 27  # elements of a window that are written out; larger ones are a reduction's loops
READ_SEVERAL_TIMES |= {
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
}


@dataclass
class Windows:
    """The window of each output, one entry of every list per pooled dimension."""

    x: TensorBox
    counts: list[int]  # most elements of a window
    # (dimension, output index, k) -> where in x its element k lies
    place: Callable[[int, sympy.Expr, sympy.Expr], sympy.Expr]
    # (dimension, output index) -> (low, high): where a place must lie; None where it always does
    limits: Callable[[int, sympy.Expr], tuple[Size | None, Size | None]]

    def __post_init__(self) -> None:
        self.load = self.x.make_loader()  # now: what is stored later must not be read by this value

    def element(
        self, index: Index, at: Index, outside: float
    ) -> tuple[Value | None, Value, sympy.Expr]:
        """Of element `at` of the window of output `index`: (is it inside x, or None if always; its
        value, else `outside`; its flat place)."""
        rank = len(self.counts)
        batch, output = list(index[:-rank]), index[-rank:]
        places = [self.place(d, output[d], at[d]) for d in range(rank)]
        flat = sympy.Integer(0)
        tests = []
        for d, place in enumerate(places):
            flat = flat * self.x.get_size()[d - rank] + place
            low, high = self.limits(d, output[d])
            if low is not None or high is not None:
                tests.append(between(place, low, high))
        if not tests:
            return None, self.load(batch + places), flat
        inside = functools.reduce(ops.logical_and, tests)
        return inside, ops.masked(inside, lambda: self.load(batch + places), outside), flat

    def places(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, self.counts))

    def total(self, call: Call, compute: torch.dtype) -> TensorBox:
        """The sum over each window, as `compute`."""
        x = self.x

        def one(index: Index, at: Index) -> Value:
            return cast(self.element(index, at, 0)[1], x.dtype, compute)

        def unrolled(index: Index) -> Value:
            return functools.reduce(ops.add, [one(index, at) for at in self.places()])

        if math.prod(self.counts) <= UNROLLED:
            return made(call, unrolled, x, dtype=compute)
        shape, origins = list(call.value.size), call.origins | x.origins
        return TensorBox.stored(
            Reduction(x.device, compute, shape, one, self.counts, "sum", compute, origins=origins)
        )


def _many(value: Any, rank: int) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * rank if len(values) == 1 else values


def fixed_windows(
    call: Call, x: TensorBox, kernel: Any, stride: Any, padding: Any, dilation: Any = 1
) -> Windows:
    """Windows of one size at equal distances, perhaps reaching out of x."""
    _refuse_empty(call, x)
    rank = 2 if "2d" in call.name else 3
    counts, padding, dilation = _many(kernel, rank), _many(padding, rank), _many(dilation, rank)
    stride = _many(stride, rank) or counts
    outputs, sizes = call.first.size[-rank:], x.get_size()[-rank:]

    def place(d: int, output: sympy.Expr, k: sympy.Expr) -> sympy.Expr:
        return output * stride[d] - padding[d] + k * dilation[d]

    def limits(d: int, output: sympy.Expr) -> tuple[Size | None, Size | None]:
        last = place(d, outputs[d] - 1, counts[d] - 1)
        is_inside = is_nonnegative(sympy.sympify(sizes[d] - 1 - last))
        return 0 if padding[d] else None, None if is_inside else sizes[d]

    return Windows(x, counts, place, limits)


def adaptive_windows(call: Call, x: TensorBox, outputs: Sequence[Size]) -> Windows:
    """Windows that cover x evenly."""
    _refuse_empty(call, x)
    sizes = x.get_size()[-len(outputs) :]
    if any(isinstance(n, sympy.Expr) for n in (*sizes, *outputs)):
        raise NotLowered("adaptive pooling over symbolic sizes")
    widths = [{int(width(sizes[d], m, i)) for i in range(m)} for d, m in enumerate(outputs)]

    def place(d: int, output: sympy.Expr, k: sympy.Expr) -> sympy.Expr:
        return FloorDiv(output * sizes[d], outputs[d]) + k

    def limits(d: int, output: sympy.Expr) -> tuple[None, Size | None]:
        return None, end(sizes[d], outputs[d], output) if len(widths[d]) > 1 else None

    return Windows(x, [max(found) for found in widths], place, limits)


def end(size: Size, outputs: Size, i: Any) -> sympy.Expr:
    """Where window i of so many ends."""
    return FloorDiv((i + 1) * size + outputs - 1, outputs)


def width(size: Size, outputs: Size, i: Any) -> sympy.Expr:
    return end(size, outputs, i) - FloorDiv(i * size, outputs)


def _refuse_empty(call: Call, x: TensorBox) -> None:
    if 0 in call.first.size or 0 in x.get_size():
        raise NotLowered("pooling of an empty tensor")


def _is_channels_last_image(given: torch.Tensor) -> bool:
    is_image = given.dim() == 4 and all(type(n) is int for n in given.shape)
    return is_image and suggest_memory_format(given) is torch.channels_last


# --- max ------------------------------------------------------------------------------------------
@lower(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def max_pool(
    call: Call,
    x: TensorBox,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> list[TensorBox]:
    image: Any = call.node.args[0]
    if "3d" in call.name and _is_channels_last_image(image.meta["val"]):
        raise NotLowered("eager refuses to see channels-last images here")
    return _largest(call, fixed_windows(call, x, kernel, stride, padding, dilation))


@lower(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(call: Call, x: TensorBox, output_size: Sequence[Size]) -> list[TensorBox]:
    return _largest(call, adaptive_windows(call, x, list(output_size)))


def _largest(call: Call, windows: Windows) -> list[TensorBox]:
    """[largest element, its place]: the first among equals; a NaN is the largest, the last one of
    several, as in eager."""
    x = windows.x
    if math.prod(windows.counts) > UNROLLED:
        raise NotLowered(f"a window of more than {UNROLLED} elements")
    floating = x.dtype.is_floating_point
    lowest = float("-inf") if floating else torch.iinfo(x.dtype).min

    def largest(index: Index) -> Value:
        values = [windows.element(index, at, lowest)[1] for at in windows.places()]
        return functools.reduce(lambda best, new: ops.maximum(new, best), values)

    def place(index: Index) -> Value:
        best = where = None
        for at in windows.places():
            inside, value, flat = windows.element(index, at, lowest)
            here = ops.index_expr(flat, torch.int64)
            if best is None:
                best, where = value, here
                if inside is not None:
                    where = ops.where(inside, here, ops.constant(-1, torch.int64))
                continue
            larger = ops.gt(value, best)
            better = ops.logical_or(larger, ops.lt(where, ops.constant(0, torch.int64)))
            if floating:
                better = ops.logical_or(better, ops.isnan(value))
            if inside is not None:
                better = ops.logical_and(inside, better)
            where, best = ops.where(better, here, where), ops.maximum(value, best)
        return where

    bodies = zip(call.value, (largest, place))
    return [made(call, body, x, dtype=layout.dtype) for layout, body in bodies]


# --- average --------------------------------------------------------------------------------------
@lower(aten.avg_pool2d.default, aten.avg_pool3d.default)
def avg_pool(
    call: Call,
    x: TensorBox,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> TensorBox:
    windows = fixed_windows(call, x, kernel, stride, padding)
    kernel, rank = windows.counts, len(windows.counts)
    padding, sizes = _many(padding, rank), x.get_size()[-rank:]

    def count(d: int, output: sympy.Expr) -> Any:
        """Elements of the window along dimension d that count; a number where every window has as
        many."""
        if divisor_override:
            return 1 if d else divisor_override
        pad = padding[d] if count_include_pad else 0
        last = windows.place(d, call.value.size[d - rank] - 1, kernel[d] - 1)
        is_padding = count_include_pad and is_nonnegative(sympy.sympify(sizes[d] - 1 + pad - last))
        if is_padding or windows.limits(d, output) == (None, None):
            return kernel[d]
        start = ops.index_expr(windows.place(d, output, sympy.Integer(0)), torch.int64)
        stop = ops.add(start, ops.constant(kernel[d], torch.int64))
        stop = ops.minimum(stop, number(sizes[d] + pad, torch.int64))
        if not count_include_pad:
            start = ops.maximum(start, ops.constant(0, torch.int64))
        return ops.sub(stop, start)

    # eager's kernel for channels-last images adds to zeros, and divides; the others add what they
    # have divided to a zero
    image: Any = call.node.args[0]
    divides_last = divisor_override is not None and _is_channels_last_image(image.meta["val"])
    return _average(call, windows, count, "before" if divides_last else "after")


@lower(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool(call: Call, x: TensorBox, output_size: Sequence[Size]) -> TensorBox:
    sizes = x.get_size()[-len(output_size) :]

    def count(d: int, output: sympy.Expr) -> Value:
        return ops.index_expr(width(sizes[d], output_size[d], output), torch.int64)

    return _average(call, adaptive_windows(call, x, list(output_size)), count, "before")


def _average(
    call: Call, windows: Windows, count: Callable[[int, sympy.Expr], Any], zero: str
) -> TensorBox:
    """total / (count(0) * count(1) * ...)

    zero: whether 0.0 is added "before" the division or "after" it, so that no average, or none but
    by a negative divisor, is -0.0."""
    dtype, rank = call.value.dtype, len(windows.counts)
    if not dtype.is_floating_point:
        raise NotLowered("an average of integers")
    compute = accumulate_dtype(dtype)
    total = windows.total(call, compute)
    load = total.make_loader()

    def body(index: Index) -> Value:
        counts = [count(d, output) for d, output in enumerate(index[-rank:])]
        numbers = math.prod(c for c in counts if isinstance(c, int))
        others = [c for c in counts if not isinstance(c, int)]
        divisor = ops.constant(numbers, torch.int64 if others else compute)
        if others:
            product = functools.reduce(ops.mul, others, divisor)
            divisor = ops.to_dtype(product, compute, torch.int64)
        nothing = ops.constant(0.0, compute)
        if zero == "before":
            average = ops.truediv(ops.add(load(index), nothing), divisor)
        else:
            average = ops.add(ops.truediv(load(index), divisor), nothing)
        return cast(average, compute, dtype)

    return made(call, body, total)
