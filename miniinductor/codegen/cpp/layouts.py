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

        float block0s[128];
        #pragma omp parallel for schedule(static)
        for (int64_t block = 0; block < 128; block++) {
            float block0 = 0;
            for (int64_t r0 = ...) ...
            block0s[block] = block0;
        }
        for (int64_t block = 0; block < 128; block++) { acc0 = acc0 + block0s[block]; }

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

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

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
from .statements import Bound, Line, Loop, Statement, Statements, nest

if TYPE_CHECKING:
    from .reductions import Sums

# --- few outer iterations over much ---------------------------------------------------------------
MOST_PARTS = 512  # partial results
LEAST = 512  # elements of a part
PARTS = "which part of the loop comes next"


class Spread(Plain):
    """A loop over blocks, which the threads share; then the blocks' results are combined."""

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
        writer = self.writer
        first, size = self.plan.r[0], writer.size(self.plan.inner[0])
        least = max(1, LEAST // estimate(self.plan.inner[1:]))
        # (another stage has names of its own)
        rows, blocks = (writer.outside.fresh(name) for name in ("rows", "blocks"))
        wanted = f"({size} + {MOST_PARTS - 1})/{MOST_PARTS}"
        texts = [
            f"const int64_t {rows} = mini::maximum<int64_t>({least}, {wanted});",
            f"const int64_t {blocks} = ({size} + {rows} - 1)/{rows};",
        ]
        of_block = parts_of(accumulators, "block")
        # the loops come first: they may make doubles of the accumulators
        loops = self.chunks(body, of_block, f"{first}_block", f"{first}_end")
        block = [
            Line(f"const int64_t {first}_block = block*{rows};", origin=PARTS),
            bound(f"{first}_end", f"{first}_block + {rows}", size),
            *[b.declared() for b in of_block],
            *loops,
            *[Line(f"{b.name}s[block] = {b.name};", origin=b.origin) for b in of_block],
        ]
        kept = [f"{b.c_type} {b.name}s[{MOST_PARTS}];" for b in of_block]
        added = [a.update(f"{b.name}s[block]") for a, b in zip(accumulators, of_block)]
        return [
            *[Line(text, origin=PARTS) for text in texts + kept],
            *nest(block, [("block", 0, blocks)], self.threads(1)),
            *[a.declared() for a in accumulators],
            *nest(added, [("block", 0, blocks)] if added else []),
        ]


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
        (*others, last), inner = self.plan.outer, self.plan.inner
        blocks = 1
        if self.writer.parallel:
            blocks = max(1, torch.get_num_threads() // estimate(others))
        kinds = [k for body in self.plan.bodies.values() for k in body.reduction_kinds()]
        is_plain = len(inner) == 1 and not others and not any(k.startswith("arg") for k in kinds)
        self.shares = 1  # of rows, one for each thread
        if is_plain and isinstance(last, int) and isinstance(inner[0], int) and last < 64 * blocks:
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
        """The reduction's loops, or of each share of the rows, with sums of its own."""
        row, size = self.plan.r[0], self.plan.inner[0]
        end = self.writer.size(size)
        if self.shares == 1:
            return self.some_rows(0, end, accumulators, columns)
        if not accumulators:
            return nest(columns([]), self.inner_loops(0, end), self.threads(1))
        of_share, first, last = parts_of(accumulators, "share"), f"{row}_share", f"{row}_end"
        rows, share = self.some_rows(first, last, of_share, columns), -(-size // self.shares)
        kept = [
            Line(f"{a.name}s[{first}/{share}][k] = {a.name}[k];", origin=a.origin) for a in of_share
        ]
        arrays = [line for a in of_share for line in a.arrays(self.block_width)]
        ending = bound(last, f"{first} + {share}", end)
        body = [ending, *arrays, *rows, *nest(kept, [("k", 0, self.count)])]
        added = [a.update(f"{b.name}s[share][k]", "[k]") for a, b in zip(accumulators, of_share)]
        return [
            *[Line(f"{a.c_type} {a.name}s[{self.shares}][{self.block_width}];") for a in of_share],
            *nest(body, [(first, 0, end, share)], self.threads(1)),
            *nest(added, [("share", 0, -(-size // share)), ("k", 0, self.count)]),
        ]

    def some_rows(
        self,
        start: Bound,
        end: Bound,
        accumulators: "Sums",
        columns: "Callable[[Sums], list[Statement]]",
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
            c_type = memory_type(self.writer.buffers[name].layout.dtype)
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
