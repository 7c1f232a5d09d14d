"""Elementwise lowerings whose result depends on dtypes in ways of their own.

In:   division that rounds, powers, fmax and fmin.  Out: `Pointwise` values.

Mirrors torch/_inductor/lowering.py (`div`, `pow`).
"""

from collections.abc import Callable
from typing import Any

import torch

from ..ir import TensorBox
from ..lowering.pointwise import OF_BOOLS, compute_dtype, div, same_for_prims
from ..lowering.registry import Call, NotLowered, aten, cast, is_number, lower, pointwise
from ..ops import Value, ops


@lower(aten.div.Tensor_mode, aten.div.Scalar_mode)
def rounded_div(call: Call, a: Any, b: Any, rounding_mode: str | None = None) -> TensorBox:
    if rounding_mode is None:
        return div(call, a, b)
    if rounding_mode == "floor":
        return floor_divide(call, a, b)
    dtype, result = compute_dtype(call, a, b), call.value.dtype
    if not dtype.is_floating_point:
        return pointwise(call, ops.truncdiv, a, b)

    def truncated(u: Value, v: Value) -> Value:
        # eager rounds the quotient of float16 and bfloat16 before it truncates
        return ops.trunc(cast(cast(ops.truediv(u, v), dtype, result), result, dtype))

    return pointwise(call, truncated, a, b)


@lower(aten.floor_divide)
def floor_divide(call: Call, a: Any, b: Any) -> TensorBox:
    if call.value.dtype in (torch.float16, torch.bfloat16):
        raise NotLowered("eager floors float16 and bfloat16 quotients in a way of its own")
    return pointwise(call, ops.floordiv, a, b)


@lower(aten.pow)
def power(call: Call, a: Any, b: Any) -> TensorBox:
    dtype = compute_dtype(call, a, b)
    powers: dict[float, Callable[[Value], Value]] = {
        1: lambda v: v,
        2: lambda v: ops.mul(v, v),
        3: lambda v: ops.mul(ops.mul(v, v), v),
    }
    if dtype.is_floating_point:
        powers |= {-1: ops.reciprocal}
        if call.value.dtype != torch.float16:  # there eager's pow(-inf, 0.5) is inf, as in C
            powers |= {0.5: ops.sqrt, -0.5: ops.rsqrt}
    if is_number(b) and b in powers:
        return pointwise(call, lambda v, _: powers[b](v), a, b)
    if dtype == torch.bool or not dtype.is_floating_point and is_number(b):
        raise NotLowered("power of a truth value, or an integer to a large or negative number")
    return pointwise(call, ops.pow, a, b)


@lower(aten.fmax.default, aten.fmin.default)
def extreme_ignoring_nan(call: Call, a: Any, b: Any) -> TensorBox:
    extreme = ops.maximum if call.name == "fmax" else ops.minimum
    dtype = compute_dtype(call, a, b)
    if not dtype.is_floating_point:
        return pointwise(
            call, getattr(ops, OF_BOOLS[call.name]) if dtype == torch.bool else extreme, a, b
        )
    return pointwise(
        call,
        lambda u, v: ops.where(ops.isnan(u), v, ops.where(ops.isnan(v), u, extreme(u, v))),
        a,
        b,
    )


same_for_prims(["pow", "fmax", "fmin"])
