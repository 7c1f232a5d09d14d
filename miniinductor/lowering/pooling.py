"""Pooling over two dimensions: max and average.

In:   max_pool2d, avg_pool2d.  Out: a `Pointwise` that reads every element of its window.

    avg_pool2d(x, 3, padding=1):  the window of output i starts at i*stride - 1; what lies outside x
                                  counts as 0

Mirrors torch/_inductor/lowering.py (`max_pool2d_with_indices`, `avg_pool2d`).  Left out: large
windows, three dimensions, adaptive pools whose windows differ (they run as eager kernels).
"""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import sympy
import torch

from ..ir.loops import Index, TensorBox
from ..ir.ops import Value, ops
from ..sizes.prover import is_nonnegative
from .parts import between
from .reductions import accumulate_dtype
from .registry import READ_SEVERAL_TIMES, Call, NotLowered, aten, cast, lower, made, number

UNROLLED = 27  # elements of a window, which are written out
READ_SEVERAL_TIMES |= {aten.max_pool2d_with_indices.default, aten.avg_pool2d.default}


def _pair(value: Any) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * 2 if len(values) == 1 else values


class Windows:
    """The window of each output: of one size, at equal distances, perhaps reaching out of x."""

    def __init__(
        self, call: Call, x: TensorBox, kernel: Any, stride: Any, padding: Any, dilation: Any = 1
    ) -> None:
        if 0 in call.first.size or 0 in x.get_size():
            raise NotLowered("pooling of an empty tensor")
        self.counts, self.padding, self.dilation = map(_pair, (kernel, padding, dilation))
        if math.prod(self.counts) > UNROLLED:
            raise NotLowered(f"a window of more than {UNROLLED} elements")
        self.stride = _pair(stride) or self.counts
        self.sizes, self.outputs = x.get_size()[-2:], call.first.size[-2:]
        self.load = x.make_loader()  # now: what is stored later must not be read by this value

    def place(self, d: int, output: Any, k: int) -> Any:
        """Where in x, along dimension d, element k of the window of an output lies."""
        return output * self.stride[d] - self.padding[d] + k * self.dilation[d]

    def reaches(self, d: int, padding: int = 0) -> bool:
        """May a window reach beyond x and so much padding?"""
        last = self.place(d, self.outputs[d] - 1, self.counts[d] - 1)
        return not is_nonnegative(sympy.sympify(self.sizes[d] + padding - 1 - last))

    def element(
        self, index: Index, at: tuple[int, ...], outside: float
    ) -> tuple[Value | None, Value, sympy.Expr]:
        """Of element `at` of the window of output `index`: (is it inside x, or None if always; its
        value, else `outside`; its flat place)."""
        batch, places = list(index[:-2]), [self.place(d, index[d - 2], at[d]) for d in (0, 1)]
        flat = places[0] * self.sizes[1] + places[1]
        tests = []
        for d, place in enumerate(places):
            low, high = 0 if self.padding[d] else None, self.sizes[d] if self.reaches(d) else None
            if low is not None or high is not None:
                tests.append(between(place, low, high))
        if not tests:
            return None, self.load(batch + places), flat
        inside = functools.reduce(ops.logical_and, tests)
        return inside, ops.masked(inside, lambda: self.load(batch + places), outside), flat

    def places(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, self.counts))


@lower(aten.max_pool2d_with_indices.default)
def max_pool(
    call: Call,
    x: TensorBox,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> list[TensorBox]:
    """[largest element, its place]: the first among equals; a NaN is the largest, the last one of
    several, as in eager."""
    windows = Windows(call, x, kernel, stride, padding, dilation)
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


@lower(aten.avg_pool2d.default)
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
    """total / (count(0) * count(1)) + 0.0: no average is -0.0, as in eager."""
    windows, dtype = Windows(call, x, kernel, stride, padding), call.value.dtype
    if divisor_override is not None or not dtype.is_floating_point:
        raise NotLowered("an average of integers, or with a divisor of its own")
    compute = accumulate_dtype(dtype)

    def count(d: int, output: sympy.Expr) -> Any:
        """Elements of the window along dimension d that count; a number where every window has as
        many."""
        size, pad = windows.sizes[d], windows.padding[d] if count_include_pad else 0
        is_whole = count_include_pad and not windows.reaches(d, pad)
        if is_whole or not windows.padding[d] and not windows.reaches(d):
            return windows.counts[d]
        start = ops.index_expr(windows.place(d, output, 0), torch.int64)
        stop = ops.add(start, ops.constant(windows.counts[d], torch.int64))
        stop = ops.minimum(stop, number(size + pad, torch.int64))
        if not count_include_pad:
            start = ops.maximum(start, ops.constant(0, torch.int64))
        return ops.sub(stop, start)

    def body(index: Index) -> Value:
        values = [windows.element(index, at, 0)[1] for at in windows.places()]
        total = functools.reduce(ops.add, [cast(value, x.dtype, compute) for value in values])
        counts = [count(d, index[d - 2]) for d in (0, 1)]
        numbers = math.prod(c for c in counts if isinstance(c, int))
        others = [c for c in counts if not isinstance(c, int)]
        divisor = ops.constant(numbers, torch.int64 if others else compute)
        if others:
            product = functools.reduce(ops.mul, others, divisor)
            divisor = ops.to_dtype(product, compute, torch.int64)
        average = ops.add(ops.truediv(total, divisor), ops.constant(0.0, compute))
        return cast(average, compute, dtype)

    return made(call, body, x)
