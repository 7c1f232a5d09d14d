"""The lanes of a pointwise kernel in C++: longer ones, and tables before the rows.

In:   a pointwise group's loop bodies.  Out: longer lanes, and what is the same in each row
      (invariants.py) computed before them.

  * Longer lanes: loops over (pixels, 3) become (pixels/32, 96), in which the last variable is r0 %
    3: three lanes fill no vector.
  * Tables: bilinear upsampling makes a column of the result of the same columns in each row.

Left out: parts of the lanes in which an index or a condition is simpler (reflect padding, joined
rows), tables of symbolic sizes, and of more lanes than one table holds.
"""

import math
from collections.abc import Sequence

import torch

from .. import config
from .code import code, named
from .cpp_reductions import bound
from .tree import Statement, Statements, names_in, nest
from ..dependencies import LoopBody, loop_variable, mergeable
from ..sizes.expressions import FloorDiv, Mod
from ..sizes.symbols import hint
from .invariants import RowInvariants

SHORT_LANES = 16  # lanes that are joined with the loop around them
LONGER_LANES = 512  # and how many they become at most
LEAST_ROWS, MOST_LANES = 8, 1024  # rows that share a table; its elements


class Tables(RowInvariants):
    def longer_lanes(self, bodies: list[LoopBody]) -> list[LoopBody]:
        return with_longer_lanes(bodies)

    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not config.lane_tables or writer.is_tiled or writer.has_scatter:
            return False
        if not plan.is_pointwise or not plan.inner or not isinstance(plan.inner[-1], int):
            return False
        has_rows = bool(plan.outer) and hint(plan.outer[-1], 512) >= LEAST_ROWS
        # variables that the rows do not change: of a last loop that is short no others are, so that
        # all loops share the tables
        self.same = (*plan.x[:-1], plan.r[-1]) if has_rows else (plan.r[-1],)
        self.is_open = plan.inner[-1] >= 4 and plan.outer_count >= LEAST_ROWS
        self.new_scope_above()
        writer.outside.parent = self.above
        return True

    def begin_lanes(self) -> None:
        lane, size = self.writer.plan.r[-1], self.writer.plan.inner[-1]
        self.is_on = False
        if self.is_open and size <= MOST_LANES:
            place = code("[{}]", named(lane))
            self.begin_rows((lane, 0, self.writer.size(size)), place, size, self.same)

    def loop_nest(self, body: Statements) -> list[Statement]:
        """What comes before the rows stands before all loops, if no outer loop changes it."""
        writer, above = self.writer, self.above.lines
        if not above or set(map(str, writer.plan.x)).isdisjoint(names_in(above)):
            return [*above, *writer.plain_loop_nest(body)]
        *loops, (row, start, size) = writer.outer_loops()
        around = math.prod(hint(n, 512) for n in writer.plan.outer[:-1])
        count, wanted = hint(writer.plan.outer[-1], 512), 4 * torch.get_num_threads()
        block = max(LEAST_ROWS, -(-count * around // wanted))
        if not writer.shares_outer_loops() or block >= count and isinstance(size, int):
            rows = nest(body, [(row, start, size)])
            return writer.in_threads([*above, *rows], loops, len(loops))
        ending = bound(f"{row}_end", f"{row}_block + {block}", size)
        rows = nest(body, [(row, f"{row}_block", f"{row}_end")])
        loops.append((f"{row}_block", start, size, block))
        return writer.in_threads([ending, *above, *rows], loops, len(loops))


# --- longer lanes ---------------------------------------------------------------------------------
def with_longer_lanes(bodies: list[LoopBody]) -> list[LoopBody]:
    """Pointwise bodies whose last loop is short, over (rows/k, k*lanes) instead of (rows, lanes),
    if that is what they store side by side."""
    sizes = bodies[0].outer
    if len(sizes) < 2 or not config.lane_tables:
        return bodies
    rows, lanes = sizes[-2:]
    if not isinstance(rows, int) or not isinstance(lanes, int) or lanes == 1:
        return bodies
    if lanes >= SHORT_LANES and not share_tables(bodies, rows * lanes):
        return bodies
    a, b = loop_variable("x", len(sizes) - 2), loop_variable("x", len(sizes) - 1)
    writes = [access.index for body in bodies for access in body.writes()]
    if not all(mergeable(index, a, b, lanes) for index in writes):
        return bodies
    if any(i.op == "masked" for body in bodies for i in body.walk()):
        return bodies  # each lane would have a condition of its own
    joined = rows if lanes >= SHORT_LANES else rows_in_a_lane(bodies)
    if joined * lanes < SHORT_LANES:
        return bodies
    outer = sizes[:-2] + ((rows // joined,) if joined < rows else ()) + (joined * lanes,)
    lane = loop_variable("x", len(outer) - 1)
    row = FloorDiv(lane, lanes)
    if joined < rows:
        row += joined * a
    return [body.substitute(outer, (), {a: row, b: Mod(lane, lanes)}) for body in bodies]


def share_tables(bodies: Sequence[LoopBody], joined: int) -> bool:
    """Is it worth joining lanes that fill vectors with the loop around them?  If that makes one
    table of what varies with that loop, for all rows, and all else lies side by side: the
    statistics of groups of channels, of which each pixel has all."""
    sizes = bodies[0].outer
    if len(sizes) < 3 or joined > MOST_LANES or hint(sizes[-3], 512) < LEAST_ROWS:
        return False
    row, a, b = (loop_variable("x", len(sizes) - n) for n in (3, 2, 1))
    reads = [access.index for body in bodies for access in body.reads()]
    shared = [i for i in reads if not mergeable(i, a, b, sizes[-1])]
    known = {loop_variable("x", n) for n in range(len(sizes))} - {row}
    return bool(shared) and all(i.free_symbols <= known for i in shared)


def rows_in_a_lane(bodies: Sequence[LoopBody]) -> int:
    """The most rows, of a number that divides theirs, whose lanes become one row's.  All of them,
    where a table can hold what then varies with the lane alone."""
    *around, rows, lanes = bodies[0].outer
    rows_left = hint(around[-1], 512) if around else 1
    if rows * lanes <= MOST_LANES and rows_left >= LEAST_ROWS:
        return rows
    counts = [n for n in range(2, LONGER_LANES // lanes + 1) if rows % n == 0]
    return max((n for n in counts if rows // n >= LEAST_ROWS), default=1)
