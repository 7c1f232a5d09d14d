"""Rows that are looked up and added up are fetched into the cache some rows ahead.

    {
        const int64_t ahead = mini::minimum<int64_t>(x0 + 4, 16383);
        const int64_t row0 = in0[ahead];
        for (int64_t k = 0; k < 8; k++) __builtin_prefetch(in1 + 256*row0 + 32*k, 0);
    }

In:   reductions along rows of a large table, whose numbers the kernel reads from memory, such as
      the products of pairs of embeddings.  Out: lines before the lanes of a row.

Such rows lie anywhere: no processor foresees them, and it looks only a row or two ahead by itself,
the less the more there is to compute for each.  A row that is merely copied needs none of this.
A number that is out of range is looked up as it is: a fetch of what is no memory does nothing.
"""

from collections.abc import Iterator

import sympy

from .. import config
from ..codegen.cpp_reductions import Sums
from ..codegen.plan import estimate
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Block, Line, Statements
from ..dependencies import Access, LoopBody, stride_of

ROWS_AHEAD = 4
LINE = 64  # bytes of a cache line
MOST_LINES = 16  # of a row: the processor itself fetches what follows
SMALLEST_TABLE = 1 << 20  # bytes: a smaller table lies in the cache
FETCHED = "fetches rows that are needed soon"


@strategy(order=0)
class FetchedRows(Strategy):
    is_asking = False  # are the loops being written, before which the fetches come?
    is_done = False

    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not config.vectorize or plan.is_pointwise or not plan.outer or not plan.inner:
            return False
        return not writer.has_scatter and estimate([plan.outer[-1]]) > ROWS_AHEAD

    def inner_loop(self, body: Statements, accumulators: Sums) -> Found:
        if self.is_asking or self.is_done or self.writer.is_tiled:
            return None
        self.is_done = True
        fetches = self.fetches()
        if not fetches:
            return None
        self.is_asking = True
        lanes = self.writer.ask("inner_loop", body, accumulators)
        self.is_asking = False
        return [*fetches, *lanes]

    def fetches(self) -> Statements:
        """Of each table that this loop reads rows of."""
        writer, plan = self.writer, self.writer.plan
        nodes = plan.nodes_of(writer.current_stage, inner=True)
        found = {pair: None for n in nodes for pair in self.rows(plan.bodies[n.name])}
        if not found:
            return []
        row, ahead = plan.x[-1], writer.local("ahead")
        last = writer.index(sympy.sympify(plan.outer[-1]) - 1)
        soon = f"mini::minimum<int64_t>({row} + {ROWS_AHEAD}, {last})"
        lines = [Line(f"const int64_t {ahead} = {soon};", origin=FETCHED)]
        for number, (table, looked_up) in enumerate(found):
            lines += self.fetch(f"row{number}", table, looked_up, {row: ahead})
        return [Block(lines)]

    def fetch(
        self,
        name: str,
        table: tuple[Access, sympy.Symbol],
        looked_up: Access,
        moved: dict[sympy.Symbol, sympy.Expr],
    ) -> list[Line]:
        """The lines for one table.  name: of the row's number; moved: the row -> a later one."""
        writer, (access, position) = self.writer, table
        where = writer.index(sympy.expand(looked_up.index.xreplace(moved)))
        number = f"{writer.pointer(looked_up.name, False)}[{where}]"
        of_row = {**moved, position: writer.local(name), writer.plan.r[-1]: sympy.Integer(0)}
        size = writer.buffers[access.name].layout.dtype.itemsize
        start = writer.index(sympy.expand(access.index.xreplace(of_row)))
        place = f"{writer.pointer(access.name, False)} + {start} + {LINE // size}*k"
        count = min(estimate([writer.plan.inner[-1]]) * size // LINE, MOST_LINES)
        return [
            Line(f"const int64_t {name} = {number};", origin=FETCHED),
            Line(
                f"for (int64_t k = 0; k < {count}; k++) __builtin_prefetch({place}, 0);",
                origin=FETCHED,
            ),
        ]

    def rows(self, body: LoopBody) -> Iterator[tuple[tuple[Access, sympy.Symbol], Access]]:
        """((row of a table, the symbol of its number), where that number is read)."""
        writer, plan = self.writer, self.writer.plan
        lane, made = plan.r[-1], set(plan.bodies)
        numbers: dict[object, Access] = {}  # a value, or a symbol for it -> where it is read
        for i in body.instructions:
            if i.op == "load":
                access = Access(*body.place(i))
                used = access.index.free_symbols
                positions = [s for s in used if s in numbers]
                if access.name in made:
                    continue
                if not used - set(plan.x):
                    numbers[i.result] = access
                elif len(positions) == 1 and stride_of(access.index, lane) == 1:
                    others = used - {*plan.x, lane, positions[0]}
                    if not others and self.is_worth_it(access.name):
                        yield (access, positions[0]), numbers[positions[0]]
            elif i.op == "to_dtype" and i.args[0] in numbers:
                numbers[i.result] = numbers[i.args[0]]
            elif i.op == "indirect_indexing" and i.args[0] in numbers:
                if not writer.buffers[numbers[i.args[0]].name].layout.dtype.is_floating_point:
                    numbers[i.result] = numbers[i.args[0]]

    def is_worth_it(self, name: str) -> bool:
        """Is the table large, and are its rows longer than a line?"""
        layout, row = self.writer.buffers[name].layout, estimate([self.writer.plan.inner[-1]])
        size = layout.dtype.itemsize
        return row * size >= 2 * LINE and estimate(layout.size) * size >= SMALLEST_TABLE
