"""Into how many parts long reductions of a GPU are cut, and softmax along columns in parts.

In:   a tensor, and the dimensions that are reduced.  Out: divisors, and dimensions as they lie in
      memory; of a softmax over an outer dimension, with few columns, the maximum and the sum of
      exponentials in two readings instead of three:

    s = sum over parts of s_part * exp(m_part - m),  m = the largest m_part

A part in which all are -inf has the sum 0; where the whole column is, or has inf or NaN, eager's
NaNs come out as well.  PyTorch: the online softmax (`prepare_softmax_online`) for rows.

Variances; on a GPU, such that read their elements once: of parts, which are then put together.

In:   var, std, var_mean.  Out: two passes over the elements, on a CPU of a program's own in
      float64, as eager counts there; on a GPU the mean and the sum of squared differences of each
      part, where one kernel cannot hold all elements of an output.

    [64, 96, 37, 41] over 0, 2, 3      ->  each image's channel is a row of 1517; then 64 of those
    channels-last, the same            ->  1024 parts of 95 pixels; then those 1024
    2^24 elements                      ->  1024 parts of 16384

    M2 = sum of the parts' M2 + n * sum of (a part's mean - mean)^2,  parts of n elements

As accurate as two passes over all (Chan, Golub and LeVeque, Updating Formulae and a Pairwise
Algorithm for Computing Sample Variances, 1979).  PyTorch: `WelfordReduction` in
torch/_inductor/ir.py, one pass that divides at each element.
"""

import math
from typing import Any

import sympy
import torch
from torch import Tensor

from ..devices import recomputes
from ..ir.loops import Index, TensorBox
from ..ir.ops import Value, ops
from ..sizes.expressions import Size
from ..sizes.symbols import maximum
from .chunks import COLUMNS, PROGRAMS, STEP, divisor_near, in_memory, is_packed, trailing
from .decompositions import LOW_PRECISION, decomposition, upcast
from .pointwise import full
from .reductions import accumulate_dtype, divided, elements, reduce, with_ones
from .registry import Call, NotLowered, cast, lower, made, normalize_dims, number

aten = torch.ops.aten
LEAST = 1 << 17  # elements below which another kernel costs more than it saves
ROW = 32768  # elements that one program holds
PART = 4096  # elements that a part should have at least, where parts are rows
LEAST_ROWS = 32  # of a part, where memory runs along the outputs


@decomposition(aten.var_mean.correction)
def var_mean(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    parts = parts_of(x, dim)
    if parts is None:
        return NotImplemented
    variance, mean = of_parts(x, *parts, 1 if correction is None else correction)
    shape = list(x.shape)
    for d in parts[0]:
        shape[d] = 1
    results = [t.reshape(shape).to(x.dtype) for t in (variance, mean)]
    if keepdim:
        return tuple(results)
    kept = [n for d, n in enumerate(x.shape) if d not in parts[0]]
    return tuple(t.reshape(kept) for t in results)


def corrected(count: Size, correction: float) -> Size:
    """The divisor of a variance: the number of elements less the correction, at least 0."""
    if isinstance(correction, float) and correction.is_integer():
        correction = int(correction)
    if isinstance(count, sympy.Expr) and isinstance(correction, float):
        raise NotLowered("a correction with a fraction, of a size that is a symbol")
    return maximum(count - correction, 0)


@lower(aten.var_mean.correction)
def lowered_var_mean(call: Call, x: TensorBox, dims: Any = None, **how: Any) -> list[TensorBox]:
    if not recomputes(x.device):
        raise NotLowered("eager's mean of infinities hangs on their order")
    return two_passes(call, x, dims, **how)


def two_passes(
    call: Call,
    x: TensorBox,
    dims: Any = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> list[TensorBox]:
    """[variance, mean]: the mean, then the sum of squared differences (accurate where one
    pass cancels)."""
    result, shape = call.first.dtype, call.first.size
    compute, size = accumulate_dtype(result), x.get_size()
    dims = normalize_dims(dims, len(size))
    count = elements(size, dims)
    divisor = corrected(count, 1 if correction is None else correction)
    if count == 0:
        return [full(call, shape, float("nan"), result) for _ in range(2)]
    total = reduce(call, x, dims, False, "sum", compute, compute)
    load_total, load = total.make_loader(), x.make_loader()

    def squared(index: Index) -> Value:
        value = cast(load(index), x.dtype, compute)
        row = [i for k, i in enumerate(index) if k not in dims]
        mean = ops.truediv(load_total(row), number(count, compute))
        difference = ops.sub(value, mean)
        return ops.mul(difference, difference)

    squares = made(call, squared, x, dtype=compute, size=size)
    sum_of_squares = reduce(call, squares, dims, keepdim, "sum", compute, compute)
    variance = divided(call, sum_of_squares, divisor, compute, result, x)
    if keepdim:
        total = with_ones(call, total, dims)
    return [variance, divided(call, total, count, compute, result, x)]


@lower(aten.var.correction)
def lowered_var(call: Call, x: TensorBox, dims: Any = None, **how: Any) -> TensorBox:
    return two_passes(call, x, dims, **how)[0]


@decomposition(aten.var.correction)
def var(x: Tensor, dim: Any = None, **how: Any) -> Any:
    if x.dtype in (torch.float32, *LOW_PRECISION) and not recomputes(x.device):
        return torch.var(x.double(), dim, **how).to(x.dtype)
    found = var_mean(x, dim, **how)
    return found if found is NotImplemented else found[0]


@decomposition(aten.std.correction)
def std(x: Tensor, dim: Any = None, **how: Any) -> Any:
    if not x.dtype.is_floating_point:
        return NotImplemented
    wide = upcast(x) if recomputes(x.device) else x.double()
    return torch.var(wide, dim, **how).sqrt().to(x.dtype)


def parts_of(x: Tensor, dim: Any) -> tuple[list[int], list[int], int] | None:
    """(reduced dimensions; those of them that make a part, the innermost in memory; into how many
    parts their elements are cut besides), or None where all are read once anyway, or nothing is
    known of the sizes."""
    is_float = x.dtype.is_floating_point and x.dtype != torch.float64
    if not is_float or not x.dim() or not recomputes(x.device):
        return None
    if any(type(n) is not int for n in (*x.shape, *x.stride())) or x.numel() < LEAST:
        return None
    given = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    dims = sorted({d % x.dim() for d in given})
    order = in_memory(x)
    if not dims or not is_packed(x, order):
        return None
    inner = trailing(order, lambda d: d in dims)
    found = rows(x, dims, inner) if inner else columns(x, dims, order)
    return (dims, *found) if found else None


def rows(x: Tensor, dims: list[int], inner: list[int]) -> tuple[list[int], int] | None:
    """The same where memory runs along what is reduced."""
    count, length = (math.prod(x.shape[d] for d in group) for group in (dims, inner))
    if length == count and length <= ROW and x.numel() // count >= PROGRAMS // 8:
        return None  # a row for each program
    wanted = max(length // ROW, min(PROGRAMS * length // x.numel(), length // PART), 1)
    cuts = divisor_near(length, wanted)
    return (inner, cuts) if length // cuts <= ROW and count > length // cuts else None


def columns(x: Tensor, dims: list[int], order: list[int]) -> tuple[list[int], int] | None:
    """The same where memory runs along the outputs."""
    last = trailing(order, lambda d: d not in dims)
    inner = trailing(order[: len(order) - len(last)], lambda d: d in dims)
    width, length, count = (math.prod(x.shape[d] for d in group) for group in (last, inner, dims))
    if width < 8 or length < 2 * LEAST_ROWS:
        return None
    around = x.numel() // (width * length)  # blocks of width * length
    wanted = min(PROGRAMS * COLUMNS // (around * width), length // LEAST_ROWS)
    cuts = divisor_near(length // STEP if length % STEP == 0 else length, wanted)
    if cuts == 1:
        cuts = divisor_near(length, wanted)
    return (inner, cuts) if cuts > 1 or count > length else None


def of_parts(
    x: Tensor, dims: list[int], inner: list[int], cuts: int, correction: float
) -> tuple[Tensor, Tensor]:
    """(variance, mean) with the kept dimensions in their order.  inner: neighbours in memory."""
    order = in_memory(x)
    first = order.index(inner[0])
    before, after = order[:first], order[first + len(inner) :]
    between = [k for k, d in enumerate([*before, None, *after]) if d is None or d in dims]
    sizes = [[x.shape[d] for d in part] for part in (before, after)]
    # (inner dimensions lie side by side: this is a view)
    ones = [d for d in range(x.dim()) if x.shape[d] == 1]
    seen = upcast(x).permute([*ones, *order])
    count, length = (math.prod(x.shape[d] for d in group) for group in (dims, inner))
    part = length // cuts
    seen = seen.reshape([*sizes[0], cuts, part, *sizes[1]])
    means = seen.mean(first + 1, keepdim=True)
    squares, mean = (seen - means).square().sum(first + 1), means.squeeze(first + 1)
    center = (mean * (part / count)).sum(between, keepdim=True)
    spread = ((mean - center).square() * part).sum(between, keepdim=True)
    total = squares.sum(between, keepdim=True) + spread
    variance = total / max(count - correction, 0)
    kept = [d for d in (*before, *after) if d not in dims]
    shape = [x.shape[d] for d in kept]
    back = [kept.index(d) for d in sorted(kept)]
    found = [t.reshape(shape).permute(back) for t in (variance, center)]
    return found[0], found[1]
