"""Lowerings of running sums, products and log-sums.

In:   cumsum, cumprod, logcumsumexp, on a GPU cummax and cummin.  Out: a `Scan`; of few long rows
      or columns on a GPU, two of them.

    [1, 2, 3, 4]  in chunks of 2: sums [3, 7], before each chunk [0, 3], and then 1, 3, 3 + 3, 6 + 4

In C++ a scan goes element by element.  So what is costly is computed in vectors, before it and
behind it; only a little pointwise work joins its kernel (`check_scan`, which the scheduler asks).

Mirrors torch/_inductor/lowering.py (`cumsum`).
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from .. import config
from ..hooks import extends
from ..ir import Index, Pointwise, Reduction, TensorBox
from ..lowering.graph import cost
from ..lowering.reductions import accumulate_dtype
from ..lowering.registry import NARROW, Call, NotLowered, aten, cast, lower, mapped, normalize_dim
from ..more.scan import Scan
from ..nodes import Group, Refused
from ..ops import Value, ops
from ..scheduler import Scheduler, Way, on_inner_loops
from ..sizes.expressions import Size
from ..sizes.symbols import hint
from .chunks import nearest_divisor

IN_ORDER = 4  # operations of an element that a scan in C++ computes in its own loop, at most
FEW_SCANS, LONG_SCAN = 64, 8192  # GPU: fewer and longer scans than these are cut into chunks
FEW_COLUMNS, LONG_COLUMN = 8192, 2048  # the same where memory does not run along the scan


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
    if not parallel and isinstance(x.data, Pointwise) and cost(x)[1] > IN_ORDER:
        x.realize()  # by a loop of vectors: the scan's own goes element by element
    compute = torch.float64 if result.is_floating_point else torch.int64
    if result in NARROW and kind != "logaddexp" or parallel and result.is_floating_point:
        compute = accumulate_dtype(result)
    dim, load, src = normalize_dim(dim, len(size)), x.make_loader(), x.dtype
    whole = lambda index, rindex: [*index[:dim], rindex[0], *index[dim:]]  # noqa: E731
    element = lambda index, rindex: cast(
        cast(load(whole(index, rindex)), src, result), result, compute
    )  # noqa: E731
    count, others = size[dim], size[:dim] + size[dim + 1 :]
    chunk = chunk_of(call, others, count) if parallel else 0
    if chunk:
        return in_chunks(call, x, element, others, count, chunk, whole, kind, compute, result)
    return scan(call, x, result, others, element, [count], whole, kind, compute, size)


def chunk_of(call: Call, others: list[Size], count: Size) -> int:
    """Into chunks of how many elements scans are cut; 0: into none."""
    outputs = hint(math.prod(others), 1)
    if outputs < FEW_SCANS and hint(count, 0) > LONG_SCAN:
        chunk = nearest_divisor(count, LONG_SCAN // 2) if isinstance(count, int) else 0
        if call.name == "logcumsumexp" or not chunk or count % chunk:
            raise NotLowered(
                f"a scan of {count} elements that no chunks divide: eager's kernel works on all "
                "at once"
            )
        return chunk
    is_long = is_column(call) and isinstance(count, int) and count >= LONG_COLUMN
    if call.name == "logcumsumexp" or not is_long or outputs >= FEW_COLUMNS:
        return 0
    chunk = nearest_divisor(count, math.isqrt(count))
    return 0 if count % chunk else chunk


def is_column(call: Call) -> bool:
    """Does memory run along other dimensions than the scanned one?"""
    given, dim = call.node.args[:2]
    value: torch.Tensor = given.meta["val"]  # type: ignore[union-attr]
    return value.stride(normalize_dim(dim, value.dim())) != 1  # type: ignore[arg-type]


def scan(call: Call, x: TensorBox, result: torch.dtype, *what: Any) -> TensorBox:
    return TensorBox.stored(Scan(x.device, result, *what, origins=call.origins | x.origins))


def in_chunks(
    call: Call,
    x: TensorBox,
    element: Callable[[Index, Index], Value],
    others: list[Size],
    count: Size,
    chunk: int,
    whole: Callable[[Index, Index], Index],
    kind: str,
    compute: torch.dtype,
    result: torch.dtype,
) -> TensorBox:
    """Few long scans: scans of chunks, each of which begins with the result of the chunks before
    it, a scan of their sums."""
    combine, neutral = (ops.add, 0) if kind == "sum" else (ops.mul, 1)
    # where memory runs along the others, neighbouring programs work on those
    at = 0 if is_column(call) else len(others)
    chunks = [*others[:at], count // chunk, *others[at:]]
    origins = call.origins | x.origins

    def apart(index: Index) -> tuple[Index, Any]:
        """(index into the others, number of the chunk)."""
        return [*index[:at], *index[at + 1 :]], index[at]

    def place(index: Index, rindex: Index) -> Value:
        outer, number = apart(index)
        return element(outer, [number * chunk + rindex[0]])

    def together(index: Index, rindex: Index) -> Index:
        return [*index[:at], *rindex, *index[at:]]

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
        outer, number = apart(index)
        follows = ops.gt(ops.index_expr(number, torch.int64), ops.constant(0, torch.int64))
        carried = ops.masked(
            ops.logical_and(is_first, follows),
            lambda: before(together(outer, [number - 1])),
            neutral,
        )
        return combine(carried, place(index, rindex))

    def output(index: Index, rindex: Index) -> Index:
        outer, number = apart(index)
        return whole(outer, [number * chunk + rindex[0]])

    size = whole(list(others), [count])
    return scan(call, x, result, chunks, first_continues, [chunk], output, kind, compute, size)


@lower(aten.cummax.default, aten.cummin.default)
def extreme(call: Call, x: TensorBox, dim: int) -> list[TensorBox]:
    """[running extremes, the place of each]: of equals the last, of NaNs, too.  In Triton alone."""
    size, kind = list(x.get_size()), call.name.removeprefix("cum")
    if x.device.type == "cpu" and config.cpu_backend == "cpp":
        raise NotLowered("running extremes in C++")
    if not size or 0 in size or x.dtype == torch.bool:
        raise NotLowered("running extremes of nothing, of one number or of truth values")
    dim, compute = normalize_dim(dim, len(size)), accumulate_dtype(x.dtype)
    others, count, load = size[:dim] + size[dim + 1 :], size[dim], x.make_loader()

    def whole(index: Index, rindex: Index) -> Index:
        return [*index[:dim], rindex[0], *index[dim:]]

    def element(index: Index, rindex: Index) -> Value:
        return cast(load(whole(index, rindex)), x.dtype, compute)

    values = scan(call, x, x.dtype, others, element, [count], whole, kind, compute, size)
    best = values.make_loader()

    def place(index: Index, rindex: Index) -> Value:
        value = element(index, rindex)
        found = ops.eq(value, cast(best(whole(index, rindex)), x.dtype, compute))
        if compute.is_floating_point:
            found = ops.logical_or(found, ops.isnan(value))
        here = ops.index_expr(rindex[0], torch.int64)
        return ops.where(found, here, ops.constant(0, torch.int64))

    wide = torch.int64
    places = scan(call, x, wide, others, place, [count], whole, "max", wide, size)
    return [values, places]


# --- fusion ---------------------------------------------------------------------------------------
AFTER_SCAN = 4  # simple operations on a scan's result that its own loop may do


@extends(Scheduler)
class ScanScheduler(Scheduler):
    def ways(self, first: Group, second: Group) -> list[Way]:
        return [on_inner_loops] if first.has_scan else super().ways(first, second)

    def check_kernel(self, first: Group, second: Group) -> None:
        super().check_kernel(first, second)
        check_scan(first, second)


def check_scan(first: Group, second: Group) -> None:
    """A scan goes through its loop in order.  A little pointwise work may follow each step."""
    if second.has_scan or (first.has_scan and second.is_reduction):
        raise Refused(
            "a scan goes through its loop in order, and its results are read at other places"
        )
    if first.has_scan and second.device.type == "cpu" and second.work > AFTER_SCAN:
        raise Refused("a scan goes element by element: so much work is faster in vectors")
