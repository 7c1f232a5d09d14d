"""Transposed access: run over tiles, so that both sides use whole cache lines.

    for (int64_t x0_tile = 0; x0_tile < 1024; x0_tile += 64) {
        for (int64_t r0_tile = 0; r0_tile < 1024; r0_tile += 32) {
            float tile0[64][32];
            mini::transpose(&in0[x0_tile + 1024*r0_tile], 1024, tile0[0], 32, ...);
            for (int64_t x0 = x0_tile; ...)
                for (int64_t r0 = r0_tile; ...) ... tile0[x0 - x0_tile][r0 - r0_tile]

In:   a pointwise kernel that reads along an outer loop.  Out: its loops over tiles, and what such a
      read reads instead.
"""

import sympy
import torch

from .. import config
from ..codegen import tree
from ..codegen.cpp_expressions import memory_type
from ..codegen.cpp_reductions import Accumulator, bound
from ..codegen.strategy import Strategy, strategy
from ..codegen.tree import Pragma, Statement, Statements, nest
from ..dependencies import stride_of
from ..sizes.symbols import hint

TILE_OF_FEW = (64, 32)  # elements along the transposed loop, and along the lanes
TILE_OF_MANY = (256, 128)
MANY = 1 << 18


@strategy(order=60)
class Tiles(Strategy):
    def applies(self) -> bool:
        # element -> (array, type in memory, element at the corner, its step along the lanes)
        self.tile_loads: dict[str, tuple[str, str, str, str]] = {}
        self.tile = self.plan_tile()
        self.writer.is_tiled = self.tile is not None
        return self.writer.is_tiled

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype, element: str) -> str | None:
        writer = self.writer
        if writer.in_mask() or not self.is_transposed(index, self.tile):
            return None
        variable, lane = writer.plan.x[self.tile], writer.plan.r[-1]
        if element not in self.tile_loads:
            corner = index.xreplace({v: sympy.Symbol(f"{v}_tile") for v in (variable, lane)})
            self.tile_loads[element] = (
                f"tile{len(self.tile_loads)}",
                memory_type(dtype),
                f"{writer.pointer(name, False)}[{writer.index(corner)}]",
                writer.index(stride_of(index, lane)),
            )
        array = self.tile_loads[element][0]
        return f"{array}[{variable} - {variable}_tile][{lane} - {lane}_tile]"

    def innermost(
        self, body: Statements, accumulators: list[Accumulator], start: str, end: str
    ) -> list[Statement]:
        lane = self.writer.plan.r[-1]
        return self.writer.plain_loops(body, accumulators, [(f"{lane}_tile", f"{lane}_end")])

    def loop_nest(self, body: Statements) -> list[Statement]:
        return self.tiled_nest(body, self.tile)

    def plan_tile(self):
        if (
            not self.writer.plan.is_pointwise
            or not self.writer.plan.inner
            or self.writer.has_scatter
            or not config.tiling
        ):
            return None
        for number in range(len(self.writer.plan.x)):
            size, lanes = (
                hint(self.writer.plan.outer[number], 0),
                hint(self.writer.plan.inner[-1], 0),
            )
            if (
                size
                and lanes
                and min(size, lanes) >= 8
                and size * lanes >= 1024
                and any(
                    self.is_transposed(access.index, number)
                    for b in self.writer.plan.bodies.values()
                    for access in b.reads()
                )
            ):
                self.tile_size = TILE_OF_MANY if size * lanes >= MANY else TILE_OF_FEW
                return number
        return None

    def is_transposed(self, index, number):
        """Does the read step by one along outer loop `number`, and further along the lanes?"""
        along_lanes = stride_of(index, self.writer.plan.r[-1])
        return (
            along_lanes is not None
            and along_lanes not in (0, 1)
            and stride_of(index, self.writer.plan.x[number]) == 1
            and not any(s.name.startswith(("tmp", "indirect")) for s in index.free_symbols)
        )

    def tiled_nest(self, lines, number):
        """`lines` is the loop over the lanes of a tile: around it, those of x<number>, and over
        tiles."""
        variable, lane, (rows, columns) = (
            str(self.writer.plan.x[number]),
            str(self.writer.plan.r[-1]),
            self.tile_size,
        )
        size, lanes = (
            self.writer.size(self.writer.plan.outer[number]),
            self.writer.size(self.writer.plan.inner[-1]),
        )
        fill = [
            bound(f"{v}_end", f"{v}_tile + {step}", n)
            for v, n, step in ((variable, size, rows), (lane, lanes, columns))
        ]
        for array, c_type, corner, step in self.tile_loads.values():
            fill += tree.lines(
                f"{c_type} {array}[{rows}][{columns}];",
                f"mini::transpose(&{corner}, {step}, {array}[0], {columns}, "
                f"{lane}_end - {lane}_tile, {variable}_end - {variable}_tile);",
            )
        lines = fill + nest(lines, [(variable, f"{variable}_tile", f"{variable}_end")])
        loops = [
            (v, "0", self.writer.size(n))
            for k, (v, n) in enumerate(zip(self.writer.plan.x, self.writer.plan.outer))
            if k != number
        ]
        loops += [(f"{variable}_tile", "0", size, rows), (f"{lane}_tile", "0", lanes, columns)]
        pragma = None
        if self.writer.parallel:
            pragma = Pragma("parallel for", collapse=len(loops), condition=self.writer.threads_if)
        return nest(lines, loops, pragma)
