"""Rows under different conditions: each part of them has lanes of its own.

    for (int64_t x0 = 0; x0 < 2048; x0++) {
        if (x0 < 1024) {
            for (int64_t r0 ...) out0[r0 + 1024*x0] = in1[r0 + 1024*x0];
        }
        if (x0 >= 1024) {
            for (int64_t r0 ...) out0[r0 + 1024*x0] = in0[r0 + 1024*x0 - 1048576];
        }
    }

In:   a pointwise kernel whose conditions vary with the last outer loop alone: joined tensors, rows
      of padding.  Out: a branch for each part of that loop, in which they are decided.

Without it every row computes what all parts do, and chooses.  tables.py cuts the lanes.  Left out:
rows that are cut and lanes, too; other outer loops; symbolic sizes.
"""

from dataclasses import replace

import torch

from .. import config
from ..codegen.code import Code, code, named
from ..codegen.cpp_expressions import CppScope
from ..codegen.plan import KernelPlan
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Branch, Statement
from ..dependencies import LoopBody
from ..extras.interpreter import evaluate
from .known_indices import COMPARED, recorded
from .tables import LONGEST, Tables, changes

MOST_PARTS = 4


@strategy(order=3)
class OuterPieces(Strategy):
    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not config.vectorize or not plan.is_pointwise or not plan.inner or not plan.outer:
            return False
        size = plan.outer[-1]
        if writer.has_scatter or not isinstance(size, int) or not 1 < size <= LONGEST:
            return False
        self.ends = ends_of_parts(plan, size)
        return bool(self.ends)

    def kernel_body(self) -> Found:
        writer = self.writer
        if writer.is_tiled or any(isinstance(s, Tables) and s.found for s in writer.strategies):
            return None
        whole, outside = writer.plan, writer.outside
        row, parts = named(whole.x[-1]), []
        for start, end in zip(self.ends, self.ends[1:]):
            bodies = {name: part(whole, body, start, end) for name, body in whole.bodies.items()}
            writer.plan, writer.outside = replace(whole, bodies=bodies), CppScope(outside)
            lines: list[Statement] = writer.plain_kernel_body()
            parts.append(Branch(self.condition(row, start, end), lines))
        writer.plan, writer.outside = whole, outside
        return [*outside.lines, *parts]

    def condition(self, row: Code, start: int, end: int) -> Code:
        if start == 0:
            return code("{} < {}", row, end)
        if end == self.ends[-1]:
            return code("{} >= {}", row, start)
        return code("{0} >= {1} && {0} < {2}", row, start, end)


def ends_of_parts(plan: KernelPlan, size: int) -> list[int]:
    """Where parts of the last outer loop begin, and the last one ends; empty: it is one."""
    row, cuts = plan.x[-1], {0, size}
    ranges = dict(zip(plan.x + plan.r, plan.outer + plan.inner))
    for body in plan.bodies.values():
        for test, difference in recorded(body, ranges)[0].undecided:
            if difference.free_symbols == {row}:
                values = evaluate(difference, {row: torch.arange(size)})
                cuts.update(changes(COMPARED[test](values, 0)))
    return sorted(cuts) if 2 < len(cuts) <= MOST_PARTS + 1 else []


def part(plan: KernelPlan, body: LoopBody, start: int, end: int) -> LoopBody:
    """The body for rows from `start` to `end`: conditions that hold in all of them are gone."""
    row = plan.x[-1]
    ranges = dict(zip(plan.x + plan.r, plan.outer + plan.inner))
    moved = body.substitute(body.outer, body.inner, {row: row + start})
    known = recorded(moved, {**ranges, row: end - start})[1]
    return known.substitute(body.outer, body.inner, {row: row - start})
