"""Reductions and scans.

In:   sum, mean, var, amax, any, all...; argmax and argmin; max and min along a dimension; cumsum,
      cumprod, logcumsumexp.
Out:  `Reduction` values (of argmax the index of the first among equals, or of a NaN), with
      pointwise work around them; for the last three a `Scan`.

    mean(x, dim) -> sum(x, dim) / n             sum(x, (0, 2)): one Reduction over two dimensions
    var(x, correction=1) -> sum((x - mean)^2) / (n - 1): two passes, accurate where one cancels

var and std, at the end of this file, are written in terms of other ops.  On a CPU they count in
float64, as eager does.

float16 and bfloat16 are summed in float32, integers and bools in int64, as torch does.
Mirrors torch/_inductor/lowering.py (`make_reduction`, `cumsum`).
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import Tensor

from ..devices import recomputes
from ..ir.loops import Index, Loader, Pointwise, Reduction, Scan, TensorBox, contiguous_strides
from ..ir.ops import NARROW, Value, compute_dtype, ops
from ..sizes.expressions import Size
from ..sizes.symbols import hint, same
from ..sizes.symbols import size as as_size
from .decompositions import decomposition, upcast
from .extern import is_inlined
from .pointwise import full, truth
from .registry import (
    Call,
    NotLowered,
    aten,
    cast,
    lower,
    mapped,
    normalize_dim,
    normalize_dims,
    number,
    view,
)

SHORT = 8, 7  # at most so many elements are written out, on a CPU and on a GPU
JOINS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "logical_or"}
EXTREMES = ("max", "min", "argmax", "argmin")
# Our kernels have no loop over one element, and so no accumulator.  Eager's begins a sum with 0.0:
# that of the single element -0.0 is 0.0.
OF_ONE: dict[str, Callable[[Value, torch.dtype], Value]] = {
    "sum": lambda value, dtype: ops.add(value, ops.constant(0.0, dtype)),
    "m2": lambda value, dtype: ops.sub(value, value),
    "sumexp": lambda value, dtype: ops.exp(ops.sub(value, value)),
}


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
    ranges, reduced = [size[k] for k in kept], [size[k] for k in dims]
    load, src, count = x.make_loader(), x.dtype, elements(size, dims)
    if kind in EXTREMES:
        compute = torch.uint8 if compute == torch.bool else compute
        if 0 in reduced:
            raise NotLowered("eager raises: of no elements none is the largest")
    produced = torch.int64 if kind.startswith("arg") else compute
    of_one = OF_ONE.get(kind) if compute.is_floating_point and count == 1 else None

    def inner(index: Index, rindex: Index) -> Value:
        place = dict(zip([*kept, *dims], [*index, *rindex]))
        value = cast(load([place[k] for k in range(len(size))]), src, compute)
        return of_one(value, compute) if of_one else value

    origins = call.origins | x.origins
    few = range(2, SHORT[recomputes(x.device)] + 1)
    if kind in JOINS and not keepdim and count in few:
        body = written_out(inner, reduced, JOINS[kind])
        out = TensorBox(Pointwise(x.device, compute, ranges, body, origins=origins))
    else:
        data = Reduction(x.device, produced, ranges, inner, reduced, kind, compute, origins=origins)
        out = TensorBox.stored(data, as_in_memory(call, x, kept))
    if keepdim:
        out = view(call, out, call.first.size, lambda index: [index[k] for k in kept])
    if produced == result:
        return out
    return mapped(call, out, lambda v: cast(v, produced, result), result, x)


def as_in_memory(call: Call, x: TensorBox, kept: Sequence[int]) -> Sequence[Size] | None:
    """Strides of a result that only our kernels read: its dimensions lie as x has them in memory,
    so that one loop runs through several."""
    eager = x.eager
    if eager is None or not all(map(is_inlined, call.node.users)):
        return None
    order = sorted(kept, key=lambda k: -hint(eager.stride[k], 0))
    steps = dict(zip(order, contiguous_strides([x.get_size()[k] for k in order])))
    return [steps[k] for k in kept]


def written_out(inner: Callable[..., Value], reduced: Sequence[int], join: str) -> Loader:
    """A reduction of few elements as one expression, which fuses into whatever reads it."""
    places = list(itertools.product(*map(range, reduced)))

    def body(index: Index) -> Value:
        values = [inner(index, [sympy.Integer(k) for k in place]) for place in places]
        return functools.reduce(getattr(ops, join), values)

    return body


@lower(aten.sum, aten.prod)
def sum_rule(
    call: Call,
    x: TensorBox,
    dims: Any = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> TensorBox:
    result = call.value.dtype
    if result == torch.bool:
        raise NotLowered("a sum of truth values, as one")
    is_wide = x.dtype not in NARROW
    exponent = softmax_input(call, dims) if is_wide and recomputes(x.device) else None
    if exponent is not None:
        return reduce(call, exponent, dims, keepdim, "sumexp", result, result)
    return reduce(call, x, dims, keepdim, call.name, compute_dtype(result), result)


def softmax_input(call: Call, dims: Any) -> TensorBox | None:
    """The x of sum(exp(x - amax(x, dims, True)), dims), which takes one pass over x."""
    node: Any = call.node
    for target in (aten.sum.dim_IntList, aten.exp.default, aten.sub.Tensor):
        if getattr(node, "target", None) is not target or node.kwargs:
            return None
        found, node = node, node.args[0]
    x, top = found.args
    if getattr(top, "target", None) is not aten.amax.default or top.args != (x, dims, True):
        return None
    return call.lowerer.env[x]


def elements(size: Sequence[Size], dims: Any) -> Size:
    """How many elements are reduced to one."""
    return as_size(sympy.prod([size[d] for d in normalize_dims(dims, len(size))]))


@lower(aten.mean)
def mean(
    call: Call,
    x: TensorBox,
    dims: Any = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    kind: str = "sum",
) -> TensorBox:
    """Of the elements; kind "m2": of their squared deviations."""
    result, size = call.value.dtype, x.get_size()
    compute = compute_dtype(result)
    count = elements(size, dims)
    if count == 0:
        return full(call, float("nan"))
    total = reduce(call, x, dims, keepdim, kind, compute, compute)
    divisor = count if isinstance(count, sympy.Expr) else float(count)

    def quotient(value: Value) -> Value:
        return cast(ops.truediv(value, number(divisor, compute)), compute, result)

    return mapped(call, total, quotient, result, x)


@lower(aten.var.correction)
def population_variance(
    call: Call, x: TensorBox, dims: Any = None, *, correction: float = 0, keepdim: bool = False
) -> TensorBox:
    """The only one that decompositions leave (`moments`)."""
    return mean(call, x, dims, keepdim, kind="m2")


@lower(aten.amax.default, aten.amin.default, aten.max.default, aten.min.default)
def extreme(call: Call, x: TensorBox, dims: Any = (), keepdim: bool = False) -> TensorBox:
    return reduce(call, x, dims, keepdim, call.name.removeprefix("a"), x.dtype, x.dtype)


@lower(aten.max.dim, aten.min.dim)
def extreme_with_index(
    call: Call, x: TensorBox, dim: int, keepdim: bool = False
) -> list[TensorBox]:
    return [extreme(call, x, [dim], keepdim), place_of_extreme(call, x, dim, keepdim)]


@lower(aten.argmax.default, aten.argmin.default)
def place_of_extreme(
    call: Call, x: TensorBox, dim: int | None = None, keepdim: bool = False
) -> TensorBox:
    count, total = elements(x.get_size(), dim), elements(x.get_size(), None)
    if recomputes(x.device) and isinstance(total, int) and count >= max(1 << 16, total // 64):
        raise NotLowered("places in few, long rows, which eager's kernel looks for in parts")
    return reduce(call, x, dim, keepdim, "arg" + call.name[-3:], x.dtype, torch.int64)


@lower(aten.any, aten.all)
def any_or_all(call: Call, x: TensorBox, dims: Any = None, keepdim: bool = False) -> TensorBox:
    """all(x) is not any(not x)."""
    if call.value.dtype != torch.bool:
        raise NotLowered("uint8 result")
    is_any = call.name == "any"

    def counts(value: Value) -> Value:
        value = truth(value, x.dtype)
        return value if is_any else ops.logical_not(value)

    box = mapped(call, x, counts, torch.bool)
    found = reduce(call, box, dims, keepdim, "any", torch.bool, torch.bool)
    return found if is_any else mapped(call, found, ops.logical_not, torch.bool, x)


@lower(aten.cumsum.default, aten.cumprod.default, aten.logcumsumexp.default)
def cumulative(
    call: Call, x: TensorBox, dim: int, *, dtype: torch.dtype | None = None
) -> TensorBox:
    """CPU: accumulated in double (float32, float64, all of logcumsumexp), float32 (narrow floats)
    or int64, and rounded at every step, as eager does it.  GPU: in float32, float64 or int64."""
    size, result = list(x.get_size()), call.value.dtype
    kind = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logaddexp"}[call.name]
    if not size or 0 in size:
        return mapped(call, x, lambda v: cast(v, x.dtype, result), result)
    compute = torch.int64
    if result.is_floating_point:
        is_plain = recomputes(x.device) or result in NARROW and kind != "logaddexp"
        compute = compute_dtype(result) if is_plain else torch.float64
    dim, load, src = normalize_dim(dim, len(size)), x.make_loader(), x.dtype

    def whole(index: Index, rindex: Index) -> Index:
        return [*index[:dim], rindex[0], *index[dim:]]

    def element(index: Index, rindex: Index) -> Value:
        return cast(cast(load(whole(index, rindex)), src, result), result, compute)

    others, origins = size[:dim] + size[dim + 1 :], call.origins | x.origins
    data = Scan(
        x.device, result, others, element, [size[dim]], whole, kind, compute, size, origins=origins
    )
    return TensorBox.stored(data)


# --- variances ------------------------------------------------------------------------------------
def moments(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    """(mean, population variance) over `dims`, which are kept."""
    mean = x.mean(dims, keepdim=True)
    if recomputes(x.device):  # in one pass over memory, where it takes more than one
        return mean, x.var(dims, correction=0, keepdim=True)
    return mean, (x - mean).square().mean(dims, keepdim=True)


def moments_in_one_pass(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    """`moments`, in float64, of numbers that have fewer digits.  They are those of the distances
    to one of the numbers: that costs at most as many digits as the count of the numbers has."""
    first = x
    for dim in dims:
        first = first.narrow(dim, 0, 1)
    far = x.double() - first
    mean = far.mean(dims, keepdim=True)
    return first + mean, far.square().mean(dims, keepdim=True) - mean.square()


def statistics(
    finish: Callable[[Tensor, Tensor], Any],
    x: Tensor,
    dim: Any = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    """finish(variance, mean).  The mean of infinities is NaN or infinite, depending on the order in
    which they are added; eager's kernel adds in a different order."""
    is_gpu = recomputes(x.device)
    is_left = is_gpu and finish is alone and correction == 0
    if is_left or not x.dtype.is_floating_point:
        return NotImplemented
    dims = dim or list(range(x.dim()))
    count = math.prod(x.shape[d] for d in dims)
    divisor = max(count - (1 if correction is None else correction), 0)
    is_wide = is_gpu or x.dtype is torch.float64 or same(count, 0)
    mean, variance = (moments if is_wide else moments_in_one_pass)(upcast(x), dims)
    found = [variance * count / divisor, mean]
    found = finish(*[t if keepdim else t.squeeze(dims) for t in found])
    return pytree.tree_map(lambda t: t.to(x.dtype), found)


def alone(variance: Tensor, mean: Tensor) -> Tensor:
    return variance


for _op, _finish in {
    aten.var.correction: alone,
    aten.std.correction: lambda variance, mean: variance.sqrt(),
    aten.var_mean.correction: lambda variance, mean: (variance, mean),
    aten.std_mean.correction: lambda variance, mean: (variance.sqrt(), mean),
}.items():
    decomposition(_op)(functools.partial(statistics, _finish))
