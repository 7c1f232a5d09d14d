"""Reductions into an array of lanes, put together at the end: no addition waits for another.

    float lane0[64];                            64 sums: several vectors, whose additions overlap
    int64_t r0_group = 0;
    for (; r0_group + 64 <= 1024; r0_group += 64) {
        #pragma omp simd
        for (int64_t k = 0; k < 64; k++) {
            const int64_t r0 = r0_group + k;
            const float tmp0 = in0[r0];
            lane0[k] = lane0[k] + tmp0;
        }
    }
    acc0 = acc0 + mini::sum_of(lane0);

In:   a reduction's innermost loop.  Out: the loop over groups of lanes, and what is left of it.

Where functions fill the time there are as many lanes as one vector has.
"""

from pathlib import Path

import sympy
import torch

from .. import config
from ..codegen.cpp_reductions import CHUNK, Sums
from ..codegen.plan import estimate
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Bound, Block, Branch, Line, Loop, Pragma, Statement, Statements
from ..codegen.tree import nest, printed
from ..dependencies import Access, stride_of
from ..runtime.build import PRELUDES
from ..lowerings.half_types import ROUNDINGS
from ..lowerings.cpp_masks import fence
from .arrays import LANES, VECTOR, array_declarations
from .contents import uses_of
from .spread import Spread


# what takes no longer than an addition that waits
FAST = {"to_float", "to_float16", "round_bfloat16", "abs", "maximum", "minimum", "/", "%", "[]"}
GROUP = "where a group of lanes begins"
VECTOR_BYTES = 64
PRELUDES.append(Path(__file__).with_name("lane_sums.h"))


@strategy(order=20)
class LaneSums(Strategy):
    def applies(self) -> bool:
        return config.vectorize and not self.writer.plan.is_pointwise

    def longest_run(self, body: Statements, accumulators: Sums) -> int | None:
        return CHUNK * 4 if self.are_bound_by_latency(body, accumulators) else None

    def are_bound_by_latency(self, body: Statements, accumulators: Sums) -> bool:
        """Would a loop with one vector of partial results wait for each of them?  Not where
        functions fill the time."""
        if not self.may_have_lanes(accumulators):
            return False
        if estimate(self.writer.plan.inner[-1:]) < 4 * LANES:
            return False
        return len(printed(body)) <= 16 and uses_of(body) <= FAST

    def may_have_lanes(self, accumulators: Sums) -> bool:
        """Not places, nor bools, of which there are no vectors."""
        are_plain = all(not a.is_arg and a.c_type != "bool" for a in accumulators)
        return bool(accumulators) and are_plain and self.writer.lanes_are_free()

    def only_reads(self) -> bool:
        """Does the kernel store nothing per element?"""
        plan = self.writer.plan
        return all(n.is_reduction for n in plan.nodes if plan.is_inner[n.name])

    def count(self, body: Statements, accumulators: Sums, start: Bound, end: Bound) -> int:
        """How many lanes; 0: the row fills none."""
        if not self.may_have_lanes(accumulators):
            return 0
        if self.are_bound_by_latency(body, accumulators):
            are_sums = all(a.loses_bits for a in accumulators)
            return LANES if are_sums and self.only_reads() else LANES // 2
        fewest = self.lanes_of_a_vector()
        if start != 0 or not isinstance(end, int):  # a part of a row, or any length: by one kernel
            size = self.writer.plan.inner[-1]
            return fewest if isinstance(size, int) and size >= 2 * fewest else 0
        counts = [LANES, LANES // 2] if uses_of(body) <= FAST else []
        fitting = [n for n in counts if n >= fewest and end % n == 0]
        return max([n for n in (*fitting, fewest) if n <= end], default=0)

    def lanes_of_a_vector(self) -> int:
        """Of which all elements that the kernel reads or writes fill whole vectors."""
        writer = self.writer
        names = {a.name for b in writer.plan.bodies.values() for a in (*b.reads(), *b.writes())}
        narrowest = min((writer.buffers[n].layout.dtype.itemsize for n in names), default=4)
        return VECTOR_BYTES // min(max(narrowest, 1), 4)

    def innermost(self, body: Statements, accumulators: Sums, start: Bound, end: Bound) -> Found:
        """Results of lanes, which the compiler keeps in registers; what is left of the loop
        follows."""
        lanes = self.count(body, accumulators, start, end)
        if not lanes:
            return None
        lane = self.writer.plan.r[-1]
        group = f"{lane}_group"
        parts = [a.renamed("lane") for a in accumulators]
        updates = [p.update(p.term, "[k]") for p in parts]

        def gathered(first: str | int, count: str | int, clauses: str = "") -> list[Statement]:
            """From `first` on, by as many lanes."""
            lines = [Line(f"const int64_t {lane} = {first} + k;", origin=GROUP), *body, *updates]
            known = count if isinstance(count, int) else None
            pragma = Pragma(simd=True, clauses=clauses)
            return [*fence(lines, known), *nest(lines, [("k", 0, count)], pragma)]

        together = gathered(group, lanes, self.width(body, accumulators, lanes))
        groups = [*self.prefetches(group, lanes), *together]
        lines = [
            *array_declarations(parts, lanes),
            Line(f"int64_t {group} = {start};", origin=GROUP),
            Loop(group, None, end, groups, lanes, condition=f"{group} + {lanes} <= {end}"),
        ]
        tails: list[Statement] = []
        if start == 0 and isinstance(end, int):
            done = end // lanes * lanes
            for first, stop in whole_vectors(end - done):
                if stop - first >= VECTOR:
                    lines += gathered(done + first, stop - first)
                else:
                    tails += self.tail(body, accumulators, done + first, stop - first)
        else:  # setting up a vector loop over nothing would cost a tenth of a row of 768
            left = gathered(group, f"{end} - {group}")
            lines.append(Branch(f"__builtin_expect({group} < {end}, 0)", left))
        lines += [a.update(f"mini::{a.kind}_of({p.name})") for a, p in zip(accumulators, parts)]
        return [Block(lines), *tails]

    def tail(self, body: Statements, accumulators: Sums, first: int, count: int) -> list[Statement]:
        """The last lanes, which fill no vector, in arrays of their own: what is written by parts of
        a vector, and read as a whole, would have to reach the cache in between."""
        parts = [a.renamed("rest") for a in accumulators]
        made = Line(f"const int64_t {self.writer.plan.r[-1]} = {first} + k;", origin=GROUP)
        lanes = [made, *body, *[p.update(p.term, "[k]") for p in parts]]
        lines = [
            *array_declarations(parts, count),
            *fence(lanes, count),
            *nest(lanes, [("k", 0, count)], Pragma(simd=True)),
            *[a.update(f"mini::{a.kind}_of({p.name})") for a, p in zip(accumulators, parts)],
        ]
        return [Block(lines)]

    def width(self, body: Statements, accumulators: Sums, lanes: int) -> str:
        """Vectors of 32 bytes where one thread waits for nothing but memory: with 64, fewer reads
        are under way.  Not where it rounds, or reads narrower elements: that would take twice as
        many instructions for as much memory (sums of bfloat16 twice the time)."""
        is_alone = torch.get_num_threads() == 1 and not self.writer.plan.last_stage
        if lanes < LANES or not is_alone or not self.only_reads():
            return ""
        if self.lanes_of_a_vector() > VECTOR:
            return ""
        if not ROUNDINGS.isdisjoint(uses_of(body)):
            return ""
        return f" simdlen({32 // max(a.dtype.itemsize for a in accumulators)})"

    def prefetches(self, group: str, lanes: int) -> list[Statement]:
        """In the last reduction, over what the cache holds by then, memory is fetched for what
        follows: places of this iteration's results, for writing (else each store waits for its
        line), or, where nothing but reductions is stored, what the next iteration reads first."""
        writer, plan = self.writer, self.writer.plan
        only_reads = self.only_reads()
        last = plan.last_stage if only_reads else plan.last_stage - 1
        if lanes < LANES // 2 or last <= 0 or writer.current_stage != last or not plan.outer:
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


def whole_vectors(size: int) -> list[tuple[int, int]]:
    """[(start, end)] of the parts of a loop over `size` lanes."""
    parts, at = [], 0
    for lanes in (VECTOR, 8, 4, 2, 1):
        stop = size // lanes * lanes
        if stop > at:
            parts.append((at, stop))
        at = stop
    return parts
