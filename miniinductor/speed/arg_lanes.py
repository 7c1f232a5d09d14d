"""argmax and argmin with vector lanes: each lane has a best element of its own.

In:   a reduction's innermost loop.  Out: a loop over groups of lanes.
"""

from .. import config
from ..codegen.cpp_reductions import LANES, Accumulator, bound
from ..codegen.plan import estimate
from ..codegen.strategy import Strategy, strategy
from ..codegen.tree import Statement, Statements, nest


@strategy(order=10)
class ArgLanes(Strategy):
    def applies(self) -> bool:
        return config.vectorize

    def innermost(
        self, body: Statements, accumulators: list[Accumulator], start: str, end: str
    ) -> list[Statement] | None:
        writer = self.writer
        if not any(a.is_arg for a in accumulators) or not writer.lanes_are_free():
            return None
        if estimate(writer.plan.inner[-1:]) < 4 * LANES:
            return None
        return self.arg_loop(body, accumulators, start, end)

    def arg_loop(self, lines, accumulators, start, end):
        """argmax has no vector reduction: a loop over groups of lanes, each lane with a best
        element of its own."""
        lane, group = self.writer.plan.r[-1], f"{self.writer.plan.r[-1]}_group"
        args, others = (
            [a for a in accumulators if a.is_arg],
            [a for a in accumulators if not a.is_arg],
        )
        lines = lines + [line for a in others for line in a.in_lanes()]
        lines += [line for a in args for line in a.in_arg_lanes(f"{lane} - {group}")]
        return [
            *[line for a in others for line in a.before_lanes()],
            *[line for a in args for line in a.arg_arrays(lane, start)],
            *nest(
                [
                    bound(f"{group}_end", f"{group} + {LANES}", end),
                    *nest(lines, [(lane, group, f"{group}_end")], self.writer.simd(others)),
                ],
                [(group, start, end, LANES)],
            ),
            *[line for a in others for line in a.after_lanes()],
            *[line for a in args for line in a.after_arg_lanes()],
        ]
