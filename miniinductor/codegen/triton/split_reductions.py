"""Reductions of the loop IR in other forms, before anything is scheduled: for GPUs.

In:   an `ir.Graph` for a GPU.  Out: the same graph, rewritten in place, each change noted in the
      record.

    a few elements are combined one by one: a tile has no side of three
        sum over 3 of x[i, j + k]    ->  0 + x[i, j] + x[i, j + 1] + x[i, j + 2]
    few outputs of many elements are reduced in two steps: without this, few programs would read
    much
        sum over 2^26 elements       ->  partial[2048] = sums of 32768 each;  sum of partial
        sum over dim 0 of [16384, 4096]   ->  partial[32, 4096];  sum of partial over dim 0
        argmax of 2^24 elements      ->  place[1024] of the largest in each 16384 elements;
                                         which of those 1024;  both as one place
    a sum of everything that depends on what rows were reduced to has a part for each row
        sum over i of x[i, t[i]] - max[i] - log(sum[i])     (cross entropy)
            ->  rows[i], made by the kernel that finds max and sum of row i;  sum of rows

Symbolic sizes: as many chunks as the sizes of the first call ask for, of a symbolic length.
Mirrors `Reduction.create`, `num_splits` and `create_multilayer` in torch/_inductor/ir.py.
# PyTorch: leaves positions of extremes to one program for each row.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch

from ...ir.dependencies import int_or_none, loop_variables
from ...ir.loops import (
    Buffer,
    ComputedBuffer,
    Graph,
    Index,
    Layout,
    Pointwise,
    Reduction,
    contiguous_strides,
)
from ...ir.ops import Value, ops
from ...ir.recording import trace
from ...lowering.chunks import nearest_divisor
from ...records import CompileRecord
from ...sizes.expressions import FloorDiv, Mod
from ...sizes.symbols import Size, hint, simplify, size
from .block_sizes import PERSISTENT, PROCESSORS
from .tile_plan import reads_along

PROGRAMS = PROCESSORS * 8  # enough work for every processor
# with so many rows, one program each keeps reductions that need one another in one kernel
ENOUGH_ROWS = 64
STEP = 32  # rows of a tile of columns
LEAST_ROWS = 128  # rows that a program should at least add up where columns are reduced
MOST_CHUNKS = 1024  # which one more kernel, of few programs, puts together
LEAST_CHUNKS = 4  # fewer gain nothing, where there are enough tiles
ENOUGH_TILES = 2 * PROCESSORS  # of 64 columns each: they keep the GPU busy
LEAST_CHUNK = 4096  # elements, where rows are
LEAST_ELEMENTS = 1 << 17  # below this a second kernel costs more than it saves
MOST_OF_ROW = 8192  # elements of a row that is reduced, and read again as a part
SHORT = 8  # elements of a reduction that is written out: fewer
LEAST_OUTPUTS = 1024
COMBINE: Mapping[str, Callable[[Value, Value], Value]] = {
    "sum": lambda a, b: ops.add(a, b),
    "prod": lambda a, b: ops.mul(a, b),
    "max": lambda a, b: ops.maximum(a, b),
    "min": lambda a, b: ops.minimum(a, b),
}
NEUTRAL = {"sum": 0, "prod": 1, "any": False}


def rewrite_reductions(graph: Graph, record: CompileRecord) -> None:
    write_out(graph, record)
    operations: list[Buffer] = []
    for buffer in graph.operations:
        if isinstance(buffer, ComputedBuffer) and isinstance(buffer.data, Reduction):
            operations += by_rows(buffer, graph, record) or split(buffer, graph, record)
        else:
            operations.append(buffer)
    graph.operations[:] = operations


# --- a few elements -------------------------------------------------------------------------------
def write_out(graph: Graph, record: CompileRecord) -> None:
    """Reductions of a few elements become pointwise, in place.  One stays where its kernel would
    fall into two."""
    short = [one for one in graph.operations if 0 < elements_of_each(one) < SHORT]
    if not short:
        return
    loops = {b.name: b for b in graph.operations if isinstance(b, ComputedBuffer)}
    reads = {name: {access.name for access in trace(b).reads()} for name, b in loops.items()}
    for buffer in short:
        readers = [loops[name] for name, found in reads.items() if buffer.name in found]
        made = [loops[name] for name in reads[buffer.name] if name in loops]
        if stays_one_kernel(buffer, readers, made):
            buffer.data = written_out(buffer.data)
            count = math.prod(int(n) for n in buffer.data.ranges)
            record.notes.append(
                f"{buffer.name}: {count} reductions of few elements are written out"
            )


def elements_of_each(buffer: Buffer) -> int:
    """How many elements each of the many outputs of a reduction has; 0: it is no such reduction."""
    data = getattr(buffer, "data", None)
    if not isinstance(buffer, ComputedBuffer) or not isinstance(data, Reduction):
        return 0
    sizes = [int_or_none(n) for n in (*data.ranges, *data.reduction_ranges)]
    if data.kind not in COMBINE or None in sizes or iterations(data.ranges) < LEAST_OUTPUTS:
        return 0
    count = iterations(data.reduction_ranges)
    return count if count > 1 else 0


def iterations(sizes: Iterable[Any]) -> int:
    """How many; 0 where a size is a symbol."""
    return math.prod([int_or_none(n) or 0 for n in sizes])


def stays_one_kernel(
    buffer: ComputedBuffer, readers: list[ComputedBuffer], made: list[ComputedBuffer]
) -> bool:
    """Do all that read it run over its outputs alone, and does it read nothing that was made over
    its elements?"""
    outputs = iterations(buffer.data.ranges)
    elements = outputs * iterations(buffer.data.reduction_ranges)
    for reader in readers:
        data = reader.data
        if not isinstance(data, (Pointwise, Reduction)):
            return False
        if iterations(data.ranges) * iterations(data.reduction_ranges) != outputs:
            return False
    return all(int_or_none(one.layout.numel) not in (elements, None) for one in made)


def written_out(data: Reduction) -> Pointwise:
    """The same value, made of all its elements."""
    places = list(itertools.product(*[range(int(n)) for n in data.reduction_ranges]))
    combine = COMBINE[data.kind]

    def element(index: Index, place: tuple[int, ...]) -> Value:
        value = data.inner_fn(index, list(place))
        return value if data.src_dtype == data.dtype else ops.to_dtype(value, data.dtype)

    def body(index: Index) -> Value:
        first = element(index, places[0])
        if data.kind == "sum" and data.dtype.is_floating_point:
            first = ops.add(first, ops.constant(0.0, data.dtype))  # no sum is -0.0
        # each element is added where it is made: a thread cannot hold many of them
        return functools.reduce(combine, (element(index, place) for place in places[1:]), first)

    return Pointwise(data.device, data.dtype, list(data.ranges), body, origins=data.origins)


# --- few outputs of many elements -----------------------------------------------------------------
def split(buffer: ComputedBuffer, graph: Graph, record: CompileRecord) -> list[ComputedBuffer]:
    """The reduction in two steps where one kernel would have few programs, else as it is."""
    data = buffer.data
    count = math.prod(size(n) for n in data.reduction_ranges)
    outputs, elements = hint(math.prod(size(n) for n in data.ranges), 0), hint(count, 0)
    is_place = data.kind.startswith("arg")
    if outputs * elements < LEAST_ELEMENTS or is_place and not is_of_numbers(data):
        return [buffer]
    columns = runs_along_outputs(buffer)
    alone = outputs < ENOUGH_ROWS or not is_of_softmax(buffer, graph)
    alone = alone or is_read_with_elements(buffer, graph, outputs * elements)
    chunks = wanted_chunks(outputs, elements, columns, alone)
    if chunks < 2:
        return [buffer]
    if isinstance(count, int):
        chunks = whole_chunks(count, chunks, columns)
    chunk = size(FloorDiv(count + chunks - 1, chunks))
    if isinstance(count, int):
        chunks = -(-count // chunk)
    record.notes.append(
        f"{buffer.name}: {math.prod(data.ranges)} outputs of {count} elements each are too few: "
        f"reduced in {chunks} chunks"
    )
    # columns: neighbouring programs write neighbouring outputs, so the chunk is the slower
    # dimension
    place = 0 if columns else len(data.ranges)
    return Chunks(buffer, place, chunks, chunk, count).parts(graph)


def is_of_numbers(data: Reduction) -> bool:
    """Are all its sizes numbers?"""
    return None not in [int_or_none(n) for n in (*data.ranges, *data.reduction_ranges)]


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


# --- parts of rows that another reduction reduces -------------------------------------------------
def by_rows(
    buffer: ComputedBuffer, graph: Graph, record: CompileRecord
) -> list[ComputedBuffer] | None:
    """The reduction as a part for each row, and those parts reduced; None where it is not of
    that kind."""
    width = width_of_rows(buffer, graph)
    if not width:
        return None
    data = buffer.data
    count = math.prod(int(n) for n in data.reduction_ranges)
    parts = Chunks(buffer, len(data.ranges), count // width, width, count, "rows")
    first, second = parts.partial(), parts.whole()
    if width == 1:  # its kernel should be that of the rows, and not of the final reduction
        first.data = written_out(first.data)
        graph.apart.add(first.name)
    graph.buffers.update({first.name: first, second.name: second})
    record.notes.append(f"{buffer.name}: reduced where the rows are that it depends on")
    return [first, *split(second, graph, record)]


def width_of_rows(buffer: ComputedBuffer, graph: Graph) -> int:
    """Of a reduction of everything that reads what rows were reduced to: how many of its elements
    belong to one of those rows; else 0."""
    data = buffer.data
    if data.kind not in ("sum", "prod", "max", "min") or not is_of_numbers(data):
        return 0
    sizes, body = [int(n) for n in data.reduction_ranges], trace(buffer)
    computes = {instruction.op for instruction in body.walk()} - {"load", "reduction", "store"}
    if math.prod(data.ranges) != 1 or not sizes or not computes:
        return 0
    count = math.prod(sizes)
    for made in [graph.buffers.get(access.name) for access in body.reads()]:
        reduced = made.data if isinstance(made, ComputedBuffer) else None
        rows = int_or_none(made.layout.numel) if made is not None and made.layout else None
        if not isinstance(reduced, Reduction) or not rows:
            continue
        if rows == count >= LEAST_ROWS * ENOUGH_ROWS:
            return 1
        width = int_or_none(math.prod(size(n) for n in reduced.reduction_ranges))
        if PROCESSORS <= rows == count // sizes[-1] and width == sizes[-1] <= MOST_OF_ROW:
            return width
    return 0


# --- a reduction in two steps ---------------------------------------------------------------------
class Chunks:
    """`chunks` parts of `chunk` elements of a reduction of `count`; the parts are dimension `place`
    of the partial results."""

    def __init__(
        self,
        buffer: ComputedBuffer,
        place: int,
        chunks: int,
        chunk: Size,
        count: Size,
        suffix: str = "chunks",
    ) -> None:
        self.buffer, self.data, self.place = buffer, buffer.data, place
        self.chunks, self.chunk, self.count = chunks, chunk, count
        self.name = f"{buffer.name}_{suffix}"
        self.ranges, self.reduced = (
            [size(n) for n in sizes] for sizes in (self.data.ranges, self.data.reduction_ranges)
        )
        sizes = [*self.ranges[:place], chunks, *self.ranges[place:]]
        self.layout = Layout(
            self.data.device, self.data.dtype, tuple(sizes), contiguous_strides(sizes)
        )

    def parts(self, graph: Graph) -> list[ComputedBuffer]:
        is_place = self.data.kind.startswith("arg")
        found = [self.partial(), *(self.places() if is_place else [self.whole()])]
        graph.buffers.update({part.name: part for part in found})
        return found

    def made(self, name: str, layout: Layout, data: Reduction | Pointwise) -> ComputedBuffer:
        return ComputedBuffer(name, layout, self.buffer.origins, data=data)

    def element(self, index: Index, number: sympy.Expr, at: sympy.Expr, limits: dict) -> Value:
        """Element `at` of chunk `number`; beyond the last one what changes no result."""
        flat = number * self.chunk + at
        place = unflatten(flat, self.reduced, limits)
        if self.chunks * self.chunk == self.count:
            return self.data.inner_fn(index, place)
        end = ops.index_expr(self.count, torch.int64)
        inside = ops.lt(ops.index_expr(flat, torch.int64), end)
        other = neutral(self.data.kind, self.data.src_dtype)
        return ops.masked(inside, lambda: self.data.inner_fn(index, place), other)

    def partial(self) -> ComputedBuffer:
        """Each chunk's result; of argmax the place in the chunk."""

        def inner_fn(index: Index, rindex: Index) -> Value:
            outer = list(index)
            number = outer.pop(self.place)
            limits = {**dict(zip(index, self.layout.size)), rindex[0]: self.chunk}
            return self.element(outer, number, rindex[0], limits)

        sizes, reduced = list(self.layout.size), [self.chunk]
        data = replace(self.data, ranges=sizes, inner_fn=inner_fn, reduction_ranges=reduced)
        return self.made(self.name, self.layout, data)

    def of_chunk(self, index: Index, number: sympy.Expr) -> Value:
        """The partial result of a chunk."""
        at = [*index[: self.place], number, *index[self.place :]]
        return ops.load(self.name, self.layout.indexer(at))

    def whole(self) -> ComputedBuffer:
        data = replace(
            self.data,
            inner_fn=lambda index, rindex: self.of_chunk(index, rindex[0]),
            reduction_ranges=[self.chunks],
            src_dtype=self.data.dtype,
        )
        return self.made(self.buffer.name, self.buffer.layout, data)

    def places(self) -> list[ComputedBuffer]:
        """[the chunk that holds the extreme, its place in the whole].  The first of equals wins,
        and a NaN, in each step as in the whole."""
        name, data = f"{self.buffer.name}_chunk", self.data
        chunk, dtype = int(self.chunk), torch.int64
        layout = Layout(data.device, dtype, tuple(self.ranges), contiguous_strides(self.ranges))

        def best(index: Index, rindex: Index) -> Value:
            found = self.of_chunk(index, rindex[0])
            at = ops.indirect_indexing(found, chunk, wrap_neg=False)
            return self.element(index, rindex[0], at, {rindex[0]: self.chunks, at: chunk})

        def whole(index: Index) -> Value:
            number = ops.load(name, layout.indexer(index))
            at = ops.indirect_indexing(number, self.chunks, wrap_neg=False)
            return ops.add(ops.mul(number, ops.constant(chunk, dtype)), self.of_chunk(index, at))

        of_chunks = replace(data, inner_fn=best, reduction_ranges=[self.chunks])
        both = Pointwise(data.device, dtype, list(self.ranges), whole, origins=data.origins)
        return [
            self.made(name, layout, of_chunks),
            self.made(self.buffer.name, self.buffer.layout, both),
        ]


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
