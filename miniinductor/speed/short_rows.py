"""Reductions of a few elements of each of many rows: every lane adds up its own.

In:   loops of a reduction of which the innermost is short.  Out: the lanes' arrays, the loop over
      rows, and the lanes put together.

A row of float16 is converted as a whole (half_columns.py), where its length is known.
"""

import sympy
import torch

from .. import config
from ..codegen.code import Code, code, named
from ..codegen.cpp_reductions import CHUNK, Sums, bound, longest, parts_of
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Bound, Block, Pragma, Statement, Statements, nest
from ..dependencies import stride_of
from ..ir import playing
from ..lowerings.cpp_masks import fence
from ..sizes.expressions import is_indirect
from .arrays import LANES, array_declarations, is_lane_of_float16, room
from .half_columns import Column, HalfArrays, in_runs
from .halves import adds_short_rows
from .lane_sums import whole_vectors
from .several_loops import loops_of_rows

SHORTEST = 8  # elements of a row below which nothing is converted


@strategy(order=30)
class ShortRows(Strategy):
    def applies(self) -> bool:
        return config.vectorize

    def begin_lanes(self) -> None:
        self.halves: HalfArrays = {}  # elements of a row that are converted

    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> Code | None:
        """The float that stands for an element of float16."""
        writer = self.writer
        if (
            not writer.plan.r
            or not is_lane_of_float16(writer, dtype)
            or is_indirect(index)
            or not adds_short_rows(writer)
        ):
            return None
        lane = writer.plan.r[-1]
        if stride_of(index, lane) != 1 or writer.plan.inner[-1] < SHORTEST:
            return None
        run = writer.local(f"{lane}_run")
        place = f"{writer.pointer(name, written)} + {writer.index(index.xreplace({lane: run}))}"
        made = (f"half{len(self.halves)}", playing.value)
        array, _ = self.halves.setdefault((place, written), made)
        return code("{0}[{1} - {1}_run]", named(array), named(lane))

    def reduced_rows(self, body: Statements, accumulators: Sums, start: Bound, end: Bound) -> Found:
        """A few elements of each of many rows: every lane adds up its own, and the lanes are put
        together at the end (of CHUNK rows)."""
        writer, plan = self.writer, self.writer.plan
        is_short = bool(accumulators) and longest(plan.inner[-1]) <= LANES
        if not is_short or not writer.lanes_are_free() or any(a.is_arg for a in accumulators):
            return None
        lane, row, count = plan.r[-1], plan.r[-2], plan.inner[-1]
        *outer, (_, low, high) = loops_of_rows(writer, start, end)
        rows, stop = (row, low, high), []
        if longest(plan.inner[-2]) > CHUNK and any(a.loses_bits for a in accumulators):
            outer.append((f"{row}_chunk", low, high, CHUNK))
            rows = (row, f"{row}_chunk", f"{row}_stop")
            stop = [bound(f"{row}_stop", f"{row}_chunk + {CHUNK}", high)]
        parts = parts_of(accumulators, "lane")
        updates, width = [p.update(p.term, f"[{lane}]") for p in parts], count
        if self.halves:
            column = Column(body, updates, [name for p in parts for name in p.reads])
            lanes, width = in_runs(writer, (lane, 0, count), self.halves, column), room(count)
        else:
            loop = nest([*body, *updates], [(lane, 0, count)], Pragma(simd=True))
            lanes = [*fence(body), *loop]
        lines = [
            *stop,
            *array_declarations(parts, width),
            *nest(lanes, [rows]),
            *put_together(accumulators, parts, count),
        ]
        return nest(lines, outer) if outer else [Block(lines)]


def put_together(accumulators: Sums, parts: Sums, count: Bound) -> list[Statement]:
    """The lanes of `parts`, in the vectors that wrote them: one addition after the other would wait
    for each of them."""
    pairs = list(zip(accumulators, parts))
    if not isinstance(count, int) or any(a.c_type == "bool" for a in accumulators):
        return nest([a.update(p.name + "[k]") for a, p in pairs], [("k", 0, count)])
    return [
        a.update(f"mini::{a.kind}_of<{stop - first}>({p.name} + {first})")
        for a, p in pairs
        for first, stop in whole_vectors(count)
    ]
