"""Scatters of rows by several threads: each takes the rows that are its own, in their order.

    #pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < 4; part++) {
        for (int64_t x0 = 0; x0 < 3000; x0++) {
            const int64_t tmp1 = in1[x0];
            if ((uint64_t)tmp1 / 2 % 4 != part) continue;
            for (int64_t r0 = 0; r0 < 64; r0++) {
                out0[r0 + 64*tmp1] = out0[r0 + 64*tmp1] + in0[r0 + 64*x0];

In:   a pointwise kernel that stores nothing but rows at an index it has read (index_add,
      scatter_add by rows, embedding's gradient).
Out:  its loops once for each thread, which reads all indices and skips other threads' rows.  A
      row's additions come in the order of one thread's: the result has the same bits.

PyTorch: atomic additions, whose order changes from run to run, or one thread.
"""

import sympy
import torch

from .. import config
from ..codegen.plan import PARALLEL_WORK
from ..codegen.strategy import Found, Strategy
from ..codegen.tree import Line, Loop, Pragma, Statements, nest

LEAST_ROW = 16  # elements of a row: below it, reading all indices costs what is gained
OWN_BYTES = 512  # neighbouring rows of so many bytes go to one thread: whole cache lines
MOST_THREADS = 16  # that read all indices
OWNERS = "which thread a row belongs to"


class ScatteredRows(Strategy):
    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not writer.has_scatter or not plan.is_pointwise:
            return False
        sizes = (*plan.outer, *plan.inner)
        known = all(isinstance(n, int) for n in sizes) and bool(plan.outer) and bool(plan.inner)
        is_enough = known and plan.outer_count * plan.inner_count >= PARALLEL_WORK
        several = config.openmp and config.vectorize and torch.get_num_threads() > 1
        return is_enough and several and plan.inner_count >= LEAST_ROW

    def loop_nest(self, body: Statements) -> Found:
        writer, rows = self.writer, self.common_row()
        at = next((n for n, one in enumerate(body) if isinstance(one, Loop)), None)
        if rows is None or at is None or not writer.scatter_is_row_wise:
            return None
        parts = min(torch.get_num_threads(), MOST_THREADS)
        near = max(1, OWN_BYTES // (writer.plan.inner_count * 4))
        owner = f"(uint64_t){rows} / {near} % {parts}"
        skip = Line(f"if ({owner} != (uint64_t)part) continue;", origin=OWNERS)
        loops = [("part", 0, parts), *writer.outer_loops()]
        return nest([*body[:at], skip, *body[at:]], loops, Pragma("parallel for"))

    def common_row(self) -> sympy.Symbol | None:
        """A name of a row that every store has in its index."""
        found = self.writer.scattered_at
        common = set.intersection(*found) if found else set()
        return min(common, key=str, default=None)
