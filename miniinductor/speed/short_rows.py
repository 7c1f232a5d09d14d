"""Reductions of a few elements of each of many rows: every lane adds up its own.

In:   loops of a reduction of which the innermost is short.  Out: the lanes' arrays, the loop over
      rows, and the lanes put together.
"""

from .. import config
from ..codegen.cpp_reductions import CHUNK, Sums, bound, longest, parts_of
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Bound, Block, Pragma, Statement, Statements, nest
from ..lowerings.cpp_masks import fence
from .arrays import LANES, array_declarations
from .lane_sums import whole_vectors
from .several_loops import loops_of_rows


@strategy(order=30)
class ShortRows(Strategy):
    def applies(self) -> bool:
        return config.vectorize

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
        added = [*body, *[p.update(p.term, f"[{lane}]") for p in parts]]
        lanes = nest(added, [(lane, 0, count)], Pragma(simd=True))
        lines = [
            *stop,
            *array_declarations(parts, count),
            *nest([*fence(body), *lanes], [rows]),
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
