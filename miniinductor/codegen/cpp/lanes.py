"""The loops of a C++ kernel: threads share the outer ones, vector lanes the innermost; each lane
adds to accumulators of its own.

In:   what one iteration computes, and what it adds.  Out: the loops around it.

    float lane0[64];                        64 sums: several vectors, whose additions overlap
    for (int64_t k = 0; k < 64; k++) lane0[k] = 0;
    for (int64_t r0_group = 0; r0_group < 1024; r0_group += 64) {
        #pragma omp simd
        for (int64_t k = 0; k < 64; k++) {
            const int64_t r0 = r0_group + k;
            const float tmp0 = in0[r0];
            lane0[k] = lane0[k] + tmp0;
        }
    }
    acc0 = acc0 + mini::sum_of(lane0);      horizontal reduction, half to half (prelude.h)

Long sums of floats are sums of chunks, added up in double.  Loops that lie around the computation
in another way: layouts.py.  Mirrors the reduction half of CppVecKernel in
torch/_inductor/codegen/cpp.py.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sympy

from ...schedule.nodes import Node
from ...sizes.symbols import Size, estimate
from .expressions import CppScope, array_type, compute_type
from .statements import BeforeLanes, Block, Bound, Line, Loop, Pragma, Statement, Statements, nest

if TYPE_CHECKING:
    from .kernel_writer import CppKernelWriter
    from .reductions import Sums

STACK = "memory for values between two loops"  # what lines that declare it are for
WIDTHS = (64, 32, 16, 8, 4, 2, 1)  # lanes, several vectors of them; short loops have fewer
MOST_ADDITIONS = 32  # of floats into one lane, then it is added up in double


class Plain:
    """Threads share the outer loops; the innermost loop runs over vector lanes."""

    keeps_stack = True  # values that cross stages may wait on the stack of one thread

    def __init__(self, writer: "CppKernelWriter"):
        self.writer, self.plan = writer, writer.plan

    def applies(self) -> bool:
        return True

    @property
    def is_serial(self) -> bool:
        """May two iterations write the same element, as in a scatter?"""
        return self.writer.has_scatter and type(self) is Plain

    def kernel_body(self) -> list[Statement]:
        """All that the outer loops run.  Per stage: accumulators, inner loop, statements after."""
        writer, plan = self.writer, self.plan
        for name, array in writer.scratch.items():
            element = array_type(compute_type(writer.buffers[name].layout.dtype))
            writer.outside.add(f"{element} {array}[{plan.inner_count}];", STACK)
        for stage in plan.stages():
            inner_nodes = plan.nodes_of(stage, inner=True)
            if inner_nodes:
                self.write_lanes(inner_nodes)
            writer.write_into(writer.outside, ())
            writer.store_deferred()
            for node in plan.nodes_of(stage, inner=False):
                writer.play(node)
        return writer.outside.lines

    def write_lanes(self, nodes: Sequence[Node]) -> None:
        """A stage's loops over r0, r1, ..."""
        writer = self.writer
        inside = CppScope(writer.outside)
        writer.accumulators = []
        writer.write_into(inside, self.plan.r)
        for node in nodes:
            writer.play(node)
        for node in nodes:  # next stages cannot see values of this loop
            if not node.is_reduction:
                writer.values.pop(node.name, None)
        writer.outside.lines += self.inner_loop(inside.lines, writer.accumulators)

    def inner_loop(self, body: Statements, accumulators: "Sums") -> list[Statement]:
        """The loops over r0, r1, ... around `body`, and the accumulators' declarations."""
        # the loops come first: if they cut a sum into chunks, the accumulators become doubles
        loops = self.chunks(body, accumulators, 0, self.writer.size(self.plan.inner[0]))
        return [*[a.declared() for a in accumulators], *loops]

    def chunks(
        self, body: Statements, accumulators: "Sums", start: Bound, end: Bound
    ) -> list[Statement]:
        """Loops over r0 (from start to end), r1, ..."""
        loops = self.inner_loops(start, end)
        if accumulators:
            return Lanes(self.writer, body, accumulators, loops).statements()
        *around, (lane, first, stop) = loops
        return nest(self.along(lane, first, stop, body), around)

    def inner_loops(self, start: Bound, end: Bound) -> list[tuple]:
        """(variable, start, end) of r0, r1, ..."""
        (first, *others), sizes = self.plan.r, self.plan.inner[1:]
        return [(first, start, end), *[(r, 0, self.writer.size(n)) for r, n in zip(others, sizes)]]

    def along(
        self, variable: object, start: Bound, end: Bound, body: Statements
    ) -> list[Statement]:
        """A loop over lanes that adds nothing up, or to arrays."""
        if any(isinstance(s, BeforeLanes) for s in body):
            loops = [(variable, start, end)]
            return Lanes(self.writer, body, [], loops).gathering(loops)
        return self.writer.vector_loop(variable, start, end, body, self.writer.simd())

    def outer_loops(self) -> list[tuple]:
        return [(v, 0, self.writer.size(n)) for v, n in zip(self.plan.x, self.plan.outer)]

    def loop_nest(self, body: Statements) -> list[Statement]:
        """The kernel's outer loops around `body`."""
        loops, plan = self.outer_loops(), self.plan
        if not loops and not plan.inner:
            return [Block(body)]
        # a long loop over lanes with few around it is shared itself
        is_one_loop = plan.is_pointwise and plan.outer_count < 8
        return nest(body, loops, Pragma() if is_one_loop else self.threads(len(loops)))

    def threads(self, count: int) -> Pragma:
        """What makes threads share so many loops."""
        if not count or not self.writer.parallel or self.is_serial:
            return Pragma()
        return Pragma("parallel for", collapse=count, condition=self.writer.threads_if)

    def element(self, name: str, index: sympy.Expr, written: bool) -> str:
        """The text of the element of a buffer that is read or written."""
        return f"{self.writer.pointer(name, written)}[{self.writer.index(index)}]"


# --- reductions -----------------------------------------------------------------------------------
@dataclass
class Lanes:
    """Loops that add to accumulators.  loops: (variable, start, end), the innermost last."""

    writer: "CppKernelWriter"
    body: Statements
    accumulators: "Sums"
    loops: list[tuple]

    def statements(self) -> list[Statement]:
        """The loops; a long sum of floats as sums of chunks, for which the accumulators become
        doubles."""
        *around, (variable, start, end) = self.loops
        *others, size = [longest(n) for n in self.writer.plan.inner]
        additions = math.prod([-(-size // self.width), *others])
        if additions <= 2 * MOST_ADDITIONS or not any(a.loses_bits for a in self.accumulators):
            return self.gathering(self.loops)
        for accumulator in self.accumulators:
            accumulator.over_chunks = True
        step, within = MOST_ADDITIONS * self.width, []
        if size <= step:  # a chunk is several runs of the innermost loop
            if not around:
                return self.gathering(self.loops)
            within, step = self.loops[-1:], max(1, step // max(int(size), self.width))
            *around, (variable, start, end) = around
        first, stop = f"{variable}_chunk", f"{variable}_stop"
        chunk = self.gathering([(variable, first, stop), *within])
        ending = bound(stop, f"{first} + {step}", end)
        return nest([ending, *chunk], [*around, (first, start, end, step)])

    @property
    def width(self) -> int:
        """How many lanes."""
        writer = self.writer
        most = estimate(writer.plan.inner[-1:]) if self.accumulators else WIDTHS[0]
        if not writer.lanes_are_free() or most < 8:
            return 1
        wanted = WIDTHS[0] if len(self.body) <= 16 else WIDTHS[1]  # (the compiler's time counts)
        return next(n for n in WIDTHS if n <= min(most, wanted))

    def gathering(self, loops: list[tuple]) -> list[Statement]:
        """The loops, and before them the lanes' arrays, which are put together after them."""
        *around, (lane, start, end) = loops
        arrays = {"lane": self.width}  # beginning of an array's name -> how many lanes it has
        whole = self.lanes_from(lane, f"{lane}_group", self.width)
        threads = replace(self.writer.simd(), simd=False)
        lines: list[Statement]
        if isinstance(start, int) and isinstance(end, int):
            left = (end - start) % self.width
            stop = end - left
            lines = [Loop(f"{lane}_group", start, stop, whole, self.width, threads)]
            # Powers of two, each with its own array: a part of a vector that is stored in "lane"
            # would have to reach memory before the whole vector is loaded again
            counts = [n for n in WIDTHS if left & n] if self.accumulators else [left]
            for count in counts if left else ():
                arrays[f"lane{count}_"] = count
                lines += self.lanes_from(lane, stop, count, f"lane{count}_")
                stop += count
        else:
            last = f"{lane}_last"
            text = f"const int64_t {last} = {start} + ({end} - {start})/{self.width}*{self.width};"
            lines = [Line(text, origin="where whole groups of lanes end")]
            lines.append(Loop(f"{lane}_group", start, last, whole, self.width, threads))
            lines += self.lanes_from(lane, last, f"{end} - {last}")
        pairs = [(a, prefix) for a in self.accumulators for prefix in arrays]
        before = [line for a, prefix in pairs for line in a.lanes(prefix, arrays[prefix])]
        after = [line for a, prefix in pairs for line in a.gathered(prefix)]
        return [Block([*before, *nest(lines, around), *after])]

    def lanes_from(
        self, variable: object, first: Bound, count: Bound, prefix: str = "lane"
    ) -> list[Statement]:
        """`count` lanes from the iteration `first` on; prefix: of their arrays' names."""
        place = Line(f"const int64_t {variable} = {first} + k;", origin="which lane it is")
        most = count if isinstance(count, int) else self.width
        before = [
            Line(s.text.format(most, count), origin=s.origin)
            for s in self.body
            if isinstance(s, BeforeLanes)
        ]
        added = [a.in_lane(prefix) for a in self.accumulators]
        pragma = Pragma(simd=self.width > 1)
        lines = self.writer.vector_loop("k", 0, count, [place, *self.body, *added], pragma)
        if before:
            start = Line("const int64_t k = 0;", origin="the first lane")
            lines = [Block([start, place, *before, *lines])]
        after = [a.after_lanes(prefix, place, count) for a in self.accumulators]
        return [*lines, *itertools.chain(*after)]


def longest(size: Size) -> int | float:
    """How many iterations a loop may have.  A symbolic size may be anything, whatever it was in the
    run that is compiled: accuracy must not depend on that."""
    return size if isinstance(size, int) else math.inf


def bound(name: str, wanted: str, end: Bound) -> Line:
    """Where a part of a loop ends: at `wanted`, but not beyond the loop's own end."""
    text = f"const int64_t {name} = mini::minimum<int64_t>({wanted}, {end});"
    return Line(text, origin="where a part of a loop ends")
