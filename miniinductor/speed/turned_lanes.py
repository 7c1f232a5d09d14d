"""Lanes that take turns in a few rows of memory: these are laid out in their order first.

    mini::bfloat16 turned0[384];
    mini::interleave<3>(in0 + 128*x1, 50176, turned0, 128);
    #pragma omp simd
    for (int64_t r0 = 0; r0 < 384; r0++) ... turned0[r0]        not in0[r0/3 + 50176*(r0%3)]

In:   a pointwise kernel whose lanes were joined with the loop around them (tables.py), and which
      reads along that loop: images of three channels, from dense to channels-last memory.  Out: a
      copy of what one row of lanes reads, made of whole vectors.

Without it each lane is read by itself, at a place from a table.  tiles.py does the same where lanes
are many enough to fill vectors.
"""

from pathlib import Path
from typing import NamedTuple

import sympy
import torch

from .. import config
from ..codegen.code import Code, call, code, named
from ..codegen.cpp_expressions import memory_type
from ..codegen.strategy import Strategy, strategy
from ..codegen.tree import Line
from ..dependencies import int_or_none
from ..runtime.build import PRELUDES
from ..sizes.expressions import FloorDiv, Mod, is_indirect
from .arrays import room
from .gathered_rows import copies
from .tables import LEAST_ROWS, MOST_LANES
from .tiles import transposed

FEW = 8  # rows whose lanes are picked out of vectors; more are transposed
PRELUDES.append(Path(__file__).with_name("turned_lanes.h"))


class Turns(NamedTuple):
    """Lane r0 reads element r0//rows of row r0%rows.  corner: where the first row begins; row,
    column: the steps from row to row, and from element to element."""

    rows: int
    row: int
    column: int
    corner: sympy.Expr


@strategy(order=1)
class TurnedLanes(Strategy):
    def applies(self) -> bool:
        plan = self.writer.plan
        # (the scope that holds them, what is copied) -> array
        self.copies: dict[tuple[int, str], Code] = {}
        if not config.tiling or not plan.is_pointwise or not plan.inner:
            return False
        # (then nothing becomes a float)
        self.only_copies = all(copies(body) for body in plan.bodies.values())
        size = plan.inner[-1]
        return isinstance(size, int) and size <= MOST_LANES and plan.outer_count >= LEAST_ROWS

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype, found: Code) -> Code | None:
        return self.place(name, index, dtype)

    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> Code | None:
        """(asked before `element`, and speed/gathered_rows.py here)"""
        copied = None
        if not written and not self.only_copies:
            copied = self.place(name, index, dtype)
        if copied is None or dtype is torch.float16:
            return copied
        return call("to_float", copied)

    def place(self, name: str, index: sympy.Expr, dtype: torch.dtype) -> Code | None:
        """The element of a copy."""
        writer, lane = self.writer, self.writer.plan.r[-1]
        if writer.is_tiled or writer.in_mask() or lane not in writer.inner_variables:
            return None
        turns = None if is_indirect(index) else turns_of(index, lane, writer.plan.inner[-1])
        if turns is None or not is_worth_it(turns, dtype):
            return None
        start = code("{} + {}", writer.pointer(name, False), writer.index(turns.corner))
        key = (id(writer.outside), f"{start} {turns.rows} {turns.row} {turns.column}")
        if key not in self.copies:
            self.copies[key] = self.copied(start, turns, dtype)
        return code("{}[{}]", self.copies[key], named(lane))

    def copied(self, start: Code, turns: Turns, dtype: torch.dtype) -> Code:
        """The array that a row of lanes reads, and lines that fill it.  Of float16 that is computed
        with it holds floats."""
        writer, size = self.writer, self.writer.plan.inner[-1]
        rows, step, count = turns.rows, turns.row, size // turns.rows
        array = writer.outside.fresh("turned")
        is_float = dtype is torch.float16 and not self.only_copies
        stored = f"{array}_halves" if is_float else array
        if turns.column != 1:
            steps = f"{step}, {turns.column}, {stored}, {count}"
            copy = f"mini::taken_in_turns<{rows}>({start}, {steps});"
        elif rows < FEW:
            copy = f"mini::interleave<{rows}>({start}, {step}, {stored}, {count});"
        else:
            copy = transposed(str(start), step, stored, rows, f"{rows}, {count}")
        texts = [f"{memory_type(dtype)} {stored}[{size}];", copy]
        if is_float:
            texts += [f"float {array}[{room(size)}];", f"mini::convert({stored}, {array}, {size});"]
        writer.outside.lines += [Line(text) for text in texts]
        return named(array)


def turns_of(index: sympy.Expr, lane: sympy.Symbol, size: int) -> Turns | None:
    """How the lanes take turns, if they do."""
    parts = [p for p in index.atoms(FloorDiv, Mod) if p.has(lane)]
    if len(parts) != 2 or any(p.args[0] != lane for p in parts):
        return None
    rows = int_or_none(parts[0].args[1])
    if rows is None or parts[1].args[1] != rows or size % rows or size == rows:
        return None
    element, row = FloorDiv(lane, rows), Mod(lane, rows)
    expanded = sympy.expand(index)
    step = int_or_none(expanded.coeff(row))
    column = int_or_none(expanded.coeff(element))
    if step is None or column is None or step < 1 or column < 1:
        return None
    corner = sympy.expand(expanded - column * element - step * row)
    return None if corner.has(lane) else Turns(rows, step, column, corner)


def is_worth_it(turns: Turns, dtype: torch.dtype) -> bool:
    """Are these whole vectors, or elements that processors do not gather?"""
    return turns.column == 1 or turns.rows < FEW and dtype.itemsize < 4
