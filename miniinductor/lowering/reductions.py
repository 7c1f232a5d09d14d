"""Reduction lowerings.

In:   sum, mean, amax, argmax, any ...  Out: `Reduction` values, with pointwise work around them.

    mean(x, dim) -> sum(x, dim) / n;  all(x) -> not any(not x);  max(x, dim) -> amax and argmax

float16 and bfloat16 are summed in float32, integers and bools in int64, as torch does.
Mirrors torch/_inductor/lowering.py (`make_reduction`).
"""

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from ..ir import Index, Reduction, TensorBox
from ..ops import Value, ops
from ..sizes.expressions import Size
from ..sizes.symbols import maximum
from ..sizes.symbols import size as as_size
from .pointwise import full
from .registry import (
    Call,
    NotLowered,
    aten,
    cast,
    lower,
    made,
    mapped,
    normalize_dims,
    number,
    view,
)

LOW_PRECISION = (torch.float16, torch.bfloat16)
EXTREMES = ("max", "min", "argmax", "argmin")


def reduce(
    call: Call,
    x: TensorBox,
    dims: Any,
    keepdim: bool,
    kind: str,
    compute: torch.dtype,
    result: torch.dtype,
) -> TensorBox:
    """Reduce `x` over `dims`: values are converted to `compute`, reduced, converted to `result`."""
    size = x.get_size()
    dims = normalize_dims(dims, len(size))
    kept = [k for k in range(len(size)) if k not in dims]
    load, src = x.make_loader(), x.dtype
    produced = torch.int64 if kind.startswith("arg") else compute

    if kind in EXTREMES and any(size[k] == 0 for k in dims):
        raise NotLowered("nothing has no extreme: the eager kernel says so")
    # a sum begins with 0.0, so that the sum of a single -0.0 is 0.0: loops over one element are
    # left out later
    starts_at_zero = kind == "sum" and compute.is_floating_point and elements(size, dims) == 1

    def inner(index: Index, rindex: Index) -> Value:
        place = dict(zip([*kept, *dims], [*index, *rindex]))
        value = cast(load([place[k] for k in range(len(size))]), src, compute)
        return ops.add(value, ops.constant(0.0, compute)) if starts_at_zero else value

    out = TensorBox.stored(
        Reduction(
            x.device,
            produced,
            [size[k] for k in kept],
            inner,
            [size[k] for k in dims],
            kind,
            compute,
            origins=call.origins | x.origins,
        )
    )
    if keepdim:
        shape = [1 if k in dims else n for k, n in enumerate(size)]
        out = view(call, out, shape, lambda index: [index[k] for k in kept])
    return (
        out
        if produced == result
        else mapped(call, out, lambda v: cast(v, produced, result), result, x)
    )


def accumulate_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in LOW_PRECISION else dtype


@lower(aten.sum, aten.prod)
def sum_rule(
    call: Call,
    x: TensorBox,
    dims: Any = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> TensorBox:
    result = call.value.dtype
    if result == torch.bool:  # dtype=torch.bool: a sum of bools is any(), a product all()
        return (some if call.name == "sum" else every)(call, truth(call, x), dims, keepdim)
    return reduce(call, x, dims, keepdim, call.name, accumulate_dtype(result), result)


def divided(
    call: Call,
    box: TensorBox,
    divisor: Size,
    compute: torch.dtype,
    result: torch.dtype,
    *sources: TensorBox,
) -> TensorBox:
    """box / divisor, computed as `compute`, given as `result`."""
    divisor = divisor if isinstance(divisor, sympy.Expr) else float(divisor)
    return mapped(
        call,
        box,
        lambda v: cast(ops.truediv(v, number(divisor, compute)), compute, result),
        result,
        *sources,
    )


def corrected(count: Size, correction: float) -> Size:
    """The divisor of a variance: how many there are, less the correction, or 0."""
    if isinstance(correction, float) and correction.is_integer():
        correction = int(correction)
    if isinstance(count, sympy.Expr) and isinstance(correction, float):
        raise NotLowered("a correction with a fraction, of a size that is a symbol")
    return maximum(count - correction, 0)


def elements(size: Sequence[Size], dims: Any) -> Size:
    """How many are reduced to one."""
    return as_size(sympy.prod([size[d] for d in normalize_dims(dims, len(size))]))


@lower(aten.mean)
def mean(
    call: Call,
    x: TensorBox,
    dims: Any = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> TensorBox:
    result, size = call.value.dtype, x.get_size()
    compute = accumulate_dtype(result)
    count = elements(size, dims)
    if count == 0:
        return full(call, call.value.shape, float("nan"))
    return divided(
        call, reduce(call, x, dims, keepdim, "sum", compute, compute), count, compute, result, x
    )


@lower(aten.amax.default, aten.amin.default, aten.max.default, aten.min.default)
def extreme(call: Call, x: TensorBox, dims: Any = (), keepdim: bool = False) -> TensorBox:
    kind = call.name[-3:]
    if x.dtype == torch.bool:
        return (some if kind == "max" else every)(call, x, dims, keepdim)
    return reduce(call, x, dims, keepdim, kind, x.dtype, x.dtype)


@lower(aten.any, aten.all)
def any_rule(call: Call, x: TensorBox, dims: Any = None, keepdim: bool = False) -> TensorBox:
    if call.value.dtype != torch.bool:
        raise NotLowered("uint8 result")
    return (some if call.name == "any" else every)(call, truth(call, x), dims, keepdim)


def truth(call: Call, x: TensorBox) -> TensorBox:
    """x != 0"""
    return (
        x
        if x.dtype == torch.bool
        else mapped(call, x, lambda v: ops.ne(v, ops.constant(0, x.dtype)), torch.bool)
    )


def some(call: Call, x: TensorBox, dims: Any, keepdim: bool) -> TensorBox:
    """any(x) of bools."""
    return reduce(call, x, dims, keepdim, "any", torch.bool, torch.bool)


def every(call: Call, x: TensorBox, dims: Any, keepdim: bool) -> TensorBox:
    """all(x) of bools: no element is false."""
    some_false = some(call, mapped(call, x, ops.logical_not, torch.bool), dims, keepdim)
    return mapped(call, some_false, ops.logical_not, torch.bool, x)


@lower(aten.var.correction, aten.var_mean.correction)
def variance(
    call: Call,
    x: TensorBox,
    dims: Any = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    """Two passes: mean, then the sum of squared differences (accurate where one pass cancels)."""
    both = call.node.target is aten.var_mean.correction
    result = (call.value[0] if both else call.value).dtype
    compute, size = accumulate_dtype(result), x.get_size()
    dims = normalize_dims(dims, len(size))
    count = elements(size, dims)
    divisor = corrected(count, 1 if correction is None else correction)
    if count == 0:
        values = [
            full(call, v.shape, float("nan"), v.dtype)
            for v in (call.value if both else [call.value])
        ]
        return values if both else values[0]
    total = reduce(call, x, dims, True, "sum", compute, compute)
    load_total, load = total.make_loader(), x.make_loader()

    def difference(index: Index) -> Value:
        at = [sympy.Integer(0) if k in dims else i for k, i in enumerate(index)]
        centered = ops.sub(
            cast(load(index), x.dtype, compute), ops.truediv(load_total(at), number(count, compute))
        )
        return ops.mul(centered, centered)

    squares = made(call, difference, x, dtype=compute, size=size)

    sum_of_squares = reduce(call, squares, dims, keepdim, "sum", compute, compute)
    variance_box = divided(call, sum_of_squares, divisor, compute, result, x)
    if not both:
        return variance_box
    if not keepdim:
        kept = [k for k in range(len(size)) if k not in dims]
        total = view(
            call,
            total,
            [size[k] for k in kept],
            lambda index: [
                index[kept.index(k)] if k in kept else sympy.Integer(0) for k in range(len(size))
            ],
        )
    return [variance_box, divided(call, total, count, compute, result, x)]
