"""Reductions and scans in a kernel: partial results of a row's tiles become a column of results.

In:   the value that is reduced.  Out: lines: a declaration before the loop, an update in it, and a
      column [XBLOCK, 1] after it; where a row is one tile, only the column.

    acc0 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for r_start in tl.range(0, 65536, RBLOCK, num_stages=STAGES):
        ...
        acc0 = acc0 + tmp0
    tmp1 = tl.sum(acc0, 1)[:, None]

Two kinds of reduction need another one's result, and still read their elements once: `m2` (squared
deviations from the mean) and `sumexp` (of v - max).  Each element of the tile keeps a mean or a
maximum of its own, and its sum relative to that (`Deviations`, `SumOfExp`).

Mirrors `reduction` and `scan` of TritonKernel in torch/_inductor/codegen/triton.py.
"""

import math
from typing import Any, NamedTuple

import sympy
import torch

from ...ir.loops import playing
from ...ir.ops import compute_dtype
from ..kernels import limit
from .axes import size_text
from .expressions import TritonExpressions, as_narrow, literal, triton_type
from .kernel_text import Line, Tile, plain
from .tile_plan import ABOUT, LARGEST_INT32, NEIGHBOURS

NEUTRAL = {"sum": 0, "m2": 0, "sumexp": -math.inf, "prod": 1, "any": False}


def term(handler: Any, kind: str, value: Any, about: Any, count: Any) -> Any:
    """What an element adds to m2 or sumexp.  about: the sum of all `count` elements, or their
    maximum."""
    if kind == "sumexp":
        return handler.exp(handler.sub(value, about))
    away = handler.sub(value, handler.truediv(about, count))
    return handler.mul(away, away)


def neutral(kind: str, dtype: torch.dtype) -> bool | int | float:
    """What a reduction of nothing is."""
    return NEUTRAL.get(kind, limit(dtype, kind.endswith("max")))


# --- kinds ----------------------------------------------------------------------------------------
class Reducer(NamedTuple):
    """How a kind of reduction is written."""

    combine: str  # two values {a} and {b}
    column: str  # a tile {a}, row by row


class Scan(NamedTuple):
    start: str
    combine: str  # two values
    whole: str  # the tile's running values


def by_helper(helper: str, tile: str = "{a}") -> Reducer:
    """A reduction by a function of two values."""
    return Reducer(f"{helper}({{a}}, {{b}})", f"tl.reduce({tile}, 1, {helper})")


REDUCERS = {
    "sum": Reducer("{a} + {b}", "tl.sum({a}, 1)"),
    "prod": by_helper("multiply"),
    "max": by_helper("larger"),
    "min": by_helper("smaller"),
    "any": Reducer("{a} | {b}", "tl.max({a}, 1)"),
    "argmax": by_helper("argument_of_larger", "({a})"),
    "argmin": by_helper("argument_of_smaller", "({a})"),
}
# integers have no NaN
INTEGER_REDUCERS = {
    "max": Reducer("tl.maximum({a}, {b})", "tl.max({a}, 1)"),
    "min": Reducer("tl.minimum({a}, {b})", "tl.min({a}, 1)"),
}
SCANS = {
    "sum": Scan("0", "{} + {}", "tl.cumsum({}, 1)"),
    "prod": Scan("1", "{} * {}", "tl.cumprod({}, 1)"),
    "logaddexp": Scan(
        'float("-inf")', "log_of_sum({}, {})", "tl.associative_scan({}, 1, log_of_sum)"
    ),
}


def scan_of(kind: str, dtype: torch.dtype) -> Scan:
    """How running values of this dtype are written."""
    if kind in SCANS:
        return SCANS[kind]
    helper = {"max": "larger", "min": "smaller"}[kind]
    if not dtype.is_floating_point:
        helper = f"integer_{kind}imum"
    whole = f"tl.associative_scan({{}}, 1, {helper})"
    start = literal(neutral(kind, dtype), dtype)
    return Scan(start, f"{helper}({{}}, {{}})", whole)


# --- accumulators ---------------------------------------------------------------------------------
class Accumulator:
    """A reduction under way: its tile of partial results; or, where a row is one tile, the row."""

    def __init__(
        self,
        writer: TritonExpressions,
        kind: str,
        element: torch.dtype,
        dtype: torch.dtype,
        value: Tile,
        flat_index: sympy.Expr,
    ):
        """element: of what is reduced; dtype: of the result."""
        self.writer, self.kind, self.dtype = writer, kind, dtype
        self.element = compute_dtype(element)
        self.type = triton_type(self.element)
        integer = None if element.is_floating_point else INTEGER_REDUCERS.get(kind)
        self.reducer = integer or REDUCERS["sum" if kind in ABOUT else kind]
        self.start = literal(neutral(kind, self.element), self.element)
        self.has_index = kind.startswith("arg")
        row = writer.plan.axes[1]
        self.row, self.row_mask = row.numel, row.mask
        is_narrow = isinstance(self.row, int) and self.row < LARGEST_INT32
        self.index_type = "tl.int32" if is_narrow else "tl.int64"  # of positions in a row
        self.name = writer.outside.fresh("acc")
        self.names = f"{self.name}, {self.name}_index" if self.has_index else self.name
        self.shape = writer.plan.shape()
        self.value = writer.solid(value)
        # is the row the same for all x, as in the norm of y[None]?
        is_tile = writer.plan.kind == "persistent" and not self.has_index
        self.axes = frozenset("x" if not is_tile or self.value.axes != {"r"} else "")
        self.index, _ = writer.index(flat_index)
        self.origin = playing.value

    def running(self) -> Tile:
        """What stands for the result inside of the loop, where only a store may name it."""
        return Tile(self.name, self.dtype, frozenset("xr"))

    def declaration(self) -> Line:
        full = f"tl.full({self.shape}, {self.start}, {self.type})"
        if self.has_index:
            full += f", tl.full({self.shape}, {LARGEST_INT32}, {self.index_type})"
        return Line(f"{self.names} = {full}", origin=self.origin)

    def update(self) -> list[Line]:
        """What one step of the loop does."""
        if self.has_index:
            text = self.reducer.combine.format(a=self.names, b=self.inside())
        else:
            text = self.reducer.combine.format(a=self.name, b=self.value)
            if self.row_mask:
                text = f"tl.where({self.row_mask}, {text}, {self.name})"
        return [Line(f"{self.names} = {text}", origin=self.origin)]

    def inside(self) -> str:
        """The value (and the index, of argmax), neutral beyond the end of the row."""
        value = self.writer.spread(self.value) if self.axes else str(self.value)
        terms = [(value, self.start)]
        if self.has_index:
            index = f"tl.broadcast_to({self.index}, {self.shape}).to({self.index_type})"
            terms.append((index, str(LARGEST_INT32)))
        if self.row_mask:
            terms = [(f"tl.where({self.row_mask}, {a}, {b})", b) for a, b in terms]
        return ", ".join([a for a, _ in terms])

    def column(self, tile: str) -> Tile:
        """The results of all rows, [XBLOCK, 1], from a tile of partial ones."""
        text = self.reducer.column.format(a=tile)
        if self.has_index:
            text += "[1][:, None].to(tl.int64)"
        elif self.kind == "any":
            text += "[:, None] != 0"
        else:
            text = as_narrow(f"{text}[:, None]", self.element)
        return self.writer.named(text, self.dtype, self.axes)

    def finish(self) -> Tile:
        """The column, after the loop."""
        return self.column(self.names)


class Deviations(Accumulator):
    """The sum of squared deviations from the mean, in one pass: Welford's algorithm, in each
    element of the tile for itself.

        away = tmp0 - acc0
        acc0 = acc0 + away * (1.0 / acc0_count)
        acc0_m2 = acc0_m2 + away * (tmp0 - acc0)"""

    def declaration(self) -> Line:
        name, full = self.name, f"tl.full({self.shape}, 0.0, {self.type})"
        count = f"tl.full([1, 1], 0.0, {self.type})"
        text = f"{name}, {name}_m2, {name}_count = {full}, {full}, {count}"
        return Line(text, origin=self.origin)

    def update(self) -> list[Line]:
        name, value = self.name, self.value
        kept = f"tl.where({self.row_mask}, {{}}, {{}})" if self.row_mask else "{}"
        texts = [
            f"{name}_count += 1.0",
            f"away = {value} - {name}",
            f"new = {name} + away * (1.0 / {name}_count)",
            f"m2 = {name}_m2 + away * ({value} - new)",
            f"{name} = {kept.format('new', name)}",
            f"{name}_m2 = {kept.format('m2', name + '_m2')}",
        ]
        return plain(texts, self.origin)

    def finish(self) -> Tile:
        """Deviations from the means of all elements of the tile, and of those from the row's."""
        name, row = self.name, size_text(self.row)
        # how many elements of the row each element of the tile has seen
        lane = "tl.arange(0, RBLOCK)[None, :]"
        count = f"(({row} - {lane} + RBLOCK - 1) // RBLOCK).to({self.type})"
        text = f"{name} - tl.sum({name} * {count}, 1)[:, None] / {row}"
        away = self.writer.named(text, self.dtype, self.writer.plan.all_axes)
        return self.column(f"{name}_m2 + {count} * {away} * {away}")


class SumOfExp(Accumulator):
    """The sum of exp(v - max v), in one pass: the online softmax.  Each element of the tile keeps a
    maximum of its own, and its sum relative to that; in a row, so do groups of neighbours."""

    def declaration(self) -> Line:
        shape = self.shape.replace("RBLOCK", f"RBLOCK // {self.group}")
        names = f"{self.name}, {self.name}_sum"
        full = [f"tl.full({shape}, {n}, {self.type})" for n in (self.start, "0.0")]
        return Line(f"{names} = {', '.join(full)}", origin=self.origin)

    @property
    def group(self) -> int:
        return 1 if self.writer.plan.strided else NEIGHBOURS

    def update(self) -> list[Line]:
        name, shape = self.name, f"[XBLOCK, RBLOCK // {self.group}, {self.group}]"
        texts = [
            f"groups = tl.reshape({self.inside()}, {shape})",
            f"top = larger({name}, tl.reduce(groups, 2, larger))",
            'base = tl.where(top == float("-inf"), 0.0, top)',
            "exps = tl.sum(tl.exp(groups - base[:, :, None]), 2)",
            f"{name}_sum = {name}_sum * tl.exp({name} - base) + exps",
            f"{name} = top",
        ]
        return plain(texts, self.origin)

    def finish(self) -> Tile:
        top = f"tl.reduce({self.name}, 1, larger)[:, None]"
        return self.column(f"{self.name}_sum * tl.exp({self.name} - {top})")
