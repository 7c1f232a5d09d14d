"""Reductions with few outputs become two: without this, few programs would read much.

In:   an `ir.Graph` for a GPU.  Out: the same graph, in which such a Reduction is a partial one,
      with an output per chunk,
and a small one over the chunks.

    sum over 2^26 elements  ->  partial[2048] = sums of 32768 each;  sum of partial
    sum over dim 0 of [16384, 4096]  ->  partial[32, 4096];  sum of partial over dim 0
    sum over i of x[i, t[i]] - max[i] - log(sum[i])     ->  elements[i] = x[i, t[i]] - ..., made by the kernel that finds max and sum of row i,
    (cross entropy: one program for all rows)               where its programs are many;  sum of elements

Symbolic sizes: as many chunks as the sizes of the first call ask for, of a symbolic length. Runs
before the scheduler, which fuses the partial one with what makes its elements, as any other
reduction. Mirrors `Reduction.num_splits` and `create_multilayer` in torch/_inductor/ir.py.  Left
out: argmax and argmin.
"""

import math
from collections.abc import Mapping, Sequence

import sympy
import torch

from ..dependencies import int_or_none, loop_variables, runs_along, trace
from ..ir import Buffer, ComputedBuffer, Graph, Layout, Pointwise, Reduction, contiguous_strides
from ..ops import ops
from ..records import CompileRecord
from ..sizes.expressions import FloorDiv, Mod
from ..sizes.ranges import simplify
from ..sizes.symbols import Size, hint, nearest_divisor, size

PROGRAMS = 132 * 8  # enough work for every processor
ENOUGH_ROWS = (
    64  # with so many rows, one program each keeps reductions that need one another in one kernel
)
LEAST_ROWS = 128  # rows that a program should at least add up where columns are reduced
LEAST_CHUNK = 4096  # elements, where rows are
LEAST_ELEMENTS = 1 << 17  # below this a second kernel costs more than it saves
NEUTRAL = {"sum": 0, "prod": 1, "any": False}


def split_reductions(graph: Graph, record: CompileRecord) -> None:
    """Rewrite the graph's operations in place; each split is noted in the record."""
    operations = []
    for buffer in graph.operations:
        parts = (
            split(buffer)
            if isinstance(buffer, ComputedBuffer) and isinstance(buffer.data, Reduction)
            else None
        )
        if not parts and (first := elements_of(buffer, graph)):
            parts = first
            graph.apart.add(first[0].name)
            record.notes.append(
                f"{buffer.name}: its elements are made where the rows are reduced that they depend on"
            )
        elif parts:
            record.notes.append(
                f"{buffer.name}: {math.prod(buffer.data.ranges)} outputs of {math.prod(buffer.data.reduction_ranges)} "
                f"elements each are too few: reduced in {parts[0].layout.numel // math.prod(buffer.data.ranges)} chunks"
            )
        if parts:
            graph.buffers.update({part.name: part for part in parts})
        operations += parts or [buffer]
    graph.operations[:] = operations


def split(buffer: ComputedBuffer) -> tuple[ComputedBuffer, ComputedBuffer] | None:
    """(partial, final), or None where one kernel is enough."""
    data = buffer.data
    ranges, reduction_ranges = ([size(n) for n in r] for r in (data.ranges, data.reduction_ranges))
    count = math.prod(reduction_ranges)
    outputs, elements = hint(math.prod(ranges), 0), hint(count, 0)
    if data.kind.startswith("arg") or outputs * elements < LEAST_ELEMENTS:
        return None
    columns = runs_along_outputs(buffer)
    programs = -(-outputs // 128) if columns else outputs
    if not columns and outputs >= ENOUGH_ROWS:
        return None
    chunks = min(
        PROGRAMS * (2 if columns else 1) // programs,
        elements // (LEAST_ROWS if columns else LEAST_CHUNK),
    )
    if chunks < 2:
        return None
    if constant := isinstance(count, int):
        chunks = nearest_divisor(count, chunks)
    chunk = size(FloorDiv(count + chunks - 1, chunks))
    if constant:
        chunks = -(-count // chunk)
    # columns: neighbouring programs write neighbouring outputs, so the chunk is the slower
    # dimension
    place = 0 if columns else len(data.ranges)
    inner_fn = data.inner_fn

    def partial(index: list, rindex: list) -> object:
        outer = list(index)
        flat = outer.pop(place) * chunk + rindex[0]
        at = unflatten(flat, reduction_ranges, {**dict(zip(index, ranges)), rindex[0]: chunk})
        if chunks * chunk == count:
            return inner_fn(outer, at)
        inside = ops.lt(ops.index_expr(flat, torch.int64), ops.index_expr(count, torch.int64))
        other = (
            NEUTRAL[data.kind]
            if data.kind in NEUTRAL
            else extreme(data.src_dtype, data.kind == "max")
        )
        return ops.masked(inside, lambda: inner_fn(outer, at), other)

    ranges.insert(place, chunks)
    name = f"{buffer.name}_chunks"
    first = Reduction(
        data.device,
        data.dtype,
        ranges,
        partial,
        [chunk],
        data.kind,
        data.src_dtype,
        origins=data.origins,
    )
    layout = Layout(data.device, data.dtype, tuple(ranges), contiguous_strides(ranges))

    def whole(index: list, rindex: list) -> object:
        at = list(index)
        at.insert(place, rindex[0])
        return ops.load(name, layout.indexer(at))

    second = Reduction(
        data.device,
        data.dtype,
        data.ranges,
        whole,
        [chunks],
        data.kind,
        data.dtype,
        origins=data.origins,
    )
    return (
        ComputedBuffer(name, layout, buffer.origins, data=first),
        ComputedBuffer(buffer.name, buffer.layout, buffer.origins, data=second),
    )


def elements_of(buffer: Buffer, graph: Graph) -> tuple[ComputedBuffer, ComputedBuffer] | None:
    """(elements, their reduction) where few programs would compute many elements from one reduction
    per element; else None."""
    data = getattr(buffer, "data", None)
    if (
        not isinstance(data, Reduction)
        or data.kind.startswith("arg")
        or any(int_or_none(n) is None for n in [*data.ranges, *data.reduction_ranges])
    ):
        return None
    ranges, outputs = [int(n) for n in [*data.ranges, *data.reduction_ranges]], len(data.ranges)
    count = math.prod(ranges)
    if count < LEAST_ROWS * ENOUGH_ROWS or math.prod(ranges[:outputs]) >= ENOUGH_ROWS:
        return None
    rows = {
        name
        for name, made in graph.buffers.items()
        if isinstance(getattr(made, "data", None), Reduction) and made.layout.numel == count
    }
    if not rows & {access.name for access in trace(buffer).reads()}:
        return None
    name, layout = (
        f"{buffer.name}_elements",
        Layout(data.device, data.src_dtype, tuple(ranges), contiguous_strides(ranges)),
    )
    first = Pointwise(
        data.device,
        data.src_dtype,
        ranges,
        lambda index: data.inner_fn(index[:outputs], index[outputs:]),
    )
    second = Reduction(
        data.device,
        data.dtype,
        data.ranges,
        lambda index, rindex: ops.load(name, layout.indexer([*index, *rindex])),
        data.reduction_ranges,
        data.kind,
        data.src_dtype,
    )
    return (
        ComputedBuffer(name, layout, buffer.origins, data=first),
        ComputedBuffer(buffer.name, buffer.layout, buffer.origins, data=second),
    )


def runs_along_outputs(buffer: ComputedBuffer) -> bool:
    """Do the reads step by one along the last output dimension, rather than along the reduced
    ones?"""
    body = trace(buffer).simplify_loops()
    if not body.outer or not body.inner:
        return False
    return runs_along(
        body.reads(),
        loop_variables("x", len(body.outer))[-1],
        loop_variables("r", len(body.inner))[-1],
    )


def unflatten(
    flat: sympy.Expr, sizes: Sequence[Size], ranges: Mapping[sympy.Symbol, Size]
) -> list[sympy.Expr]:
    """The multi-dimensional index of element `flat`."""
    index = []
    for position, n in enumerate(sizes):
        at = FloorDiv(flat, sympy.sympify(math.prod(sizes[position + 1 :])))
        if position:
            at = Mod(at, sympy.sympify(n))
        index.append(simplify(sympy.expand(at), ranges))
    return index


def extreme(dtype: torch.dtype, lowest: bool) -> bool | int | float:
    """The lowest or highest number of a dtype."""
    if dtype.is_floating_point:
        return -math.inf if lowest else math.inf
    if dtype is torch.bool:
        return 0 if lowest else 1
    about = torch.iinfo(dtype)
    return about.min if lowest else about.max
