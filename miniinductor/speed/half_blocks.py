"""float16 in blocks of a few vectors, which stay in registers from where they are read to the end.

    float lane0[64];
    int64_t r0_run = 0;
    for (; r0_run + 64 <= 4096; r0_run += 64) {
        float half0[64];
        mini::convert(in0 + r0_run, half0, 64);
        #pragma omp simd
        for (int64_t r0 = r0_run; r0 < r0_run + 64; r0++) lane0[r0 - r0_run] += half0[r0 - r0_run];
    }
    acc0 = acc0 + mini::sum_of(lane0);

In:   an innermost loop that reads or writes float16 (halves.py).  Out: a loop over blocks of a
      length that the compiler knows, and what is left of it.

halves.py converts runs of some hundred elements into arrays in memory.  Here each loop over a block
has a constant length, is unrolled, and its arrays become registers: what is rounded after each
operation takes half the time.  Sums and extremes have a lane for each element of a block.
"""

from dataclasses import replace

from .. import config
from ..codegen.cpp_reductions import CHUNK, Sums
from ..codegen.strategy import Found, strategy
from ..codegen.tree import Bound, Block, Branch, Line, Loop, Pragma, Statement, Statements, nest
from .arrays import array_declarations
from .halves import RUNS, Halves
from .lane_sums import LaneSums

BLOCK = 64  # elements: as many lanes as sums need so that no addition waits for another


@strategy(order=7)
class HalfBlocks(Halves):
    def begin_lanes(self) -> None:
        super().begin_lanes()
        self.parts: Sums | None = None  # what the lanes of a block hold, while blocks are written

    def longest_run(self, body: Statements, accumulators: Sums) -> int | None:
        return CHUNK * 4 if self.may_be_blocks(accumulators) else None

    def may_be_blocks(self, accumulators: Sums) -> bool:
        """Not places, nor bools, of which there are no vectors."""
        are_plain = all(not a.is_arg and a.c_type != "bool" for a in accumulators)
        return bool(self.arrays) and are_plain and self.writer.lanes_are_free()

    def innermost(self, body: Statements, accumulators: Sums, start: Bound, end: Bound) -> Found:
        """Blocks, and what is left."""
        known = end if start == 0 and isinstance(end, int) else None
        if not self.may_be_blocks(accumulators) or known is not None and known < BLOCK:
            return super().innermost(body, accumulators, start, end)
        self.parts = [a.renamed("lane") for a in accumulators]
        lane = str(self.writer.plan.r[-1])
        run = f"{lane}_run"
        pragma = self.writer.simd(accumulators)
        part = (run, f"{run} + {BLOCK}")
        whole = [
            *self.prefetches(run),
            *counted(self.one_run(body, accumulators, part, BLOCK, BLOCK), lane, BLOCK),
        ]
        last, count = f"{start} + ({end} - {start})/{BLOCK}*{BLOCK}", f"{end} - {run}"
        if start == 0:
            last = f"({end})/{BLOCK}*{BLOCK}"
        if known is not None:
            last, count = known // BLOCK * BLOCK, known % BLOCK
        loop = Loop(run, start, last, whole, BLOCK)
        if pragma is not None and pragma.threads:
            loop.pragma = Pragma(pragma.threads, condition=pragma.condition)
        left = self.one_run(body, accumulators, (run, end), BLOCK, count)
        if known is not None:
            left = counted(left, lane, count)
        first = Line(f"const int64_t {run} = {last};", origin=RUNS)
        lines: list[Statement] = [*array_declarations(self.parts, BLOCK), loop]
        if known is None:
            lines.append(Block([first, Branch(f"{run} < {end}", left)]))
        elif count != 0:
            lines.append(Block([first, *left]))
        added = [a.update(f"mini::{a.kind}_of({p.name})") for a, p in zip(accumulators, self.parts)]
        return [Block([*lines, *added])]

    def lanes_of_run(
        self, body: Statements, accumulators: Sums, part: tuple[Bound, Bound], pragma: Pragma | None
    ) -> list[Statement]:
        """The loop over a block, in which each element has a lane of its own."""
        if self.parts is None:
            return super().lanes_of_run(body, accumulators, part, pragma)
        lane = self.writer.plan.r[-1]
        updates = [p.update(p.term, f"[{lane} - {lane}_run]") for p in self.parts]
        simd = Pragma(simd=True) if config.vectorize else None
        return nest([*body, *updates], [(lane, *part)], simd)

    def prefetches(self, run: str) -> list[Statement]:
        for other in self.writer.strategies:
            if isinstance(other, LaneSums):
                return other.prefetches(run, BLOCK)
        return []


def counted(lines: Statements, lane: str, count: int) -> list[Statement]:
    """The loops over the lanes of a run count from 0 to `count`, which the compiler then knows."""
    result: list[Statement] = []
    for line in lines:
        if isinstance(line, Loop) and line.variable == lane:
            first = Line(f"const int64_t {lane} = {lane}_run + k;", origin=RUNS)
            line = replace(line, variable="k", start=0, end=count, body=[first, *line.body])
        result.append(line)
    return result
