"""Reductions that step through memory by rows: the lanes run along the outer loop.

    float acc0[512];                                one element per column
    for (int64_t k = 0; k < 512; k++) acc0[k] = 0;
    for (int64_t r0 = 0; r0 < 1024; r0++) {
        #pragma omp simd
        for (int64_t x0 = 0; x0 < 512; x0++) {
            const float tmp0 = in0[x0 + 512*r0];
            acc0[x0] = acc0[x0] + tmp0;

In:   a group whose reductions' last outer loop has stride 1.  Out: its whole kernel.

Columns are reduced in blocks, whole rows where they are short enough: then memory is read from its
start to its end.  Each block is a thread's work, or (`shares_rows`, of whole rows) threads share
the rows: each has accumulators of its own, which are put together at the end.  Long float sums are
sums of chunks, added up in double.

Mirrors the outer-reduction tiling in torch/_inductor/codegen/cpp.py.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import sympy
import torch

from ... import config
from ...ir.dependencies import Access, int_or_none, stride_of
from ...ir.loops import playing
from ...schedule.nodes import Node
from ...sizes.expressions import is_indirect
from ...sizes.symbols import hint
from ..common import Value, code, named
from ..plan import estimate
from ..tree import Bound, Line, Loop, Pragma, Statement, Statements, nest
from .expressions import CppScope, compute_type
from .invariants import RowInvariants
from .reductions import ARRAY_TYPES, LANES, STACK, Sums, array_declarations, bound, filled, longest

PART = "where a thread's part of the rows lies"

ROWS_CHUNK = 128  # longest run of float additions of rows into one accumulator
WHOLE_ROW = 2048  # columns reduced together at most
COLUMNS = 512  # the same where rows are longer than that
LEAST_COLUMNS = 32  # where lanes along them are chosen though memory runs along them in no read
SHORT = 7  # elements of a reduction that fill no vector: windows, which overlap


def runs_along(accesses: Iterable[Access], variable: sympy.Symbol, other: sympy.Symbol) -> bool:
    """Does memory run along `variable`, rather than along `other`, in more of these accesses than
    the other way round?"""
    steps = [
        [int_or_none(stride_of(access.index, v)) for v in (variable, other)] for access in accesses
    ]
    return sum((a == 1 and b != 1) - (b == 1 and a != 1) for a, b in steps) > 0


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
        if not runs_along(reads, plan.x[-1], plan.r[-1]):
            return False
        self.plan_blocks()
        return True

    def plan_blocks(self) -> None:
        """How wide blocks of columns are, and whether threads share their rows."""
        writer, plan = self.writer, self.writer.plan
        threads, size = torch.get_num_threads(), hint(plan.outer[-1], 512)
        around = estimate(plan.outer[:-1])
        can_share = writer.parallel and threads > 1 and config.split_reductions
        are_many = hint(plan.inner[0], 512) >= 4 * threads and around < threads
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
        self.count: Bound = f"{end} - {start}"
        self.at = code("[{} - {}]", named(column), named(start))
        self.columns: tuple[sympy.Symbol, Bound, Bound] = (column, start, end)
        if self.is_whole:
            self.count, self.at, self.columns = size, code("[{}]", named(column)), (column, 0, size)
        # buffer -> array that holds its value for each column of the block
        self.arrays: dict[str, str] = {}
        lines: list[Statement] = []
        for stage in plan.stages():
            writer.deferred, writer.accumulators, writer.current_stage = [], [], stage
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
        loops = self.writer.outer_loops()[:-1]
        count = len(loops) + (not self.is_whole)
        if loops:
            return nest(body, loops, self.threads(count))
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

    def after_rows(self, nodes: Sequence[Node], stage: int) -> list[Statement]:
        """The results of a stage's reductions, and the nodes after it, for each column."""
        writer, plan = self.writer, self.writer.plan
        deferred = writer.deferred
        scope = self.own_scope(())
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
                declared = f"{ARRAY_TYPES.get(c_type, c_type)} {array}[{self.block_width}];"
                lines.append(Line(declared, origin=STACK))
                kept = code("{}{} = {};", named(array), self.at, value)
                scope.add(kept, "kept for the loops that follow")
        return lines + writer.along(*self.columns, scope.lines)

    # -- one stage ---------------------------------------------------------------------------------
    def rows_loop(self, nodes: Sequence[Node]) -> list[Statement]:
        """All rows of a block, and before them what is the same in each row, and accumulators."""
        writer, plan = self.writer, self.writer.plan
        self.new_scope_above()
        if config.lane_tables:
            outer = (*plan.x, *self.arrays.values())
            self.begin_rows(self.columns, self.at, self.block_width, outer)
        before = CppScope()  # of the columns, in each row
        scope = self.own_scope((plan.x[-1],), before)
        writer.accumulators, writer.deferred = [], []
        for node in nodes:
            writer.play(node)
        accumulators = writer.accumulators
        added = [name for a in accumulators for name in a.reads]
        body = [*self.first_in_lanes(scope.lines, added), *scope.lines]

        def columns(parts: Sums) -> list[Statement]:
            updates = [line for p in parts for line in p.taken(self.at)]
            return [*before.lines, *writer.along(*self.columns, [*body, *updates])]

        size = writer.size(plan.inner[0])
        if not accumulators:
            threads = None
            if self.shares_rows:
                threads = Pragma("parallel for", collapse=len(plan.r), condition=writer.threads_if)
            lines = nest(columns([]), self.loops(0, size), threads)
        elif self.shares_rows:
            lines = self.shared_rows(accumulators, columns, size)
        else:
            rows = self.all_rows(accumulators, columns, 0, size)
            lines = [*array_declarations(accumulators, self.block_width), *rows]
        self.is_on = False
        return self.above.lines + lines

    def is_same(self, name: str) -> bool:
        """Where a block begins, and sizes, are the same in each of its rows, too."""
        return (
            name == self.columns[1] or name in map(str, self.writer.sizes) or super().is_same(name)
        )

    def loops(self, start: Bound, end: Bound) -> list[tuple]:
        """Over r0 (from start to end), r1, ..."""
        writer, plan = self.writer, self.writer.plan
        rest = [(r, 0, writer.size(n)) for r, n in zip(plan.r[1:], plan.inner[1:])]
        return [(plan.r[0], start, end), *rest]

    def all_rows(
        self,
        accumulators: Sums,
        columns: Callable[[Sums], list[Statement]],
        start: Bound,
        end: Bound,
    ) -> list[Statement]:
        """The reduction's loops, the first from `start` to `end`.  A long sum of floats is the sum
        of the sums of ROWS_CHUNK rows."""
        *loops, (row, low, high) = self.loops(start, end)
        is_long = longest(math.prod(self.writer.plan.inner)) > 2 * ROWS_CHUNK
        if not is_long or not any(a.loses_bits for a in accumulators):
            return nest(columns(accumulators), [*loops, (row, low, high)])
        parts = [a.renamed("part") if a.loses_bits else a for a in accumulators]
        pairs = [(a, p) for a, p in zip(accumulators, parts) if a.loses_bits]
        for accumulator, _ in pairs:
            accumulator.over_chunks = True
        added = [a.update(p.name + "[k]", "[k]") for a, p in pairs]
        chunk = [
            bound(f"{row}_stop", f"{row}_chunk + {ROWS_CHUNK}", high),
            *array_declarations([p for _, p in pairs], self.block_width),
            *nest(columns(parts), [(row, f"{row}_chunk", f"{row}_stop")]),
            *nest(added, [("k", 0, self.count)]),
        ]
        return nest(chunk, [*loops, (f"{row}_chunk", low, high, ROWS_CHUNK)])

    def shared_rows(
        self, accumulators: Sums, columns: Callable[[Sums], list[Statement]], size: Bound
    ) -> list[Statement]:
        """Each thread adds up a part of the rows; then the parts are put together."""
        writer, row = self.writer, self.writer.plan.r[0]
        count, width = torch.get_num_threads(), self.block_width
        start, end = f"{row}_start", f"{row}_end"
        lines = self.all_rows(accumulators, columns, start, end)
        arrays = [array for a in accumulators for array in a.arrays()]
        own = []
        for c_type, name, value in arrays:
            own.append(Line(f"{c_type}* {name} = {name}s[part];", origin=PART))
            own.append(Line(filled(name, width, value), origin=PART))
        rows = size if isinstance(size, int) else f"({size})"
        bounds = Line(
            f"const int64_t {start} = {rows}*part/{count}, {end} = {rows}*(part + 1)/{count};",
            origin=PART,
        )
        threads = Pragma("parallel for", condition=writer.threads_if)
        merged = [line for a in accumulators for line in a.merged("part")]
        return [
            *[Line(f"{c} {name}s[{count}][{width}];", origin=PART) for c, name, _ in arrays],
            *nest([bounds, *own, *lines], [("part", 0, count)], threads),
            *[Line(f"{c_type}* {name} = {name}s[0];", origin=PART) for c_type, name, _ in arrays],
            *nest(merged, [("part", 1, count), ("k", 0, self.count)]),
        ]
