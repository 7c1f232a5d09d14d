"""The lanes of a pointwise kernel in C++: longer ones, pieces of them, and tables before the rows.

In:   a pointwise group's loop bodies.  Out: longer lanes, loops over parts of the lanes, and what
      is the same in each row (invariants.py) computed before them.

  * Longer lanes: loops over (pixels, 3) become (pixels/32, 96), in which the last variable is r0 %
    3: three lanes fill no vector.
  * Pieces: reflect padding reads at 63 - |63 - |r0 - 1||, which is 1 - r0, then r0 - 1, then 127 -
    r0: a loop for each.
  * Tables: bilinear upsampling makes a column of the result of the same columns in each row.
  * Blocks: more lanes than a table holds are taken MOST_LANES at a time, all rows for each (grid
    sampling: one grid, many channels).

Left out: pieces of outer loops, tables of symbolic sizes.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import sympy
import torch

from .. import config
from ..codegen.cpp_reductions import bound, Sums
from ..codegen.plan import KernelPlan
from ..codegen.strategy import Found, strategy
from ..codegen.code import code, named
from ..codegen.tree import Statement, Statements, nest
from ..dependencies import LoopBody, loop_variable, mergeable, stride_of
from ..extras.interpreter import evaluate
from ..sizes.expressions import FloorDiv, Mod
from ..sizes.symbols import hint
from .contents import names_in
from .invariants import RowInvariants
from .known_indices import COMPARED, recorded

SHORT_LANES = 16  # lanes that are joined with the loop around them
LONGER_LANES = 512  # and how many they become at most
LEAST_ROWS, MOST_LANES = 8, 1024  # rows that share a table; its elements
# joined lanes, where places in a row are computed: they are taken in blocks
MOST_COMPUTED = 1 << 14
MOST_PIECES, LONGEST = 5, 1 << 22  # pieces are found by looking at every lane, of so many at most


@strategy(order=70)
class Tables(RowInvariants):
    def longer_lanes(self, bodies: list[LoopBody]) -> list[LoopBody]:
        return with_longer_lanes(bodies)

    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not config.lane_tables or writer.is_tiled or writer.has_scatter:
            return False
        if not plan.is_pointwise or not plan.inner or not isinstance(plan.inner[-1], int):
            return False
        self.found = plan_pieces(plan) if plan.inner[-1] <= LONGEST else None
        has_rows = bool(plan.outer) and hint(plan.outer[-1], 512) >= LEAST_ROWS
        # variables that the rows do not change: of a last loop that is short no others are, so that
        # all loops share the tables
        self.same = (*plan.x[:-1], plan.r[-1]) if has_rows else (plan.r[-1],)
        self.is_open = plan.inner[-1] >= 4 and plan.outer_count >= LEAST_ROWS
        is_long = plan.inner[-1] > MOST_LANES
        self.in_blocks = self.is_open and has_rows and is_long and self.found is None
        self.new_scope_above()
        writer.outside.parent = self.above
        return True

    def pieces(self) -> list[KernelPlan] | None:
        is_known = isinstance(self.writer.plan.inner[-1], int)  # not the size of a part of many
        return self.found if is_known else None

    def begin_lanes(self) -> None:
        """For one piece of the lanes; long ones are taken in blocks, so that a table stays in the
        cache."""
        lane, size = self.writer.plan.r[-1], self.writer.plan.inner[-1]
        self.is_on = False
        if not self.is_open:
            return
        if self.in_blocks:
            lanes = (lane, f"{lane}_part", f"{lane}_end")
            place = code("[{} - {}]", named(lane), named(lanes[1]))
            self.begin_rows(lanes, place, MOST_LANES, self.same)
        elif size > MOST_LANES:
            self.is_open = False
        else:
            place = code("[{}]", named(lane))
            self.begin_rows((lane, 0, self.writer.size(size)), place, size, self.same)

    def begins_again(self, lines: Statements) -> bool:
        """Blocks cost more than they save, unless these lines need a table."""
        if not self.in_blocks or any(map(self.is_table, self.needed(names_in(lines)))):
            return False
        self.is_open = self.in_blocks = False
        self.new_scope_above()
        self.writer.outside.parent = None
        return True

    def inner_loop(self, body: Statements, accumulators: Sums) -> Found:
        if not self.in_blocks:
            return None
        return self.writer.chunks(body, accumulators, *self.lanes[1:])

    def loop_nest(self, body: Statements) -> list[Statement]:
        """What comes before the rows stands before all loops, if no outer loop changes it."""
        writer, above = self.writer, self.above.lines
        if not above:
            return writer.plain_loop_nest(body)
        outer = set(map(str, writer.plan.x))
        if not self.in_blocks and outer.isdisjoint(names_in(above)):
            return [*above, *writer.plain_loop_nest(body)]
        return writer.in_threads(*self.rows_below(body, writer.outer_loops()))

    def rows_below(
        self, body: Statements, loops: list[tuple]
    ) -> tuple[list[Statement], list[tuple], int]:
        """(lines, loops around them, how many of those threads share): the rows, below what is
        computed for all of a block of them."""
        writer, plan, above = self.writer, self.writer.plan, self.above.lines
        row, start, size = loops[-1]
        if self.in_blocks:
            lane, lanes = plan.r[-1], writer.size(plan.inner[-1])
            ending = bound(f"{lane}_end", f"{lane}_part + {MOST_LANES}", lanes)
            blocks = (f"{lane}_part", 0, lanes, MOST_LANES)
            return [ending, *above, *nest(body, [loops[-1]])], [*loops[:-1], blocks], len(loops)
        around = math.prod(hint(n, 512) for n in plan.outer[:-1])
        count, wanted = hint(plan.outer[-1], 512), 4 * torch.get_num_threads()
        block = max(LEAST_ROWS, -(-count * around // wanted))
        is_one_block = block >= count and isinstance(plan.outer[-1], int)
        if not writer.shares_outer_loops() or is_one_block:
            return [*above, *nest(body, [loops[-1]])], loops[:-1], len(loops) - 1
        ending = bound(f"{row}_end", f"{row}_block + {block}", size)
        rows = nest(body, [(row, f"{row}_block", f"{row}_end")])
        blocks = (f"{row}_block", start, size, block)
        return [ending, *above, *rows], [*loops[:-1], blocks], len(loops)


# --- longer lanes ---------------------------------------------------------------------------------
def with_longer_lanes(bodies: list[LoopBody]) -> list[LoopBody]:
    """Pointwise bodies whose last loop is short, over (rows/k, k*lanes) instead of (rows, lanes),
    if that is what they store side by side.  Lanes that are still short are joined once more: those
    of (pixels, 2, 3) with both."""
    found = bodies
    while len(found[0].outer) >= 2 and config.lane_tables:
        joined = joined_once(found)
        if joined is None:
            break
        found = joined
        if found[0].outer[-1] >= SHORT_LANES:
            return found
    return bodies


def joined_once(bodies: list[LoopBody]) -> list[LoopBody] | None:
    """The last loop joined with (a part of) the one around it; None: it is not worth that."""
    sizes = bodies[0].outer
    rows, lanes = sizes[-2:]
    if not isinstance(rows, int) or not isinstance(lanes, int) or lanes == 1:
        return None
    if lanes >= SHORT_LANES and not share_tables(bodies, rows * lanes):
        return None
    a, b = loop_variable("x", len(sizes) - 2), loop_variable("x", len(sizes) - 1)
    writes = [access.index for body in bodies for access in body.writes()]
    if not all(mergeable(index, a, b, lanes) for index in writes):
        return None
    if any(i.op == "masked" for body in bodies for i in body.walk()):
        return None  # their conditions may be those of pieces
    joined = rows if lanes >= SHORT_LANES else rows_in_a_lane(bodies)
    if joined == 1:
        return None
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
    sizes = bodies[0].outer
    rows, lanes = sizes[-2:]
    is_even, around = steps_evenly(bodies), loops_around(bodies)
    most = MOST_LANES if is_even else MOST_COMPUTED
    if rows * lanes <= most and around >= LEAST_ROWS:
        return rows
    best = 1
    for count in range(1, LONGER_LANES // lanes + 1):
        left = rows // count if count < rows else around
        if is_even:
            left = rows // count * around
        if rows % count == 0 and left >= LEAST_ROWS:
            best = count
    return best


def loops_around(bodies: Sequence[LoopBody]) -> int:
    """How often the last two loops run with one table of what varies with them alone."""
    sizes = bodies[0].outer[:-2]
    if steps_evenly(bodies):
        return math.prod(hint(n, 512) for n in sizes)
    return hint(sizes[-1], 512) if sizes else 1


def steps_evenly(bodies: Sequence[LoopBody]) -> bool:
    """Does nothing but even steps of reads depend on the last loop but one?  Then the place of a
    lane in its row is the same in all rows, whatever loops are around."""
    row = loop_variable("x", len(bodies[0].outer) - 2)
    for body in bodies:
        if any(stride_of(access.index, row) is None for access in body.reads()):
            return False
        if any(i.op == "index_expr" and i.args[0].has(row) for i in body.walk()):
            return False
    return True


# --- pieces ---------------------------------------------------------------------------------------
def plan_pieces(plan: KernelPlan) -> list[KernelPlan] | None:
    """A plan for each part of the lanes, in which indices and conditions that vary with the lane
    alone take simpler forms; None: there are no such parts."""
    ends = ends_of_pieces(plan)
    return [piece(plan, start, end) for start, end in zip(ends, ends[1:])] or None


def ends_of_pieces(plan: KernelPlan) -> list[int]:
    """Where these parts begin, and the last one ends."""
    lane, size = plan.r[-1], plan.inner[-1]
    cuts, runs = {0, size}, 0
    ranges = dict(zip(plan.x + plan.r, plan.outer + plan.inner))
    for body in plan.bodies.values():
        for access in body.reads():
            part = lane_part(access.index, lane)
            if part is not None:
                steps = evaluate(part, {lane: torch.arange(size)}).diff()
                cuts.update(k + int(steps[k] != 1) for k in changes(steps))
                runs += int((steps.abs() == 1).sum())
        for test, difference in recorded(body, ranges)[0].undecided:
            if difference.free_symbols == {lane}:
                values = evaluate(difference, {lane: torch.arange(size)})
                cuts.update(changes(COMPARED[test](values, 0)))
                runs += size
    ends = sorted(cuts)
    return ends if 2 < len(ends) <= MOST_PIECES + 1 and runs >= size // 2 else []


def piece(plan: KernelPlan, start: int, end: int) -> KernelPlan:
    """The plan of the lanes from `start` to `end`."""
    bodies = {name: moved(plan, body, start, end) for name, body in plan.bodies.items()}
    return replace(plan, inner=(end - start,), bodies=bodies)


def moved(plan: KernelPlan, body: LoopBody, start: int, end: int) -> LoopBody:
    """The body of these lanes, which count from 0 on."""
    lane, count = plan.r[-1], end - start
    ranges = dict(zip(plan.x + plan.r, plan.outer + plan.inner))
    body = body.substitute(plan.outer, (count,), {lane: lane + start})
    return recorded(body, {**ranges, lane: count})[1]


def lane_part(index: sympy.Expr, lane: sympy.Symbol) -> sympy.Expr | None:
    """The part of an index that varies with the lane alone, if not by a constant step."""
    part = sympy.Add(*[term for term in sympy.Add.make_args(index) if term.has(lane)])
    return part if part.free_symbols == {lane} and stride_of(part, lane) is None else None


def changes(values: torch.Tensor) -> list[int]:
    """Where an element differs from the one before."""
    return ((values[1:] != values[:-1]).nonzero().flatten() + 1).tolist()
