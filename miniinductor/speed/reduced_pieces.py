"""Reductions of joined rows: a loop over the lanes for each part, without conditions.

    for (int64_t r0 = 0; r0 < 1024; r0++) acc0 = acc0 + mini::to_float(in1[r0]);
    for (int64_t r0 = 1024; r0 < 2048; r0++) acc0 = acc0 + mini::to_float(in0[r0 - 1024]);

In:   a stage's inner loop, whose body reads under conditions that the lane decides (`cat`, `pad`).
Out:  a loop for each part of the lanes in which they hold or do not (tables.py finds the parts, and
      cuts pointwise kernels so), all into the same accumulators.

gcc makes no vectors of a loop that reads 16 bits under a condition.
"""

from dataclasses import replace

from .. import config
from ..codegen.cpp_reductions import Lanes, Sums, declarations
from ..codegen.plan import KernelPlan
from ..codegen.strategy import Found, Strategy
from ..codegen.tree import Statements
from ..dependencies import LoopBody
from .spread import Spread
from .tables import LONGEST, ends_of_pieces, moved

SHORTEST = 16  # lanes of a part: fewer fill no vector


class ReducedPieces(Strategy):
    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not config.lane_tables or plan.is_pointwise or len(plan.inner) != 1:
            return False
        size, bodies = plan.inner[0], {n: b for n, b in plan.bodies.items() if b.inner}
        if not isinstance(size, int) or size > LONGEST or Spread(writer).applies():
            return False
        if (
            writer.group.has_scan
            or writer.has_scatter
            or not any(map(has_conditions, bodies.values()))
        ):
            return False
        self.ends = ends_of_pieces(replace(plan, bodies=bodies))
        lengths = [end - start for start, end in zip(self.ends, self.ends[1:])]
        return bool(lengths) and min(lengths) >= SHORTEST

    def inner_loop(self, body: Statements, accumulators: Sums) -> Found:
        writer, whole = self.writer, self.writer.plan
        nodes = whole.nodes_of(writer.current_stage, inner=True)
        if not any(has_conditions(whole.bodies[n.name]) for n in nodes):
            return None
        if any(a.is_arg for a in accumulators):
            return None  # which place is the first, another part cannot tell
        deferred, loops = writer.deferred, []
        for start, end in zip(self.ends, self.ends[1:]):
            writer.plan = part_of(whole, start, end)
            lines, loop = writer.lane_body(nodes), (whole.r[0], start, end)
            parts = [replace(a, name=b.name) for a, b in zip(writer.accumulators, accumulators)]
            if parts:
                loops += Lanes(writer, lines, parts, [loop]).statements()
            else:
                loops += writer.along(*loop, lines)
            for accumulator, part in zip(accumulators, parts):
                accumulator.over_chunks |= part.over_chunks
        writer.plan, writer.accumulators, writer.deferred = whole, accumulators, deferred
        return [*declarations(accumulators), *loops]


def has_conditions(body: LoopBody) -> bool:
    return any(i.op == "masked" for i in body.walk())


def part_of(plan: KernelPlan, start: int, end: int) -> KernelPlan:
    """The plan in which conditions are those of the lanes from `start` to `end`, which are
    numbered as in the whole: arrays between two stages have one element for each lane."""
    lane = plan.r[-1]
    bodies = dict(plan.bodies)
    for name, body in plan.bodies.items():
        if body.inner:
            simpler = moved(plan, body, start, end)
            bodies[name] = simpler.substitute(plan.outer, plan.inner, {lane: lane - start})
    return replace(plan, bodies=bodies)
