"""Elementwise lowerings: mostly one line of a table each.

In:   arithmetic, comparison, bit and maths ops.  Out: `Pointwise` values.

    >>> UNARY["exp"]
    ('exp', INT_TO_FLOAT)

Mirrors the `register_pointwise` calls of torch/_inductor/lowering.py.
"""
import math

import sympy
import torch

from .. import random  # noqa: F401  (it declares the op)
from ..ir import Pointwise, TensorBox
from ..ops import ops
from ..sizes import sizes
from .registry import (
    LOWERINGS, NotLowered, Promotion, aten, broadcast_loader, cast, is_number, lower, number, pointwise)

DEFAULT, INT_TO_FLOAT, BOOL = Promotion.DEFAULT, Promotion.INT_TO_FLOAT, Promotion.ALWAYS_BOOL
NO_OPMATH = Promotion.NO_OPMATH

UNARY = {name: (name, INT_TO_FLOAT) for name in (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc erfinv lgamma sigmoid").split()} | {
    "neg": ("neg", DEFAULT), "abs": ("abs", DEFAULT), "sign": ("sign", DEFAULT), "sgn": ("sign", DEFAULT),
    "floor": ("floor", DEFAULT), "ceil": ("ceil", DEFAULT), "trunc": ("trunc", DEFAULT), "round": ("round", DEFAULT),
    "bitwise_not": ("bitwise_not", DEFAULT), "logical_not": ("logical_not", BOOL),
    "isnan": ("isnan", BOOL), "isinf": ("isinf", BOOL), "signbit": ("signbit", BOOL),
}
BINARY = {
    "mul": ("mul", DEFAULT), "maximum": ("maximum", DEFAULT), "minimum": ("minimum", DEFAULT),
    "remainder": ("remainder", DEFAULT), "fmod": ("fmod", DEFAULT), "atan2": ("atan2", INT_TO_FLOAT),
    "copysign": ("copysign", INT_TO_FLOAT), "nextafter": ("nextafter", NO_OPMATH), "hypot": ("hypot", DEFAULT),
    "bitwise_and": ("bitwise_and", DEFAULT), "bitwise_or": ("bitwise_or", DEFAULT), "bitwise_xor": ("bitwise_xor", DEFAULT),
    "bitwise_left_shift": ("bitwise_left_shift", DEFAULT), "bitwise_right_shift": ("bitwise_right_shift", DEFAULT),
    "__lshift__": ("bitwise_left_shift", DEFAULT), "__rshift__": ("bitwise_right_shift", DEFAULT),
    "logical_and": ("logical_and", BOOL), "logical_or": ("logical_or", BOOL), "logical_xor": ("logical_xor", BOOL),
    "eq": ("eq", BOOL), "ne": ("ne", BOOL), "lt": ("lt", BOOL), "le": ("le", BOOL), "gt": ("gt", BOOL), "ge": ("ge", BOOL),
}
NO_INTEGER_KERNEL = {"floor", "ceil", "trunc", "round"}     # identity on integers


def _truth(value, dtype):
    return value if dtype == torch.bool else ops.ne(value, ops.constant(0, dtype))


def _register_unary(name, op, promotion):
    @lower(getattr(aten, name).default)
    def rule(call, x):
        if name in NO_INTEGER_KERNEL and not x.dtype.is_floating_point:
            return x.copy()
        if name in ("isnan", "isinf") and not x.dtype.is_floating_point:
            return full(call, call.value.shape, False)
        if name in ("sign", "sgn", "abs", "signbit") and x.dtype == torch.bool:
            return x.copy() if name != "signbit" else full(call, call.value.shape, False)
        if name == "logical_not":
            return pointwise(call, lambda v: ops.logical_not(_truth(v, x.dtype)), x, promotion=BOOL, compute=x.dtype)
        if name == "bitwise_not" and x.dtype == torch.bool:
            return pointwise(call, ops.logical_not, x)
        return pointwise(call, getattr(ops, op), x, promotion=promotion)


def _register_binary(name, op, promotion):
    @lower(getattr(aten, name))
    def rule(call, a, b):
        function = getattr(ops, op)
        if name.startswith("logical"):
            dtypes = [x.dtype if isinstance(x, TensorBox) else torch.bool for x in (a, b)]
            common = torch.promote_types(*dtypes)
            function = lambda u, v: getattr(ops, op)(_truth(u, common), _truth(v, common))  # noqa: E731
            return pointwise(call, function, a, b, promotion=BOOL, compute=common)
        if op.startswith("bitwise") and call.value.dtype == torch.bool:
            function = getattr(ops, op.replace("bitwise", "logical"))
        if name == "mul" and call.value.dtype == torch.bool:
            function = ops.logical_and
        if name in ("maximum", "minimum") and call.value.dtype == torch.bool:
            function = ops.logical_or if name == "maximum" else ops.logical_and
        return pointwise(call, function, a, b, promotion=promotion, wide_second=name == "mul")


for _name, (_op, _promotion) in UNARY.items():
    _register_unary(_name, _op, _promotion)
for _name, (_op, _promotion) in BINARY.items():
    if hasattr(aten, _name):
        _register_binary(_name, _op, _promotion)


@lower(aten.add, aten.sub, aten.rsub)
def add(call, a, b, alpha=1):
    name = call.node.target._schema.name.split("::")[1]
    if name == "rsub":
        a, b = b, a

    def body(u, v):
        dtype = compute_dtype(call, a, b)
        if alpha != 1:
            v = ops.mul(v, ops.constant(alpha, dtype))
        if dtype == torch.bool:
            return ops.logical_or(u, v)
        return ops.add(u, v) if name == "add" else ops.sub(u, v)
    return pointwise(call, body, a, b)


def compute_dtype(call, *args, promotion=DEFAULT):
    from torch._prims_common import elementwise_dtypes
    return elementwise_dtypes(*[call.lowerer.example(a) for a in args], type_promotion_kind=promotion)[0]


@lower(aten.div)
def div(call, a, b, rounding_mode=None):
    if rounding_mode is None:
        return pointwise(call, ops.truediv, a, b, promotion=INT_TO_FLOAT, wide_second=True)
    dtype, result = compute_dtype(call, a, b), call.value.dtype
    if rounding_mode == "floor":
        return floor_divide(call, a, b)
    if dtype.is_floating_point:         # eager rounds the quotient of float16 and bfloat16 before it truncates
        return pointwise(call, lambda u, v: ops.trunc(cast(cast(ops.truediv(u, v), dtype, result), result, dtype)), a, b)
    return pointwise(call, ops.truncdiv, a, b)


@lower(aten.floor_divide)
def floor_divide(call, a, b):
    if call.value.dtype in (torch.float16, torch.bfloat16):
        raise NotLowered("eager floors float16 and bfloat16 quotients in a way of its own")
    return pointwise(call, ops.floordiv, a, b)


@lower(aten.pow)
def power(call, a, b):
    dtype = compute_dtype(call, a, b)
    if is_number(b):
        if b == 2:
            return pointwise(call, lambda v, _: ops.mul(v, v), a, b)
        if b == 3:
            return pointwise(call, lambda v, _: ops.mul(ops.mul(v, v), v), a, b)
        if b == 1:
            return pointwise(call, lambda v, _: v, a, b)
        if dtype.is_floating_point and b in (0.5, -0.5):
            raise_to = ops.sqrt if b == 0.5 else ops.rsqrt
            return pointwise(call, lambda v, _: raise_to(v), a, b)
        if dtype.is_floating_point and b == -1:
            return pointwise(call, lambda v, _: ops.reciprocal(v), a, b)
    if dtype == torch.bool or not dtype.is_floating_point and is_number(b):
        raise NotLowered("power of a truth value, or an integer to a large or negative number")
    return pointwise(call, ops.pow, a, b)


@lower(aten.fmax.default, aten.fmin.default)
def extreme_ignoring_nan(call, a, b):
    name = "maximum" if call.node.target is aten.fmax.default else "minimum"
    dtype = compute_dtype(call, a, b)
    if dtype == torch.bool:
        return pointwise(call, ops.logical_or if name == "maximum" else ops.logical_and, a, b)
    if not dtype.is_floating_point:
        return pointwise(call, getattr(ops, name), a, b)
    return pointwise(call, lambda u, v: ops.where(ops.isnan(u), v, ops.where(ops.isnan(v), u, getattr(ops, name)(u, v))), a, b)


@lower(aten.relu.default)
def relu(call, x):
    return pointwise(call, lambda v: ops.maximum(v, ops.constant(0, compute_dtype(call, x))), x)


@lower(aten.square.default)
def square(call, x):
    return pointwise(call, lambda v: ops.mul(v, v), x)


@lower(aten.leaky_relu.default)
def leaky_relu(call, x, negative_slope=0.01):
    def body(v):
        dtype = compute_dtype(call, x)
        return ops.where(ops.gt(v, ops.constant(0, dtype)), v, ops.mul(v, ops.constant(negative_slope, dtype)))
    return pointwise(call, body, x)


@lower(aten.hardtanh.default)
def hardtanh(call, x, min_val=-1.0, max_val=1.0):
    return clamp(call, x, min_val, max_val)


@lower(aten.clamp, aten.clamp_min, aten.clamp_max)
def clamp(call, x, min=None, max=None):
    name = call.node.target._schema.name.split("::")[1]
    if name == "clamp_max":
        min, max = None, min
    present = [bound for bound in (min, max) if bound is not None]

    def body(v, *bounds):
        rest = list(bounds)
        if min is not None:
            v = ops.maximum(v, rest.pop(0))
        if max is not None:
            v = ops.minimum(v, rest.pop(0))
        return v
    return pointwise(call, body, x, *present)


@lower(aten.where.self)
def where(call, condition, a, b):
    size, dtype = tuple(call.value.shape), call.value.dtype
    test, this, that = (broadcast_loader(v, size) for v in (condition, a, b))
    test_dtype = condition.dtype

    def body(index):
        return ops.where(_truth(test(index), test_dtype), cast(this(index), a.dtype, dtype), cast(that(index), b.dtype, dtype))
    origins = call.origins | condition.origins | a.origins | b.origins
    return TensorBox(Pointwise(call.value.device, dtype, list(size), body, origins))


@lower(aten.masked_fill)
def masked_fill(call, x, mask, value):
    size, dtype = tuple(call.value.shape), call.value.dtype
    load, test = broadcast_loader(x, size), broadcast_loader(mask, size)
    fill = broadcast_loader(value, size) if isinstance(value, TensorBox) else None

    def body(index):
        other = cast(fill(index), value.dtype, dtype) if fill else number(value, dtype)
        return ops.where(test(index), other, load(index))
    return TensorBox(Pointwise(call.value.device, dtype, list(size), body, call.origins | x.origins | mask.origins))


@lower(aten._to_copy.default, aten.clone.default, aten.lift_fresh_copy.default, torch.ops.prims.convert_element_type.default)
def to_copy(call, x, *args, device=None, **kwargs):
    if call.value.device != x.device:
        raise NotLowered("copy between devices")
    if call.value.dtype.is_complex or x.dtype.is_complex:
        raise NotLowered("complex numbers")
    load, src, dst = x.make_loader(), x.dtype, call.value.dtype
    return TensorBox(Pointwise(x.device, dst, list(x.get_size()), lambda index: cast(load(index), src, dst),
                               call.origins | x.origins))


@lower(aten.copy.default)
def copy(call, destination, source, non_blocking=False):
    size, dtype = tuple(call.value.shape), call.value.dtype
    load = broadcast_loader(source, size)
    return TensorBox(Pointwise(call.value.device, dtype, list(size), lambda index: cast(load(index), source.dtype, dtype),
                               call.origins | source.origins))


# --- creation -----------------------------------------------------------------------------------------------------
def full(call, size, value, dtype=None):
    """`value` everywhere; dtype: if not that of the (first) result."""
    first = call.value[0] if isinstance(call.value, (tuple, list)) else call.value
    dtype = dtype or first.dtype
    if dtype.is_complex:
        raise NotLowered("complex numbers")
    return TensorBox(Pointwise(first.device, dtype, list(sizes(size)), lambda index: number(value, dtype),
                               call.origins))


def _fill_rule(value):
    return lambda call, *args, **kwargs: full(call, call.value.shape, value)


lower(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)(_fill_rule(0))
lower(aten.ones.default, aten.ones_like.default, aten.new_ones.default)(_fill_rule(1))
lower(aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default, aten.empty_strided.default,
      aten.new_empty_strided.default, aten.empty_permuted.default)(_fill_rule(0))     # zeros: reproducible


@lower(aten.full.default, aten.full_like.default, aten.new_full.default)
def full_rule(call, *args, **kwargs):
    value = args[-1]
    if not is_number(value):
        raise NotLowered("fill value is a tensor")
    return full(call, call.value.shape, value)


@lower(aten.scalar_tensor.default)
def scalar_tensor(call, value, **kwargs):
    return full(call, (), value)


@lower(aten.fill.Scalar)
def fill(call, x, value):
    return full(call, call.value.shape, value)


@lower(aten.arange.start_step, aten.arange.start, aten.arange.default)
def arange(call, *args, **kwargs):
    name = call.node.target._overloadname
    start, step = (0, 1) if name == "default" else (args[0], 1) if name == "start" else (args[0], args[2] if len(args) > 2 else 1)
    dtype = call.value.dtype

    def body(index):
        if dtype.is_floating_point:
            position = ops.index_expr(index[0], torch.int64)
            whole = all(isinstance(n, sympy.Expr) or float(n).is_integer() for n in (start, step))
            wide = torch.float32 if whole else torch.float64
            value = ops.to_dtype(position, wide, torch.int64)
            value = ops.add(ops.mul(value, number(step, wide)), number(start, wide))
            return cast(value, wide, dtype)
        return ops.index_expr(index[0] * (step if isinstance(step, sympy.Expr) else int(step))
                              + (start if isinstance(start, sympy.Expr) else int(start)), dtype)
    return TensorBox(Pointwise(call.value.device, dtype, list(call.value.shape), body, call.origins))


@lower(torch.ops.miniinductor.uniform.default)
def uniform(call, seed, size):
    load, shape = seed.make_loader(), sizes(call.value.shape)
    strides = [math.prod(shape[k + 1:]) for k in range(len(shape))]

    def body(index):
        place = sum((i * n for i, n in zip(index, strides)), sympy.Integer(0))
        return ops.rand(load([sympy.Integer(0)]), ops.index_expr(place, torch.int64))
    return TensorBox(Pointwise(call.value.device, torch.float32, list(call.value.shape), body, call.origins | seed.origins))


# --- prims: what torch's decompositions are written in has the rules of the ATen ops of the same name ------------------------
for _name in [*UNARY, *BINARY, "add", "sub", "div", "pow", "where", "fmax", "fmin", "square"]:
    _aten, _prim = getattr(aten, _name, None), getattr(torch.ops.prims, _name, None)
    if _aten is not None and _prim is not None:
        _rules = [LOWERINGS[getattr(_aten, overload)] for overload in ("default", "Tensor", "Tensor_Tensor", "self")
                  if overload in _aten.overloads() and getattr(_aten, overload) in LOWERINGS]
        LOWERINGS.setdefault(_prim.default, _rules[0])
