"""Values that are made of indices and constants alone: how large they can be.

In:   what a body computes of `index_expr`s and numbers.  Out: `Bounded` tiles.  An integer of them
      is computed in 32 bits, and as a position it needs no check where it is always in range.

    (arange(224) + 0.5) * 0.5 - 0.5, at least 0, as an integer:  0 to 111, one of 112 rows

So it is with resampling, where eight positions of each element would be checked, all of 64 bits
(on an H100 those made a bilinear resampling three times slower than torch.compile's).  Nothing that
is read from memory is bounded: a float with bounds is never a NaN, an integer never wraps.

Mirrors torch/_inductor/bounds.py (`ValueRangeAnalysis`) and the choice of `tl.int32` in
torch/_inductor/optimize_indexing.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import sympy
import torch

from ...sizes.expressions import Position
from ...sizes.symbols import Size, bounds
from .expressions import TritonExpressions, reads_of
from .tiles import Tile

WHOLE = (torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float64)
LARGEST = (1 << 31) - (1 << 22)  # with room for the elements of a last tile, which are not used
ROUNDING = 2.0**-21  # a float32 result is off by less than this share of it
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Bounded(Tile):
    """A tile whose elements lie between `low` and `high`.  An integer one has 32 bits in the
    kernel, whatever its dtype."""

    low: float = 0
    high: float = 0

    @property
    def bare(self) -> Tile:
        """The same text as what it is in the kernel."""
        dtype = self.dtype if self.dtype.is_floating_point else torch.int32
        return Tile(self.text, dtype, self.axes, self.is_literal)


def product(a: Bounds, b: Bounds) -> Bounds:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


RESULTS: dict[str, Callable[[Bounds, Bounds], Bounds]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": product,
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
}


def bounds_of(value: Tile) -> Bounds | None:
    """None where nothing is known."""
    if isinstance(value, Bounded):
        return value.low, value.high
    if value.is_literal and value.dtype in (*WHOLE, *FLOATS):
        number = eval(value.text, {"float": float})
        return (number, number) if math.isfinite(number) else None
    return None


def fits(found: Bounds) -> bool:
    """Is an integer between these one of 32 bits?"""
    return -LARGEST <= found[0] and found[1] <= LARGEST


class BoundedExpressions(TritonExpressions):
    """Keeps bounds as long as all operands have some; else an integer gets its 64 bits."""

    def bounded(self, value: Tile, found: Bounds, dtype: torch.dtype) -> Tile:
        """The value with its bounds; a float's are widened by what rounding may add."""
        low, high = found
        if dtype.is_floating_point:
            low, high = low - abs(low) * ROUNDING, high + abs(high) * ROUNDING
        return Bounded(value.text, dtype, value.axes, low=low, high=high)

    def wide(self, value: Tile) -> Tile:
        """The value as it is in memory: an integer in its own number of bits."""
        if not isinstance(value, Bounded) or value.dtype != torch.int64:
            return value
        return self.named(f"{value}.to(tl.int64)", value.dtype, value.axes, reads_of(value))

    def solid(self, value: Tile) -> Tile:
        return self.wide(super().solid(value))

    def make(self, template: str, dtype: torch.dtype, *operands: Tile) -> Tile:
        return super().make(template, dtype, *map(self.wide, operands))

    # -- where bounds come from, and where they are used -------------------------------------------
    def index_expr(self, expr: Size, dtype: torch.dtype) -> Tile:
        expr = sympy.sympify(expr)
        ranges = {variable: n for axis in self.plan.axes for variable, n in axis.loops}
        found = None if expr.is_Integer else bounds(expr, ranges)
        if found is None or not fits(found) or dtype not in (*WHOLE, *FLOATS):
            return super().index_expr(expr, dtype)
        index = self.index(expr)
        whole = self.named(index.text, torch.int32, index.axes, index.reads)
        return self.to_dtype(self.bounded(whole, found, torch.int64), dtype)

    def indirect_indexing(self, value: Tile, size: Size, wrap_neg: bool = True) -> sympy.Expr:
        found = bounds_of(value)
        if not isinstance(value, Bounded) or found is None:  # (a literal: where a size is 1)
            return super().indirect_indexing(value, size, wrap_neg)
        end = sympy.sympify(size)
        if found[0] < 0 or not end.is_Integer or found[1] >= int(end):
            return super().indirect_indexing(value.bare, size, wrap_neg)
        symbol = Position(value.text, integer=True)
        self.symbol_axes[symbol] = value.axes
        return symbol

    # -- ops ---------------------------------------------------------------------------------------
    def to_dtype(self, x: Tile, dtype: torch.dtype, src_dtype: torch.dtype | None = None) -> Tile:
        if not isinstance(x, Bounded) or dtype == x.dtype:
            return super().to_dtype(x, dtype, src_dtype)
        found, is_float = (x.low, x.high), x.dtype.is_floating_point
        if dtype in WHOLE and not is_float:
            return replace(x, dtype=dtype)
        if dtype in WHOLE and fits(found):
            reads = reads_of(x) | {"as_index"}
            value = self.named(f"as_index({x})", torch.int32, x.axes, reads)
            return self.bounded(value, (math.trunc(x.low), math.trunc(x.high)), dtype)
        value = super().to_dtype(x.bare, dtype)
        return self.bounded(value, found, dtype) if dtype in FLOATS else value

    def binary(self, op: str, a: Tile, b: Tile) -> Tile:
        first, second = bounds_of(a), bounds_of(b)
        if first is None or second is None or op not in RESULTS or a.dtype != b.dtype:
            return super().binary(op, a, b)
        dtype, found = a.dtype, RESULTS[op](first, second)
        if not dtype.is_floating_point and not all(map(fits, (first, second, found))):
            return super().binary(op, a, b)
        bare = [x.bare if isinstance(x, Bounded) else x for x in (a, b)]
        if not dtype.is_floating_point:
            bare = [replace(x, dtype=torch.int32) for x in bare]
        return self.bounded(super().binary(op, *bare), found, dtype)
