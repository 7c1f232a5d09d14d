"""Lowerings of running sums, products and log-sums.

In:   cumsum, cumprod, logcumsumexp.  Out: a `Scan`; of few long rows on a GPU, two of them.

    [1, 2, 3, 4]  in chunks of 2: sums [3, 7], before each chunk [0, 3], and then 1, 3, 3 + 3, 6 + 4

Mirrors torch/_inductor/lowering.py (`cumsum`).
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from .. import config
from ..ir import Index, Reduction, Scan, TensorBox
from ..lowering.reductions import accumulate_dtype
from ..lowering.registry import NARROW, Call, NotLowered, aten, cast, lower, mapped, normalize_dim
from ..ops import Value, ops
from ..sizes.expressions import Size
from ..sizes.symbols import hint
from .chunks import nearest_divisor

FEW_SCANS, LONG_SCAN = 64, 8192  # GPU: fewer and longer scans than these are cut into chunks


@lower(aten.cumsum.default, aten.cumprod.default, aten.logcumsumexp.default)
def cumulative(
    call: Call, x: TensorBox, dim: int, *, dtype: torch.dtype | None = None
) -> TensorBox:
    """CPU: accumulated in double (float32, float64), float32 (narrow floats) or int64, and rounded
    at every step, as eager does it. GPU: in float32, float64 or int64."""
    size, result = list(x.get_size()), call.value.dtype
    kind = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logaddexp"}[call.name]
    if not size or 0 in size:
        return mapped(call, x, lambda v: cast(v, x.dtype, result), result)
    parallel = x.device.type != "cpu" or config.cpu_backend != "cpp"
    compute = torch.float64 if result.is_floating_point else torch.int64
    if result in NARROW and kind != "logaddexp" or parallel and result.is_floating_point:
        compute = accumulate_dtype(result)
    dim, load, src = normalize_dim(dim, len(size)), x.make_loader(), x.dtype
    whole = lambda index, rindex: [*index[:dim], rindex[0], *index[dim:]]  # noqa: E731
    element = lambda index, rindex: cast(
        cast(load(whole(index, rindex)), src, result), result, compute
    )  # noqa: E731
    count, others = size[dim], size[:dim] + size[dim + 1 :]
    if parallel and hint(math.prod(others), 1) < FEW_SCANS and hint(count, 0) > LONG_SCAN:
        return in_chunks(call, x, element, others, count, whole, kind, compute, result)
    return scan(call, x, result, others, element, [count], whole, kind, compute, size)


def scan(call: Call, x: TensorBox, result: torch.dtype, *what: Any) -> TensorBox:
    return TensorBox.stored(Scan(x.device, result, *what, origins=call.origins | x.origins))


def in_chunks(
    call: Call,
    x: TensorBox,
    element: Callable[[Index, Index], Value],
    others: list[Size],
    count: Size,
    whole: Callable[[Index, Index], Index],
    kind: str,
    compute: torch.dtype,
    result: torch.dtype,
) -> TensorBox:
    """Few long scans: scans of chunks, each of which begins with the result of the chunks before
    it, a scan of their sums."""
    chunk = nearest_divisor(count, LONG_SCAN // 2) if isinstance(count, int) else 0
    if kind == "logaddexp" or not chunk or count % chunk:
        raise NotLowered(
            f"a scan of {count} elements that no chunks divide: eager's kernel works on all at once"
        )
    combine, neutral = (ops.add, 0) if kind == "sum" else (ops.mul, 1)
    chunks = [*others, count // chunk]
    origins = call.origins | x.origins

    def place(index: Index, rindex: Index) -> Value:
        return element(index[:-1], [index[-1] * chunk + rindex[0]])

    def together(index: Index, rindex: Index) -> Index:
        return [*index, *rindex]

    totals = TensorBox.stored(
        Reduction(x.device, compute, chunks, place, [chunk], kind, compute, origins=origins)
    )
    load_total = totals.make_loader()

    def total(index: Index, rindex: Index) -> Value:
        return load_total(together(index, rindex))

    sums = scan(call, x, compute, others, total, [count // chunk], together, kind, compute, chunks)
    before = sums.make_loader()

    def first_continues(index: Index, rindex: Index) -> Value:
        is_first = ops.eq(ops.index_expr(rindex[0], torch.int64), ops.constant(0, torch.int64))
        follows = ops.gt(ops.index_expr(index[-1], torch.int64), ops.constant(0, torch.int64))
        carried = ops.masked(
            ops.logical_and(is_first, follows),
            lambda: before([*index[:-1], index[-1] - 1]),
            neutral,
        )
        return combine(carried, place(index, rindex))

    def output(index: Index, rindex: Index) -> Index:
        return whole(index[:-1], [index[-1] * chunk + rindex[0]])

    size = whole(list(others), [count])
    return scan(call, x, result, chunks, first_continues, [chunk], output, kind, compute, size)
