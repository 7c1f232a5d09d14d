"""Elementwise lowerings that no transformer needs.

In:   functions of libm, rounding, signs, truth values, shifts, division that rounds, powers.  Out:
      `Pointwise` values, and their C++ (arithmetic.h).

Mirrors torch/_inductor/lowering.py (`div`, `pow`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..ir import TensorBox
from ..lowering.pointwise import (
    BOOL,
    DEFAULT,
    INT_TO_FLOAT,
    OF_BOOLS,
    elementwise,
    full,
    is_long_in_cpp,
)
from ..lowering.pointwise import truth
from ..lowering.pointwise import UNARY as OF_TRANSFORMERS
from ..lowering.pointwise import add as plain_add
from ..lowering.pointwise import div as plain_div
from ..lowering.registry import (
    LOWERINGS,
    Call,
    NotLowered,
    aten,
    broadcast_loader,
    cast,
    is_number,
    lower,
    made,
    number,
    pointwise,
    promoted,
)
from ..ops import BINARY, COMPARISON, LOGICAL, UNARY, UNARY_FLOAT, Value, ops
from ..runtime.build import PRELUDES

PRELUDES.append(Path(__file__).with_name("arithmetic.h"))

for _name in UNARY_FLOAT:
    if _name not in OF_TRANSFORMERS:
        elementwise(_name, INT_TO_FLOAT)
OF_BOOLS |= {"fmax": "logical_or", "fmin": "logical_and"}
for _name in ("remainder", "fmod", "hypot", "bitwise_left_shift", "bitwise_right_shift"):
    elementwise(_name, DEFAULT)
elementwise("__lshift__", DEFAULT, "bitwise_left_shift")
elementwise("__rshift__", DEFAULT, "bitwise_right_shift")
elementwise("atan2", INT_TO_FLOAT)
elementwise("copysign", INT_TO_FLOAT)

WHOLE = ("floor", "ceil", "trunc", "round")  # they leave integers as they are
SIGNS = ("abs", "sign", "sgn")  # they leave truth values as they are
NEVER = ("isnan", "isinf")  # of no integer


@lower(*[getattr(aten, name).default for name in (*WHOLE, *SIGNS, *NEVER, "signbit")])
def of_floats(call: Call, x: TensorBox) -> TensorBox:
    """Ops that say nothing new of some dtypes."""
    name, is_whole, is_truth = call.name, not x.dtype.is_floating_point, x.dtype == torch.bool
    if name in WHOLE and is_whole or name in SIGNS and is_truth:
        return x.copy()
    if name in NEVER and is_whole or name == "signbit" and is_truth:
        return full(call, call.value.size, False)
    function = getattr(ops, "sign" if name == "sgn" else name)
    return pointwise(
        call, function, x, promotion=BOOL if call.value.dtype == torch.bool else DEFAULT
    )


@lower(*[getattr(aten, name) for name in (*LOGICAL, "logical_not")])
def logical(call: Call, *args: Any) -> TensorBox:
    dtype, function = promoted(BOOL, *args), getattr(ops, call.name)
    return pointwise(
        call, lambda *values: function(*[truth(v, dtype) for v in values]), *args, promotion=BOOL
    )


@lower(aten.copy.default)
def copy(call: Call, destination: TensorBox, source: Any, non_blocking: bool = False) -> TensorBox:
    """Of a number (`x.copy_(3)`) eager makes a tensor first."""
    dtype = call.value.dtype
    if is_number(source):
        is_large = isinstance(source, float) and not abs(source) < 2**31
        if is_large and not (dtype.is_floating_point or dtype.is_complex):
            raise NotLowered("a number that the integers may not hold")
        wide = torch.tensor(source).dtype if isinstance(source, (bool, int)) else torch.float64
        return made(call, lambda index: cast(number(source, wide), wide, dtype))
    load = broadcast_loader(source, call.value.size)
    return made(call, lambda index: cast(load(index), source.dtype, dtype), source)


@lower(aten.rsub)
def rsub(call: Call, a: Any, b: Any, alpha: float = 1) -> TensorBox:
    return plain_add(call, b, a, alpha)


@lower(aten.clamp, aten.clamp_min, aten.clamp_max)
def clamp(call: Call, x: TensorBox, min: Any = None, max: Any = None) -> TensorBox:
    if call.name == "clamp_max":
        min, max = None, min
    pairs = [(min, ops.maximum), (max, ops.minimum)]
    bounds = [(bound, combine) for bound, combine in pairs if bound is not None]

    def body(v: Value, *limits: Value) -> Value:
        for limit, (_, combine) in zip(limits, bounds):
            v = combine(v, limit)
        return v

    return pointwise(call, body, x, *[bound for bound, _ in bounds])


@lower(aten.div.Tensor, aten.div.Scalar)
def div(call: Call, a: Any, b: Any) -> TensorBox:
    """On a GPU eager's kernel multiplies by 1 / b, and x / 6 may become an index."""
    if not isinstance(b, (int, float)) or call.value.device.type != "cuda":
        return plain_div(call, a, b)
    wide = torch.float64 if call.value.dtype == torch.float64 else torch.float32
    b = torch.tensor(b, dtype=wide).reciprocal().item()
    return pointwise(call, ops.mul, a, b, promotion=INT_TO_FLOAT)


@lower(aten.div.Tensor_mode, aten.div.Scalar_mode)
def rounded_div(call: Call, a: Any, b: Any, rounding_mode: str | None = None) -> TensorBox:
    if rounding_mode is None:
        return div(call, a, b)
    if rounding_mode == "floor":
        return floor_divide(call, a, b)
    dtype, result = promoted(DEFAULT, a, b), call.value.dtype
    if not dtype.is_floating_point:
        return pointwise(call, ops.truncdiv, a, b)

    def truncated(u: Value, v: Value) -> Value:
        # eager rounds the quotient of float16 and bfloat16 before it truncates
        return ops.trunc(cast(cast(ops.truediv(u, v), dtype, result), result, dtype))

    return pointwise(call, truncated, a, b)


@lower(aten.floor_divide)
def floor_divide(call: Call, a: Any, b: Any) -> TensorBox:
    if call.value.dtype.is_floating_point and is_long_in_cpp(call):
        raise NotLowered("eager's kernel is in vectors")
    if call.value.dtype in (torch.float16, torch.bfloat16):
        raise NotLowered("eager floors float16 and bfloat16 quotients in a way of its own")
    return pointwise(call, ops.floordiv, a, b)


@lower(aten.pow)
def power(call: Call, a: Any, b: Any) -> TensorBox:
    dtype = promoted(DEFAULT, a, b)
    powers: dict[float, Callable[[Value], Value]] = {
        1: lambda v: v,
        2: lambda v: ops.mul(v, v),
        3: lambda v: ops.mul(ops.mul(v, v), v),
    }
    if dtype.is_floating_point:
        powers |= {-1: ops.reciprocal}
        if call.value.dtype != torch.float16:  # there eager's pow(-inf, 0.5) is inf, as in C
            powers |= {0.5: ops.sqrt, -0.5: ops.rsqrt}
    if is_number(b) and b in powers and call.value.dtype != torch.bool:
        return pointwise(call, lambda v, _: powers[b](v), a, b)
    if dtype == torch.bool or not dtype.is_floating_point and is_number(b):
        raise NotLowered("power of a truth value, or an integer to a large or negative number")
    if dtype is torch.float64 and is_long_in_cpp(call):
        raise NotLowered("eager's kernel is in vectors")
    return pointwise(call, ops.pow, a, b)


@lower(aten.fmax.default, aten.fmin.default)
def extreme_ignoring_nan(call: Call, a: Any, b: Any) -> TensorBox:
    extreme = ops.maximum if call.name == "fmax" else ops.minimum
    dtype = promoted(DEFAULT, a, b)
    if not dtype.is_floating_point:
        if dtype == torch.bool:
            extreme = getattr(ops, OF_BOOLS[call.name])
        return pointwise(call, extreme, a, b)

    def larger(u: Value, v: Value) -> Value:
        return ops.where(ops.isnan(u), v, ops.where(ops.isnan(v), u, extreme(u, v)))

    return pointwise(call, larger, a, b)


# --- prims: what torch's decompositions are written in --------------------------------------------
for _name in (*UNARY, *BINARY, *COMPARISON, "div", "where", "fmax", "fmin"):
    _packet, _prim = getattr(aten, _name, None), getattr(torch.ops.prims, _name, None)
    if _packet is not None and _prim is not None:
        _overloads = [
            getattr(_packet, o, None) for o in ("default", "Tensor", "Tensor_Tensor", "self")
        ]
        LOWERINGS[_prim.default] = next(LOWERINGS[o] for o in _overloads if o in LOWERINGS)
