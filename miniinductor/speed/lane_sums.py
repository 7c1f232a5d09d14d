"""Sums whose additions need not wait for one another: many partial sums, in vector registers.

    float lane0[64];                            64 sums: several vectors, whose additions overlap
    int64_t r0_group = 0;
    for (; r0_group + 64 <= 1024; r0_group += 64) {
        #pragma omp simd
        for (int64_t k = 0; k < 64; k++) {
            const int64_t r0 = r0_group + k;
            const float tmp0 = in0[r0];
            lane0[k] = lane0[k] + tmp0;

In:   a reduction's innermost loop.  Out: the loop over groups of lanes, and what is left of it.
"""

import re

import sympy
import torch

from .. import config
from ..codegen.cpp_reductions import CHUNK, Sums
from ..codegen.plan import estimate
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Block, Branch, Line, Loop, Pragma, Statement, Statements, nest, printed
from ..dependencies import Access, stride_of
from .arrays import LANES, array_declarations
from .spread import Spread


# what takes longer than an addition that waits; bfloat16 is rounded by a few instructions
SLOW = re.compile(r"mini::(?!to_float|round_bfloat16)")
GROUP = "where a group of lanes begins"


@strategy(order=20)
class LaneSums(Strategy):
    def applies(self) -> bool:
        return config.vectorize and not self.writer.plan.is_pointwise

    def longest_run(self, body: Statements, accumulators: Sums) -> int | None:
        return CHUNK * 4 if self.are_bound_by_latency(body, accumulators) else None

    def are_bound_by_latency(self, body: Statements, accumulators: Sums) -> bool:
        """Would a loop with one vector of partial sums wait for each addition?  Not where functions
        fill the time."""
        writer = self.writer
        if not accumulators or not all(a.loses_bits for a in accumulators):
            return False
        if not writer.lanes_are_free() or estimate(writer.plan.inner[-1:]) < 4 * LANES:
            return False
        lines = printed(body)
        return len(lines) <= 16 and not any(SLOW.search(line) for line in lines)

    def only_reads(self) -> bool:
        """Does the kernel store nothing per element?"""
        plan = self.writer.plan
        return all(n.is_reduction for n in plan.nodes if plan.is_inner[n.name])

    def innermost(self, body: Statements, accumulators: Sums, start: str, end: str) -> Found:
        """Sums in LANES parts (half as many where elements are stored, too), which the compiler
        keeps in registers; what is left of the loop follows."""
        if not self.are_bound_by_latency(body, accumulators):
            return None
        writer, lane = self.writer, self.writer.plan.r[-1]
        group, only_reads = f"{lane}_group", self.only_reads()
        lanes = LANES if only_reads else LANES // 2
        parts = [a.renamed("lane") for a in accumulators]
        added = [Line(f"const int64_t {lane} = {group} + k;", origin=GROUP), *body]
        added += [p.update(p.term, "[k]") for p in parts]
        pragma = Pragma(simd=True, clauses=self.width(body, accumulators) if only_reads else "")
        together = nest(added, [("k", "0", lanes)], pragma)
        groups = [*self.prefetches(group, lanes), *together]
        put_together = [a.update(p.name + "[k]") for a, p in zip(accumulators, parts)]
        lines = [
            *array_declarations(parts, lanes),
            Line(f"int64_t {group} = {start};", origin=GROUP),
            Loop(group, None, end, groups, lanes, condition=f"{group} + {lanes} <= {end}"),
            *nest(put_together, [("k", "0", lanes)], writer.simd(accumulators)),
        ]
        if start != "0" or not end.isdigit() or int(end) % lanes:
            lines += self.rest(body, accumulators, group, end)
        return [Block(lines)]

    def rest(self, body: Statements, accumulators: Sums, group: str, end: str) -> list[Statement]:
        """The lanes that fill no group, one by one."""
        one_by_one = [*body, *[a.update(a.term) for a in accumulators]]
        loop = [(self.writer.plan.r[-1], group, end)]
        lines = nest(one_by_one, loop, self.writer.simd(accumulators))
        if end.isdigit():
            return lines
        # setting up a vector loop over nothing would cost a tenth of a row of 768
        return [Branch(f"__builtin_expect({group} < {end}, 0)", lines)]

    def width(self, body: Statements, accumulators: Sums) -> str:
        """Vectors of 32 bytes where one thread waits for nothing but memory: with 64, fewer reads
        are under way.  Not where it rounds, too: that would take twice as many instructions."""
        if self.writer.plan.last_stage or torch.get_num_threads() > 1:
            return ""
        if any("mini::round_" in line for line in printed(body)):
            return ""
        return f" simdlen({32 // max(a.dtype.itemsize for a in accumulators)})"

    def prefetches(self, group: str, lanes: int) -> list[Statement]:
        """In the last reduction, over what the cache holds by then, memory is fetched for what
        follows: places of this iteration's results, for writing (else each store waits for its
        line), or, where nothing but reductions is stored, what the next iteration reads first."""
        writer, plan = self.writer, self.writer.plan
        only_reads = self.only_reads()
        last = plan.last_stage if only_reads else plan.last_stage - 1
        if last <= 0 or writer.current_stage != last or not plan.outer:
            return []
        if any(isinstance(one, Spread) for one in writer.strategies):
            return []
        row, lane = plan.x[-1], plan.r[-1]
        moved: dict[sympy.Symbol, sympy.Expr] = {lane: writer.local(group)}
        if only_reads:
            accesses = self.read_first()
            moved[row] = row + 1
        else:
            accesses = self.written_last()
        fetched: list[Statement] = []
        for access in accesses:
            if stride_of(access.index, lane) != 1:
                continue
            size = writer.buffers[access.name].layout.dtype.itemsize
            at = writer.index(sympy.expand(access.index.xreplace(moved)))
            place = f"{writer.pointer(access.name, not only_reads)} + {at} + {64 // size}*k"
            loop = f"for (int64_t k = 0; k < {lanes * size // 64}; k++)"
            fetch = f"{loop} __builtin_prefetch({place}, {int(not only_reads)});"
            fetched.append(Line(fetch, origin="fetches memory that is needed soon"))
        return fetched

    def read_first(self) -> list[Access]:
        """What the first stage reads of this row alone."""
        plan, made = self.writer.plan, set(self.writer.plan.bodies)
        reads = [a for n in plan.nodes_of(0, inner=True) for a in plan.bodies[n.name].reads()]
        row = plan.x[-1]
        return list(dict.fromkeys(a for a in reads if a.name not in made and a.index.has(row)))

    def written_last(self) -> list[Access]:
        """What the last stage stores element by element."""
        writer, plan = self.writer, self.writer.plan
        return [
            access
            for n in plan.nodes_of(plan.last_stage, inner=True)
            if not n.is_reduction and n.name in writer.keep and n.name not in writer.overwritten
            for access in plan.bodies[n.name].writes()
        ]
