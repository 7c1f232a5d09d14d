"""Reductions with few outputs become two: without this, few programs would read much.

In:   an `ir.Graph` for a GPU.  Out: the same graph, in which such a Reduction is a partial one,
      with an output per chunk, and a small one over the chunks.

    sum over 2^26 elements  ->  partial[2048] = sums of 32768 each;  sum of partial
    sum over dim 0 of [16384, 4096]  ->  partial[32, 4096];  sum of partial over dim 0
    sum over i of x[i, t[i]] - max[i] - log(sum[i])     (cross entropy: one program for all rows)
        ->  elements[i] = x[i, t[i]] - ..., made by the kernel that finds max and sum of row i,
            where its programs are many;  sum of elements

Symbolic sizes: as many chunks as the sizes of the first call ask for, of a symbolic length. Runs
before the scheduler, which fuses the partial one with what makes its elements, as any other
reduction. Mirrors `Reduction.num_splits` and `create_multilayer` in torch/_inductor/ir.py.
arg_chunks.py does the same for argmax and argmin.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import sympy
import torch

from ..dependencies import int_or_none, loop_variables, trace
from ..ir import Buffer, ComputedBuffer, Graph, Layout, Pointwise, Reduction, contiguous_strides
from ..ops import ops
from ..records import CompileRecord
from ..sizes.expressions import FloorDiv, Mod
from ..sizes.ranges import simplify
from ..lowerings.chunks import nearest_divisor
from ..sizes.symbols import Size, hint, size
from .block_sizes import PERSISTENT, PROCESSORS
from .softmax_chunks import with_own_maxima
from .tile_plan import reads_along

PROGRAMS = 132 * 8  # enough work for every processor
# with so many rows, one program each keeps reductions that need one another in one kernel
ENOUGH_ROWS = 64
STEP = 32  # rows of a tile of columns
LEAST_ROWS = 128  # rows that a program should at least add up where columns are reduced
MOST_CHUNKS = 1024  # which one more kernel, of few programs, puts together
LEAST_CHUNKS = 4  # fewer gain nothing, where there are enough tiles
ENOUGH_TILES = 2 * PROCESSORS  # of 64 columns each: they keep the GPU busy
LEAST_CHUNK = 4096  # elements, where rows are
LEAST_ELEMENTS = 1 << 17  # below this a second kernel costs more than it saves
NEUTRAL = {"sum": 0, "prod": 1, "any": False}
PLAIN = {"load", "reduction", "store"}  # what a sum of stored numbers does
MOST_OF_ROW = 8192  # elements of a row that is reduced, and read again as a part
Halves: TypeAlias = tuple[ComputedBuffer, ComputedBuffer]


def split_reductions(graph: Graph, record: CompileRecord) -> None:
    """Rewrite the graph's operations in place; each split is noted in the record."""
    operations: list[Buffer] = []
    for buffer in graph.operations:
        parts = None
        if isinstance(buffer, ComputedBuffer) and isinstance(buffer.data, Reduction):
            parts = in_rows(buffer, graph, record) or in_chunks(buffer, graph, record)
            parts = parts or elements_apart(buffer, graph, record)
        if parts is not None:
            graph.buffers.update({part.name: part for part in parts})
        operations += parts or [buffer]
    graph.operations[:] = operations


def in_chunks(buffer: ComputedBuffer, graph: Graph, record: CompileRecord) -> Halves | None:
    """(partial, final), or None where one kernel is enough."""
    data = buffer.data
    count = math.prod(size(n) for n in data.reduction_ranges)
    outputs, elements = hint(math.prod(size(n) for n in data.ranges), 0), hint(count, 0)
    if data.kind.startswith("arg") or outputs * elements < LEAST_ELEMENTS:
        return None
    columns = runs_along_outputs(buffer)
    alone = outputs < ENOUGH_ROWS or not is_of_softmax(buffer, graph)
    alone = alone or is_read_with_elements(buffer, graph, outputs * elements)
    chunks = wanted_chunks(outputs, elements, columns, alone)
    if chunks < 2:
        return None
    if isinstance(count, int):
        chunks = whole_chunks(count, chunks, columns)
    chunk = size(FloorDiv(count + chunks - 1, chunks))
    if isinstance(count, int):
        chunks = -(-count // chunk)
    # columns: neighbouring programs write neighbouring outputs, so the chunk is the slower
    # dimension
    place = 0 if columns else len(data.ranges)
    halves = chunked(buffer, place, chunks, chunk, count)
    if not columns:
        halves = with_own_maxima(halves, buffer, graph)
    number = math.prod(data.ranges)
    record.notes.append(
        f"{buffer.name}: {number} outputs of {math.prod(data.reduction_ranges)} elements each are "
        f"too few: reduced in {halves[0].layout.numel // number} chunks"
    )
    return halves


def wanted_chunks(outputs: int, elements: int, columns: bool, alone: bool = True) -> int:
    """In how many chunks to cut the elements of each output; less than 2: not at all.

    alone: no other reduction shares a loop with this one.  A row that does not fit into a tile is
    read from memory for each stage, in one kernel too: alone it takes as many rows as processors
    (on an H100 the maxima of 64 rows of 200,704 took 4 times as long as torch.compile's, which cuts
    them)."""
    if columns:
        tiles = -(-outputs // 64)
        chunks = min(PROGRAMS * 4 // tiles, MOST_CHUNKS, elements // LEAST_ROWS)
        return 0 if chunks < LEAST_CHUNKS and tiles >= ENOUGH_TILES else chunks
    enough = PROCESSORS if alone and elements > PERSISTENT else ENOUGH_ROWS
    return 0 if outputs >= enough else min(PROGRAMS // outputs, elements // LEAST_CHUNK)


def whole_chunks(count: int, wanted: int, columns: bool) -> int:
    """About so many chunks of whole tiles, where there is such a number: columns are reduced 32
    rows at a time."""
    if columns and count % STEP == 0 and wanted > 1:
        found = nearest_divisor(count // STEP, wanted)
        if (count // STEP) % found == 0:
            return found
    return nearest_divisor(count, wanted)


def is_of_softmax(buffer: ComputedBuffer, graph: Graph) -> bool:
    """Is it a maximum that another reduction reads, or that other one?  One loop finds both (the
    online softmax)."""
    reductions = {
        name: made
        for name, made in graph.buffers.items()
        if isinstance(made, ComputedBuffer) and isinstance(made.data, Reduction)
    }
    maxima = {name for name, made in reductions.items() if made.data.kind == "max"}
    if buffer.name in maxima:
        others = [made for name, made in reductions.items() if name != buffer.name]
        return any(a.name == buffer.name for other in others for a in trace(other).reads())
    return any(access.name in maxima for access in trace(buffer).reads())


def is_read_with_elements(buffer: ComputedBuffer, graph: Graph, count: int) -> bool:
    """Is it read again for each of the elements, as the sum of a softmax is?  One kernel would go
    over the long rows with as few programs as there are rows, once more."""
    made = [one for one in graph.buffers.values() if isinstance(one, ComputedBuffer)]
    return any(
        int_or_none(one.layout.numel) == count
        and buffer.name in {a.name for a in trace(one).reads()}
        for one in made
    )


def in_rows(buffer: ComputedBuffer, graph: Graph, record: CompileRecord) -> list[Buffer] | None:
    """[partial, final] where a reduction of everything reads what rows were reduced to: a part for
    each of those rows, which the same kernel makes; else None."""
    data = buffer.data
    sizes = [int_or_none(n) for n in (*data.ranges, *data.reduction_ranges)]
    if None in sizes or data.kind.startswith("arg") or not data.reduction_ranges:
        return None
    outputs, width = math.prod(data.ranges), int(data.reduction_ranges[-1])
    count = math.prod(int(n) for n in data.reduction_ranges)
    rows = count // max(1, width)
    if outputs != 1 or not 1 < width <= MOST_OF_ROW or rows < PROCESSORS:
        return None
    made = [graph.buffers.get(access.name) for access in trace(buffer).reads()]
    if not any(reduces_rows(one, rows, width) for one in made):
        return None
    first, second = chunked(buffer, len(data.ranges), rows, width, count, "rows")
    graph.buffers.update({first.name: first, second.name: second})
    record.notes.append(f"{buffer.name}: reduced where the rows are that it depends on")
    return [first, *(in_chunks(second, graph, record) or [second])]


def reduces_rows(buffer: Buffer | None, rows: int, width: int) -> bool:
    data = getattr(buffer, "data", None)
    if not isinstance(data, Reduction) or buffer is None:
        return False
    elements = int_or_none(math.prod(size(n) for n in data.reduction_ranges))
    return elements == width and int_or_none(buffer.layout.numel) == rows


def chunked(
    buffer: ComputedBuffer,
    place: int,
    chunks: int,
    chunk: Size,
    count: Size,
    suffix: str = "chunks",
) -> Halves:
    """place: of the chunks, among the outputs' dimensions; chunk: elements of one."""
    data = buffer.data
    ranges, reduction_ranges = ([size(n) for n in r] for r in (data.ranges, data.reduction_ranges))
    all_ranges = [*ranges[:place], chunks, *ranges[place:]]
    name = f"{buffer.name}_{suffix}"
    layout = Layout(data.device, data.dtype, tuple(all_ranges), contiguous_strides(all_ranges))

    def partial(index: list, rindex: list) -> object:
        outer = list(index)
        flat = outer.pop(place) * chunk + rindex[0]
        limits = {**dict(zip(index, all_ranges)), rindex[0]: chunk}
        at = unflatten(flat, reduction_ranges, limits)
        if chunks * chunk == count:
            return data.inner_fn(outer, at)
        inside = ops.lt(ops.index_expr(flat, torch.int64), ops.index_expr(count, torch.int64))
        other = neutral(data.kind, data.src_dtype)
        return ops.masked(inside, lambda: data.inner_fn(outer, at), other)

    def whole(index: list, rindex: list) -> object:
        return ops.load(name, layout.indexer([*index[:place], rindex[0], *index[place:]]))

    first = replace(data, ranges=all_ranges, inner_fn=partial, reduction_ranges=[chunk])
    second = replace(data, inner_fn=whole, reduction_ranges=[chunks], src_dtype=data.dtype)
    return (
        ComputedBuffer(name, layout, buffer.origins, data=first),
        ComputedBuffer(buffer.name, buffer.layout, buffer.origins, data=second),
    )


def elements_apart(buffer: ComputedBuffer, graph: Graph, record: CompileRecord) -> Halves | None:
    """(elements, their reduction) where few programs would compute many elements from one reduction
    per element; else None."""
    data = buffer.data
    found = [int_or_none(n) for n in [*data.ranges, *data.reduction_ranges]]
    sizes = [n for n in found if n is not None]
    if data.kind.startswith("arg") or len(sizes) < len(found):
        return None
    outputs, count = len(data.ranges), math.prod(sizes)
    if count < LEAST_ROWS * ENOUGH_ROWS or math.prod(sizes[:outputs]) >= ENOUGH_ROWS:
        return None
    rows = {
        name
        for name, made in graph.buffers.items()
        if isinstance(getattr(made, "data", None), Reduction) and made.layout.numel == count
    }
    body = trace(buffer)
    is_read_alone = {instruction.op for instruction in body.walk()} <= PLAIN
    if is_read_alone or not rows & {access.name for access in body.reads()}:
        return None
    name = f"{buffer.name}_elements"
    layout = Layout(data.device, data.src_dtype, tuple(sizes), contiguous_strides(sizes))

    def element(index: list) -> object:
        return data.inner_fn(index[:outputs], index[outputs:])

    def stored(index: list, rindex: list) -> object:
        return ops.load(name, layout.indexer([*index, *rindex]))

    graph.apart.add(name)
    record.notes.append(
        f"{buffer.name}: its elements are made where the rows are reduced that they depend on"
    )
    first = Pointwise(data.device, data.src_dtype, sizes, element)
    second = replace(data, inner_fn=stored, origins=frozenset())
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
    x, r = (
        list(zip(loop_variables(name, len(sizes)), sizes))
        for name, sizes in (("x", body.outer), ("r", body.inner))
    )
    return reads_along(body.reads(), x, r)


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


def neutral(kind: str, dtype: torch.dtype) -> bool | int | float:
    """What a reduction of nothing is."""
    if kind in NEUTRAL:
        return NEUTRAL[kind]
    lowest = kind.endswith("max")
    if dtype.is_floating_point:
        return -math.inf if lowest else math.inf
    if dtype is torch.bool:
        return 0 if lowest else 1
    about = torch.iinfo(dtype)
    return about.min if lowest else about.max
