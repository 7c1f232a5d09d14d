"""Elementwise lowerings: mostly one word of a table each.

In:   arithmetic, comparison, bit and maths ops, division that rounds, powers.  Out: `Pointwise`
      values.

    >>> UNARY["exp"] == INT_TO_FLOAT        # how the arguments of the scalar op are promoted
    True

Mirrors the `register_pointwise` calls of torch/_inductor/lowering.py (and `div`, `pow`).
"""

import functools
from typing import Any

import sympy
import torch

from ..ir.loops import Index, TensorBox
from ..ir.ops import BITWISE, COMPARISON, LOGICAL, NARROW, OP_NAMES, UNARY_FLOAT, Value, ops
from .registry import (
    LOWERINGS,
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
    operand,
    overloads,
    pointwise,
    promoted,
)

DEFAULT, INT_TO_FLOAT, BOOL = Promotion.DEFAULT, Promotion.INT_TO_FLOAT, Promotion.ALWAYS_BOOL

EXACT = Promotion.NO_OPMATH  # 16 bits hold the result, as they hold the operands

UNARY = dict.fromkeys(UNARY_FLOAT, INT_TO_FLOAT) | dict.fromkeys(("neg", "bitwise_not"), EXACT)
BINARY = (
    dict.fromkeys(("maximum", "minimum"), EXACT)
    | dict.fromkeys("mul remainder fmod hypot".split(), DEFAULT)
    | dict.fromkeys(BITWISE, DEFAULT)
    | dict.fromkeys(("atan2", "copysign"), INT_TO_FLOAT)
    | dict.fromkeys(COMPARISON, BOOL)
)
OF_BOOLS = {  # what an op does to truth values
    "mul": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}


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
elementwise("__lshift__", DEFAULT, "bitwise_left_shift")
elementwise("__rshift__", DEFAULT, "bitwise_right_shift")


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
    """On a GPU eager's kernel multiplies by 1 / b, and x / 6 may become an index."""
    if isinstance(b, (int, float)) and call.value.device.type == "cuda":
        wide = torch.float64 if call.value.dtype == torch.float64 else torch.float32
        b = torch.tensor(b, dtype=wide).reciprocal().item()
        return pointwise(call, ops.mul, a, b, promotion=INT_TO_FLOAT)
    return pointwise(call, ops.truediv, a, b, promotion=INT_TO_FLOAT)


def truth(value: Value, dtype: torch.dtype) -> Value:
    return value if dtype == torch.bool else ops.ne(value, ops.constant(0, dtype))


@lower(aten.where.self)
def where(call: Call, condition: TensorBox, a: TensorBox, b: TensorBox) -> TensorBox:
    size, dtype = call.value.size, call.value.dtype
    test = broadcast_loader(condition, size)
    this, that = operand(a, size, dtype), operand(b, size, dtype)

    def body(index: Index) -> Value:
        return ops.where(truth(test(index), condition.dtype), this(index), that(index))

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


INTEGERS_STAY = ("floor", "ceil", "trunc", "round")  # they leave integers as they are
SIGNS = ("abs", "sign", "sgn")  # they leave truth values as they are
NEVER = ("isnan", "isinf")  # of no integer


@lower(*[getattr(aten, name).default for name in (*INTEGERS_STAY, *SIGNS, *NEVER, "signbit")])
def of_floats(call: Call, x: TensorBox) -> TensorBox:
    """Ops whose result is trivial for some dtypes: floor of an integer, isnan of a bool."""
    name, is_whole, is_truth = call.name, not x.dtype.is_floating_point, x.dtype == torch.bool
    if name in INTEGERS_STAY and is_whole or name in SIGNS and is_truth:
        return x.copy()
    if name in NEVER and is_whole or name == "signbit" and is_truth:
        return full(call, False)
    function = getattr(ops, "sign" if name == "sgn" else name)
    return pointwise(call, function, x, promotion=BOOL if call.value.dtype == torch.bool else EXACT)


@lower(*[getattr(aten, name) for name in (*LOGICAL, "logical_not")])
def logical(call: Call, *args: Any) -> TensorBox:
    dtype, function = promoted(BOOL, *args), getattr(ops, call.name)
    return pointwise(
        call, lambda *values: function(*[truth(v, dtype) for v in values]), *args, promotion=BOOL
    )


@lower(aten.copy.default)
def copy(call: Call, destination: TensorBox, source: Any, non_blocking: bool = False) -> TensorBox:
    """copy_.  (Eager makes a tensor of a number, `x.copy_(3)`, first.)"""
    dtype = call.value.dtype
    if is_number(source):
        if not dtype.is_floating_point:
            raise NotLowered("a number that the integers may not hold")
        return full(call, source)
    return made(call, operand(source, call.value.size, dtype), source)


@lower(aten.clamp)
def clamp(call: Call, x: TensorBox, min: Any = None, max: Any = None) -> TensorBox:
    pairs = [(min, ops.maximum), (max, ops.minimum)]
    bounds = [(bound, combine) for bound, combine in pairs if bound is not None]

    def body(v: Value, *limits: Value) -> Value:
        for limit, (_, combine) in zip(limits, bounds):
            v = combine(v, limit)
        return v

    return pointwise(call, body, x, *[bound for bound, _ in bounds], promotion=EXACT)


@lower(aten.relu.default)
def relu(call: Call, x: TensorBox) -> TensorBox:
    return clamp(call, x, 0)


@lower(aten.div.Tensor_mode, aten.div.Scalar_mode)
def rounded_div(call: Call, a: Any, b: Any, rounding_mode: str | None = None) -> TensorBox:
    if rounding_mode is None:
        return div(call, a, b)
    dtype = call.value.dtype
    if dtype in NARROW:
        raise NotLowered("eager rounds 16 bits in a way of its own")
    return pointwise(call, ops.floordiv if rounding_mode == "floor" else ops.truncdiv, a, b)


ROOTS = {-1: ops.reciprocal, 0.5: ops.sqrt, -0.5: ops.rsqrt}


@lower(aten.pow)
def power(call: Call, a: Any, b: Any) -> TensorBox:
    dtype, result = promoted(DEFAULT, a, b), call.value.dtype
    if dtype == torch.bool or type(b) is bool:
        raise NotLowered("power of or to a truth value")
    if is_number(b) and b in (1, 2, 3):
        return pointwise(call, lambda v, _: functools.reduce(ops.mul, [v] * int(b)), a, b)
    if not dtype.is_floating_point and is_number(b):
        raise NotLowered("power of an integer to a large or negative number")
    # of float16 eager's pow(-inf, 0.5) is inf, as in C
    if is_number(b) and b in ROOTS and result != torch.float16:
        return pointwise(call, lambda v, _: ROOTS[b](v), a, b)
    return pointwise(call, ops.pow, a, b)


# --- creation -------------------------------------------------------------------------------------
def full(call: Call, value: Any) -> TensorBox:
    """`value` everywhere."""
    dtype = call.value.dtype
    return made(call, lambda index: number(value, dtype))


lower(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)(
    lambda call, *args, **kwargs: full(call, 0)
)


@lower(aten.empty, aten.empty_like, aten.new_empty)
@lower(aten.empty_strided, aten.new_empty_strided, aten.empty_permuted)
def empty(call: Call, *args: Any, **kwargs: Any) -> TensorBox:
    """Empty tensors are zeros, so that runs are reproducible.  (Deterministic algorithms fill
    NaN.)"""
    if torch.are_deterministic_algorithms_enabled():
        raise NotLowered("what is empty is filled under deterministic algorithms")
    return full(call, 0)


@lower(aten.full.default, aten.full_like.default, aten.new_full.default)
@lower(aten.scalar_tensor.default, aten.fill.Scalar)
def full_rule(call: Call, *args: Any, **kwargs: Any) -> TensorBox:
    if not is_number(args[-1]):
        raise NotLowered("fill value is a tensor")
    return full(call, args[-1])


@lower(aten.arange.start_step)
def arange(call: Call, start: Any, end: Any, step: Any = 1, **kwargs: Any) -> TensorBox:
    """start + place * step, rounded once to the result's dtype: in integers where start and step
    are, and else in float64 (1e38 is none of float32's)."""
    dtype, wide = call.value.dtype, torch.float64

    def body(index: Index) -> Value:
        if not dtype.is_floating_point:
            return ops.index_expr(index[0] * whole(step) + whole(start), dtype)
        if is_whole(start) and is_whole(step):
            place = ops.index_expr(index[0] * whole(step) + whole(start), torch.int64)
            return cast(place, torch.int64, dtype)
        value = cast(ops.index_expr(index[0], torch.int64), torch.int64, wide)
        value = ops.mul(value, number(step, wide))
        return cast(ops.add(value, number(start, wide)), wide, dtype)

    return made(call, body)


def is_whole(n: Any) -> bool:
    return isinstance(n, sympy.Expr) or (abs(n) < 2**31 and float(n).is_integer())


def whole(n: Any) -> Any:
    return n if isinstance(n, sympy.Expr) else int(n)


# --- prims: what torch's decompositions are written in --------------------------------------------
for _name in (*OP_NAMES, "div"):
    _packet, _prim = getattr(aten, _name, None), getattr(torch.ops.prims, _name, None)
    if _packet is not None and _prim is not None:
        lower(_prim.default)(next(LOWERINGS[op] for op in overloads(_packet) if op in LOWERINGS))
