"""float16 is converted in blocks: elements that follow each other, to and from arrays of floats.

    for (int64_t r0_block = 0; r0_block < 4096; r0_block += 128) {
        float half0[128];
        mini::convert(in0 + r0_block, half0, 128);
        for (int64_t r0 = r0_block; ...) ... half0[r0 - r0_block]

In:   a pointwise kernel's elements of float16.  Out: what stands for them, and a loop over blocks.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import sympy
import torch

from .. import config
from ..codegen.cpp_reductions import bound, Sums
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Line, Statement, Statements, nest
from ..dependencies import stride_of
from ..ir import playing
from ..runtime.build import PRELUDES

BLOCK = 128  # elements converted at once


@strategy(order=80)
class Halves(Strategy):
    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not config.vectorize or writer.is_tiled or writer.has_scatter:
            return False
        return plan.is_pointwise and bool(plan.inner) and plan.inner_count >= BLOCK

    def begin_lanes(self) -> None:
        # (pointer to a block of elements, is it written?) -> array of floats
        self.arrays: dict[tuple[str, bool], tuple[str, Any]] = {}

    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> str | None:
        """The place in the array of a block's floats that stands for an element."""
        writer, lane = self.writer, self.writer.plan.r[-1]
        if dtype is not torch.float16 or writer.plan.inner_count < BLOCK or writer.in_mask():
            return None
        if stride_of(index, lane) != 1:
            return None
        if any(s.name.startswith(("tmp", "indirect")) for s in index.free_symbols):
            return None
        block = writer.local(f"{lane}_block")
        start = f"{writer.pointer(name, written)} + {writer.index(index.xreplace({lane: block}))}"
        made = (f"half{len(self.arrays)}", playing.value)
        array, _ = self.arrays.setdefault((start, written), made)
        return f"{array}[{lane} - {block}]"

    def innermost(self, body: Statements, accumulators: Sums, start: str, end: str) -> Found:
        """The loop over the lanes, by blocks that are converted as a whole."""
        if not self.arrays:
            return None
        lane = self.writer.plan.r[-1]
        count = f"{lane}_stop - {lane}_block"
        stop = bound(f"{lane}_stop", f"{lane}_block + {BLOCK}", end)
        if end.isdigit() and start == "0" and int(end) % BLOCK == 0:
            stop = replace(stop, text=f"const int64_t {lane}_stop = {lane}_block + {BLOCK};")
            count = str(BLOCK)
        before: list[Statement] = [stop]
        after: list[Statement] = []
        for (place, written), (array, instruction) in self.arrays.items():
            before.append(Line(f"float {array}[{BLOCK}];", origin=instruction))
            given, wanted = (array, place) if written else (place, array)
            convert = Line(f"mini::convert({given}, {wanted}, {count});", origin=instruction)
            (after if written else before).append(convert)
        threads, pragma = None, self.writer.simd(accumulators)
        if pragma is not None and pragma.threads:
            threads = replace(pragma, simd=False)
            pragma = replace(pragma, threads="", condition="")
        lanes = nest(body, [(lane, f"{lane}_block", f"{lane}_stop")], pragma)
        blocks = (f"{lane}_block", start, end, BLOCK)
        return nest([*before, *lanes, *after], [blocks], threads)


PRELUDES.append(Path(__file__).with_name("halves.h"))
