"""Pooling over two or three dimensions: max, average, adaptive.

In:   max_pool2d, avg_pool3d, ...  Out: a `Pointwise` that reads every element of its window; where
      windows are large,
a `Reduction` over the window.

    avg_pool2d(x, 3, padding=1):  the window of output i starts at i*stride - 1; what lies outside x
    counts as 0
    adaptive_avg_pool2d(x, 7):    the window of output i: floor(i*n / 7) up to ceil((i+1)*n / 7); sizes differ by one

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
from ..lowering.views import between
from ..ops import Value, ops
from ..sizes.expressions import FloorDiv, Size
from ..sizes.intervals import is_nonnegative

UNROLLED = 25  # elements of a window that are written out; larger ones are a reduction's loops
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
        rank, load = len(self.counts), self.load
        batch, output = list(index[:-rank]), index[-rank:]
        places = [self.place(d, output[d], at[d]) for d in range(rank)]
        tests = [
            between(places[d], low, high)
            for d in range(rank)
            for low, high in [self.limits(d, output[d])]
            if low is not None or high is not None
        ]
        flat = functools.reduce(
            lambda total, d: total * self.x.get_size()[d - rank] + places[d], range(rank), 0
        )
        if not tests:
            return None, load(batch + places), flat
        inside = functools.reduce(ops.logical_and, tests)
        return inside, ops.masked(inside, lambda: load(batch + places), outside), flat

    def elements(
        self, index: Index, outside: float
    ) -> Iterator[tuple[Value | None, Value, sympy.Expr]]:
        return (
            self.element(index, at, outside) for at in itertools.product(*map(range, self.counts))
        )

    def total(self, call: Call, compute: torch.dtype) -> TensorBox:
        """The sum over each window, as `compute`."""
        dtype = self.x.dtype

        def one(index: Index, at: Index) -> Value:
            return cast(self.element(index, at, 0)[1], dtype, compute)

        if math.prod(self.counts) <= UNROLLED:
            return made(
                call,
                lambda index: functools.reduce(
                    ops.add, [one(index, at) for at in itertools.product(*map(range, self.counts))]
                ),
                self.x,
                dtype=compute,
            )
        return TensorBox.stored(
            Reduction(
                self.x.device,
                compute,
                list(call.value.shape),
                one,
                self.counts,
                "sum",
                compute,
                origins=call.origins | self.x.origins,
            )
        )


def _many(value: Any, rank: int, default: Sequence[Any] | None = None) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values:
        return list(default or ())
    return values * rank if len(values) == 1 else values


def fixed_windows(
    x: TensorBox, outputs: Sequence[Size], kernel: Any, stride: Any, padding: Any, dilation: Any
) -> Windows:
    """Windows of one size at equal distances, perhaps reaching out of x."""
    sizes = x.get_size()[-len(kernel) :]
    last = [
        (m - 1) * s - p + (k - 1) * d
        for m, s, p, k, d in zip(outputs, stride, padding, kernel, dilation)
    ]

    def limits(d: int, output: sympy.Expr) -> tuple[Size | None, Size | None]:
        return 0 if padding[d] else None, None if is_nonnegative(
            sympy.sympify(sizes[d] - 1 - last[d])
        ) else sizes[d]

    return Windows(
        x, kernel, lambda d, output, k: output * stride[d] - padding[d] + k * dilation[d], limits
    )


def adaptive_windows(
    x: TensorBox, outputs: Sequence[Size]
) -> tuple[Windows, Callable[[int, sympy.Expr], sympy.Expr]]:
    """Windows that cover x evenly."""
    sizes = x.get_size()[-len(outputs) :]
    if any(isinstance(n, sympy.Expr) for n in (*sizes, *outputs)):
        raise NotLowered("adaptive pooling over symbolic sizes")
    start = lambda d, i: FloorDiv(i * sizes[d], outputs[d])  # noqa: E731
    end = lambda d, i: FloorDiv((i + 1) * sizes[d] + outputs[d] - 1, outputs[d])  # noqa: E731
    widths = [[int(end(d, i)) - int(start(d, i)) for i in range(m)] for d, m in enumerate(outputs)]
    windows = Windows(
        x,
        [max(w) for w in widths],
        lambda d, output, k: start(d, output) + k,
        lambda d, output: (None, end(d, output) if len(set(widths[d])) > 1 else None),
    )
    return windows, lambda d, output: end(d, output) - start(d, output)


def _is_empty(call: Call, x: TensorBox) -> Any:
    value = call.value[0] if isinstance(call.value, (tuple, list)) else call.value
    if 0 in tuple(value.shape) or 0 in x.get_size():
        raise NotLowered("pooling of an empty tensor")
    return value


def _is_channels_last_image(given: torch.Tensor) -> bool:
    return (
        given.dim() == 4
        and all(type(n) is int for n in given.shape)
        and suggest_memory_format(given) is torch.channels_last
    )


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
    rank, value = 2 if "2d" in str(call.node.target) else 3, _is_empty(call, x)
    image: Any = call.node.args[0]
    if rank == 3 and _is_channels_last_image(image.meta["val"]):
        raise NotLowered("eager refuses to see channels-last images here")
    kernel = _many(kernel, rank)
    return _largest(
        call,
        fixed_windows(
            x,
            value.shape[-rank:],
            kernel,
            _many(stride, rank, kernel),
            _many(padding, rank),
            _many(dilation, rank),
        ),
    )


@lower(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(call: Call, x: TensorBox, output_size: Sequence[Size]) -> list[TensorBox]:
    _is_empty(call, x)
    return _largest(call, adaptive_windows(x, list(output_size))[0])


def _largest(call: Call, windows: Windows) -> list[TensorBox]:
    """[largest element, its place]: the first among equals; a NaN is the largest, the last one of
    several, as in eager."""
    x = windows.x
    if math.prod(windows.counts) > UNROLLED:
        raise NotLowered(f"a window of more than {UNROLLED} elements")
    floating = x.dtype.is_floating_point
    lowest = float("-inf") if floating else torch.iinfo(x.dtype).min

    def largest(index: Index) -> Value:
        values = [value for _, value, _ in windows.elements(index, lowest)]
        return functools.reduce(lambda best, new: ops.maximum(new, best), values)

    def place(index: Index) -> Value:
        best = where = None
        for inside, value, flat in windows.elements(index, lowest):
            here = ops.index_expr(flat, torch.int64)
            if best is None:
                where = (
                    here
                    if inside is None
                    else ops.where(inside, here, ops.constant(-1, torch.int64))
                )
                best = value
                continue
            better = ops.logical_or(
                ops.gt(value, best), ops.lt(where, ops.constant(0, torch.int64))
            )
            better = ops.logical_or(better, ops.isnan(value)) if floating else better
            better = better if inside is None else ops.logical_and(inside, better)
            where, best = ops.where(better, here, where), ops.maximum(value, best)
        return where

    return [
        made(call, body, x, dtype=fake.dtype) for fake, body in zip(call.value, (largest, place))
    ]


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
    rank, value = 2 if "2d" in str(call.node.target) else 3, _is_empty(call, x)
    kernel, padding = _many(kernel, rank), _many(padding, rank)
    stride, sizes = _many(stride, rank, kernel), x.get_size()[-rank:]
    windows = fixed_windows(x, value.shape[-rank:], kernel, stride, padding, [1] * rank)
    constant = lambda v: ops.constant(v, torch.int64)  # noqa: E731

    def count(d: int, output: sympy.Expr) -> Any:
        """Elements of the window along dimension d that count; a number where every window has as
        many."""
        pad = padding[d] if count_include_pad else 0
        low, high = windows.limits(d, output)
        last = (value.shape[d - rank] - 1) * stride[d] + kernel[d]
        if (
            low is None
            and high is None
            or count_include_pad
            and is_nonnegative(sympy.sympify(sizes[d] + 2 * pad - last))
        ):
            return kernel[d]
        start = ops.index_expr(output * stride[d] - padding[d], torch.int64)
        end = ops.minimum(ops.add(start, constant(kernel[d])), number(sizes[d] + pad, torch.int64))
        return ops.sub(end, start if count_include_pad else ops.maximum(start, constant(0)))

    return _average(
        call,
        windows,
        (lambda d, output: divisor_override if not d else 1) if divisor_override else count,
    )


@lower(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool(call: Call, x: TensorBox, output_size: Sequence[Size]) -> TensorBox:
    _is_empty(call, x)
    windows, width = adaptive_windows(x, list(output_size))
    return _average(call, windows, lambda d, output: ops.index_expr(width(d, output), torch.int64))


def _average(call: Call, windows: Windows, count: Callable[[int, sympy.Expr], Any]) -> TensorBox:
    """total / (count(0) * count(1) * ...)"""
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
        if others:
            product = functools.reduce(ops.mul, others, ops.constant(numbers, torch.int64))
            divisor = ops.to_dtype(product, compute, torch.int64)
        else:
            divisor = ops.constant(numbers, compute)
        return cast(ops.truediv(load(index), divisor), compute, dtype)

    return made(call, body, total)
