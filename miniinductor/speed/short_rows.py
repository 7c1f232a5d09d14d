"""Reductions of a few elements of each of many rows: every lane adds up its own.

In:   loops of a reduction of which the innermost is short.  Out: the lanes' arrays, the loop over
      rows, and the lanes put together.
"""

from .. import config
from ..codegen.cpp_reductions import (
    CHUNK,
    LANES,
    Accumulator,
    alone,
    array_declarations,
    bound,
    longest,
)
from ..codegen.strategy import Strategy, strategy
from ..codegen.tree import Block, Pragma, Statement, Statements, nest


@strategy(order=30)
class ShortRows(Strategy):
    def applies(self) -> bool:
        return config.vectorize

    def reduced_rows(
        self, body: Statements, accumulators: list[Accumulator], start: str, end: str
    ) -> list[Statement] | None:
        writer = self.writer
        is_short = longest(writer.plan.inner[-1]) <= LANES
        if not is_short or not writer.lanes_are_free() or any(a.is_arg for a in accumulators):
            return None
        return self.short_rows(body, accumulators, start, end)

    def short_rows(self, lines, accumulators, start, end):
        """A few elements of each of many rows: every lane adds up its own, and the lanes are put
        together at the end (of CHUNK rows)."""
        lane, row, count, parts = (
            self.writer.plan.r[-1],
            self.writer.plan.r[-2],
            self.writer.plan.inner[-1],
            [a.renamed("lane") for a in accumulators],
        )
        *outer, (_, low, high) = self.writer.loops_of_reduction(self.writer.plan.r[:-1], start, end)
        loops, chunked = (
            [(row, low, high)],
            longest(self.writer.plan.inner[-2]) > CHUNK and any(a.loses_bits for a in accumulators),
        )
        for accumulator in accumulators:
            accumulator.over_chunks = True
        if chunked:
            outer, loops = (
                outer + [(f"{row}_chunk", low, high, CHUNK)],
                [(row, f"{row}_chunk", f"{row}_stop")],
            )
        stop = [bound(f"{row}_stop", f"{row}_chunk + {CHUNK}", high)] if chunked else []
        added = [*lines, *[p.in_lane_array(lane) for p in parts]]
        row_loop = nest(
            [*alone(lines), *nest(added, [(lane, "0", count)], Pragma(simd=True))], loops
        )
        merge = nest(
            [a.update(p.name + "[k]") for a, p in zip(accumulators, parts)], [("k", "0", count)]
        )
        body = [*stop, *array_declarations(parts, count), *row_loop, *merge]
        return nest(body, outer) if outer else [Block(body)]
