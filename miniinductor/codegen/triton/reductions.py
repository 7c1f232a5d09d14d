"""Reductions on a GPU, two subjects: before anything is scheduled, long reductions of the loop IR
are cut into two steps; in a kernel, partial results of a row's tiles become a column of results.

Two steps.  In: an `ir.Graph` for a GPU.  Out: the same graph, rewritten in place, each change noted
in the record.

    few outputs of many elements: one kernel would have few programs, which read much
        sum over 2^26 elements            ->  partial[1024] = sums of 65536 each;  sum of partial
        sum over dim 0 of [16384, 4096]   ->  partial[64, 4096];  sum of partial over dim 0

        group norm, channels-last         ->  partial[chunks, n, groups, c]: a group's channels are
                                              a short run of memory; then the sum over chunks, c

Positions of extremes (argmax) stay as they are: one program for each output.  Symbolic sizes: as
many chunks as the sizes of the first call ask for, of a symbolic length.

In a kernel.  In: the value that is reduced.  Out: lines: a declaration before the loop, an update
in it, and a column [XBLOCK, 1] after it; where a row is one tile, only the column.

    acc0 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for r_start in tl.range(0, 65536, RBLOCK, num_stages=STAGES):
        ...
        acc0 = acc0 + tmp0
    tmp1 = tl.sum(acc0, 1)[:, None]

Two kinds of reduction need another one's result, and still read their elements once: `m2` (squared
deviations from the mean) and `sumexp` (of v - max).  Each element of the tile keeps a mean or a
maximum of its own, and its sum relative to that (`Deviations`, `SumOfExp`).

Mirrors `Reduction.create`, `num_splits` and `create_multilayer` in torch/_inductor/ir.py.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import sympy
import torch

from ... import config
from ...ir.dependencies import LoopBody, stride_of, stride_order
from ...ir.loops import ComputedBuffer, Graph, Index, Layout, Reduction, contiguous_strides, playing
from ...ir.ops import Value, ops
from ...ir.handlers import trace
from ...records import CompileRecord
from ...sizes.expressions import FloorDiv
from ...sizes.symbols import Size, hint, reshape_index, size
from ..kernels import limit
from .expressions import TritonExpressions, as_narrow, compute_dtype, literal, triton_type
from .kernel_text import Line, Tile, plain
from .tile_plan import (
    ABOUT,
    LARGEST_INT32,
    NEIGHBOURS,
    PERSISTENT,
    PROCESSORS,
    reads_along_outputs,
    size_text,
)

# --- long reductions in two steps -----------------------------------------------------------------
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
NEUTRAL = {"sum": 0, "m2": 0, "sumexp": -math.inf, "prod": 1, "any": False}


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


def term(handler: Any, kind: str, value: Any, about: Any, count: Any) -> Any:
    """What an element adds to m2 or sumexp.  about: the sum of all `count` elements, or their
    maximum."""
    if kind == "sumexp":
        return handler.exp(handler.sub(value, about))
    away = handler.sub(value, handler.truediv(about, count))
    return handler.mul(away, away)


def neutral(kind: str, dtype: torch.dtype) -> bool | int | float:
    """What a reduction of nothing is."""
    return NEUTRAL.get(kind, limit(dtype, kind.endswith("max")))


# --- reductions of tiles --------------------------------------------------------------------------
class Reducer(NamedTuple):
    """How a kind of reduction is written."""

    combine: str  # two values {a} and {b}
    column: str  # a tile {a}, row by row


class Scan(NamedTuple):
    start: str
    combine: str  # two values
    whole: str  # the tile's running values


def by_helper(helper: str, tile: str = "{a}") -> Reducer:
    """A reduction by a function of two values."""
    return Reducer(f"{helper}({{a}}, {{b}})", f"tl.reduce({tile}, 1, {helper})")


REDUCERS = {
    "sum": Reducer("{a} + {b}", "tl.sum({a}, 1)"),
    "prod": by_helper("multiply"),
    "max": by_helper("larger"),
    "min": by_helper("smaller"),
    "any": Reducer("{a} | {b}", "tl.max({a}, 1)"),
    "argmax": by_helper("argument_of_larger", "({a})"),
    "argmin": by_helper("argument_of_smaller", "({a})"),
}
# integers have no NaN
INTEGER_REDUCERS = {
    "max": Reducer("tl.maximum({a}, {b})", "tl.max({a}, 1)"),
    "min": Reducer("tl.minimum({a}, {b})", "tl.min({a}, 1)"),
}
SCANS = {
    "sum": Scan("0", "{} + {}", "tl.cumsum({}, 1)"),
    "prod": Scan("1", "{} * {}", "tl.cumprod({}, 1)"),
    "logaddexp": Scan(
        'float("-inf")', "log_of_sum({}, {})", "tl.associative_scan({}, 1, log_of_sum)"
    ),
}


def scan_of(kind: str, dtype: torch.dtype) -> Scan:
    """How running values of this dtype are written."""
    if kind in SCANS:
        return SCANS[kind]
    helper = {"max": "larger", "min": "smaller"}[kind]
    if not dtype.is_floating_point:
        helper = f"integer_{kind}imum"
    whole = f"tl.associative_scan({{}}, 1, {helper})"
    start = literal(neutral(kind, dtype), dtype)
    return Scan(start, f"{helper}({{}}, {{}})", whole)


class Accumulator:
    """A reduction under way: its tile of partial results; or, where a row is one tile, the row."""

    def __init__(
        self,
        writer: TritonExpressions,
        kind: str,
        element: torch.dtype,
        dtype: torch.dtype,
        value: Tile,
        flat_index: sympy.Expr,
    ):
        """element: of what is reduced; dtype: of the result."""
        self.writer, self.kind, self.dtype = writer, kind, dtype
        self.element = compute_dtype(element)
        self.type = triton_type(self.element)
        integer = None if element.is_floating_point else INTEGER_REDUCERS.get(kind)
        self.reducer = integer or REDUCERS["sum" if kind in ABOUT else kind]
        self.start = literal(neutral(kind, self.element), self.element)
        self.has_index = kind.startswith("arg")
        row = writer.plan.axes[1]
        self.row, self.row_mask = row.numel, row.mask
        is_narrow = isinstance(self.row, int) and self.row < LARGEST_INT32
        self.index_type = "tl.int32" if is_narrow else "tl.int64"  # of positions in a row
        self.name = writer.outside.fresh("acc")
        self.names = f"{self.name}, {self.name}_index" if self.has_index else self.name
        self.shape = writer.plan.shape()
        self.value = writer.solid(value)
        # is the row the same for all x, as in the norm of y[None]?
        is_tile = writer.plan.kind == "persistent" and not self.has_index
        self.axes = frozenset("x" if not is_tile or self.value.axes != {"r"} else "")
        self.index, _ = writer.index(flat_index)
        self.origin = playing.value

    def running(self) -> Tile:
        """What stands for the result inside of the loop, where only a store may name it."""
        return Tile(self.name, self.dtype, frozenset("xr"))

    def declaration(self) -> Line:
        full = f"tl.full({self.shape}, {self.start}, {self.type})"
        if self.has_index:
            full += f", tl.full({self.shape}, {LARGEST_INT32}, {self.index_type})"
        return Line(f"{self.names} = {full}", origin=self.origin)

    def update(self) -> list[Line]:
        """What one step of the loop does."""
        if self.has_index:
            text = self.reducer.combine.format(a=self.names, b=self.inside())
        else:
            text = self.reducer.combine.format(a=self.name, b=self.value)
            if self.row_mask:
                text = f"tl.where({self.row_mask}, {text}, {self.name})"
        return [Line(f"{self.names} = {text}", origin=self.origin)]

    def inside(self) -> str:
        """The value (and the index, of argmax), neutral beyond the end of the row."""
        value = self.writer.spread(self.value) if self.axes else str(self.value)
        terms = [(value, self.start)]
        if self.has_index:
            index = f"tl.broadcast_to({self.index}, {self.shape}).to({self.index_type})"
            terms.append((index, str(LARGEST_INT32)))
        if self.row_mask:
            terms = [(f"tl.where({self.row_mask}, {a}, {b})", b) for a, b in terms]
        return ", ".join([a for a, _ in terms])

    def column(self, tile: str) -> Tile:
        """The results of all rows, [XBLOCK, 1], from a tile of partial ones."""
        text = self.reducer.column.format(a=tile)
        if self.has_index:
            text += "[1][:, None].to(tl.int64)"
        elif self.kind == "any":
            text += "[:, None] != 0"
        else:
            text = as_narrow(f"{text}[:, None]", self.element)
        return self.writer.named(text, self.dtype, self.axes)

    def finish(self) -> Tile:
        """The column, after the loop."""
        return self.column(self.names)


class Deviations(Accumulator):
    """The sum of squared deviations from the mean, in one pass: Welford's algorithm, in each
    element of the tile for itself.

        away = tmp0 - acc0
        acc0 = acc0 + away * (1.0 / acc0_count)
        acc0_m2 = acc0_m2 + away * (tmp0 - acc0)"""

    def declaration(self) -> Line:
        name, full = self.name, f"tl.full({self.shape}, 0.0, {self.type})"
        count = f"tl.full([1, 1], 0.0, {self.type})"
        text = f"{name}, {name}_m2, {name}_count = {full}, {full}, {count}"
        return Line(text, origin=self.origin)

    def update(self) -> list[Line]:
        name, value = self.name, self.value
        kept = f"tl.where({self.row_mask}, {{}}, {{}})" if self.row_mask else "{}"
        texts = [
            f"{name}_count += 1.0",
            f"away = {value} - {name}",
            f"new = {name} + away * (1.0 / {name}_count)",
            f"m2 = {name}_m2 + away * ({value} - new)",
            f"{name} = {kept.format('new', name)}",
            f"{name}_m2 = {kept.format('m2', name + '_m2')}",
        ]
        return plain(texts, self.origin)

    def finish(self) -> Tile:
        """Deviations from the means of all elements of the tile, and of those from the row's."""
        name, row = self.name, size_text(self.row)
        # how many elements of the row each element of the tile has seen
        lane = "tl.arange(0, RBLOCK)[None, :]"
        count = f"(({row} - {lane} + RBLOCK - 1) // RBLOCK).to({self.type})"
        text = f"{name} - tl.sum({name} * {count}, 1)[:, None] / {row}"
        away = self.writer.named(text, self.dtype, self.writer.plan.all_axes(True))
        return self.column(f"{name}_m2 + {count} * {away} * {away}")


class SumOfExp(Accumulator):
    """The sum of exp(v - max v), in one pass: the online softmax.  Each element of the tile keeps a
    maximum of its own, and its sum relative to that; in a row, so do groups of neighbours."""

    def declaration(self) -> Line:
        shape = self.shape.replace("RBLOCK", f"RBLOCK // {self.group}")
        names = f"{self.name}, {self.name}_sum"
        full = [f"tl.full({shape}, {n}, {self.type})" for n in (self.start, "0.0")]
        return Line(f"{names} = {', '.join(full)}", origin=self.origin)

    @property
    def group(self) -> int:
        return 1 if self.writer.plan.strided else NEIGHBOURS

    def update(self) -> list[Line]:
        name, shape = self.name, f"[XBLOCK, RBLOCK // {self.group}, {self.group}]"
        texts = [
            f"groups = tl.reshape({self.inside()}, {shape})",
            f"top = larger({name}, tl.reduce(groups, 2, larger))",
            'base = tl.where(top == float("-inf"), 0.0, top)',
            "exps = tl.sum(tl.exp(groups - base[:, :, None]), 2)",
            f"{name}_sum = {name}_sum * tl.exp({name} - base) + exps",
            f"{name} = top",
        ]
        return plain(texts, self.origin)

    def finish(self) -> Tile:
        top = f"tl.reduce({self.name}, 1, larger)[:, None]"
        return self.column(f"{self.name}_sum * tl.exp({self.name} - {top})")
