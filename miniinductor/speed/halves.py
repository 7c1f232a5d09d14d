"""float16 is converted in runs: elements that follow each other, to and from arrays of floats.

    for (int64_t r0_run = 0; r0_run < 4096; r0_run += 128) {
        float half0[128];
        mini::convert(in0 + r0_run, half0, 128);
        for (int64_t r0 = r0_run; ...) ... half0[r0 - r0_run]

In:   the elements of float16 that an innermost loop reads and writes.  Out: what stands for them,
      and a loop over runs, in which the other strategies write the loop over the lanes.  Not where
      loops are cut into tiles (tiles.py), whose lanes are few.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import sympy
import torch

from .. import config
from ..codegen.cpp_reductions import bound, Sums
from ..codegen.plan import estimate
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Line, Pragma, Statement, Statements, nest
from ..dependencies import stride_of
from ..ir import playing
from ..runtime.build import PRELUDES
from .arrays import LANES
from .tiles import is_indirect

RUN = 128  # elements converted at once
SHORTEST, VECTOR = 32, 16  # shorter runs than RUN: whole vectors, whose number is known
RUN_OF_SUMS = 512  # the same where they are added up: then partial sums are put together
RUN_OF_PLACES = 4096  # and of argmax, whose lanes are put together one by one


@strategy(order=8)
class Halves(Strategy):
    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not config.vectorize or writer.has_scatter or not plan.inner:
            return False
        return self.is_long_enough()

    def is_long_enough(self) -> bool:
        """Is it worth an array?  A short loop only if nothing of it would be converted one by
        one."""
        plan, size = self.writer.plan, self.writer.plan.inner[-1]
        if isinstance(size, int) and size < RUN:
            if len(plan.inner) > 1 and size <= LANES:
                return False  # short_rows.py writes these loops as a whole
            return size >= SHORTEST and size % VECTOR == 0
        return estimate([size]) >= RUN

    def begin_lanes(self) -> None:
        # (pointer to a run of elements, is it written?) -> array of floats
        self.arrays: dict[tuple[str, bool], tuple[str, Any]] = {}

    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> str | None:
        """The place in the array of a run's floats that stands for an element."""
        writer, lane = self.writer, self.writer.plan.r[-1]
        if dtype is not torch.float16 or lane not in writer.inner_variables or writer.in_mask():
            return None
        if writer.is_tiled:  # (known now: tiles are chosen after this strategy)
            return None
        if stride_of(index, lane) != 1 or is_indirect(index) or not self.is_long_enough():
            return None
        run = writer.local(f"{lane}_run")
        start = f"{writer.pointer(name, written)} + {writer.index(index.xreplace({lane: run}))}"
        made = (f"half{len(self.arrays)}", playing.value)
        array, _ = self.arrays.setdefault((start, written), made)
        return f"{array}[{lane} - {run}]"

    def innermost(self, body: Statements, accumulators: Sums, start: str, end: str) -> Found:
        """The loop over the lanes, by runs that are converted as a whole."""
        if not self.arrays:
            return None
        lane, length = self.writer.plan.r[-1], run_length(accumulators)
        if start == "0" and end.isdigit():
            length = min(length, int(end))  # a short row is one run, whose length g++ knows
        count = f"{lane}_run_end - {lane}_run"
        stop = bound(f"{lane}_run_end", f"{lane}_run + {length}", end)
        if end.isdigit() and start == "0" and int(end) % length == 0:
            stop = replace(stop, text=f"const int64_t {lane}_run_end = {lane}_run + {length};")
            count = str(length)
        before: list[Statement] = [stop]
        after: list[Statement] = []
        for (place, written), (array, instruction) in self.arrays.items():
            before.append(Line(f"float {array}[{length}];", origin=instruction))
            given, wanted = (array, place) if written else (place, array)
            convert = Line(f"mini::convert({given}, {wanted}, {count});", origin=instruction)
            (after if written else before).append(convert)
        threads, pragma = None, self.writer.simd(accumulators)
        if pragma is not None and pragma.threads:
            threads = replace(pragma, simd=False)
            pragma = replace(pragma, threads="", condition="")
        lanes = self.lanes_of_run(body, accumulators, pragma)
        runs = (f"{lane}_run", start, end, length)
        return nest([*before, *lanes, *after], [runs], threads)

    def lanes_of_run(
        self, body: Statements, accumulators: Sums, pragma: Pragma | None
    ) -> list[Statement]:
        """The loop over the lanes of one run, as the other strategies write it."""
        lane = self.writer.plan.r[-1]
        part = (f"{lane}_run", f"{lane}_run_end")
        if not accumulators:
            return nest(body, [(lane, *part)], pragma)
        for other in self.writer.strategies:
            method = None if other is self else getattr(other, "innermost", None)
            found = None if method is None else method(body, accumulators, *part)
            if found is not None:
                return found
        return self.writer.plain_innermost(body, accumulators, *part)


def run_length(accumulators: Sums) -> int:
    """How many elements a loop over lanes with these accumulators converts at once."""
    if any(a.is_arg for a in accumulators):
        return RUN_OF_PLACES
    return RUN_OF_SUMS if accumulators else RUN


PRELUDES.append(Path(__file__).with_name("halves.h"))
