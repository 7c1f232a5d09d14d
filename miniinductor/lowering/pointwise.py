"""Elementwise lowerings: mostly one line of a table each.

In:   arithmetic, comparison, bit and maths ops.  Out: `Pointwise` values.

    >>> UNARY["exp"] == ("exp", INT_TO_FLOAT)       # the scalar op, and how its arguments are promoted
    True

Mirrors the `register_pointwise` calls of torch/_inductor/lowering.py.
"""

from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch._prims_common import elementwise_dtypes

from ..ir import Index, TensorBox
from ..ops import COMPARISON, UNARY_FLOAT, Value, ops
from ..sizes.symbols import sizes
from .registry import (
    LOWERINGS,
    NARROW,
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
)

DEFAULT, INT_TO_FLOAT, BOOL = Promotion.DEFAULT, Promotion.INT_TO_FLOAT, Promotion.ALWAYS_BOOL
NO_OPMATH = Promotion.NO_OPMATH

UNARY = (
    {name: (name, INT_TO_FLOAT) for name in UNARY_FLOAT}
    | {
        name: (name, DEFAULT)
        for name in ("neg", "abs", "sign", "floor", "ceil", "trunc", "round", "bitwise_not")
    }
    | {name: (name, BOOL) for name in ("logical_not", "isnan", "isinf", "signbit")}
    | {"sgn": ("sign", DEFAULT)}
)
BINARY = (
    {
        name: (name, DEFAULT)
        for name in (
            "mul",
            "maximum",
            "minimum",
            "remainder",
            "fmod",
            "hypot",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "bitwise_left_shift",
            "bitwise_right_shift",
        )
    }
    | {
        "__lshift__": ("bitwise_left_shift", DEFAULT),
        "__rshift__": ("bitwise_right_shift", DEFAULT),
        "atan2": ("atan2", INT_TO_FLOAT),
        "copysign": ("copysign", INT_TO_FLOAT),
        "nextafter": ("nextafter", NO_OPMATH),
    }
    | {name: (name, BOOL) for name in ("logical_and", "logical_or", "logical_xor", *COMPARISON)}
)
OF_BOOLS = {
    "mul": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
    "fmax": "logical_or",
    "fmin": "logical_and",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}
NO_INTEGER_KERNEL = {"floor", "ceil", "trunc", "round"}  # identity on integers


def _truth(value: Value, dtype: torch.dtype) -> Value:
    return value if dtype == torch.bool else ops.ne(value, ops.constant(0, dtype))


def _register_unary(name: str, op: str, promotion: Promotion) -> None:
    @lower(getattr(aten, name).default)
    def rule(call: Call, x: TensorBox) -> TensorBox:
        if name in NO_INTEGER_KERNEL and not x.dtype.is_floating_point:
            return x.copy()
        if name in ("isnan", "isinf") and not x.dtype.is_floating_point:
            return full(call, call.value.shape, False)
        if name in ("sign", "sgn", "abs", "signbit") and x.dtype == torch.bool:
            return x.copy() if name != "signbit" else full(call, call.value.shape, False)
        if name == "logical_not":
            return pointwise(
                call,
                lambda v: ops.logical_not(_truth(v, x.dtype)),
                x,
                promotion=BOOL,
                compute=x.dtype,
            )
        return pointwise(
            call,
            getattr(ops, OF_BOOLS.get(op, op) if x.dtype == torch.bool else op),
            x,
            promotion=promotion,
        )


def _register_binary(name: str, op: str, promotion: Promotion) -> None:
    @lower(getattr(aten, name))
    def rule(call: Call, a: Any, b: Any) -> TensorBox:
        if name == "nextafter" and call.value.dtype in NARROW:
            raise NotLowered("the next number of a narrow type is not float32's")
        function = getattr(ops, OF_BOOLS.get(op, op) if call.value.dtype == torch.bool else op)
        if name.startswith("logical"):
            common = torch.promote_types(
                *[x.dtype if isinstance(x, TensorBox) else torch.bool for x in (a, b)]
            )
            return pointwise(
                call,
                lambda u, v: function(_truth(u, common), _truth(v, common)),
                a,
                b,
                promotion=BOOL,
                compute=common,
            )
        return pointwise(call, function, a, b, promotion=promotion, wide_second=name == "mul")


for _name, (_op, _promotion) in UNARY.items():
    _register_unary(_name, _op, _promotion)
for _name, (_op, _promotion) in BINARY.items():
    if hasattr(aten, _name):
        _register_binary(_name, _op, _promotion)


@lower(aten.add, aten.sub, aten.rsub)
def add(call: Call, a: Any, b: Any, alpha: float = 1) -> TensorBox:
    if call.name == "rsub":
        a, b = b, a
    dtype = compute_dtype(call, a, b)
    combine = ops.add if call.name == "add" else ops.sub
    if dtype == torch.bool:
        combine = ops.logical_or

    def body(u: Value, v: Value) -> Value:
        return combine(u, v if alpha == 1 else ops.mul(v, number(alpha, dtype)))

    return pointwise(call, body, a, b)


def compute_dtype(call: Call, *args: Any) -> torch.dtype:
    return elementwise_dtypes(
        *[call.lowerer.example(a) for a in args], type_promotion_kind=DEFAULT
    )[0]


@lower(aten.div.Tensor, aten.div.Scalar)
def div(call: Call, a: Any, b: Any) -> TensorBox:
    divide = ops.truediv
    # on a GPU eager's kernel multiplies, and x / 6 may become an index
    if isinstance(b, (int, float)) and call.value.device.type == "cuda":
        wide = torch.float64 if call.value.dtype == torch.float64 else torch.float32
        divide = ops.mul
        b = torch.tensor(b, dtype=wide).reciprocal().item()
    return pointwise(call, divide, a, b, promotion=INT_TO_FLOAT, wide_second=True)


@lower(aten.relu.default)
def relu(call: Call, x: TensorBox) -> TensorBox:
    return pointwise(call, lambda v: ops.maximum(v, ops.constant(0, compute_dtype(call, x))), x)


@lower(aten.clamp, aten.clamp_min, aten.clamp_max)
def clamp(call: Call, x: TensorBox, min: Any = None, max: Any = None) -> TensorBox:
    if call.name == "clamp_max":
        min, max = None, min
    present = [
        (bound, combine)
        for bound, combine in ((min, ops.maximum), (max, ops.minimum))
        if bound is not None
    ]

    def body(v: Value, *bounds: Value) -> Value:
        for bound, (_, combine) in zip(bounds, present):
            v = combine(v, bound)
        return v

    return pointwise(call, body, x, *[bound for bound, _ in present])


@lower(aten.where.self)
def where(call: Call, condition: TensorBox, a: TensorBox, b: TensorBox) -> TensorBox:
    size, dtype = tuple(call.value.shape), call.value.dtype
    test, this, that = (broadcast_loader(v, size) for v in (condition, a, b))
    return made(
        call,
        lambda index: ops.where(
            _truth(test(index), condition.dtype),
            cast(this(index), a.dtype, dtype),
            cast(that(index), b.dtype, dtype),
        ),
        condition,
        a,
        b,
    )


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


@lower(aten.copy.default)
def copy(
    call: Call, destination: TensorBox, source: TensorBox, non_blocking: bool = False
) -> TensorBox:
    load, dtype = broadcast_loader(source, tuple(call.value.shape)), call.value.dtype
    return made(call, lambda index: cast(load(index), source.dtype, dtype), source)


# --- creation -------------------------------------------------------------------------------------
def full(call: Call, size: Any, value: Any, dtype: torch.dtype | None = None) -> TensorBox:
    """`value` everywhere; dtype: if not that of the (first) result."""
    box = made(call, lambda index: number(value, box.dtype), dtype=dtype, size=sizes(size))
    if box.dtype.is_complex:
        raise NotLowered("complex numbers")
    return box


lower(aten.ones.default, aten.ones_like.default, aten.new_ones.default)(
    lambda call, *args, **kwargs: full(call, call.value.shape, 1)
)
lower(
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.empty_strided.default,
    aten.new_empty_strided.default,
    aten.empty_permuted.default,
)(  # what is empty is zeros, too: reproducible
    lambda call, *args, **kwargs: full(call, call.value.shape, 0)
)


@lower(
    aten.full.default,
    aten.full_like.default,
    aten.new_full.default,
    aten.scalar_tensor.default,
    aten.fill.Scalar,
)
def full_rule(call: Call, *args: Any, **kwargs: Any) -> TensorBox:
    if not is_number(args[-1]):
        raise NotLowered("fill value is a tensor")
    return full(call, call.value.shape, args[-1])


@lower(aten.arange.start_step, aten.arange.start, aten.arange.default)
def arange(call: Call, *args: Any, **kwargs: Any) -> TensorBox:
    start = 0 if len(args) == 1 else args[0]
    step = args[2] if len(args) > 2 else 1
    dtype = call.value.dtype

    def whole(n: Any) -> Any:
        return n if isinstance(n, sympy.Expr) else int(n)

    def body(index: Index) -> Value:
        if not dtype.is_floating_point:
            return ops.index_expr(index[0] * whole(step) + whole(start), dtype)
        position = ops.index_expr(index[0], torch.int64)
        is_whole = all(isinstance(n, sympy.Expr) or float(n).is_integer() for n in (start, step))
        wide = torch.float32 if is_whole else torch.float64
        value = ops.to_dtype(position, wide, torch.int64)
        value = ops.add(ops.mul(value, number(step, wide)), number(start, wide))
        return cast(value, wide, dtype)

    return made(call, body)


# --- prims: what torch's decompositions are written in --------------------------------------------
def same_for_prims(names: Iterable[str]) -> None:
    """Give prims the rules of the ATen ops of the same names."""
    for name in names:
        packet, prim = getattr(aten, name, None), getattr(torch.ops.prims, name, None)
        if packet is None or prim is None:
            continue
        rules = [
            LOWERINGS[getattr(packet, overload)]
            for overload in ("default", "Tensor", "Tensor_Tensor", "self")
            if overload in packet.overloads() and getattr(packet, overload) in LOWERINGS
        ]
        LOWERINGS.setdefault(prim.default, rules[0])


same_for_prims([*UNARY, *BINARY, "add", "sub", "div", "where"])
