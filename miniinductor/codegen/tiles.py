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
"""

from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from .. import config
from .code import Code, code, named
from .cpp_expressions import memory_type
from .cpp_reductions import Sums, bound
from .strategy import Strategy
from .tree import Line, Pragma, Statement, Statements, nest
from ..dependencies import stride_of
from ..ir import playing
from ..sizes.expressions import is_indirect
from ..sizes.symbols import Size, hint

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
