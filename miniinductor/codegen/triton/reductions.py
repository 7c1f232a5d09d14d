"""Reductions of tiles: one step of a loop over a row, and how its partial results become a column.

In:   the value that is reduced.  Out: lines: a declaration before the loop, an update in it, and a
      column [XBLOCK, 1] after it; where a row is one tile, only the column.

    acc0 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for r_start in tl.range(0, 65536, RBLOCK, num_stages=STAGES):
        ...
        acc0 = acc0 + tmp0
    tmp1 = tl.sum(acc0, 1)[:, None]

`OnlineSum` is sum(exp(v - max)) in the loop that finds the maximum: each group of neighbours keeps
a maximum of its own, and its sum relative to that.
"""

from typing import NamedTuple

import sympy
import torch

from ...ir.loops import playing
from .block_sizes import LARGEST_INT32
from .expressions import Pending, TritonExpressions, as_narrow, compute_dtype, literal, triton_type
from .kernel_text import NO_AXES, Axes, Line, Tile, plain
from .split_reductions import neutral
from .tile_plan import NEIGHBOURS


class Reducer(NamedTuple):
    """How a kind of reduction is written."""

    combine: str  # two values {a} and {b}
    column: str  # a tile {a}, along axis {axis}


class Scan(NamedTuple):
    start: str
    combine: str  # two values
    whole: str  # the tile's running values


def by_helper(helper: str, tile: str = "{a}") -> Reducer:
    """A reduction by a function of two values."""
    return Reducer(f"{helper}({{a}}, {{b}})", f"tl.reduce({tile}, {{axis}}, {helper})")


REDUCERS = {
    "sum": Reducer("{a} + {b}", "tl.sum({a}, {axis})"),
    "prod": by_helper("multiply"),
    "max": by_helper("larger"),
    "min": by_helper("smaller"),
    "any": Reducer("{a} | {b}", "tl.max({a}, {axis})"),
    "argmax": by_helper("argument_of_larger", "({a})"),
    "argmin": by_helper("argument_of_smaller", "({a})"),
}
# integers have no NaN
INTEGER_REDUCERS = {
    "max": Reducer("tl.maximum({a}, {b})", "tl.max({a}, {axis})"),
    "min": Reducer("tl.minimum({a}, {b})", "tl.min({a}, {axis})"),
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
    if kind not in ("max", "min"):
        return SCANS[kind]
    helper = {"max": "larger", "min": "smaller"}[kind]
    if not dtype.is_floating_point:
        helper = f"integer_{kind}imum"
    whole = f"tl.associative_scan({{}}, 1, {helper})"
    start = literal(neutral(kind, dtype), dtype)
    return Scan(start, f"{helper}({{}}, {{}})", whole)


class Accumulator:
    """A reduction under way: its tile of partial results, or, where the row is one tile, the row
    itself."""

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
        integer = None if element.is_floating_point else INTEGER_REDUCERS.get(kind)
        self.reducer = integer or REDUCERS[kind]
        self.start = literal(neutral(kind, self.element), self.element)
        self.has_index = kind.startswith("arg")
        self.row_mask = writer.plan.axes[1].mask
        row = writer.plan.axes[1].numel
        is_narrow = isinstance(row, int) and row < LARGEST_INT32
        self.index_type = "tl.int32" if is_narrow else "tl.int64"  # of positions in a row
        self.name = writer.outside.fresh("acc")
        self.names = f"{self.name}, {self.name}_index" if self.has_index else self.name
        self.shape = writer.plan.shape()
        self.value = writer.solid(value)
        self.index, _ = writer.index(flat_index)
        self.origin = playing.value
        self.online: OnlineSum | None = None  # that follows this maximum
        self.result: Tile | None = None  # the finished column

    def running(self) -> Tile:
        """What stands for the result in the loop."""
        return Tile(self.name, self.dtype, frozenset("xr"))

    def declaration(self) -> Line:
        full = f"tl.full({self.shape}, {self.start}, {triton_type(self.element)})"
        if self.has_index:
            full += f", tl.full({self.shape}, {LARGEST_INT32}, {self.index_type})"
        if self.online is not None:
            full = per_group(full)
        return Line(f"{self.names} = {full}", origin=self.origin)

    def update(self) -> list[Line]:
        """What one step of the loop does."""
        if self.online is not None:
            both = [self.origin, self.online.origin]
            return plain(self.online.update_texts(self.inside()), both)
        if self.has_index:
            text = self.reducer.combine.format(a=self.names, b=self.inside())
        else:
            text = self.reducer.combine.format(a=self.name, b=self.value)
            if self.row_mask:
                text = f"tl.where({self.row_mask}, {text}, {self.name})"
        return [Line(f"{self.names} = {text}", origin=self.origin)]

    def inside(self) -> str:
        """Value (and index), with what lies beyond the end of the row made neutral."""
        terms = [(self.writer.spread(self.value), self.start)]
        if self.has_index:
            index = f"tl.broadcast_to({self.index}, {self.shape}).to({self.index_type})"
            terms.append((index, str(LARGEST_INT32)))
        if self.row_mask:
            terms = [(f"tl.where({self.row_mask}, {a}, {b})", b) for a, b in terms]
        return ", ".join([a for a, _ in terms])

    def whole(self) -> Tile:
        """The column of a row in one tile; one number, where all rows are the same one."""
        if "x" in self.value.axes or self.has_index:
            return self.column(self.inside())
        row = f"tl.broadcast_to({self.value}, [1, RBLOCK])"
        if self.row_mask:
            row = f"tl.where({self.row_mask}, {row}, {self.start})"
        text = self.reducer.column.format(a=f"tl.reshape({row}, [RBLOCK])", axis=0)
        return self.named(text, NO_AXES)

    def column(self, tile: str) -> Tile:
        """The results of all rows."""
        text = self.reducer.column.format(a=tile, axis=1) + ("[1]" if self.has_index else "")
        return self.named(f"{text}[:, None]", frozenset("x"))

    def finish(self) -> Tile:
        """The column, after the loop."""
        return self.column(self.names)

    def named(self, text: str, axes: Axes) -> Tile:
        """The result, which varies along these axes."""
        if self.has_index:
            text += ".to(tl.int64)"
        elif self.kind == "any":
            text += " != 0"
        else:
            text = as_narrow(text, self.element)
        self.result = self.writer.named(text, self.dtype, axes)
        return self.result


class OnlineSum:
    """sum(exp(v - max)), updated together with its maximum."""

    def __init__(self, maximum: Accumulator, dtype: torch.dtype):
        self.maximum, self.dtype, self.origin = maximum, dtype, playing.value
        self.name = maximum.writer.outside.fresh("acc")

    def running(self) -> Tile:
        return Tile(self.name, self.dtype, frozenset("xr"))

    def declaration(self) -> Line:
        top = self.maximum
        full = f"tl.full({top.shape}, 0.0, {triton_type(top.element)})"
        return Line(f"{self.name} = {per_group(full)}", origin=self.origin)

    def update(self) -> list[Line]:
        return []  # the maximum's

    def update_texts(self, term: str) -> list[str]:
        """Both updates; each group of neighbours has its maximum, and its sum relative to that."""
        name, top = self.maximum.name, f"{self.maximum.name}_new"
        exps = "tl.sum(tl.exp(groups - base[:, :, None]), 2)"
        return [
            f"groups = tl.reshape({term}, [XBLOCK, RBLOCK // {NEIGHBOURS}, {NEIGHBOURS}])",
            f"{top} = larger({name}, tl.reduce(groups, 2, larger))",
            f'base = tl.where({top} == float("-inf"), 0.0, {top})',
            f"{self.name} = {self.name} * tl.exp({name} - base) + {exps}",
            f"{name} = {top}",
        ]

    def finish(self) -> Tile:
        top = self.maximum
        assert top.result is not None  # its accumulator stands before this one
        text = f"tl.sum({self.name} * tl.exp({top.name} - {top.result}), 1)[:, None]"
        return top.writer.named(text, top.dtype, frozenset("x"))


def per_group(full: str) -> str:
    """The tile of a row's elements as one of groups of neighbours."""
    return full.replace("RBLOCK", f"RBLOCK // {NEIGHBOURS}")


def pending(value: object, state: str) -> Accumulator | None:
    """The maximum that is still being found, if `value` is its "max", "shifted" or "exp"."""
    return value.maximum if isinstance(value, Pending) and value.state == state else None
