"""Reductions that step through memory by rows: the lanes run along the outer loop.

    float acc0[512];                                one element per column
    for (int64_t k = 0; k < 512; k++) acc0[k] = 0;
    for (int64_t r0 = 0; r0 < 1024; r0 += 4) {
        #pragma omp simd
        for (int64_t x0 = 0; x0 < 512; x0++) {
            const float tmp0 = in0[x0 + 512*r0];
            ...
            acc0[x0] = acc0[x0] + ((tmp0 + tmp1) + (tmp2 + tmp3));

In:   a group whose reductions' last outer loop has stride 1, or reduces a few elements that many
      columns share (distances of points, sums of rows of a table).  Out: its whole kernel.

Columns are reduced in blocks, whole rows where they are short enough: then memory is read from its
start to its end.  Each block is a thread's work, or (`shares_rows`, of whole rows) threads share
the rows: each has accumulators of its own, which are put together at the end.  Four rows are added
at a time; long float sums are sums of chunks, added up in double.  What a row reads of float16 is
converted first; what a short axis reads across the columns is first copied into their order.

Mirrors the outer-reduction tiling in torch/_inductor/codegen/cpp.py.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sympy
import torch

from .. import config
from ..codegen.code import Code, code, named
from ..codegen.common import Value
from ..codegen.cpp_expressions import CppScope, compute_type
from ..codegen.cpp_reductions import Sums, bound, longest
from ..codegen.plan import estimate
from ..codegen.strategy import strategy
from ..codegen.tree import Bound, Block, Branch, Line, Loop, Pragma, Statement, Statements
from ..codegen.tree import nest, sets_error
from ..dependencies import Access, int_or_none, stride_of
from ..ir import playing
from ..lowerings.half_types import HALVES, ROUNDINGS
from ..lowerings.cpp_masks import fence
from ..nodes import Node
from ..sizes.expressions import is_indirect
from ..sizes.symbols import hint
from .arrays import IN_ARRAYS, LANES, SCRATCH
from .arrays import array_declarations, arrays_of, filled, merged, room, taken_of_rows
from .contents import uses_of
from .half_columns import Column, HalfArrays, in_runs
from .invariants import RowInvariants
from .row_tiles import FEWEST, RowTiles
from .several_loops import loops_of_rows
from .wanted_sums import wanted_where

PART = "where a thread's part of the rows lies"

ROWS = 4  # rows added at a time: one load and store of the accumulator per four elements
ROWS_CHUNK = 128  # longest run of float additions of rows into one accumulator
WHOLE_ROW = 2048  # columns reduced together at most
COLUMNS = 512  # the same where rows are longer than that
LEAST_COLUMNS = 32  # where lanes along them are chosen though memory runs along them in no read
TURNED = 1 << 15  # elements that are copied into the order of the lanes at most
MOST_TURNED = 4  # such copies in one kernel: they lie on the stack
SHORT = 7  # elements of a reduction that fill no vector: windows, which overlap
FEW = 64  # elements of a reduction for whose sake that is done at most; iterations that share it
FAST = {"to_float", "to_float16", *ROUNDINGS, "/", "%", "[]"}  # what a row may use, of several


def runs_along(accesses: Iterable[Access], variable: sympy.Symbol, other: sympy.Symbol) -> bool:
    """Does memory run along `variable`, rather than along `other`, in more of these accesses than
    the other way round?"""
    steps = [
        [int_or_none(stride_of(access.index, v)) for v in (variable, other)] for access in accesses
    ]
    return sum((a == 1 and b != 1) - (b == 1 and a != 1) for a, b in steps) > 0


@dataclass
class Row:
    """What one row does: lines before those of its columns, these, and the accumulators with what
    is added to each."""

    before: list[Statement]
    lines: list[Statement]
    terms: Sums
    halves: HalfArrays


@dataclass
class Turned:
    """A copy of what is read across the lanes, in their order; each row of it is for one r."""

    name: str
    lines: list[Statement]


@strategy(order=5)
class Rows(RowInvariants):
    writes_alone = True
    keeps_stack = False

    def applies(self) -> bool:
        """Do the reduction's reads step through memory by the last outer loop rather than by the
        reduction's?"""
        writer, plan = self.writer, self.writer.plan
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
        self.turned: dict[tuple[str, sympy.Expr], Turned] = {}
        self.step, self.halves, self.is_row = 0, None, False
        if not runs_along(reads, plan.x[-1], plan.r[-1]) and not self.is_better_along_x(reads):
            return False
        self.plan_blocks()
        return True

    def is_better_along_x(self, reads: Sequence[Access]) -> bool:
        """Do lanes along the last outer loop read memory in its order (not the reduction's, unless
        that is short), or always the same element, or what `turned_place` copies?"""
        plan, gain = self.writer.plan, 0
        is_short = estimate(plan.inner) <= SHORT  # fewer than the lanes of a vector
        if hint(plan.outer[-1], 512) < LEAST_COLUMNS:
            return False
        for access in reads:
            column, row = (stride_of(access.index, v) for v in (plan.x[-1], plan.r[-1]))
            if column == 1:
                gain += row != 1 or is_short
            elif is_indirect(access.index) or column is None:
                return False
            elif column != 0:
                if not self.may_be_turned(access.index):
                    return False
                gain += 1
        return gain > 0

    def may_be_turned(self, index: sympy.Expr) -> bool:
        """Is it few elements, all read again by each of the outer iterations?"""
        plan = self.writer.plan
        sizes = (plan.outer[-1], *plan.inner)
        if not all(isinstance(n, int) for n in sizes) or math.prod(sizes) > TURNED:
            return False
        known = index.free_symbols <= {plan.x[-1], *plan.r}
        return known and math.prod(plan.inner) <= FEW and estimate(plan.outer[:-1]) >= FEW

    def plan_blocks(self) -> None:
        """How wide blocks of columns are, and whether threads share their rows."""
        writer, plan = self.writer, self.writer.plan
        threads, size = torch.get_num_threads(), hint(plan.outer[-1], 512)
        around = estimate(plan.outer[:-1])
        can_share = writer.parallel and threads > 1 and config.split_reductions
        are_many = hint(plan.inner[0], 512) >= ROWS * threads and around < threads
        self.shares_rows = can_share and are_many and size <= WHOLE_ROW
        blocks = 1  # at least, so that every thread has one
        if writer.parallel and not self.shares_rows:
            blocks = max(1, threads // around)
        width = -(-size // blocks // LANES) * LANES
        if width > WHOLE_ROW:
            width = COLUMNS
        most = plan.outer[-1] if isinstance(plan.outer[-1], int) else WHOLE_ROW
        self.block_width = min(width, most)

    # -- the kernel --------------------------------------------------------------------------------
    def kernel_body(self) -> list[Statement]:
        writer, plan = self.writer, self.writer.plan
        column, size = plan.x[-1], writer.size(plan.outer[-1])
        self.is_whole = size == self.block_width
        start, end = f"{column}_block", f"{column}_end"
        self.count = f"{end} - {start}"
        self.column = code("{} - {}", named(column), named(start))
        if self.is_whole:
            start, end, self.count, self.column = 0, size, size, named(column)
        self.at = code("[{}]", self.column)
        self.columns = (column, start, end)
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
        writer = self.writer
        loops = writer.outer_loops()[:-1]
        count = len(loops) + (not self.is_whole)
        if loops:
            turned = [line for one in self.turned.values() for line in one.lines]
            return [*turned, *nest(body, loops, self.threads(count))]
        if count:
            [blocks] = body
            assert isinstance(blocks, Loop)
            blocks.pragma = self.threads(count)
        return list(body)

    def threads(self, count: int) -> Pragma | None:
        writer = self.writer
        if not count or not writer.parallel or self.shares_rows:
            return None
        return Pragma("parallel for", collapse=count, condition=writer.threads_if)

    def after_rows(self, nodes: Sequence[Node], stage: int) -> list[Statement]:
        """The results of a stage's reductions, and the nodes after it, for each column."""
        writer, plan = self.writer, self.writer.plan
        deferred = writer.deferred
        scope = self.own_scope(())
        self.halves, self.is_row = {}, False
        for name, index, value, mode, instruction in deferred:
            accumulator = next(a for a in writer.accumulators if a.name == value.text)
            text = accumulator.result(value.dtype, self.at)
            with playing.set(instruction):
                writer.store(name, index, Value(text, value.dtype, True), mode)
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
                declared = f"{IN_ARRAYS.get(c_type, c_type)} {array}[{self.block_width}];"
                lines.append(Line(declared, origin=SCRATCH))
                kept = code("{}{} = {};", named(array), self.at, value)
                scope.add(kept, "kept for the loops that follow")
        halves, self.halves = self.halves, None
        return lines + self.columns_in_runs(scope.lines, [], [], halves)

    def own_scope(
        self, inner_variables: Iterable[sympy.Symbol], above: CppScope | None = None
    ) -> CppScope:
        """Where nothing is known yet but what lies in arrays.  above: the scope of what does not
        vary with these variables, where it is another."""
        writer, scope = self.writer, CppScope(above)
        scope.counter = writer.outside.counter
        if above is not None:
            above.counter = scope.counter
        writer.values = {
            name: Value(
                code("{}{}", named(array), self.at), writer.buffers[name].layout.dtype, True
            )
            for name, array in self.arrays.items()
        }
        writer.outside = above or scope
        writer.write_into(scope, inner_variables)
        return scope

    def columns_loop(self, lines: Statements) -> list[Statement]:
        pragma = Pragma(simd=True) if config.vectorize else None
        return fence(lines) + nest(lines, [self.columns], pragma)

    # -- one stage ---------------------------------------------------------------------------------
    def rows_loop(self, nodes: Sequence[Node]) -> list[Statement]:
        """`loop_over_rows`, and before it what is the same in each row."""
        self.new_scope_above()
        self.tiles = self.new_tiles()
        if config.lane_tables:
            outer = (*self.writer.plan.x, *self.arrays.values())
            self.begin_rows(self.columns, self.at, self.block_width, outer)
        lines = self.loop_over_rows(nodes)
        self.is_on = False
        return self.above.lines + lines

    @property
    def may_use_tiles(self) -> bool:
        fewest = min(self.block_width, estimate(self.writer.plan.inner[-1:]))
        return config.tiling and fewest >= FEWEST

    def new_tiles(self) -> RowTiles:
        """For what lies across the columns."""
        plan, (column, start, _) = self.writer.plan, self.columns
        return RowTiles(self.writer, plan.r[-1], column, start, self.block_width, self.count)

    def is_same(self, name: str) -> bool:
        """Where a block begins, and sizes, are the same in each of its rows, too."""
        return (
            name == self.columns[1] or name in map(str, self.writer.sizes) or super().is_same(name)
        )

    def row_body(self, nodes: Sequence[Node], step: int) -> Row:
        """The nodes for row `row + step`."""
        writer, plan = self.writer, self.writer.plan
        above = CppScope()
        scope = self.own_scope((plan.x[-1],), above)
        writer.accumulators, writer.deferred = [], []
        self.step, self.halves, self.is_row = step, {}, True
        first = scope.counter.get("acc", -1)
        for node in nodes:
            body = plan.bodies[node.name]
            if step:
                body = body.substitute(body.outer, body.inner, {plan.r[-1]: plan.r[-1] + step})
            writer.play(node, body)
        if step:
            scope.counter["acc"] = first
        self.step, halves, self.halves = 0, self.halves, None
        return Row(above.lines, scope.lines, writer.accumulators, halves)

    def loop_over_rows(self, nodes: Sequence[Node]) -> list[Statement]:
        """All rows of a block: what they add to the accumulators, which are declared here, or what
        is stored of each."""
        writer, plan = self.writer, self.writer.plan
        one = self.row_body(nodes, 0)
        deferred, accumulators = writer.deferred, one.terms
        wanted = [condition.text for condition in wanted_where(writer, nodes, accumulators)]
        for accumulator in accumulators:
            accumulator.few_places = longest(math.prod(plan.inner)) < 1 << 31
        if not accumulators:
            return self.stored_rows(one)
        self.steps = [one]
        if uses_of(one.lines) <= FAST:  # else there is enough to do with one row
            self.steps += [self.row_body(nodes, step) for step in range(1, ROWS)]
        writer.accumulators, writer.deferred = accumulators, deferred
        added = [name for row in self.steps for term in row.terms for name in term.reads]
        every = [line for row in self.steps for line in row.lines]
        self.before_each = self.first_in_lanes(every, added)
        size = writer.size(plan.inner[0])
        # columns of which some are float16 are taken in whole vectors
        self.width, self.filled = self.block_width, self.count
        if any(row.halves for row in self.steps):
            self.width = self.filled = room(self.block_width)
        if self.shares_rows:
            return self.shared_rows(accumulators, size, wanted)
        rows = self.where_wanted(wanted, self.all_rows(accumulators, 0, size))
        return array_declarations(accumulators, self.width, self.filled) + rows

    def where_wanted(self, wanted: list[str], rows: list[Statement]) -> list[Statement]:
        """The rows in a branch, where they add nothing unless a column wants it (wanted_sums.py);
        wanted: names of the conditions."""
        in_tables = self.is_on and all(name in self.lazy for name in wanted)
        if not wanted or not in_tables or sets_error(rows):
            return rows
        asked = [self.definition(name) for name in self.needed(wanted)]
        asked += [Line(f"is_wanted |= {name};", origin=PART) for name in wanted]
        pragma = Pragma(simd=True, clauses=" reduction(|:is_wanted)") if config.vectorize else None
        return [
            Block(
                [
                    Line("int32_t is_wanted = 0;", origin=PART),
                    *nest(asked, [self.columns], pragma),
                    Branch("is_wanted", rows),
                ]
            )
        ]

    def stored_rows(self, one: Row) -> list[Statement]:
        """Rows of which elements are stored, and nothing is added up."""
        writer, plan = self.writer, self.writer.plan
        loops: list[tuple] = [(r, 0, writer.size(n)) for r, n in zip(plan.r, plan.inner)]
        threads = None
        if self.shares_rows:
            threads = Pragma("parallel for", collapse=len(loops), condition=writer.threads_if)
        body = [*self.first_in_lanes(one.lines), *one.lines]
        lines = [*one.before, *self.columns_in_runs(body, [], [], one.halves)]
        if self.tiles.is_used:
            (row, start, end), whole = loops[-1], lines
            lines = self.tiles.around(lambda low, high: nest(whole, [(row, low, high)]), end)
            loops[-1] = self.tiles.loop(start, end)
        return nest(lines, loops, threads)

    def shared_rows(self, accumulators: Sums, size: Bound, wanted: list[str]) -> list[Statement]:
        """Each thread adds up a part of the rows; then the parts are put together."""
        writer, row = self.writer, self.writer.plan.r[0]
        count = torch.get_num_threads()
        start, end = f"{row}_start", f"{row}_end"
        lines = self.where_wanted(wanted, self.all_rows(accumulators, start, end))
        arrays = [array for a in accumulators for array in arrays_of(a)]
        own = []
        for c_type, name, value in arrays:
            own.append(Line(f"{c_type}* {name} = {name}s[part];", origin=PART))
            own.append(Line(filled(name, self.filled, value), origin=PART))
        rows = size if isinstance(size, int) else f"({size})"
        bounds = Line(
            f"const int64_t {start} = {rows}*part/{count}, {end} = {rows}*(part + 1)/{count};",
            origin=PART,
        )
        threads = Pragma("parallel for", condition=writer.threads_if)
        others_added = [line for a in accumulators for line in merged(a)]
        others = [("part", 1, count), ("k", 0, self.count)]
        return [
            *[Line(f"{c} {name}s[{count}][{self.width}];", origin=PART) for c, name, _ in arrays],
            *nest([bounds, *own, *lines], [("part", 0, count)], threads),
            *[Line(f"{c_type}* {name} = {name}s[0];", origin=PART) for c_type, name, _ in arrays],
            *nest(others_added, others),
        ]

    def all_rows(self, accumulators: Sums, start: Bound, end: Bound) -> list[Statement]:
        """The reduction's loops, the first from `start` to `end`.  A long sum of floats is the sum
        of the sums of ROWS_CHUNK rows."""
        writer, plan = self.writer, self.writer.plan
        row, low, high = plan.r[-1], start, end
        if plan.r[:-1]:
            low, high = 0, writer.size(plan.inner[-1])
        is_long = longest(math.prod(plan.inner)) > 2 * ROWS_CHUNK
        if is_long and any(a.loses_bits for a in accumulators):
            parts = [a if a.is_arg else a.renamed("part") for a in accumulators]
            pairs = [(a, p) for a, p in zip(accumulators, parts) if not a.is_arg]
            for accumulator, _ in pairs:
                accumulator.over_chunks = True
            added = [a.update(p.name + "[k]", "[k]") for a, p in pairs]
            chunk = [
                bound(f"{row}_stop", f"{row}_chunk + {ROWS_CHUNK}", high),
                *array_declarations([p for _, p in pairs], self.width, self.filled),
                *self.rows(parts, f"{row}_chunk", f"{row}_stop"),
                *nest(added, [("k", 0, self.count)]),
            ]
            lines = nest(chunk, [(f"{row}_chunk", low, high, ROWS_CHUNK)])
        else:
            lines = self.rows(accumulators, low, high)
        return nest(lines, loops_of_rows(writer, start, end))

    def rows(self, accumulators: Sums, start: Bound, end: Bound) -> list[Statement]:
        """Rows from one to another, in tiles where elements lie across the columns."""
        if not self.tiles.is_used:
            return self.plain_rows(accumulators, start, end)
        tile = self.tiles.around(lambda *part: self.plain_rows(accumulators, *part), end)
        return nest(tile, [self.tiles.loop(start, end)])

    def plain_rows(self, accumulators: Sums, start: Bound, end: Bound) -> list[Statement]:
        """Rows one by one, or ROWS at a time and then what is left."""
        row, together = self.writer.plan.r[-1], len(self.steps)
        known = end if start == 0 and isinstance(end, int) else None
        one = self.columns_of(accumulators, 1)
        if together == 1 or known is not None and known < together:
            return nest(one, [(row, start, end)])
        many = self.columns_of(accumulators, together)
        if known is not None and known % together == 0:
            return nest(many, [(row, start, end, together)])
        loops = [
            Loop(row, None, end, many, together, condition=f"{row} < {end} - {together - 1}"),
            Loop(row, None, end, one),
        ]
        return [Block([Line(f"int64_t {row} = {start};", origin=PART), *loops])]

    def columns_of(self, accumulators: Sums, count: int) -> list[Statement]:
        """All columns of `count` rows."""
        rows = self.steps[:count]
        body = self.before_each + [line for row in rows for line in row.lines]
        taken = [name for row in rows for term in row.terms for name in term.reads]
        halves = {place: array for row in rows for place, array in row.halves.items()}
        before = [line for row in rows for line in row.before]
        updates = self.updates(accumulators, rows)
        return [*before, *self.columns_in_runs(body, updates, taken, halves)]

    def columns_in_runs(
        self, body: Statements, updates: Sequence[Line], taken: Iterable[str], halves: HalfArrays
    ) -> list[Statement]:
        """The loop over the columns: of `body`, and `updates` that take these names of it."""
        if halves:
            return in_runs(self.writer, self.columns, halves, Column(body, updates, list(taken)))
        return self.columns_loop([*body, *updates])

    def updates(self, accumulators: Sums, rows: Sequence[Row]) -> list[Line]:
        """What one column of these rows adds."""
        result: list[Line] = []
        for k, a in enumerate(accumulators):
            if a.is_arg:
                result += taken_of_rows(a, [row.terms[k] for row in rows], self.column)
                continue
            terms: list[str] = [row.terms[k].term for row in rows]
            while len(terms) > 1:  # a tree
                terms = [f"({a.combine(*pair)})" for pair in zip(terms[::2], terms[1::2])]
            result.append(a.update(terms[0], self.at))
        return result

    # -- copies of what is read --------------------------------------------------------------------
    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> Code | None:
        """The copy of an element of a row: converted from float16, or turned into lanes' order."""
        writer, plan = self.writer, self.writer.plan
        if writer.in_mask() or self.halves is None or is_indirect(index):
            return None
        if self.is_row and not index.free_symbols.intersection(plan.r):
            return None
        stride = stride_of(index, plan.x[-1])
        if stride == 1 and dtype is torch.float16 and config.vectorize:
            return self.half_place(name, index, written)
        if not self.is_row:
            return None
        is_few = not written and stride not in (0, 1) and self.may_be_turned(index)
        if is_few and len(self.turned) < MOST_TURNED:
            return self.turned_place(name, index, dtype)
        if dtype is torch.float16:
            return self.tiled_place(name, index, dtype, written)
        return None

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype, found: Code) -> Code | None:
        """The same of an element that is no float16 or bfloat16."""
        if dtype not in HALVES:
            copied = self.float_place(name, index, dtype, False)
            if copied is not None:
                return copied
        return self.tiled_place(name, index, dtype, False)

    def stored_place(self, name: str, index: sympy.Expr, dtype: torch.dtype) -> Code | None:
        if dtype is torch.float16:
            return None  # `float_place` is asked, too
        return self.tiled_place(name, index, dtype, True)

    def tiled_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> Code | None:
        """The element of a tile that stands for one that lies across the columns."""
        if not self.is_row or self.halves is None or not self.may_use_tiles:
            return None
        is_float = dtype is torch.float16
        return self.tiles.place(name, index, dtype, written, self.step, is_float)

    def half_place(self, name: str, index: sympy.Expr, written: bool) -> Code:
        """The float that stands for an element of float16, in an array for a run of columns."""
        writer, column = self.writer, self.columns[0]
        run = writer.local(f"{column}_run")
        place = f"{writer.pointer(name, written)} + {writer.index(index.xreplace({column: run}))}"
        if (place, written) not in self.halves:
            self.halves[place, written] = (writer.outside.fresh("half"), playing.value)
        array, _ = self.halves[place, written]
        return code("{}[{} - {}]", named(array), named(column), named(run))

    def turned_place(self, name: str, index: sympy.Expr, dtype: torch.dtype) -> Code:
        """An element of a copy that stands before all loops."""
        writer, plan = self.writer, self.writer.plan
        column, row = plan.x[-1], plan.r[-1]
        key = (name, sympy.expand(index.xreplace({row: row - self.step})))
        width, place = plan.outer[-1], sympy.Integer(0)
        for variable, size in zip(plan.r, plan.inner):
            place = place * size + variable
        place = sympy.expand(place * width + column)
        if key not in self.turned:
            c_type, array = compute_type(dtype), f"turned{len(self.turned)}"
            element = f"{writer.pointer(name, False)}[{writer.index(key[1])}]"
            if dtype in HALVES:
                element = f"mini::to_float({element})"
            copied = Line(f"{array}[{writer.index(place)}] = {element};", origin=playing.value)
            loops = [(v, 0, writer.size(n)) for v, n in zip(plan.r, plan.inner)]
            kept = IN_ARRAYS.get(c_type, c_type)
            declared = f"{kept} {array}[{math.prod(plan.inner) * width}];"
            lines = [
                Line(declared, origin=playing.value),
                *nest([copied], [(column, 0, writer.size(width)), *loops]),
            ]
            self.turned[key] = Turned(array, lines)
        place = sympy.expand(place.xreplace({row: row + self.step}))
        return code("{}[{}]", named(self.turned[key].name), writer.index(place))
