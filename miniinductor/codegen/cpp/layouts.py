"""How a C++ kernel's loops lie around what it computes: five layouts, of which each kernel has one.

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

    Columns are reduced in blocks, whole rows where they are short enough.  Short rows that are read
    again and again, such as points whose distances from others are computed, are packed for that:

        mini::Table<float> tmp1(16000);                 tmp1[1000*r0 + x1] = in1[r0 + 16*x1]

  * `Spread`: a reduction of much to little is itself spread over the threads.

        float share0s[512];
        #pragma omp parallel for schedule(static)
        for (int64_t r0_share = 0; r0_share < 1048576; r0_share += 2048) {
            float share0 = 0;
            for (int64_t r0 = ...) ...
            share0s[r0_share/2048] = share0;
        }
        for (int64_t share = 0; share < 512; share++) { acc0 = acc0 + share0s[share]; }

  * `Tiles`: what a pointwise kernel reads or writes along another loop than the lanes goes through
    tiles, which change their axes in vector registers.

        for (int64_t x0_block = 0; x0_block < 1000; x0_block += 16) {
            for (int64_t r0_block = 0; r0_block < 512; r0_block += 16) {
                const int64_t x0_tile = mini::minimum<int64_t>(x0_block, 984);
                const int64_t r0_tile = mini::minimum<int64_t>(r0_block, 496);
                float tile0[16][16];
                mini::transpose(&in0[x0_tile + 1000*r0_tile], 1000, 16, *tile0, 16, 16);
                for (int64_t i = 0; i < 16; i++)
                    for (int64_t k = 0; k < 16; k++) ... tile0[i][k]

    Sizes that only the run knows, and loops of less than 8 iterations, have no tiles: their
    elements are read and written one by one.

  * `Columns`: threads share the columns of a scatter of rows.

        for (int64_t column = 0; column < 128; column += 32) {
            const int64_t column_end = column + 32;
            for (int64_t x0 = 0; x0 < 30000; x0++)
                for (int64_t r0 = column; r0 < column_end; r0++)
                    out0[r0 + 128*tmp3] = out0[r0 + 128*tmp3] + tmp0;

`converted_together` says which float16 elements the lanes of a loop convert at once.

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
from ...ir.ops import EXPENSIVE_PRICE
from ...schedule.nodes import Node
from ...sizes.expressions import is_indirect
from ...sizes.symbols import Size, estimate, hint, quotient
from ..kernels import Value
from ..kernel_plan import FEWEST, PARALLEL_WORK
from .expressions import CppScope, SmallTable, array_type, compute_type, memory_type
from .lanes import STACK, WIDTHS, Lanes, Plain, bound, longest
from .statements import BeforeLanes, Block, Bound, Line, Statement, Statements, nest

if TYPE_CHECKING:
    from .kernel_writer import CppKernelWriter
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
        return writer.parallel and plan.outer_count < 8 and plan.inner_count >= PARALLEL_WORK

    def loop_nest(self, body: Statements) -> list[Statement]:
        return nest(body, self.outer_loops())

    def inner_loop(self, body: Statements, accumulators: "Sums") -> list[Statement]:
        part = functools.partial(self.chunks, body)
        shares = in_shares(self, part, accumulators, MOST_PARTS)
        return [*[a.declared() for a in accumulators], *shares]


def in_shares(
    layout: Plain, part: "Part", accumulators: "Sums", most: int, width: int = 0
) -> list[Statement]:
    """The loops of `part`, of which each thread takes a share; the results of the shares are then
    combined in order.  width: of accumulators that are arrays."""
    plan, size = layout.plan, layout.writer.size(layout.plan.inner[0])
    of_share = parts_of(accumulators, "share")
    first, last = f"{plan.r[0]}_share", f"{plan.r[0]}_end"
    rows = part(of_share, first, last)  # before the rest: they may make doubles of accumulators
    place, array, around = ("[k]", f"[{width}]", [("k", 0, width)]) if width else ("", "", [])
    least = max(1, LEAST // (estimate(plan.inner[1:]) * max(width, 1)))
    # whole groups of lanes, where these run along the rows
    group = most if width or len(plan.inner) > 1 else most * WIDTHS[0]
    wanted = f"mini::maximum<int64_t>({least}, ({size} + {group - 1})/{group}*{group // most})"
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
    every = nest(share, [(first, 0, size, "rows")], layout.threads(1))
    return [Block([*lines, *every, *together])]


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
        is_apart = writer.group.has_scan or plan.is_pointwise
        if is_apart or not config.row_reductions or plan.outer_count < 2:
            return False
        loops = zip([*plan.r, *plan.x], [*plan.inner, *plan.outer])
        # the loops over rows that are packed: all but the one around the columns
        self.copied = {v: size for v, size in loops if v not in plan.x[-2:-1]}
        bodies = plan.bodies.values()
        loads = (i for body in bodies for i in body.instructions if i.op == "load")
        self.packed = [i for i in loads if self.is_packed(i.args[1])]
        reads = [access for body in bodies if body.inner for access in body.reads()]
        # (packed reads are among these, too: there they count as they lie in memory)
        return 2 * len(self.packed) + sum(map(self.direction, reads)) > 0

    def direction(self, access: Access) -> int:
        """1: memory runs along the columns; -1: along the rows.  What is the same in all rows, or
        in all columns, is read once either way."""
        last = self.plan.x[-1], self.plan.r[-1]
        column, row = (int_or_none(stride_of(access.index, v)) for v in last)
        if 0 in (column, row) and not is_indirect(access.index):
            return 0
        return (column == 1) - (row == 1)

    def is_packed(self, index: sympy.Expr) -> bool:
        """Does it read short rows, the same ones in all iterations of the loop around the columns?
        They are copied, so that they lie along the columns."""
        plan = self.plan
        if index.free_symbols != self.copied.keys() or stride_of(index, plan.x[-1]) == 1:
            return False
        again, columns = estimate(plan.outer[-2:-1]), estimate(plan.outer[-1:])
        return again >= 32 and plan.inner_count <= 4 * columns

    def plan_blocks(self) -> None:
        """How wide blocks of columns are: at least one for every thread."""
        *others, last = self.plan.outer
        blocks = 1
        if self.writer.parallel:
            blocks = max(1, torch.get_num_threads() // estimate(others))
        bodies = self.plan.bodies.values()
        has_places = any(k.startswith("arg") for body in bodies for k in body.reduction_kinds())
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
        if self.packed:
            writer.add_table(self.copied, self.packed)
        self.plan_blocks()
        column, size = plan.x[-1], writer.size(plan.outer[-1])
        # of all columns, or of those in a block
        self.columns: tuple[sympy.Symbol, Bound, Bound] = (column, 0, size)
        self.count, self.at = size, f"[{column}]"
        self.blocks: list[tuple] = []  # the loop over blocks
        # buffer -> array that holds its value for each column of the block
        self.arrays: dict[str, str] = {}
        lines: list[Statement] = []
        if size != self.block_width:
            start, end = f"{column}_block", f"{column}_end"
            self.columns, self.count = (column, start, end), f"{end} - {start}"
            self.at = f"[{column} - {start}]"
            self.blocks = [(start, 0, size, self.block_width)]
            lines.append(bound(end, f"{start} + {self.block_width}", size))
        for stage in plan.stages():
            writer.accumulators = []
            inner_nodes = plan.nodes_of(stage, inner=True)
            if inner_nodes:
                lines += self.rows_loop(inner_nodes)
            outer_nodes = plan.nodes_of(stage, inner=False)
            if writer.deferred or outer_nodes:
                lines += self.after_rows(outer_nodes, stage)
        return lines

    def loop_nest(self, body: Statements) -> list[Statement]:
        """Threads share the outer loops, and the loop over blocks of columns."""
        loops = self.outer_loops()[:-1] + self.blocks
        return nest(body, loops, self.threads(len(loops)))

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
        names = [name for name, *_ in writer.deferred] + [n.name for n in nodes]
        scope = self.own_scope((), writer.outside.beside())
        writer.store_deferred(self.at)
        for node in nodes:
            writer.play(node)
        later = [n for n in plan.nodes if plan.stage[n.name] > stage]
        read_later = {access.name for n in later for access in n.body.reads()}
        lines: list[Statement] = []
        for name in names:
            if name in read_later:
                value = writer.values[name]
                array = self.arrays[name] = f"column{len(self.arrays)}"
                element = array_type(compute_type(value.dtype))
                lines.append(Line(f"{element} {array}[{self.block_width}];", origin=STACK))
                scope.add(f"{array}{self.at} = {value};", "kept for the loops that follow")
        return lines + self.along(*self.columns, scope.lines)

    def rows_loop(self, nodes: Sequence[Node]) -> list[Statement]:
        """All rows of a block, and before them accumulators."""
        writer, plan = self.writer, self.plan
        once = writer.outside.beside()  # the same in all rows and columns
        table = SmallTable(once, self.at, self.block_width)  # of the columns, in all rows
        bodies = [plan.bodies[n.name] for n in nodes]
        found = [i for body in bodies for i in body.depending_only_on(plan.x, reads=True)]
        if not all(i.op in ("load", "constant") for i in found) and plan.inner_count >= 8:
            writer.table_of.update(dict.fromkeys(map(id, found), table))
            same = [i for b in bodies for i in b.depending_only_on(plan.x[:-1], reads=True)]
            writer.table_of.update(dict.fromkeys(map(id, same), once))
        before = CppScope(table)  # of the columns, in each row
        scope = self.own_scope((plan.x[-1],), before)
        for node in nodes:
            writer.play(node)
        accumulators = writer.accumulators

        def columns(parts: "Sums") -> list[Statement]:
            updates = [part.taken(self.at) for part in parts]
            return [*before.lines, *self.along(*self.columns, [*scope.lines, *updates])]

        # the loops come first: they may make doubles of the accumulators
        part = functools.partial(self.some_rows, columns)
        if self.shares > 1:
            rows = in_shares(self, part, accumulators, self.shares, self.block_width)
        else:
            rows = part(accumulators, 0, writer.size(plan.inner[0]))
        arrays = [line for a in accumulators for line in a.arrays(self.block_width)]
        tables = [*table.arrays, *self.along(*self.columns, table.lines)] if table.lines else []
        return [*once.lines, *tables, *arrays, *rows]

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


# --- transposed reads and writes ------------------------------------------------------------------
TILE = 16  # elements along the transposed loop, and along the lanes (mini::transpose knows it, too)


class Tiles(Plain):
    """Transposed reads and writes of a pointwise kernel go through tiles.  The last tile of a loop
    begins early enough to be as large as the others: some elements are computed twice."""

    def applies(self) -> bool:
        """Is something read or written along an outer loop?  A tile has that loop and the lanes."""
        plan = self.plan
        if not config.tiling or not plan.is_pointwise or self.writer.has_scatter:
            return False
        self.tiles: dict[str, str] = {}  # where it begins in memory -> its name
        self.before: list[Statement] = []
        self.after: list[Statement] = []  # what is computed in a tile
        indices = [index for body in plan.bodies.values() for index in body.indices]
        for row, size in zip(plan.x, plan.outer):
            self.loops = {row: size, plan.r[-1]: plan.inner[-1]}
            if all(map(self.is_cut, self.loops.values())) and any(map(self.is_transposed, indices)):
                return True
        return False

    def is_cut(self, size: Size) -> bool:
        """Can a loop be cut into equal tiles?"""
        is_long = isinstance(size, int) and size >= FEWEST
        return is_long and not (self.writer.overwrites and size % min(TILE, size))

    def is_transposed(self, index: sympy.Expr) -> bool:
        """Does the access step by one along the outer loop, and further along the lanes?"""
        row, lane = [stride_of(index, loop) for loop in self.loops]
        return row == 1 and lane not in (0, 1) and not is_indirect(index)

    def element(self, name: str, index: sympy.Expr, written: bool) -> str:
        """The place in a tile of what is read or written along the outer loop."""
        writer = self.writer
        if writer.scope.is_mask or not self.is_transposed(index):
            return super().element(name, index, written)
        start = {v: writer.position(f"{v}_tile") for v in self.loops}
        memory = f"&{super().element(name, index.xreplace(start), written)}"
        if memory not in self.tiles:
            tile = self.tiles[memory] = f"tile{len(self.tiles)}"
            element = memory_type(writer.dtype_of(name))
            self.before.append(Line(f"{element} {tile}[{TILE}][{TILE}];"))
            columns, rows = self.counts
            step = writer.index(stride_of(index, self.plan.r[-1]))
            ends = [f"{memory}, {step}, {rows}", f"*{tile}, {TILE}, {columns}"]
            copy = Line(f"mini::transpose({', '.join(ends[::-1] if written else ends)});")
            (self.after if written else self.before).append(copy)
        return f"{self.tiles[memory]}[i][k]"

    @property
    def counts(self) -> list[int]:
        """How many iterations of the two loops a tile has."""
        return [min(TILE, size) for size in self.loops.values()]

    def inner_loop(self, body: Statements, accumulators: "Sums") -> list[Statement]:
        """The lanes of one row of a tile."""
        lane, lanes = self.plan.r[-1], Lanes(self.writer, body, [], [])
        return lanes.lanes_from(lane, f"{lane}_tile", self.counts[1])

    def loop_nest(self, body: Statements) -> list[Statement]:
        """The loops over the tiles, and in them the transposed loop, around `body`, the lanes."""
        row, _ = self.loops
        self.writer.reads_again = True
        loops = [loop for loop in self.outer_loops() if loop[0] != row]
        lines: list[Statement] = []
        for (loop, size), count in zip(self.loops.items(), self.counts):
            loops.append((f"{loop}_block", 0, size, count))
            lines.append(bound(f"{loop}_tile", f"{loop}_block", size - count))
        place = f"const int64_t {row} = {row}_tile + i;"
        first = Line(place, origin="which element of a tile comes next")
        rows = nest([first, *body], [("i", 0, self.counts[0])])
        return nest([*lines, *self.before, *rows, *self.after], loops, self.threads(len(loops)))


# --- scatters -------------------------------------------------------------------------------------
LINE = 16  # elements of a cache line, into which one thread alone writes


class Columns(Plain):
    """Threads share the columns of a scatter of rows: each goes through all rows, in order."""

    def applies(self) -> bool:
        """Does each lane write elements of its own, whatever the row?  It does if all other terms
        of an index are multiples of the number of lanes."""
        plan = self.plan
        if not self.writer.has_scatter or not plan.r:
            return False
        others = [a.index - plan.r[0] for body in plan.bodies.values() for a in body.writes()]
        return all(quotient(i.as_coeff_Add()[1], plan.inner[0]) is not None for i in others)

    def inner_loops(self, start: Bound, end: Bound) -> list[tuple]:
        return [(self.plan.r[0], "column", "column_end")]

    def loop_nest(self, body: Statements) -> list[Statement]:
        size, count = self.writer.size(self.plan.inner[0]), self.plan.inner_count
        width = min(-(-count // torch.get_num_threads() // LINE) * LINE, count)
        last = f"column + {width}"
        if size != count or count % width:  # (else the compiler knows how many lanes there are)
            last = f"mini::minimum<int64_t>({last}, {size})"
        columns = [Line(f"const int64_t column_end = {last};"), *nest(body, self.outer_loops())]
        return nest(columns, [("column", 0, size, width)], self.threads(width < count))


# --- 16-bit elements of all lanes -----------------------------------------------------------------
LONG_CHAIN = 6 * EXPENSIVE_PRICE  # simple operations per element


def converted_together(
    writer: "CppKernelWriter", kind: str, element: str, dtype: torch.dtype, index: sympy.Expr
) -> str:
    """The text of a float16 element that is converted together with those of the other lanes, which
    lie beside it in memory; "" where each lane converts its own.  kind: `Widened` (to float, before
    the loop over lanes) or `Narrowed` (after it), both in prelude.h."""
    plan, lane = writer.plan, writer.lane
    if dtype is not torch.float16 or not lane:
        return ""
    is_long = lane in plan.x or estimate(plan.inner[-1:]) >= 16
    is_free = writer.lanes_are_free() and not (writer.shares_lanes or writer.has_scatter)
    is_here = not writer.scope.is_mask and id(playing.value) not in writer.table_of
    is_known = writer.inner_symbols.isdisjoint(index.free_symbols)
    layout = writer.layout
    is_beside = stride_of(index, lane) == 1 or type(layout) is Tiles and layout.is_transposed(index)
    # beside a long chain of functions, 16-bit elements pay: two vectors of floats take turns
    is_short = writer.node.body.work() < LONG_CHAIN
    if not (is_long and is_free and is_here and is_known and is_beside and is_short):
        return ""
    array, texts = writer.outside.fresh("half"), writer.scope.lines
    texts.append(BeforeLanes(f"mini::{kind}<{{}}> {array}{{{{&{element}, {{}}}}}};"))
    return f"{array}.lanes[k]"


LAYOUTS: list[type[Plain]] = [Rows, Spread, Tiles, Columns, Plain]  # as they are asked
