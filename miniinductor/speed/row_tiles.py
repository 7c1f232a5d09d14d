"""Rows whose layouts are mixed: what lies across the lanes is copied by tiles, in whole lines.

    for (int64_t r0_tile = 0; r0_tile < 1024; r0_tile += 16) {
        float tile0[16][128];
        for (int64_t r0 = r0_tile; ...) {
            #pragma omp simd
            for (int64_t x1 = 0; x1 < 128; x1++) tile0[r0 - r0_tile][x1] = ...
        }
        mini::transpose(tile0[0], 128, &out0[r0_tile], 1024, 16, 128);
    }

In:   a kernel with reductions, some of whose elements follow each other in memory along the loop
      around the lanes: instance norm from channels-last memory to dense memory.  Out: that loop
      over tiles, arrays in the order of the lanes, what fills them before and empties them after.

Without it such a store (or read) touches a line of the cache for each element.  The loop around the
lanes is the reduction's where these run along columns (rows.py), else the last outer loop.
tiles.py does the same for reads of pointwise kernels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from .. import config
from ..codegen.code import Code, code, named
from ..codegen.common import Value
from ..codegen.cpp import CppKernelWriter
from ..codegen.cpp_expressions import memory_type
from ..codegen.cpp_reductions import bound
from ..codegen.strategy import Strategy, strategy
from ..codegen.tree import Bound, Line, Pragma, Statement, Statements, nest
from ..dependencies import stride_of
from ..ir import playing
from ..sizes.symbols import hint
from .spread import Spread
from .tiles import lies_across, transposed

DEPTH = 16  # iterations of the loop around the lanes in one tile: a line of the cache of floats
FEWEST = 8  # lanes, or iterations around them, below which tiles are not worth it
WIDEST = 2048  # lanes: a tile stays in the second cache
MOST_TILES = 4  # in one loop: they lie on the stack


@dataclass
class Tile:
    """A copy of DEPTH rows.  corner: its first element in memory; step: from lane to lane there."""

    name: str
    c_type: str
    corner: str
    step: str
    is_filled: bool  # with what is read, else it is emptied when the tile ends
    is_converted: bool  # between float16 in memory and floats: both have an array
    origin: Any = field(default_factory=lambda: playing.value, repr=False)

    def lines(self, texts: Sequence[str]) -> list[Statement]:
        return [Line(text, origin=self.origin) for text in texts]

    def declared(self, width: int) -> list[Statement]:
        texts = [f"{self.c_type} {self.in_memory}[{DEPTH}][{width}];"]
        if self.is_converted:
            texts.append(f"float {self.name}[{DEPTH}][{width}];")
        return self.lines(texts)

    @property
    def in_memory(self) -> str:
        """The array whose elements are as in memory."""
        return f"{self.name}_halves" if self.is_converted else self.name

    def filled(self, width: int, lanes: str, rows: str) -> list[Statement]:
        """From memory to what the rows read."""
        array, size = self.in_memory, f"{lanes}, {rows}"
        texts = [transposed(f"&{self.corner}", self.step, f"{array}[0]", width, size)]
        if self.is_converted:
            texts.append(f"mini::convert({array}[0], {self.name}[0], {width} * ({rows}));")
        return self.lines(texts)

    def emptied(self, width: int, lanes: str, rows: str) -> list[Statement]:
        """From what the rows wrote to memory."""
        array, size = self.in_memory, f"{rows}, {lanes}"
        texts = [transposed(f"{array}[0]", width, f"&{self.corner}", self.step, size)]
        if self.is_converted:
            texts.insert(0, f"mini::convert({self.name}[0], {array}[0], {width} * ({rows}));")
        return self.lines(texts)


@dataclass
class RowTiles:
    """Tiles of the loop `row` around the loop over `lane`, which begins at `start` and runs over
    `width` lanes at most (`count` in this run)."""

    writer: CppKernelWriter
    row: sympy.Symbol
    lane: sympy.Symbol
    start: Bound
    width: int
    count: Bound
    tiles: dict[tuple[str, bool], Tile] = field(default_factory=dict)
    written: set[tuple[str, int]] = field(default_factory=set)  # by now, in which step

    @property
    def is_used(self) -> bool:
        return bool(self.tiles)

    def place(
        self,
        name: str,
        index: sympy.Expr,
        dtype: torch.dtype,
        written: bool,
        step: int = 0,
        is_float: bool = False,
    ) -> Code | None:
        """The element of a tile that stands for one in memory, if that lies across the lanes.

        step: the index is that of `row + step`; is_float: the element of float16 as a float."""
        writer = self.writer
        if writer.in_mask() or not lies_across(index, self.row, self.lane):
            return None
        start = sympy.Integer(0) if self.start == 0 else writer.local(self.start)
        corner = {self.lane: start, self.row: writer.local(f"{self.row}_tile") - step}
        pointer = writer.pointer(name, written)
        text = f"{pointer}[{writer.index(sympy.expand(index.xreplace(corner)))}]"
        row, lane = writer.index(self.row + step), named(self.lane)
        at = code("[{} - {}_tile]", row, self.row)
        column = code("[{}]" if self.start == 0 else "[{} - {}]", lane, named(self.start))
        # what this step has written is read from there
        key = (text, written or (text, step) in self.written)
        if key not in self.tiles:
            if len(self.tiles) >= MOST_TILES:
                return None
            array, stride = writer.outside.fresh("tile"), writer.index(stride_of(index, self.lane))
            c_type = memory_type(dtype)
            self.tiles[key] = Tile(array, c_type, text, stride, not written, is_float)
        if written:
            self.written.add((text, step))
        return code("{}{}{}", named(self.tiles[key].name), at, column)

    def around(self, loops: Callable[[str, str], list[Statement]], end: Bound) -> list[Statement]:
        """What one tile does: the loop over its rows, `loops(start, end)`, between copies."""
        first, stop = f"{self.row}_tile", f"{self.row}_tile_end"
        sizes = (self.width, self.count, f"{stop} - {first}")
        tiles = self.tiles.values()
        before = [line for tile in tiles for line in tile.declared(self.width)]
        before += [line for tile in tiles if tile.is_filled for line in tile.filled(*sizes)]
        after = [line for tile in tiles if not tile.is_filled for line in tile.emptied(*sizes)]
        return [bound(stop, f"{first} + {DEPTH}", end), *before, *loops(first, stop), *after]

    def loop(self, start: Bound, end: Bound) -> tuple[str, Bound, Bound, int]:
        """The loop over tiles."""
        return (f"{self.row}_tile", start, end, DEPTH)


@strategy(order=9)
class TiledRows(Strategy):
    """Lanes along the reduction: tiles of the last outer loop, as wide as a row."""

    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not config.tiling or plan.is_pointwise or len(plan.inner) != 1 or not plan.outer:
            return False
        if writer.has_scatter or writer.group.has_scan or Spread(writer).applies():
            return False
        width, rows = plan.inner[0], hint(plan.outer[-1], 0)
        if not isinstance(width, int) or not FEWEST <= width <= WIDEST or rows < FEWEST:
            return False
        if writer.parallel and plan.outer_count < 2 * DEPTH * torch.get_num_threads():
            return False
        accesses = [a for b in plan.bodies.values() for a in (*b.reads(), *b.writes())]
        row, lane = plan.x[-1], plan.r[0]
        if not any(lies_across(access.index, row, lane) for access in accesses):
            return False
        self.tiles = RowTiles(writer, row, lane, 0, width, width)
        return True

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype, found: Code) -> Code | None:
        return self.tiles.place(name, index, dtype, False)

    def stored_place(self, name: str, index: sympy.Expr, dtype: torch.dtype) -> Code | None:
        if self.is_converted(name, dtype, True):
            return None  # `float_place` is asked, too
        return self.tiles.place(name, index, dtype, True)

    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> Code | None:
        if not self.is_converted(name, dtype, written):
            return None
        return self.tiles.place(name, index, dtype, written, is_float=True)

    def is_converted(self, name: str, dtype: torch.dtype, written: bool) -> bool:
        """float16, but not of what is stored and read again: that is the same in both places."""
        plan = self.writer.plan
        made = [node for node in plan.nodes if node.name == name]
        is_read_again = any(not written or plan.later_loops(node) for node in made)
        return dtype is torch.float16 and not is_read_again

    def loop_nest(self, body: Statements) -> list[Statement] | None:
        writer, tiles = self.writer, self.tiles
        if not tiles.is_used:
            return None
        *loops, (row, _, end) = writer.outer_loops()
        lines = tiles.around(lambda start, stop: nest(body, [(row, start, stop)]), end)
        loops.append(tiles.loop(0, end))
        pragma = None
        if writer.parallel:
            pragma = Pragma("parallel for", collapse=len(loops), condition=writer.threads_if)
        return nest(lines, loops, pragma)


plain_store_element = CppKernelWriter.store_element


def store_element(
    self: CppKernelWriter, name: str, index: sympy.Expr, target: Code, value: Value
) -> None:
    """Writes to a tile where the element lies across the lanes."""
    dtype = self.buffers[name].layout.dtype
    place = self.ask("stored_place", name, index, dtype)
    plain_store_element(self, name, index, place or target, value)


setattr(CppKernelWriter, "store_element", store_element)
