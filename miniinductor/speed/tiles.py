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

from pathlib import Path
from typing import Any

import sympy
import torch

from .. import config
from ..codegen.cpp_expressions import memory_type
from ..codegen.cpp_reductions import bound, Sums
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Line, Pragma, Statement, Statements, nest
from ..dependencies import stride_of
from ..ir import playing
from ..runtime.build import PRELUDES
from ..sizes.symbols import hint

TILE_OF_FEW = (64, 32)  # elements along the transposed loop, and along the lanes
TILE_OF_MANY = (256, 128)
MANY = 1 << 18


@strategy(order=60)
class Tiles(Strategy):
    def applies(self) -> bool:
        # element -> (array, type in memory, element at the corner, its step along the lanes)
        self.tile_loads: dict[str, tuple[str, str, str, str, Any]] = {}
        tile = self.plan_tile()
        if tile is None:
            return False
        self.tile, self.writer.is_tiled = tile, True
        return True

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype, element: str) -> str | None:
        writer = self.writer
        if writer.in_mask() or not self.is_transposed(index, self.tile):
            return None
        variable, lane = writer.plan.x[self.tile], writer.plan.r[-1]
        if element not in self.tile_loads:
            corner = index.xreplace({v: writer.local(f"{v}_tile") for v in (variable, lane)})
            self.tile_loads[element] = (
                f"tile{len(self.tile_loads)}",
                memory_type(dtype),
                f"{writer.pointer(name, False)}[{writer.index(corner)}]",
                writer.index(stride_of(index, lane)),
                playing.value,
            )
        array = self.tile_loads[element][0]
        return f"{array}[{variable} - {variable}_tile][{lane} - {lane}_tile]"

    def innermost(self, body: Statements, accumulators: Sums, start: str, end: str) -> Found:
        lane = self.writer.plan.r[-1]
        return self.writer.plain_innermost(body, accumulators, f"{lane}_tile", f"{lane}_end")

    def plan_tile(self) -> int | None:
        """The number of the outer loop along which something is read."""
        writer, plan = self.writer, self.writer.plan
        if not config.tiling or not plan.is_pointwise or not plan.inner or writer.has_scatter:
            return None
        lanes = hint(plan.inner[-1], 0)
        reads = [access.index for body in plan.bodies.values() for access in body.reads()]
        for number in range(len(plan.x)):
            size = hint(plan.outer[number], 0)
            if min(size, lanes) < 8 or size * lanes < 1024:
                continue
            if any(self.is_transposed(index, number) for index in reads):
                self.tile_size = TILE_OF_MANY if size * lanes >= MANY else TILE_OF_FEW
                return number
        return None

    def is_transposed(self, index: sympy.Expr, number: int) -> bool:
        """Does the read step by one along outer loop `number`, and further along the lanes?"""
        return lies_across(index, self.writer.plan.x[number], self.writer.plan.r[-1])

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
        for array, c_type, corner, step, instruction in self.tile_loads.values():
            count = f"{lane}_end - {lane}_tile, {variable}_end - {variable}_tile"
            call = transposed(f"&{corner}", step, f"{array}[0]", columns, count)
            fill.append(Line(f"{c_type} {array}[{rows}][{columns}];", origin=instruction))
            fill.append(Line(call, origin=instruction))
        tile = [*fill, *nest(body, [(variable, f"{variable}_tile", f"{variable}_end")])]
        loops = [
            *[loop for k, loop in enumerate(writer.outer_loops()) if k != number],
            (f"{variable}_tile", "0", size, rows),
            (f"{lane}_tile", "0", lanes, columns),
        ]
        pragma = None
        if writer.parallel:
            pragma = Pragma("parallel for", collapse=len(loops), condition=writer.threads_if)
        return nest(tile, loops, pragma)


def is_indirect(index: sympy.Expr) -> bool:
    """Does it depend on an index that is read?"""
    return any(s.name.startswith(("tmp", "indirect")) for s in index.free_symbols)


def lies_across(index: sympy.Expr, row: sympy.Symbol, lane: sympy.Symbol) -> bool:
    """Does memory run along `row`, and in larger steps along the lanes?"""
    if is_indirect(index):
        return False
    return stride_of(index, row) == 1 and stride_of(index, lane) not in (None, 0, 1)


def transposed(given: str, step: str | int, wanted: str, wanted_step: str | int, size: str) -> str:
    """The call that copies rows `step` apart into columns; size: "rows, columns"."""
    return f"mini::transpose({given}, {step}, {wanted}, {wanted_step}, {size});"


PRELUDES.append(Path(__file__).with_name("transpose.h"))
