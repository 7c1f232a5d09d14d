"""Transposed access: run over tiles, so that both sides use whole cache lines.

    for (int64_t x0_tile = 0; x0_tile < 1024; x0_tile += 64) {
        for (int64_t r0_tile = 0; r0_tile < 1024; r0_tile += 32) {
            float tile0[64][32];
            mini::transpose(&in0[x0_tile + 1024*r0_tile], 1024, tile0[0], 32, ...);
            for (int64_t x0 = x0_tile; ...)
                for (int64_t r0 = r0_tile; ...) ... tile0[x0 - x0_tile][r0 - r0_tile]

In:   a pointwise kernel that reads along an outer loop.  Out: its loops over tiles, and what such a
      read reads instead.

A read may lie anywhere from lane to lane (`roll`, images of three channels): then the copy asks for
each lane's place.

The lanes of a pointwise kernel in C++: longer ones, and tables before the rows.

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
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from ... import config
from ...ir.dependencies import LoopBody, loop_variable, mergeable, stride_of
from ...ir.loops import playing
from ...sizes.expressions import FloorDiv, Mod, is_indirect
from ...sizes.symbols import Size, hint
from ..common import Code, code, named
from ..tree import Line, Pragma, Statement, Statements, names_in, nest
from .expressions import memory_type
from .invariants import RowInvariants
from .reductions import Sums, bound
from .strategy import Strategy

TILE_OF_FEW = (64, 64)  # elements along the transposed loop, and along the lanes
TILE_OF_MANY = (256, 128)
MANY = 1 << 18
FEWEST = 8  # iterations of either loop: the smallest block that is turned in registers
LEAST = 128  # elements of both


@dataclass
class TileLoad:
    """A copy of what a tile reads along its outer loop."""

    name: str
    c_type: str
    corner: str  # the first element; where the step varies: that of a lane
    step: str | None  # in memory from lane to lane; None: it varies
    origin: Any = field(default_factory=lambda: playing.value, repr=False)

    def lines(self, variable: str, lane: str, size: tuple[int, int]) -> list[Statement]:
        """Fill it; size: of a whole tile."""
        rows, columns = size
        count = f"{lane}_end - {lane}_tile, {variable}_end - {variable}_tile"
        place = f"{self.name}[0], {columns}, {count}"
        call = f"mini::transpose(&{self.corner}, {self.step}, {place});"
        if self.step is None:
            row = f"[&](int64_t {lane}) {{ return &{self.corner}; }}"
            call = f"mini::transpose_rows({row}, {lane}_tile, {place});"
        texts = [f"{self.c_type} {self.name}[{rows}][{columns}];", call]
        return [Line(text, origin=self.origin) for text in texts]


class Tiles(Strategy):
    def applies(self) -> bool:
        self.tile_loads: dict[tuple[str, sympy.Expr], TileLoad] = {}  # by the element
        tile = self.plan_tile()
        if tile is None:
            return False
        self.tile, self.writer.is_tiled = tile, True
        return True

    def plan_tile(self) -> int | None:
        """The number of the outer loop along which something is read."""
        writer, plan = self.writer, self.writer.plan
        if not config.tiling or not plan.is_pointwise or not plan.inner or writer.has_scatter:
            return None
        lanes = hint(plan.inner[-1], 0)
        reads = [access.index for body in plan.bodies.values() for access in body.reads()]
        for number in range(len(plan.x)):
            size = hint(plan.outer[number], 0)
            if min(size, lanes) < FEWEST or size * lanes < LEAST:
                continue
            if any(self.is_transposed(index, number) for index in reads):
                self.tile_size = tile_size(size, plan.inner[-1])
                return number
        return None

    def is_transposed(self, index: sympy.Expr, number: int) -> bool:
        """Does the read step by one along outer loop `number`, and further along the lanes?"""
        row, lane = self.writer.plan.x[number], self.writer.plan.r[-1]
        if is_indirect(index):
            return False
        return stride_of(index, row) == 1 and stride_of(index, lane) not in (0, 1)

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype) -> Code | None:
        """The place in a tile of what is read along the outer loop."""
        writer = self.writer
        if writer.in_mask() or not self.is_transposed(index, self.tile):
            return None
        variable, lane = writer.plan.x[self.tile], writer.plan.r[-1]
        if (name, index) not in self.tile_loads:
            step = stride_of(index, lane)
            moved = (variable,) if step is None else (variable, lane)
            corner = index.xreplace({v: writer.local(f"{v}_tile") for v in moved})
            self.tile_loads[name, index] = TileLoad(
                f"tile{len(self.tile_loads)}",
                memory_type(dtype),
                f"{writer.pointer(name, False)}[{writer.index(corner)}]",
                None if step is None else writer.index(step),
            )
        array = named(self.tile_loads[name, index].name)
        return code("{0}[{1} - {1}_tile][{2} - {2}_tile]", array, named(variable), named(lane))

    def inner_loop(self, body: Statements, accumulators: Sums) -> list[Statement]:
        """The lanes of one row of a tile."""
        lane = self.writer.plan.r[-1]
        return self.writer.along(lane, f"{lane}_tile", f"{lane}_end", body)

    def loop_nest(self, body: Statements) -> list[Statement]:
        """`body` is the loop over the lanes of a tile: around it, those of x<number>, and over
        tiles."""
        writer, plan, number = self.writer, self.writer.plan, self.tile
        variable, lane, (rows, columns) = plan.x[number], plan.r[-1], self.tile_size
        size, lanes = writer.size(plan.outer[number]), writer.size(plan.inner[-1])
        fill: list[Statement] = [
            bound(f"{variable}_end", f"{variable}_tile + {rows}", size),
            bound(f"{lane}_end", f"{lane}_tile + {columns}", lanes),
        ]
        if isinstance(lanes, int) and lanes % columns == 0:  # g++ knows how many they are
            text = f"const int64_t {lane}_end = {lane}_tile + {columns};"
            fill[1] = Line(text, origin="where a part of a loop ends")
        for load in self.tile_loads.values():
            fill += load.lines(str(variable), str(lane), self.tile_size)
        tile = [*fill, *nest(body, [(variable, f"{variable}_tile", f"{variable}_end")])]
        loops = [
            *[loop for k, loop in enumerate(writer.outer_loops()) if k != number],
            (f"{variable}_tile", 0, size, rows),
            (f"{lane}_tile", 0, lanes, columns),
        ]
        pragma = None
        if writer.parallel:
            pragma = Pragma("parallel for", collapse=len(loops), condition=writer.threads_if)
        return nest(tile, loops, pragma)


def tile_size(size: int, lanes: Size) -> tuple[int, int]:
    """Elements along the outer loop, and lanes, in one tile: all lanes where they are few."""
    rows, columns = TILE_OF_MANY if size * hint(lanes, 0) >= MANY else TILE_OF_FEW
    return rows, lanes if isinstance(lanes, int) and lanes <= 2 * columns else columns


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
