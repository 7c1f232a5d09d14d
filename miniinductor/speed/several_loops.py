"""Reductions over several loops, where memory does not run through them as through one.

    for (int64_t r0 = 0; r0 < 8; r0++) {
        float part0 = 0;
        for (int64_t r1 = 0; r1 < 64; r1++) { part0 = part0 + in0[r1 + 640*r0]; }
        acc0 = acc0 + part0;
    }

In:   the body of the innermost loop.  Out: that loop, and those around it.

Without this file such a graph runs eagerly.
"""

from ..codegen.cpp import CppKernelWriter
from ..codegen.cpp_reductions import Sums, in_parts
from ..codegen.strategy import Strategy, strategy
from ..codegen.tree import Bound, Statement, Statements, nest


@strategy(order=99)
class SeveralLoops(Strategy):
    def reduced_rows(
        self, body: Statements, accumulators: Sums, start: Bound, end: Bound
    ) -> list[Statement]:
        """The innermost runs on vector lanes into accumulators of its own."""
        writer = self.writer
        size = writer.size(writer.plan.inner[-1])
        rows = in_parts(accumulators, "part", lambda parts: writer.lanes(body, parts, 0, size))
        return nest(rows, loops_of_rows(writer, start, end))


def loops_of_rows(writer: CppKernelWriter, start: Bound, end: Bound) -> list[tuple]:
    """The loops over r0 (from start to end), r1, ... around the lanes."""
    plan = writer.plan
    ends = [(start, end), *[(0, writer.size(n)) for n in plan.inner[1:-1]]]
    return [(r, *both) for r, both in zip(plan.r[:-1], ends)]
