"""How a C++ kernel's loops lie around what it computes: four layouts, of which each kernel has one.

In:   a writer that has its plan.  Out: what the outer loops run, the loops over r0, r1, ... of each
      stage, the outer loops, and the text of an element that is read.

`LAYOUTS` has them in the order in which they are asked whether they apply.  The plain one
(lanes.py) always does: threads share the outer loops, and the *lanes* (the iterations of the
innermost loop, which the compiler puts into vector registers) come last.  Its subclasses change one
thing each:

  * `Rows`: reductions that step through memory by rows.  The lanes run along the outer loop.

        float acc0[512];                                one element per column
        for (int64_t k = 0; k < 512; k++) acc0[k] = 0;
        for (int64_t r0 = 0; r0 < 1024; r0++) {
            #pragma omp simd
            for (int64_t x0 = 0; x0 < 512; x0++) {
                const float tmp0 = in0[x0 + 512*r0];
                acc0[x0] = acc0[x0] + tmp0;

    Columns are reduced in blocks, whole rows where they are short enough.

  * `Spread`: a reduction of much to little is itself spread over the threads.

        float share0s[512];
        #pragma omp parallel for schedule(static)
        for (int64_t r0_share = 0; r0_share < 1048576; r0_share += 2048) {
            float share0 = 0;
            for (int64_t r0 = ...) ...
            share0s[r0_share/2048] = share0;
        }
        for (int64_t share = 0; share < 512; share++) { acc0 = acc0 + share0s[share]; }

  * `Tiles`: transposed reads of a pointwise kernel are copied tile by tile, so that both sides use
    whole cache lines.

        for (int64_t x0_tile = 0; x0_tile < 1024; x0_tile += 64) {
            for (int64_t r0_tile = 0; r0_tile < 1024; r0_tile += 64) {
                float tile0[64][64];
                for (int64_t r0 = r0_tile; ...)
                    for (int64_t x0 = x0_tile; ...)
                        tile0[x0 - x0_tile][r0 - r0_tile] = in0[x0 + 1024*r0];
                for (int64_t x0 = x0_tile; ...)
                    for (int64_t r0 = r0_tile; ...) ... tile0[x0 - x0_tile][r0 - r0_tile]

Mirrors the outer-reduction tiling and the tile2d kernels of torch/_inductor/codegen/cpp.py.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import sympy
import torch

from ... import config
from ...ir.dependencies import Access, int_or_none, stride_of
from ...ir.loops import playing
from ...schedule.nodes import Node
from ...sizes.expressions import is_indirect
from ...sizes.symbols import estimate, hint
from ..kernels import Value
from ..kernel_plan import PARALLEL_WORK
from .expressions import ARRAY_TYPES, CppScope, TableScope, compute_type, memory_type
from .lanes import STACK, Plain, bound, longest
from .statements import Block, Bound, Line, Loop, Statement, Statements, nest

if TYPE_CHECKING:
    from .reductions import Sums

    Part: TypeAlias = Callable[[Sums, Bound, Bound], list[Statement]]  # the loops of some rows

# --- few outer iterations over much ---------------------------------------------------------------
MOST_PARTS = 512  # partial results
LEAST = 512  # elements of a part
PARTS = "which part of the loop comes next"


class Spread(Plain):
    """Threads share the loop of the reduction."""

    keeps_stack = False

    def applies(self) -> bool:
        writer, plan = self.writer, self.plan
        if plan.is_pointwise or writer.group.has_scan or not config.split_reductions:
            return False
        few_over_much = plan.outer_count < 8 and plan.inner_count >= PARALLEL_WORK
        return writer.parallel and few_over_much

    def loop_nest(self, body: Statements) -> list[Statement]:
        return nest(body, self.outer_loops())

    def inner_loop(self, body: Statements, accumulators: "Sums") -> list[Statement]:
        part = functools.partial(self.chunks, body)
        shares = in_shares(self, part, accumulators, MOST_PARTS)
        return [*[a.declared() for a in accumulators], shares]


def in_shares(
    layout: Plain, part: "Part", accumulators: "Sums", most: int, width: int = 0
) -> Block:
    """The loops of `part`, of which each thread takes a share; the results of the shares are then
    combined in order.  width: of accumulators that are arrays."""
    plan, size = layout.plan, layout.writer.size(layout.plan.inner[0])
    of_share = parts_of(accumulators, "share")
    first, last = f"{plan.r[0]}_share", f"{plan.r[0]}_end"
    rows = part(of_share, first, last)  # before the rest: they may make doubles of accumulators
    place, array, around = ("[k]", f"[{width}]", [("k", 0, width)]) if width else ("", "", [])
    least = max(1, LEAST // (estimate(plan.inner[1:]) * max(width, 1)))
    wanted = f"mini::maximum<int64_t>({least}, ({size} + {most - 1})/{most})"
    lines: list[Statement] = [Line(f"const int64_t rows = {wanted};", origin=PARTS)]
    share: list[Statement] = [bound(last, f"{first} + rows", size)]
    kept, added = [], []
    for whole, one in zip(accumulators, of_share):
        lines.append(Line(f"{one.c_type} {one.name}s[{most}]{array};", origin=PARTS))
        share += one.arrays(width) if width else [one.declared()]
        text = f"{one.name}s[{first}/rows]{place} = {one.name}{place};"
        kept.append(Line(text, origin=one.origin))
        added.append(whole.update(f"{one.name}s[share]{place}", place))
    share += [*rows, *nest(kept, around if kept else [])]
    shares = [("share", 0, f"({size} + rows - 1)/rows")]
    together = nest(added, [*shares, *around]) if added else []
    return Block([*lines, *nest(share, [(first, 0, size, "rows")], layout.threads(1)), *together])


def parts_of(accumulators: "Sums", prefix: str) -> "Sums":
    """For each accumulator one that adds up a part, such as a row.  The accumulators themselves are
    changed: from now on they add up the parts."""
    parts = [a.renamed(prefix) for a in accumulators]
    for accumulator in accumulators:
        accumulator.over_chunks = True
    return parts


# --- lanes along the outer loop -------------------------------------------------------------------
ROWS_CHUNK = 128  # longest run of float additions of rows into one accumulator
WHOLE_ROW = 2048  # columns reduced together at most
COLUMNS = 512  # the same where rows are longer than that


class Rows(Plain):
    """For reductions whose reads have stride 1 along the last outer loop.  Each block of columns is
    a thread's work, or of few columns a share of the rows.  Long float sums are sums of chunks,
    added up in double."""

    keeps_stack = False

    def applies(self) -> bool:
        """Does memory run along the last outer loop, rather than along the reduction's, in more
        reads than the other way round?"""
        writer, plan = self.writer, self.plan
        if not config.row_reductions or plan.is_pointwise or not plan.outer:
            return False
        if plan.outer_count < 2 or writer.group.has_scan or writer.has_scatter:
            return False
        reads = [
            access
            for body in plan.bodies.values()
            for access in (body.reads() if body.inner else ())
            # else one value per row (a mean, a weight): read once either way
            if access.index.free_symbols.intersection(plan.r) or is_indirect(access.index)
        ]
        return sum(map(self.direction, reads)) > 0

    def direction(self, access: Access) -> int:
        """1: memory runs along the columns; -1: along the rows."""
        last = self.plan.x[-1], self.plan.r[-1]
        column, row = (int_or_none(stride_of(access.index, v)) for v in last)
        return (column == 1 and row != 1) - (row == 1 and column != 1)

    def plan_blocks(self) -> None:
        """How wide blocks of columns are: at least one for every thread."""
        *others, last = self.plan.outer
        blocks = 1
        if self.writer.parallel:
            blocks = max(1, torch.get_num_threads() // estimate(others))
        kinds = [k for body in self.plan.bodies.values() for k in body.reduction_kinds()]
        has_places = any(kind.startswith("arg") for kind in kinds)
        self.shares = 1  # of rows, one for each thread
        if (
            isinstance(last, int)
            and last < min(64 * blocks, WHOLE_ROW)
            and not has_places | len(others)
        ):
            self.shares, blocks = blocks, 1
        width = -(-hint(last, 512) // blocks // 64) * 64
        most = last if isinstance(last, int) else WHOLE_ROW
        self.block_width = min(COLUMNS if width > WHOLE_ROW else width, most)

    def kernel_body(self) -> list[Statement]:
        writer, plan = self.writer, self.plan
        self.plan_blocks()
        column, size = plan.x[-1], writer.size(plan.outer[-1])
        self.is_whole = size == self.block_width
        start, end = f"{column}_block", f"{column}_end"
        self.count: Bound = f"{end} - {start}"
        self.at = f"[{column} - {start}]"
        self.columns: tuple[sympy.Symbol, Bound, Bound] = (column, start, end)
        if self.is_whole:
            self.count, self.at, self.columns = size, f"[{column}]", (column, 0, size)
        # buffer -> array that holds its value for each column of the block
        self.arrays: dict[str, str] = {}
        lines: list[Statement] = []
        for stage in plan.stages():
            writer.deferred, writer.accumulators = [], []
            inner_nodes = plan.nodes_of(stage, inner=True)
            if inner_nodes:
                lines += self.rows_loop(inner_nodes)
            outer_nodes = plan.nodes_of(stage, inner=False)
            if writer.deferred or outer_nodes:
                lines += self.after_rows(outer_nodes, stage)
        if self.is_whole:
            return lines
        ending = bound(end, f"{start} + {self.block_width}", size)
        return nest([ending, *lines], [(start, 0, size, self.block_width)])

    def loop_nest(self, body: Statements) -> list[Statement]:
        """Threads share the outer loops, and the loop over blocks of columns."""
        loops = self.outer_loops()[:-1]
        threads = self.threads(len(loops) + (not self.is_whole))
        if loops or self.is_whole:
            return nest(body, loops, threads)
        [blocks] = body
        assert isinstance(blocks, Loop)
        blocks.pragma = threads
        return [blocks]

    def own_scope(self, inner_variables: Iterable[sympy.Symbol], above: CppScope) -> CppScope:
        """A new scope in which only the values in `arrays` are known.  above: the scope of what
        does not vary with these variables."""
        writer = self.writer
        writer.values = {
            name: Value(f"{array}{self.at}", writer.buffers[name].layout.dtype, True)
            for name, array in self.arrays.items()
        }
        writer.outside, scope = above, CppScope(above) if inner_variables else above
        writer.write_into(scope, inner_variables)
        return scope

    def after_rows(self, nodes: Sequence[Node], stage: int) -> list[Statement]:
        """The results of a stage's reductions, and the nodes after it, for each column."""
        writer, plan = self.writer, self.plan
        deferred = writer.deferred
        scope = self.own_scope((), writer.outside.beside())
        for name, index, value, mode, instruction in deferred:
            with playing.set(instruction):
                writer.store(name, index, writer.finished(value, self.at), mode)
        for node in nodes:
            writer.play(node)
        later = [n for n in plan.nodes if plan.stage[n.name] > stage]
        read_later = {access.name for n in later for access in n.body.reads()}
        lines: list[Statement] = []
        for name in [name for name, *_ in deferred] + [n.name for n in nodes]:
            if name in read_later:
                value = writer.values[name]
                array = self.arrays[name] = f"column{len(self.arrays)}"
                c_type = compute_type(value.dtype)
                declared = f"{ARRAY_TYPES.get(c_type, c_type)} {array}[{self.block_width}];"
                lines.append(Line(declared, origin=STACK))
                scope.add(f"{array}{self.at} = {value};", "kept for the loops that follow")
        return lines + self.along(*self.columns, scope.lines)

    def rows_loop(self, nodes: Sequence[Node]) -> list[Statement]:
        """All rows of a block, and before them accumulators."""
        writer, plan = self.writer, self.plan
        once = writer.outside.beside()  # the same in all rows and columns
        table = TableScope(once, self.at, self.block_width)  # of the columns, in all rows
        bodies = [plan.bodies[n.name] for n in nodes]
        found = [i for body in bodies for i in body.depending_only_on(plan.x, reads=True)]
        if not all(i.op in ("load", "constant") for i in found) and plan.inner_count >= 8:
            writer.table_of.update(dict.fromkeys(map(id, found), table))
            same = [
                id(i) for body in bodies for i in body.depending_only_on(plan.x[:-1], reads=True)
            ]
            writer.table_of.update(dict.fromkeys(same, once))
        before = CppScope(table)  # of the columns, in each row
        scope = self.own_scope((plan.x[-1],), before)
        for node in nodes:
            writer.play(node)
        accumulators = writer.accumulators
        writer.table_of.clear()

        def columns(parts: "Sums") -> list[Statement]:
            updates = [part.taken(self.at) for part in parts]
            return [*before.lines, *self.along(*self.columns, [*scope.lines, *updates])]

        # the loops come first: they may make doubles of the accumulators
        rows = self.all_rows(accumulators, columns)
        arrays = [line for a in accumulators for line in a.arrays(self.block_width)]
        tables = [*table.arrays, *self.along(*self.columns, table.lines)] if table.lines else []
        return [*once.lines, *tables, *arrays, *rows]

    def all_rows(
        self, accumulators: "Sums", columns: "Callable[[Sums], list[Statement]]"
    ) -> list[Statement]:
        """The reduction's loops."""
        part = functools.partial(self.some_rows, columns)
        if self.shares > 1:
            return [in_shares(self, part, accumulators, self.shares, self.block_width)]
        return part(accumulators, 0, self.writer.size(self.plan.inner[0]))

    def some_rows(
        self,
        columns: "Callable[[Sums], list[Statement]]",
        accumulators: "Sums",
        start: Bound,
        end: Bound,
    ) -> list[Statement]:
        """The loops over rows.  A long sum of floats is that of sums of ROWS_CHUNK rows."""
        loops = self.inner_loops(start, end)
        *around, (row, start, end) = loops
        inexact = [a for a in accumulators if a.loses_bits]
        if longest(math.prod(self.plan.inner)) <= 2 * ROWS_CHUNK or not inexact:
            return nest(columns(accumulators), loops)
        exact = [a for a in accumulators if not a.loses_bits]
        parts = parts_of(inexact, "part")
        added = [a.update(p.name + "[k]", "[k]") for a, p in zip(inexact, parts)]
        chunk = [
            bound(f"{row}_stop", f"{row}_chunk + {ROWS_CHUNK}", end),
            *[line for p in parts for line in p.arrays(self.block_width)],
            *nest(columns(exact + parts), [(row, f"{row}_chunk", f"{row}_stop")]),
            *nest(added, [("k", 0, self.count)]),
        ]
        return nest(chunk, [*around, (f"{row}_chunk", start, end, ROWS_CHUNK)])


# --- transposed reads -----------------------------------------------------------------------------
TILE = (64, 64)  # elements along the transposed loop, and along the lanes
FEWEST = 8  # iterations of either loop


class Tiles(Plain):
    """Transposed reads of a pointwise kernel are copied tile by tile."""

    is_tiled = True

    def applies(self) -> bool:
        """Is something read along an outer loop, whose number is `self.tile` then?"""
        plan = self.plan
        if not config.tiling or not plan.is_pointwise or not plan.inner or self.writer.has_scatter:
            return False
        self.copies: dict[tuple[str, sympy.Expr], str] = {}  # element -> the tile with its copy
        self.fill: list[Statement] = []
        reads = [access.index for body in plan.bodies.values() for access in body.reads()]
        for self.tile, size in enumerate(plan.outer):
            is_large = min(hint(size, 0), hint(plan.inner[-1], 0)) >= FEWEST
            if is_large and any(map(self.is_transposed, reads)):
                return True
        return False

    def is_transposed(self, index: sympy.Expr) -> bool:
        """Does the read step by one along the outer loop, and further along the lanes?"""
        row, lane = self.plan.x[self.tile], self.plan.r[-1]
        if is_indirect(index):
            return False
        return stride_of(index, row) == 1 and stride_of(index, lane) not in (0, 1)

    def loops_of_tile(self) -> list[tuple[sympy.Symbol, str, str]]:
        return [(v, f"{v}_tile", f"{v}_end") for v in (self.plan.x[self.tile], self.plan.r[-1])]

    def element(self, name: str, index: sympy.Expr) -> str:
        """The place in a tile of what is read along the outer loop."""
        element = super().element(name, index)
        if self.writer.scope.is_mask or not self.is_transposed(index):
            return element
        row, lane = self.loops_of_tile()
        place = f"[{row[0]} - {row[1]}][{lane[0]} - {lane[1]}]"
        if (name, index) not in self.copies:
            tile = self.copies[name, index] = f"tile{len(self.copies)}"
            c_type = memory_type(self.writer.dtype_of(name))
            self.fill.append(Line(f"{c_type} {tile}[{TILE[0]}][{TILE[1]}];"))
            self.fill += nest([Line(f"{tile}{place} = {element};")], [lane, row])
        return self.copies[name, index] + place

    def inner_loop(self, body: Statements, accumulators: "Sums") -> list[Statement]:
        """The lanes of one row of a tile."""
        return self.along(*self.loops_of_tile()[1], body)

    def loop_nest(self, body: Statements) -> list[Statement]:
        """The loops over the tiles, and in them the transposed loop, around `body`, the lanes."""
        writer, plan = self.writer, self.plan
        tiled = zip(self.loops_of_tile(), (plan.outer[self.tile], plan.inner[-1]), TILE)
        ends: list[Statement] = []
        loops = [loop for k, loop in enumerate(self.outer_loops()) if k != self.tile]
        for (_, first, end), size, width in tiled:
            ends.append(bound(end, f"{first} + {width}", writer.size(size)))
            loops.append((first, 0, writer.size(size), width))
        tile = [*ends, *self.fill, *nest(body, self.loops_of_tile()[:1])]
        return nest(tile, loops, self.threads(len(loops)))


LAYOUTS: list[type[Plain]] = [Rows, Spread, Tiles, Plain]  # as they are asked
