"""float16 is converted in runs: elements that follow each other, to and from arrays of floats.

    for (int64_t r0_run = 0; r0_run < 4096; r0_run += 128) {
        float half0[128];
        mini::convert(in0 + r0_run, half0, 128);
        for (int64_t r0 = r0_run; ...) ... half0[r0 - r0_run]

In:   the elements of float16 that an innermost loop reads and writes.  Out: what stands for them,
      and a loop over runs, in which the other strategies write the loop over the lanes.  A row that
      is one run has no such loop, and lanes whose number g++ knows.  Tiles: see tiles.py.

Arrays of floats end with a whole vector (`room`): only memory is read and written by parts of one.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import sympy
import torch

from .. import config
from ..codegen.code import Code, code, named
from ..codegen.cpp_reductions import bound, Sums
from ..codegen.plan import estimate
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Bound, Block, Line, Pragma, Statement, Statements, nest
from ..dependencies import stride_of
from ..ir import playing
from ..runtime.build import PRELUDES
from ..sizes.expressions import is_indirect
from .arrays import LANES, is_lane_of_float16, room
from .rounding_steps import Steps

RUN = 128  # elements converted at once
SHORTEST = 32  # a shorter row than RUN is converted, too, if its length is known
RUN_OF_SUMS = 512  # the same where they are added up: then partial sums are put together
RUN_OF_PLACES = 4096  # and of argmax, whose lanes are put together one by one
RUNS = "which part of the loop is converted"


@strategy(order=8)
class Halves(Strategy):
    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not config.vectorize or writer.has_scatter or not plan.inner:
            return False
        return self.is_long_enough()

    def is_long_enough(self) -> bool:
        """Is it worth an array?"""
        size = self.writer.plan.inner[-1]
        if isinstance(size, int) and size < RUN:
            return size >= SHORTEST
        return estimate([size]) >= RUN

    def begin_lanes(self) -> None:
        # (pointer to a run of elements, is it written?) -> array of floats
        self.arrays: dict[tuple[str, bool], tuple[str, Any]] = {}

    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> Code | None:
        """The place in the array of a run's floats that stands for an element."""
        writer, lane = self.writer, self.writer.plan.r[-1]
        if not is_lane_of_float16(writer, dtype):
            return None
        if writer.is_tiled:  # (known now: tiles are chosen after this strategy)
            return None
        if stride_of(index, lane) != 1 or is_indirect(index) or not self.is_long_enough():
            return None
        if adds_short_rows(writer):  # short_rows.py writes these loops as a whole
            return None
        run = writer.local(f"{lane}_run")
        start = f"{writer.pointer(name, written)} + {writer.index(index.xreplace({lane: run}))}"
        made = (f"half{len(self.arrays)}", playing.value)
        array, _ = self.arrays.setdefault((start, written), made)
        return code("{}[{} - {}]", named(array), named(lane), named(run))

    def innermost(self, body: Statements, accumulators: Sums, start: Bound, end: Bound) -> Found:
        """The loop over the lanes, by runs that are converted as a whole."""
        if not self.arrays:
            return None
        lane, length = self.writer.plan.r[-1], run_length(accumulators)
        known = end if start == 0 and isinstance(end, int) else None
        if known is not None:
            length = even_length(known, length)
        if length == known:
            first = Line(f"const int64_t {lane}_run = 0;", origin=RUNS)
            return [Block([first, *self.one_run(body, accumulators, (start, end), length, end)])]
        count = f"{lane}_run_end - {lane}_run"
        stop = bound(f"{lane}_run_end", f"{lane}_run + {length}", end)
        if known is not None and known % length == 0:
            stop = replace(stop, text=f"const int64_t {lane}_run_end = {lane}_run + {length};")
            count = length
        part = (f"{lane}_run", f"{lane}_run_end")
        lines = [stop, *self.one_run(body, accumulators, part, length, count)]
        pragma, threads = self.writer.simd(accumulators), None
        if pragma is not None and pragma.threads:
            threads = replace(pragma, simd=False)
        return nest(lines, [(f"{lane}_run", start, end, length)], threads)

    def one_run(
        self,
        body: Statements,
        accumulators: Sums,
        part: tuple[Bound, Bound],
        length: int,
        count: Bound,
    ) -> list[Statement]:
        """What is read, converted; the lanes; what is written.  part: from where to where; count:
        so many lanes, at most `length`."""
        before: list[Statement] = []
        after: list[Statement] = []
        for (place, written), (array, instruction) in self.arrays.items():
            before.append(Line(f"float {array}[{room(length)}];", origin=instruction))
            given, wanted = (array, place) if written else (place, array)
            convert = Line(f"mini::convert({given}, {wanted}, {count});", origin=instruction)
            (after if written else before).append(convert)
        read = [array for (_, written), (array, _) in self.arrays.items() if not written]
        taken = [name for a in accumulators for name in a.reads]
        steps = Steps(self.writer, body, taken, read)
        if steps.are_many and self.writer.lanes_are_free():
            before += steps.loops(str(self.writer.plan.r[-1]), part, length, count)
            body = steps.last_lines
        pragma = self.writer.simd(accumulators)
        if pragma is not None and pragma.threads:
            pragma = replace(pragma, threads="", condition="")
        return [*before, *self.lanes_of_run(body, accumulators, part, pragma), *after]

    def lanes_of_run(
        self, body: Statements, accumulators: Sums, part: tuple[Bound, Bound], pragma: Pragma | None
    ) -> list[Statement]:
        """The loop over the lanes of one run, as the other strategies write it."""
        if not accumulators:
            return nest(body, [(self.writer.plan.r[-1], *part)], pragma)
        for other in self.writer.strategies:
            method = None if other is self else getattr(other, "innermost", None)
            found = None if method is None else method(body, accumulators, *part)
            if found is not None:
                return found
        return self.writer.plain_innermost(body, accumulators, *part)


def adds_short_rows(writer: Any) -> bool:
    """Are the loops that are being written a reduction of rows that have a lane for each element?
    Not places, nor lanes of which two may write the same element."""
    plan = writer.plan
    count = plan.inner[-1] if len(plan.inner) > 1 else None
    if not isinstance(count, int) or count > LANES or not writer.lanes_are_free():
        return False
    nodes = plan.nodes_of(writer.current_stage, inner=True)
    kinds = [kind for n in nodes for kind in plan.bodies[n.name].reduction_kinds()]
    return bool(kinds) and not any(kind.startswith("arg") for kind in kinds)


def run_length(accumulators: Sums) -> int:
    """How many elements a loop over lanes with these accumulators converts at once."""
    if any(a.is_arg for a in accumulators):
        return RUN_OF_PLACES
    return RUN_OF_SUMS if accumulators else RUN


def even_length(size: int, length: int) -> int:
    """The length of runs of about `length` elements, of which none is much shorter than others."""
    if size < 2 * length:
        return size
    return room(-(-size // (size // length)))


PRELUDES.append(Path(__file__).with_name("halves.h"))
