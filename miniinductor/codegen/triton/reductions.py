"""Long reductions on a GPU, which are cut into two steps before anything is scheduled.

In:   an `ir.Graph` for a GPU.  Out: the same graph, rewritten in place, each change noted in the
      record.

    few outputs of many elements: one kernel would have few programs, which read much
        sum over 2^26 elements            ->  partial[1024] = sums of 65536 each;  sum of partial
        sum over dim 0 of [16384, 4096]   ->  partial[64, 4096];  sum of partial over dim 0

        group norm, channels-last         ->  partial[chunks, n, groups, c]: a group's channels are
                                              a short run of memory; then the sum over chunks, c

Positions of extremes (argmax) stay as they are: one program for each output.  Symbolic sizes: as
many chunks as the sizes of the first call ask for, of a symbolic length.  accumulators.py has the
reductions inside of a kernel.

Mirrors `num_splits` and `create_multilayer` of `Reduction` in torch/_inductor/ir.py.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

import sympy
import torch

from ... import config
from ...ir.dependencies import LoopBody, stride_of, stride_order
from ...ir.loops import ComputedBuffer, Graph, Index, Layout, Reduction, contiguous_strides
from ...ir.ops import Value, ops
from ...ir.handlers import trace
from ...records import CompileRecord
from ...sizes.expressions import FloorDiv
from ...sizes.symbols import Size, hint, reshape_index, size
from .accumulators import neutral, term
from .axes import reads_along_outputs
from .tile_plan import ABOUT, PERSISTENT, PROCESSORS

PROGRAMS = PROCESSORS * 8  # enough work for every processor
# with so many rows that fit a tile, one program each keeps reductions that need one another in one
# kernel; of longer rows each processor should have one
ENOUGH_ROWS = 64
ENOUGH_COLUMNS = 1 << 14  # about four tiles of 32 for each processor
LEAST_ROWS = 128  # rows that a program should at least add up where columns are reduced
LONGEST_RUN = 32  # elements beside each other in memory that are no row yet
MOST_CHUNKS = 1024  # which one more kernel, of few programs, puts together
LEAST_CHUNK = 4096  # elements, where rows are
LEAST_ELEMENTS = 1 << 17  # below this a second kernel costs more than it saves
# (elements, kind) -> their reduction in two steps
Known: TypeAlias = dict[tuple[str, str], list[ComputedBuffer]]


def rewrite_reductions(graph: Graph, record: CompileRecord) -> None:
    """Cut long reductions into two steps, in place."""
    operations: list[Any] = []
    known: Known = {}
    for buffer in graph.operations:
        if config.split_reductions and isinstance(getattr(buffer, "data", None), Reduction):
            operations += split(buffer, graph, record, known)
        else:
            operations.append(buffer)
    graph.operations[:] = operations


def split(
    buffer: ComputedBuffer, graph: Graph, record: CompileRecord, known: Known
) -> list[ComputedBuffer]:
    """[the reduction]; or its two steps, where one kernel would have few programs or would read
    memory in short runs.  known: the two steps of other reductions of the same elements."""
    data = buffer.data
    outputs, elements = (hint(numel(sizes), 0) for sizes in (data.ranges, data.reduction_ranges))
    if outputs * elements < LEAST_ELEMENTS or elements < LEAST_ROWS or data.kind[:3] == "arg":
        return [buffer]
    body = trace(buffer)
    data, run = along_memory(data, body)
    body = body.simplify_loops()
    columns = run > 1 or reads_along_outputs([body], body.x, body.r)
    chunks = chunks_of(outputs, elements, run, columns)
    if not chunks:
        return [buffer]
    chunks = rows_before(body, graph) or chunks
    record.notes.append(
        f"{buffer.name}: {numel(data.ranges)} outputs of {numel(data.reduction_ranges)} elements "
        f"each are too few, or lie apart: reduced in {chunks * run} parts"
    )
    # columns: neighbouring programs write neighbouring outputs, so the chunk is the slower
    # dimension
    place = 0 if columns else len(data.ranges)
    buffer, how, key = replace(buffer, data=data), (place, chunks, run), elements_of(body)
    parts = []
    about = ABOUT.get(data.kind)
    if about and (key, about) not in known:
        other = replace(buffer, name=f"{buffer.name}_{about}", data=replace(data, kind=about))
        parts = known[key, about] = in_two_steps(other, *how)
    if about:
        parts = parts + about_in_two_steps(buffer, known[key, about][1], *how)
    else:
        parts = known[key, data.kind] = in_two_steps(buffer, *how)
    graph.buffers.update({part.name: part for part in parts})
    return parts


def chunks_of(outputs: int, elements: int, run: int, columns: bool) -> int:
    """Into how many chunks the elements of each output are cut; 0 where one kernel has enough
    programs for all, and no short runs to read."""
    if columns:
        outputs, elements = outputs * run, elements // run
        wanted = min(PROGRAMS * 4 // -(-outputs // 64), MOST_CHUNKS, elements // LEAST_ROWS)
        enough = ENOUGH_COLUMNS
    else:
        wanted = min(PROGRAMS // outputs, elements // LEAST_CHUNK)
        enough = PROCESSORS if elements > PERSISTENT else ENOUGH_ROWS
    if run == 1 and (wanted < 2 or outputs >= enough):
        return 0
    wanted = max(wanted, 1)
    # whole chunks, and of whole tiles, need no masks
    return max(
        range((wanted + 1) // 2, wanted + 1),
        key=lambda n: (elements % n == 0, elements // n % 32 == 0, n),
    )


def rows_before(body: LoopBody, graph: Graph) -> int:
    """How many rows there are, if this reduction of all rows reads an earlier reduction of each, as
    in (x / x.sum(1)).sum(): with a chunk for each row, all of that is one kernel.  Else 0."""
    rows = body.inner[0] if len(body.inner) == 2 and not body.outer else 0
    if not isinstance(rows, int) or not ENOUGH_ROWS <= rows < LEAST_ELEMENTS:
        return 0
    made = [graph.buffers.get(access.name) for access in body.reads() if access.index == body.r[0]]
    return rows if any(isinstance(getattr(b, "data", None), Reduction) for b in made) else 0


def elements_of(body: LoopBody) -> str:
    """What is reduced, as text: equal ones are the same elements."""
    done = [(i.op, i.args) for i in body.walk() if i.op not in ("reduction", "store")]
    return str((body.outer, body.inner, done))


def numel(sizes: Iterable[Size]) -> Size:
    return math.prod(size(n) for n in sizes)


def along_memory(data: Reduction, body: LoopBody) -> tuple[Reduction, int]:
    """(the reduction with its reduced dimensions in the order of memory, run).

    run: the length of the last of them, if it is a short piece of memory between those of other
    outputs (as a group's channels are in a channels-last image), else 1."""
    order = [body.r.index(r) for r in stride_order(body, "r")]

    def element(index: Index, rindex: Index) -> Value:
        return data.inner_fn(index, [rindex[order.index(k)] for k in range(len(order))])

    ranges = [data.reduction_ranges[k] for k in order]
    run = ranges[-1]
    beside = {
        any(stride_of(access.index, x) == run for x in body.x)
        for access in body.reads()
        if stride_of(access.index, body.r[order[-1]]) == 1
    }
    is_short = len(order) > 1 and isinstance(run, int) and run <= LONGEST_RUN
    run = run if is_short and beside == {True} else 1
    return replace(data, inner_fn=element, reduction_ranges=ranges), run


def in_two_steps(buffer: ComputedBuffer, place: int, chunks: int, run: int) -> list[ComputedBuffer]:
    """[a reduction of each part, the reduction of those].  If run > 1, each element of the last
    reduced dimension is a part of its own.  The other dimensions are cut into `chunks` parts.  In
    the partial results chunks are dimension `place`, and the run is the last dimension."""
    data, name = buffer.data, f"{buffer.name}_chunks"
    ranges, reduced = [size(n) for n in data.ranges], [size(n) for n in data.reduction_ranges]
    runs = reduced[-1:] if run > 1 else []
    pieces = reduced[: len(reduced) - len(runs)]
    count = numel(pieces)
    place_of = reshape_index(pieces, [count])
    chunk = size(FloorDiv(count + chunks - 1, chunks))
    sizes = [*ranges[:place], chunks, *ranges[place:], *runs]
    layout = Layout(data.device, data.dtype, tuple(sizes), contiguous_strides(sizes))

    def element(index: Index, rindex: Index) -> Value:
        """An element of a chunk; after the last element the reduction's neutral number."""
        outer = [*index[:place], *index[place + 1 : len(ranges) + 1]]
        flat = index[place] * chunk + rindex[0]
        at = [*place_of([flat]), *index[len(ranges) + 1 :]]
        if chunks * chunk == count:
            return data.inner_fn(outer, at)
        end = ops.index_expr(count, torch.int64)
        inside = ops.lt(ops.index_expr(flat, torch.int64), end)
        other = neutral(data.kind, data.src_dtype)
        return ops.masked(inside, lambda: data.inner_fn(outer, at), other)

    def partial(index: Index, rindex: Index) -> Value:
        at = [*index[:place], rindex[0], *index[place:], *rindex[1:]]
        return ops.load(name, layout.indexer(at))

    first = replace(data, ranges=sizes, inner_fn=element, reduction_ranges=[chunk])
    second = replace(data, inner_fn=partial, reduction_ranges=[chunks, *runs], src_dtype=data.dtype)
    return [
        ComputedBuffer(name, layout, buffer.origins, data=first),
        ComputedBuffer(buffer.name, buffer.layout, buffer.origins, data=second),
    ]


def about_in_two_steps(
    buffer: ComputedBuffer, other: ComputedBuffer, *how: int
) -> list[ComputedBuffer]:
    """As `in_two_steps`, for sums about another reduction: other is its second step.

    m2          of each part about its mean, and of the parts' means about the mean; where parts
                have different lengths, of all elements about the mean, in a second pass
    sumexp      of each part about its maximum, times exp(the part's maximum - the maximum)"""
    data = buffer.data
    part, whole = in_two_steps(buffer, *how)
    count, each = numel(data.reduction_ranges), numel(part.data.reduction_ranges)
    inside = whole.data.inner_fn

    def number(n: Size) -> Value:
        return ops.index_expr(sympy.sympify(n), data.dtype)

    def of_whole(index: Index, value: Value) -> Value:
        about = ops.load(other.name, other.layout.indexer(index))
        return term(ops, data.kind, value, about, number(count))

    def of_element(index: Index, rindex: Index) -> Value:
        return of_whole(index, data.inner_fn(index, rindex))

    def of_part(index: Index, rindex: Index) -> Value:
        value, about = inside(index, rindex), other.data.inner_fn(index, rindex)
        if data.kind == "m2":
            between = of_whole(index, ops.truediv(about, number(each)))
            return ops.add(value, ops.mul(between, number(each)))
        # of a part of -inf alone: 0, unless that is all
        weight, zero = of_whole(index, about), number(0)
        return ops.where(ops.eq(weight, zero), zero, ops.mul(value, weight))

    if data.kind == "m2" and each * numel(whole.data.reduction_ranges) != count:
        squares = replace(data, inner_fn=of_element, kind="sum")
        return in_two_steps(replace(buffer, data=squares), *how)
    whole.data = replace(whole.data, inner_fn=of_part, kind="sum")
    return [part, whole]
