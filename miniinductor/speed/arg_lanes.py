"""argmax and argmin with vector lanes: each lane has a best element of its own.

In:   a reduction's innermost loop.  Out: a loop over groups of lanes.
"""

from .. import config
from ..codegen.cpp_reductions import Accumulator, Sums, bound
from ..codegen.plan import estimate
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Bound, Line, Statements, nest
from .arrays import LANES, array_declarations, taken_if_better


@strategy(order=10)
class ArgLanes(Strategy):
    def applies(self) -> bool:
        return config.vectorize

    def innermost(self, body: Statements, accumulators: Sums, start: Bound, end: Bound) -> Found:
        """argmax has no vector reduction: a loop over groups of lanes."""
        writer, lane = self.writer, self.writer.plan.r[-1]
        args = [a for a in accumulators if a.is_arg]
        if not args or not writer.lanes_are_free():
            return None
        if estimate(writer.plan.inner[-1:]) < 4 * LANES:
            return None
        others, group = [a for a in accumulators if not a.is_arg], f"{lane}_group"
        lines = [*body, *[line for a in others for line in a.in_lanes()]]
        lines += [line for a in args for line in taken_if_better(a, f"{lane} - {group}")]
        ending = bound(f"{group}_end", f"{group} + {LANES}", end)
        lanes = nest(lines, [(lane, group, f"{group}_end")], writer.simd(others))
        return [
            *[line for a in others for line in a.before_lanes()],
            *array_declarations(args, LANES),
            *nest([ending, *lanes], [(group, start, end, LANES)]),
            *[line for a in others for line in a.after_lanes()],
            *[best_of_all(a) for a in args],
        ]


def best_of_all(a: Accumulator) -> Line:
    best = a.update(f"{a.c_type}{{{a.name}_best[k], {a.name}_at[k]}}")
    return a.line(f"for (int64_t k = 0; k < {LANES}; k++) {best.text}")
