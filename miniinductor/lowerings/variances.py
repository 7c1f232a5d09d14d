"""Variances on a CPU of the largest and the smallest numbers: eager's kernels there count in
float64.

In:   var, std, var_mean, std_mean of floats on a CPU.  Out: the same, counted in float32.

    x = torch.randn(100) * 1e20       x.std(), of the squares as they are: inf;   eager: 1e20
    x = torch.randn(100) * 1e-30      x.std()                              0.0;   eager: 1e-30
    torch.var_mean([inf, 1.0])[1]     the sum divided                      inf;   eager: nan

A row's variance is counted plainly first.  Where the sum of squares is infinite, no number or so
small that squares may have vanished, it is counted again: the differences from the mean are
multiplied by a power of two before they are squared, which one hangs on the row's mean size; the
result is divided again.  Between 2**-30 and 2**30 it is 1.

Eager's mean of an infinity is one as long as no other element comes after it (Welford's recurrence
adds `(x - mean) / n` for each), so it is infinite where only the last element is, otherwise NaN.

Layer, group and batch norms overflow in eager, too, and keep our form.  A GPU's kernels count in
float32.  float64's own extremes (1e300) overflow where eager's recurrence may not; eager's full
variance of float32 overflows where the sum does, this one not.
"""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from ..decompositions import OURS, Decomposition, decomposition, upcast
from ..sizes.symbols import same
from . import normalization as _normalization  # noqa: F401  (its rules come first)
from . import statistics
from ..devices import recomputes

aten = torch.ops.aten
Rule = Callable[[Tensor, Any, dict[str, Any]], Any]
# Their squares, and sums of those, are no numbers of float32; float16's are.
WIDE_RANGE = (torch.float32, torch.bfloat16)
LOWERED = 2.0**-24  # a sum of 2**24 elements that are multiplied by this is no infinity
# mean sizes above (below) which differences are multiplied by this: no square of a row of 2**24
# elements overflows, and the square of one unit in the last place does not vanish
LARGE = ((2.0**30, 2.0**-50), (2.0**70, 2.0**-84))
SMALL = ((2.0**-30, 2.0**50), (2.0**-70, 2.0**100))
# Mean squares above this lose nothing to those of them that vanish: 2**-126 is the smallest number
# of all bits, and float32 has 24 of them.
SAFE = 2.0**-100
NORMALIZATIONS = (
    aten.native_layer_norm.default,
    aten.native_group_norm.default,
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._batch_norm_with_update.default,
)
_is_normalizing: ContextVar[bool] = ContextVar("is_normalizing", default=False)


@contextmanager
def normalizing() -> Iterator[None]:
    before = _is_normalizing.set(True)
    try:
        yield
    finally:
        _is_normalizing.reset(before)


def in_its_own_precision(rule: Decomposition) -> Decomposition:
    """The decomposition of a normalization, whose variance keeps the form that it has."""

    @functools.wraps(rule)
    def normalization_rule(*args: Any, **kwargs: Any) -> Any:
        with normalizing():
            return rule(*args, **kwargs)

    return normalization_rule


def is_wanted(x: Tensor) -> bool:
    """Is it a program's own variance, on a CPU, of elements?"""
    if _is_normalizing.get() or not x.dtype.is_floating_point or recomputes(x.device):
        return False
    return not any(same(n, 0) for n in x.shape)


def variance_of(x: Tensor, dim: Any, how: dict[str, Any]) -> Tensor:
    if x.dtype not in WIDE_RANGE:
        return plain_variance(x, dim, how)
    variance, factor = scaled_variance(x, dim, **how)
    return variance / factor / factor


def deviation_of(x: Tensor, dim: Any, how: dict[str, Any]) -> Tensor:
    """float16: a deviation of 300 has a variance that is no number of float16."""
    if x.dtype not in WIDE_RANGE:
        return plain_variance(upcast(x), dim, how).sqrt()
    variance, factor = scaled_variance(x, dim, **how)
    return variance.sqrt() / factor


def plain_variance(x: Tensor, dim: Any, how: dict[str, Any]) -> Tensor:
    with normalizing():
        return torch.var(x, dim, **how)


def scaled_variance(
    x: Tensor, dim: Any, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """(the variance of x * factor, factor): a factor for each row, 1 where the squares need none"""
    wide, dims = upcast(x), dims_of(x, dim)
    plain, mean, is_right = plain_squares(wide, dims)
    scaled, factor = scaled_squares(wide, dims, mean, is_right.logical_not())
    squares, factor = torch.where(is_right, plain, scaled), torch.where(is_right, 1.0, factor)
    count = math.prod(x.shape[d] for d in dims)
    divisor = torch.sym_max(count - (1 if correction is None else correction), 0)
    variance = squares / divisor
    return (variance, factor) if keepdim else (variance.squeeze(dims), factor.squeeze(dims))


def plain_squares(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """(the sum of the squared differences, the mean, are they right?)"""
    mean = torch.mean(x, dims, True)
    squares = torch.sum((x - mean).square(), dims, True)
    count = math.prod(x.shape[d] for d in dims)
    return squares, mean, (squares > SAFE * count) & (squares < math.inf)


def scaled_squares(
    x: Tensor, dims: list[int], mean: Tensor, wanted: Tensor
) -> tuple[Tensor, Tensor]:
    """(the sum of the squared differences * factor, factor) of the rows of which they are wanted;
    mean: what the plain one came to."""
    size = mean_where(wanted, x.abs() * LOWERED, dims)
    factor = torch.ones_like(size)
    for least, power in LARGE:
        factor = torch.where(size > least * LOWERED, power, factor)
    for most, power in SMALL:
        factor = torch.where(size < most * LOWERED, power, factor)
    differences = (x - mean_without_overflow(x, dims, mean, wanted)) * factor
    return torch.where(wanted, differences.square(), 0.0).sum(dims, True), factor


def mean_where(wanted: Tensor, x: Tensor, dims: list[int]) -> Tensor:
    """The mean of the rows of which it is wanted, 0 of others: of those, the loop over the row is
    left out by the C++ writer."""
    return torch.mean(torch.where(wanted, x, 0.0), dims, True)


def mean_without_overflow(x: Tensor, dims: list[int], mean: Tensor, wanted: Tensor) -> Tensor:
    """The mean, also where its sum overflows; mean: what the plain one came to; wanted: of which
    rows it may have."""
    lowered = mean_where(wanted, x * LOWERED, dims)
    return torch.where(mean.isfinite(), mean, lowered / LOWERED)


def dims_of(x: Tensor, dim: Any) -> list[int]:
    given = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    return [d % x.dim() for d in given] if x.dim() else []


def mean_of(x: Tensor, dim: Any, how: dict[str, Any]) -> Tensor:
    """NaN where another element than the last is infinite."""
    wide, dims = upcast(x), dims_of(x, dim)
    if x.dtype in WIDE_RANGE:
        _, mean, is_right = plain_squares(wide, dims)
        wanted = is_right.logical_not()
        mean = mean_without_overflow(wide, dims, mean, wanted)
    else:
        mean = torch.mean(wide, dims, True)
        wanted = mean.isfinite().logical_not()
    last = x
    for d in dims:
        last = last.narrow(d, -1, 1)
    # (more than one: that is all we ask)
    infinite = torch.where(wanted, x.isinf().float(), 0.0).sum(dims, keepdim=True)
    mean = torch.where(infinite > last.isinf(), float("nan"), mean)
    return mean if how.get("keepdim") else mean.squeeze(dims)


def register(target: Any, *parts: Rule, otherwise: Decomposition | None = None) -> None:
    """otherwise: the rule for what is not ours."""

    @decomposition(target)
    def rule(x: Tensor, dim: Any = None, **how: Any) -> Any:
        if not is_wanted(x):
            return otherwise(x, dim, **how) if otherwise else NotImplemented
        found = tuple(part(x, dim, how).to(x.dtype) for part in parts)
        return found if len(found) > 1 else found[0]


for _op in NORMALIZATIONS:
    OURS[_op] = in_its_own_precision(OURS[_op])
register(aten.var.correction, variance_of, otherwise=statistics.var)
register(aten.var_mean.correction, variance_of, mean_of, otherwise=statistics.var_mean)
for _op, _parts in (
    (aten.std.correction, (deviation_of,)),
    (aten.std_mean.correction, (deviation_of, mean_of)),
):
    register(_op, *_parts, otherwise=decomposition_table[_op])
