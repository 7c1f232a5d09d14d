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
each lane's place.  float16 is converted in runs of one row of a tile (half_columns.py).  What is
the same in all rows of a tile is computed before them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sympy
import torch

from .. import config
from ..codegen.code import Code, code, named
from ..codegen.cpp_expressions import memory_type
from ..codegen.cpp_reductions import bound, Sums
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Bound, Comment, Definition, Line, Pragma, Statement, Statements, nest
from ..dependencies import LoopBody, stride_of
from ..ir import playing
from ..runtime.build import PRELUDES
from ..sizes.expressions import is_indirect
from ..sizes.symbols import Size, hint
from .arrays import is_lane_of_float16, room
from .contents import names_in
from .gathered_rows import copies
from .half_columns import Column, HalfArrays, in_runs

TILE_OF_FEW = (64, 64)  # elements along the transposed loop, and along the lanes
TILE_OF_MANY = (256, 128)
MANY = 1 << 18
FEWEST = 8  # iterations of either loop: the smallest block that is turned in registers
LEAST = 128  # elements of both
VECTORS = (8, 16, 32)  # lanes that fill one, of 64 bytes or a part of it
FILLED = ("float", "mini::bfloat16")  # of tiles whose rows may end with zeros that fill a vector
TILE = "which tile comes next"


@dataclass
class TileLoad:
    """A copy of what a tile reads along its outer loop."""

    name: str
    c_type: str  # in memory
    corner: str  # the first element; where the step varies: that of a lane
    step: str | None  # in memory from lane to lane; None: it varies
    origin: Any = field(default_factory=lambda: playing.value, repr=False)

    def lines(
        self, variable: str, lane: str, size: tuple[int, int], columns: int
    ) -> list[Statement]:
        """Fill it; size: of a whole tile; columns: of the array, which has zeros behind."""
        rows, used = size
        lanes, height = f"{lane}_end - {lane}_tile", f"{variable}_end - {variable}_tile"
        place, count = f"{self.name}[0]", f"{lanes}, {height}"
        call = transposed(f"&{self.corner}", self.step or "", place, columns, count)
        if self.step is None:
            row = f"[&](int64_t {lane}) {{ return &{self.corner}; }}"
            call = f"mini::transpose_rows({row}, {lane}_tile, {place}, {columns}, {count});"
        texts = [f"{self.c_type} {self.name}[{rows}][{columns}];", call]
        if columns > used:
            behind = f"for (int64_t k = {used}; k < {columns}; k++) {self.name}[i][k] = {{}};"
            texts.append(f"for (int64_t i = 0; i < {height}; i++) {behind}")
        return [Line(text, origin=self.origin) for text in texts]


@strategy(order=60)
class Tiles(Strategy):
    def applies(self) -> bool:
        self.tile_loads: dict[tuple[str, sympy.Expr], TileLoad] = {}  # by the element
        self.rows: HalfArrays = {}  # elements along the lanes, which are converted
        self.fills_vectors = False  # may lanes run that have no element?
        tile = self.plan_tile()
        if tile is None:
            return False
        self.tile, self.writer.is_tiled = tile, True
        self.only_copies = self.is_of_one_type() and all(map(copies, self.bodies()))
        return True

    def bodies(self) -> Iterable[LoopBody]:
        return self.writer.plan.bodies.values()

    def is_of_one_type(self) -> bool:
        """Is all that is read and stored of one type?  Then copies need not become floats."""
        names = [a.name for body in self.bodies() for a in (*body.reads(), *body.writes())]
        return len({self.writer.buffers[name].layout.dtype for name in names}) == 1

    def begin_lanes(self) -> None:
        self.rows = {}

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype, found: str) -> Code | None:
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

    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> Code | None:
        """The float that stands for an element of float16, of which a run is converted."""
        writer, lane = self.writer, self.writer.plan.r[-1]
        if not is_lane_of_float16(writer, dtype) or is_indirect(index) or not config.vectorize:
            return None
        if not written and self.only_copies:
            return None
        run = writer.local(f"{lane}_run")
        if not written and self.is_transposed(index, self.tile):
            self.element(name, index, dtype, named(name))
            array, variable = self.tile_loads[name, index].name, writer.plan.x[self.tile]
            start = f"{array}[{variable} - {variable}_tile] + {run} - {lane}_tile"
        elif stride_of(index, lane) != 1:
            return None
        else:
            first = writer.index(index.xreplace({lane: run}))
            start = f"{writer.pointer(name, written)} + {first}"
        made = (f"half{len(self.rows)}", playing.value)
        array, _ = self.rows.setdefault((start, written), made)
        return code("{0}[{1} - {1}_run]", named(array), named(lane))

    def innermost(self, body: Statements, accumulators: Sums, start: Bound, end: Bound) -> Found:
        """The lanes of one row of a tile."""
        writer, lane = self.writer, self.writer.plan.r[-1]
        whole = (f"{lane}_tile", f"{lane}_end")
        if self.rows and writer.plan.inner[-1] == self.tile_size[1]:
            whole = (0, self.tile_size[1])  # g++ knows how many they are
        spare: list[str] = []
        if self.rows and isinstance(whole[1], int):
            self.fills_vectors = True
            tiles = [load.name for load in self.tile_loads.values() if load.c_type in FILLED]
            spare = [*tiles, str(writer.plan.x[self.tile])]
        column = Column(body, [], [], spare)
        lines: list[Statement] = []
        for part in self.parts_of_lanes() or [whole]:
            if self.rows:
                lines += in_runs(writer, (lane, *part), self.rows, column)
            else:
                lines += writer.plain_innermost(body, accumulators, *part)
        return lines

    def parts_of_lanes(self) -> list[tuple[int, int]]:
        """Whole vectors, the last of which may do again what one before it has done: else some
        lanes would be left, which the compiler takes one by one, each `? :` of them a branch."""
        writer, count = self.writer, self.writer.plan.inner[-1]
        if count != self.tile_size[1] or writer.overwritten or not config.vectorize:
            return []
        if any(written for _, written in self.rows):  # then half_columns.py fills vectors
            return []
        parts = overlapping_vectors(int(count))
        writer.reruns = writer.reruns or bool(parts)  # its result lies over nothing that it reads
        return parts

    def plan_tile(self) -> int | None:
        """The number of the outer loop along which something is read."""
        writer, plan = self.writer, self.writer.plan
        if not config.tiling or not plan.is_pointwise or not plan.inner or writer.has_scatter:
            return None
        lanes = hint(plan.inner[-1], 0)
        reads = [access.index for body in self.bodies() for access in body.reads()]
        for number in range(len(plan.x)):
            size = hint(plan.outer[number], 0)
            if min(size, lanes) < FEWEST or size * lanes < LEAST:
                continue
            if any(self.is_transposed(index, number) for index in reads):
                self.tile_size = tile_size(size, plan.inner[-1], self.reads_float16())
                return number
        return None

    def reads_float16(self) -> bool:
        names = [access.name for body in self.bodies() for access in body.reads()]
        return any(self.writer.buffers[n].layout.dtype is torch.float16 for n in names)

    def is_transposed(self, index: sympy.Expr, number: int) -> bool:
        """Does the read step by one along outer loop `number`, and further along the lanes?"""
        return is_across(index, self.writer.plan.x[number], self.writer.plan.r[-1])

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
            fill[1] = Line(f"const int64_t {lane}_end = {lane}_tile + {columns};", origin=TILE)
        for load in self.tile_loads.values():
            is_filled = self.fills_vectors and load.c_type in FILLED
            width = room(columns) if is_filled else columns
            fill += load.lines(str(variable), str(lane), self.tile_size, width)
        same, body = self.same_in_rows(body)
        tile = [*fill, *same, *nest(body, [(variable, f"{variable}_tile", f"{variable}_end")])]
        loops = [
            *[loop for k, loop in enumerate(writer.outer_loops()) if k != number],
            (f"{variable}_tile", 0, size, rows),
            (f"{lane}_tile", 0, lanes, columns),
        ]
        pragma = None
        if writer.parallel:
            pragma = Pragma("parallel for", collapse=len(loops), condition=writer.threads_if)
        return nest(tile, loops, pragma)

    def same_in_rows(self, body: Statements) -> tuple[list[Statement], list[Statement]]:
        """The lines of `body` that compute the same in each row of a tile, and the others: g++ does
        not know that no store changes what they read."""
        same: list[Statement] = []
        others: list[Statement] = []
        varying = {str(self.writer.plan.x[self.tile])}
        is_first = not self.writer.overwritten  # nothing but definitions stands before it
        for line in body:
            is_first = is_first and isinstance(line, Definition | Comment)
            if is_first and isinstance(line, Definition):
                if not line.varies and varying.isdisjoint(names_in([line])):
                    same.append(line)
                    continue
                varying.add(line.name)
            others.append(line)
        return same, others


def tile_size(size: int, lanes: Size, in_runs: bool = False) -> tuple[int, int]:
    """Elements along the outer loop, and lanes, in one tile: all lanes where they are few.
    in_runs: tiles of float16, whose lanes are taken 64 by 64."""
    rows, columns = TILE_OF_MANY if size * hint(lanes, 0) >= MANY else TILE_OF_FEW
    if not isinstance(lanes, int):
        return rows, columns
    if lanes <= 2 * columns:
        return rows, lanes
    if columns == TILE_OF_FEW[1] and not in_runs and lanes % columns == columns // 2:
        columns //= 2  # then nothing is left over
    return rows, columns


def overlapping_vectors(count: int) -> list[tuple[int, int]]:
    """[(start, end)] of parts that fill vectors of one width each; empty: all lanes do, or none."""
    widest = max((n for n in VECTORS if n <= count), default=0)
    rest = count % widest if widest else 0
    if not rest:
        return []
    last = min(n for n in VECTORS if n >= rest)
    return [(0, count - rest), (count - last, count)]


def lies_across(index: sympy.Expr, row: sympy.Symbol, lane: sympy.Symbol) -> bool:
    """Does memory run along `row`, and in larger steps along the lanes?"""
    return is_across(index, row, lane) and stride_of(index, lane) is not None


def is_across(index: sympy.Expr, row: sympy.Symbol, lane: sympy.Symbol) -> bool:
    """The same, or in steps that vary?"""
    if is_indirect(index):
        return False
    return stride_of(index, row) == 1 and stride_of(index, lane) not in (0, 1)


def transposed(given: str, step: str | int, wanted: str, wanted_step: str | int, size: str) -> str:
    """The call that copies rows `step` apart into columns; size: "rows, columns"."""
    return f"mini::transpose({given}, {step}, {wanted}, {wanted_step}, {size});"


PRELUDES.append(Path(__file__).with_name("transpose.h"))
