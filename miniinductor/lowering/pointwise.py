"""Elementwise lowerings: mostly one word of a table each.

In:   arithmetic, comparison, bit and maths ops.  Out: `Pointwise` values.

    >>> UNARY["exp"] == INT_TO_FLOAT        # how the arguments of the scalar op are promoted
    True

Mirrors the `register_pointwise` calls of torch/_inductor/lowering.py.
"""

import math
from typing import Any

import sympy
import torch

from .. import config
from ..ir import Index, TensorBox
from ..ops import COMPARISON, Value, ops
from ..sizes.symbols import hint, sizes
from .registry import (
    Call,
    NotLowered,
    Promotion,
    aten,
    broadcast_loader,
    cast,
    is_number,
    lower,
    made,
    mapped,
    number,
    pointwise,
    promoted,
)

DEFAULT, INT_TO_FLOAT, BOOL = Promotion.DEFAULT, Promotion.INT_TO_FLOAT, Promotion.ALWAYS_BOOL

UNARY = dict.fromkeys(
    "exp log sqrt rsqrt reciprocal sigmoid tanh erf".split(), INT_TO_FLOAT
) | dict.fromkeys(("neg", "bitwise_not"), DEFAULT)
BINARY = dict.fromkeys(
    "mul maximum minimum bitwise_and bitwise_or bitwise_xor".split(), DEFAULT
) | dict.fromkeys(COMPARISON, BOOL)
OF_BOOLS = {  # what an op does to truth values
    "mul": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}

# of floats, and of float64: functions that eager computes in vectors, and our C++ does not
SLOW = ("fmod", "remainder")
SLOW_IN_DOUBLE = """
    sin cos tan asin acos atan atan2 sinh cosh tanh log2 log10 log1p expm1 exp2 erf
    erfc hypot lgamma""".split()


FEW = 64  # of so few elements the call of an eager kernel costs more than its arithmetic


def is_long_in_cpp(call: Call) -> bool:
    """Would the call become a long loop in C++?"""
    is_long = hint(math.prod(call.first.size), FEW + 1) > FEW
    return is_long and call.first.device.type == "cpu" and config.cpu_backend == "cpp"


def is_slow_in_cpp(call: Call) -> bool:
    """Is eager's kernel the better one?"""
    dtype = getattr(call.first, "dtype", torch.bool)
    is_double = dtype is torch.float64 and call.name in SLOW_IN_DOUBLE
    is_slow = is_double or dtype.is_floating_point and call.name in SLOW
    return is_slow and is_long_in_cpp(call)


def elementwise(name: str, promotion: Promotion, op: str = "") -> None:
    """Register the ATen op of this name: the scalar op of the same name (or `op`), everywhere."""

    @lower(getattr(aten, name))
    def rule(call: Call, *args: Any) -> TensorBox:
        scalar_op = op or name
        if call.value.dtype == torch.bool:
            scalar_op = OF_BOOLS.get(scalar_op, scalar_op)
        function = getattr(ops, scalar_op)
        return pointwise(call, function, *args, promotion=promotion)


for _name, _promotion in (UNARY | BINARY).items():
    elementwise(_name, _promotion)


@lower(aten.add, aten.sub)
def add(call: Call, a: Any, b: Any, alpha: float = 1) -> TensorBox:
    dtype = promoted(DEFAULT, a, b)
    combine = ops.add if call.name == "add" else ops.sub
    if dtype == torch.bool:
        combine = ops.logical_or

    def body(u: Value, v: Value) -> Value:
        return combine(u, v if alpha == 1 else ops.mul(v, number(alpha, dtype)))

    return pointwise(call, body, a, b)


@lower(aten.div.Tensor, aten.div.Scalar)
def div(call: Call, a: Any, b: Any) -> TensorBox:
    return pointwise(call, ops.truediv, a, b, promotion=INT_TO_FLOAT)


@lower(aten.relu.default)
def relu(call: Call, x: TensorBox) -> TensorBox:
    dtype = promoted(DEFAULT, x)
    return pointwise(call, lambda v: ops.maximum(v, ops.constant(0, dtype)), x)


def truth(value: Value, dtype: torch.dtype) -> Value:
    return value if dtype == torch.bool else ops.ne(value, ops.constant(0, dtype))


@lower(aten.where.self)
def where(call: Call, condition: TensorBox, a: TensorBox, b: TensorBox) -> TensorBox:
    size, dtype = call.value.size, call.value.dtype
    test, this, that = (broadcast_loader(v, size) for v in (condition, a, b))

    def body(index: Index) -> Value:
        is_this = truth(test(index), condition.dtype)
        return ops.where(
            is_this, cast(this(index), a.dtype, dtype), cast(that(index), b.dtype, dtype)
        )

    return made(call, body, condition, a, b)


@lower(
    aten._to_copy.default,
    aten.clone.default,
    aten.lift_fresh_copy.default,
    torch.ops.prims.convert_element_type.default,
)
def to_copy(
    call: Call, x: TensorBox, *args: Any, device: torch.device | None = None, **kwargs: Any
) -> TensorBox:
    if call.value.device != x.device:
        raise NotLowered("copy between devices")
    src, dst = x.dtype, call.value.dtype
    return mapped(call, x, lambda v: cast(v, src, dst), dst)


# --- creation -------------------------------------------------------------------------------------
def full(call: Call, size: Any, value: Any, dtype: torch.dtype | None = None) -> TensorBox:
    """`value` everywhere; dtype: if not that of the (first) result."""
    dtype = dtype or call.first.dtype
    return made(call, lambda index: number(value, dtype), dtype=dtype, size=sizes(size))


lower(aten.ones.default, aten.ones_like.default, aten.new_ones.default)(
    lambda call, *args, **kwargs: full(call, call.value.size, 1)
)
lower(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)(
    lambda call, *args, **kwargs: full(call, call.value.size, 0)
)


@lower(aten.empty, aten.empty_like, aten.new_empty)
@lower(aten.empty_strided, aten.new_empty_strided, aten.empty_permuted)
def empty(call: Call, *args: Any, **kwargs: Any) -> TensorBox:
    """What is empty is zeros, too: reproducible.  Deterministic algorithms fill it with NaN."""
    if torch.are_deterministic_algorithms_enabled():
        raise NotLowered("what is empty is filled under deterministic algorithms")
    return full(call, call.value.size, 0)


@lower(aten.full.default, aten.full_like.default, aten.new_full.default)
@lower(aten.scalar_tensor.default, aten.fill.Scalar)
def full_rule(call: Call, *args: Any, **kwargs: Any) -> TensorBox:
    if not is_number(args[-1]):
        raise NotLowered("fill value is a tensor")
    return full(call, call.value.size, args[-1])


@lower(aten.arange.start_step, aten.arange.start, aten.arange.default)
def arange(call: Call, *args: Any, **kwargs: Any) -> TensorBox:
    """start + place * step, of integers.  (lowerings/float_ranges.py has those of floats.)"""
    start, step = steps_of(*args)
    dtype = call.value.dtype
    if dtype.is_floating_point:
        raise NotLowered("a range of floats")
    return made(call, lambda index: ops.index_expr(index[0] * whole(step) + whole(start), dtype))


def steps_of(start: Any, end: Any = None, step: Any = 1) -> tuple[Any, Any]:
    """(start, step) of the arguments of arange, whose one argument is the end."""
    return (0 if end is None else start), step


def whole(n: Any) -> Any:
    return n if isinstance(n, sympy.Expr) else int(n)
