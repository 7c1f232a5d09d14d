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

What is left, or a row shorter than a block, is computed in whole vectors where that touches nothing
but such arrays: of 37 elements 48, of which the last 11 are zeros, and are not added.  Lanes that
are written by parts of a vector and read as a whole would have to reach the cache in between.
"""

from collections.abc import Iterable
from dataclasses import replace

from .. import config
from ..codegen.cpp_reductions import CHUNK, Accumulator, Sums
from ..codegen.strategy import Found, strategy
from ..codegen.tree import Block, Bound, Branch, Comment, Definition, Line, Loop, Pragma
from ..codegen.tree import Statement, Statements, nest
from .arrays import VECTOR, array_declarations, room
from .contents import names_in
from .halves import RUNS, Halves
from .lane_sums import LaneSums

BLOCK = 64  # elements: as many lanes as sums need so that no addition waits for another


@strategy(order=7)
class HalfBlocks(Halves):
    def begin_lanes(self) -> None:
        super().begin_lanes()
        self.parts: Sums | None = None  # what the lanes of a block hold, while blocks are written
        # of a part in whole vectors: lanes beyond so many elements add nothing
        self.elements: int | None = None

    def longest_run(self, body: Statements, accumulators: Sums) -> int | None:
        return CHUNK * 4 if self.may_be_blocks(accumulators) else None

    def may_be_blocks(self, accumulators: Sums) -> bool:
        """Not places, nor bools, of which there are no vectors."""
        are_plain = all(not a.is_arg and a.c_type != "bool" for a in accumulators)
        return bool(self.arrays) and are_plain and self.writer.lanes_are_free()

    def innermost(self, body: Statements, accumulators: Sums, start: Bound, end: Bound) -> Found:
        """Blocks, and what is left."""
        known = end if start == 0 and isinstance(end, int) else None
        rest = known % BLOCK if known is not None else 0
        arrays = [array for array, _ in self.arrays.values()]
        lane = str(self.writer.plan.r[-1])
        in_vectors = rest % VECTOR > 0 and touches_only_arrays(body, lane, arrays)
        is_short = known is not None and known < BLOCK
        if not self.may_be_blocks(accumulators) or is_short and not in_vectors:
            return super().innermost(body, accumulators, start, end)
        self.parts, self.elements = [a.renamed("lane") for a in accumulators], None
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
            last, count = known // BLOCK * BLOCK, rest
        loop = Loop(run, start, last, whole, BLOCK)
        if pragma is not None and pragma.threads:
            loop.pragma = Pragma(pragma.threads, condition=pragma.condition)
        self.elements = rest if in_vectors else None
        left = self.one_run(body, accumulators, (run, end), BLOCK, count)
        if known is not None:
            left = counted(left, lane, room(rest) if in_vectors else rest)
        width = room(rest) if is_short else BLOCK
        first = Line(f"const int64_t {run} = {last};", origin=RUNS)
        lines: list[Statement] = [*array_declarations(self.parts, width)]
        if not is_short:
            lines.append(loop)
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
        updates = [p.update(self.term_of(p), f"[{lane} - {lane}_run]") for p in self.parts]
        simd = Pragma(simd=True) if config.vectorize else None
        return nest([*body, *updates], [(lane, *part)], simd)

    def term_of(self, part: Accumulator) -> str:
        """What a lane adds: nothing, if it has no element."""
        if self.elements is None:
            return part.term
        lane = self.writer.plan.r[-1]
        has_element = f"(int32_t)({lane} - {lane}_run) < {self.elements}"
        return f"({has_element} ? {part.term} : ({part.c_type}){part.initial})"

    def prefetches(self, run: str) -> list[Statement]:
        for other in self.writer.strategies:
            if isinstance(other, LaneSums):
                return other.prefetches(run, BLOCK)
        return []


def touches_only_arrays(body: Statements, lane: str, arrays: Iterable[str]) -> bool:
    """May lanes run that have no element?  They read and write nothing but these arrays of whole
    vectors, check nothing, and do not compute with integers, whose division by 0 ends the
    process."""
    known = {lane, f"{lane}_run", *arrays}
    for line in body:
        if not isinstance(line, Line) or line.sets_error:
            return False
        if isinstance(line, Definition) and line.c_type not in ("float", "bool"):
            return False
    lines = [line for line in body if not isinstance(line, Comment)]
    return all(name in known or name.startswith("tmp") for name in names_in(lines))


def counted(lines: Statements, lane: str, count: int) -> list[Statement]:
    """The loops over the lanes of a run count from 0 to `count`, which the compiler then knows."""
    result: list[Statement] = []
    for line in lines:
        if isinstance(line, Loop) and str(line.variable) == lane:
            first = Line(f"const int64_t {lane} = {lane}_run + k;", origin=RUNS)
            line = replace(line, variable="k", start=0, end=count, body=[first, *line.body])
        result.append(line)
    return result
