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

import torch
import sympy

from .. import config
from ..codegen.cpp_reductions import CHUNK, LANES, Accumulator, array_declarations
from ..codegen.plan import estimate
from ..codegen.strategy import Strategy, strategy
from ..codegen.tree import Block, Branch, Line, Loop, Pragma, Statement, Statements, nest, printed
from ..dependencies import stride_of
from .spread import Spread


@strategy(order=20)
class LaneSums(Strategy):
    def applies(self) -> bool:
        """Are the lanes long enough, and free?"""
        return config.vectorize and not self.writer.plan.is_pointwise

    def longest_run(self, body: Statements, accumulators: list[Accumulator]) -> int | None:
        return CHUNK * 4 if self.sums_are_bound_by_latency(body, accumulators) else None

    def innermost(
        self, body: Statements, accumulators: list[Accumulator], start: str, end: str
    ) -> list[Statement] | None:
        if not self.sums_are_bound_by_latency(body, accumulators):
            return None
        return self.lane_loop(body, accumulators, start, end)

    def sums_are_bound_by_latency(self, lines, accumulators):
        """Would a loop with one vector of partial sums wait for each addition?  Not where functions
        fill the time."""
        return bool(
            accumulators
            and self.writer.lanes_are_free()
            and all(a.loses_bits for a in accumulators)
            and estimate(self.writer.plan.inner[-1:]) >= 4 * LANES
            and len(printed(lines)) <= 16
            and not any("mini::" in line for line in printed(lines))
        )

    def lane_loop(self, lines, accumulators, start, end):
        """Sums in LANES parts (half as many where elements are stored, too), which the compiler
        keeps in registers; what is left of the loop follows."""
        lane, group = self.writer.plan.r[-1], f"{self.writer.plan.r[-1]}_group"
        parts = [a.renamed("lane") for a in accumulators]
        lanes, alone = (
            LANES if self.writer.only_reads() else LANES // 2,
            self.writer.only_reads()
            and not self.writer.plan.last_stage
            and torch.get_num_threads() == 1,
        )
        # vectors of 32 bytes where one thread waits for nothing but memory: with 64, fewer reads
        # are under way
        width = f" simdlen({32 // max(a.dtype.itemsize for a in accumulators)})" if alone else ""
        one_by_one = [*lines, *[a.update(a.term) for a in accumulators]]
        rest = nest(one_by_one, [(lane, group, end)], self.writer.simd(accumulators))
        if not end.isdigit():
            # setting up a vector loop over nothing would cost a tenth of a row of 768
            rest = [Branch(f"__builtin_expect({group} < {end}, 0)", rest)]
        elif start == "0" and int(end) % lanes == 0:
            rest = []
        added = [Line(f"const int64_t {lane} = {group} + k;"), *lines]
        added += [p.in_lane_array("k") for p in parts]
        together = nest(added, [("k", "0", lanes)], Pragma(simd=True, clauses=width))
        put_together = [a.update(p.name + "[k]") for a, p in zip(accumulators, parts)]
        groups = [*self.prefetches(group, lanes), *together]
        body = [
            *array_declarations(parts, lanes),
            Line(f"int64_t {group} = {start};"),
            Loop(group, None, end, groups, lanes, condition=f"{group} + {lanes} <= {end}"),
            *nest(put_together, [("k", "0", lanes)], self.writer.simd(accumulators)),
            *rest,
        ]
        return [Block(body)]

    def prefetches(self, group, lanes):
        """In the last reduction, over what the cache holds by then, memory is fetched for what
        follows: places of this iteration's results, for writing (else each store waits for its
        line), or, where nothing but reductions is stored, what the next iteration reads first."""
        if (
            not 0 < self.writer.plan.last_stage - (not self.writer.only_reads()) == self.writer.now
            or any(isinstance(one, Spread) for one in self.writer.strategies)
            or not self.writer.plan.outer
        ):
            return []
        row, names = self.writer.plan.x[-1], {n.name for n in self.writer.plan.nodes}
        if self.writer.only_reads():
            written, nodes, step = (
                0,
                [
                    n
                    for n in self.writer.plan.nodes
                    if self.writer.plan.is_inner[n.name] and not self.writer.plan.stage[n.name]
                ],
                {row: row + 1},
            )
            accesses = dict.fromkeys(
                a
                for n in nodes
                for a in self.writer.plan.bodies[n.name].reads()
                if a.name not in names and a.index.has(row)
            )
        else:
            written, nodes, step = (
                1,
                [
                    n
                    for n in self.writer.plan.nodes
                    if self.writer.plan.stage[n.name] == self.writer.plan.last_stage
                    and self.writer.plan.is_inner[n.name]
                    and not n.is_reduction
                    and n.name in self.writer.keep
                    and n.name not in self.writer.overwritten
                ],
                {},
            )
            accesses = [a for n in nodes for a in self.writer.plan.bodies[n.name].writes()]
        at = lambda a: self.writer.index(
            sympy.expand(a.index.xreplace({self.writer.plan.r[-1]: sympy.Symbol(group), **step}))
        )  # noqa: E731
        sizes = [
            (self.writer.buffers[a.name].layout.dtype.itemsize, a)
            for a in accesses
            if stride_of(a.index, self.writer.plan.r[-1]) == 1
        ]
        fetched = []
        for size, access in sizes:
            place = (
                f"{self.writer.pointer(access.name, bool(written))} + {at(access)} + {64 // size}*k"
            )
            loop = f"for (int64_t k = 0; k < {lanes * size // 64}; k++)"
            fetched.append(Line(f"{loop} __builtin_prefetch({place}, {written});"))
        return fetched
