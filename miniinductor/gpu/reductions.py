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

from dataclasses import dataclass

import sympy
import torch

from .expressions import Pending, TritonExpressions, compute_dtype, literal, reads_of, triton_type
from .launch import LARGEST_INT32
from .split_reductions import extreme
from .tiles import Line, Tile, plain

NEIGHBOURS = 8  # elements that share one running maximum there: one more exp for all of them


@dataclass(frozen=True)
class Reducer:
    """How a kind of reduction is written.  start: a number, or the "lowest" or "highest" one."""

    start: str
    combine: str  # two values {a} and {b}
    column: str  # a tile {a}, as one column


@dataclass(frozen=True)
class Scan:
    start: str
    combine: str  # two values
    whole: str  # the tile's running values


REDUCERS = {
    "sum": Reducer("0", "{a} + {b}", "tl.sum({a}, 1)"),
    "prod": Reducer("1", "{a} * {b}", "tl.reduce({a}, 1, multiply)"),
    "max": Reducer("lowest", "larger({a}, {b})", "tl.reduce({a}, 1, larger)"),
    "min": Reducer("highest", "smaller({a}, {b})", "tl.reduce({a}, 1, smaller)"),
    "any": Reducer("0", "{a} | {b}", "tl.max({a}, 1)"),
    "argmax": Reducer(
        "lowest", "argument_of_larger({a}, {b})", "tl.reduce(({a}), 1, argument_of_larger)"
    ),
    "argmin": Reducer(
        "highest", "argument_of_smaller({a}, {b})", "tl.reduce(({a}), 1, argument_of_smaller)"
    ),
}
# integers have no NaN
INTEGER_REDUCERS = {
    "max": Reducer("lowest", "tl.maximum({a}, {b})", "tl.max({a}, 1)"),
    "min": Reducer("highest", "tl.minimum({a}, {b})", "tl.min({a}, 1)"),
}
SCANS = {
    "sum": Scan("0", "{} + {}", "tl.cumsum({}, 1)"),
    "prod": Scan("1", "{} * {}", "tl.cumprod({}, 1)"),
    "logaddexp": Scan(
        'float("-inf")', "log_of_sum({}, {})", "tl.associative_scan({}, 1, log_of_sum)"
    ),
}


def as_narrow(text: str, dtype: torch.dtype) -> str:
    """What Triton reduces or scans of integers of 8 or 16 bits has 32."""
    narrow = not dtype.is_floating_point and dtype is not torch.bool and dtype.itemsize < 4
    return f"{text}.to({triton_type(dtype)})" if narrow else text


def start_text(reducer: Reducer, element: torch.dtype) -> str:
    """What a reduction of nothing is."""
    if reducer.start in ("lowest", "highest"):
        return literal(extreme(element, reducer.start == "lowest"), element)
    return f"{reducer.start}.0" if element.is_floating_point else reducer.start


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
        padded: bool,
    ):
        """element: of what is reduced; dtype: of the result; padded: the value is neutral already
        beyond the end of a row."""
        self.kind, self.dtype, self.element = kind, dtype, compute_dtype(element)
        self.reducer = REDUCERS[kind]
        if not element.is_floating_point:
            self.reducer = INTEGER_REDUCERS.get(kind, self.reducer)
        self.start = start_text(self.reducer, self.element)
        self.has_index = kind.startswith("arg")
        self.mask = None if padded and kind == "max" else writer.plan.axes[1].mask
        self.row_mask = writer.plan.axes[1].mask
        self.name = writer.outside.fresh("acc")
        self.shape = writer.plan.shape()
        self.value = writer.solid(value)
        spread = value.axes != writer.plan.all_axes(True)
        self.term = f"tl.broadcast_to({self.value}, {self.shape})" if spread else self.value.text
        index = writer.index(flat_index).text
        self.index = f"tl.broadcast_to({index}, {self.shape}).to(tl.int64)"
        self.online: OnlineSum | None = None  # that follows this maximum
        self.result: Tile | None = None  # the finished column

    def running(self) -> Tile:
        """What stands for the result in the loop."""
        return Tile(self.name, self.dtype, frozenset("xr"))

    def declaration(self) -> Line:
        full = f"tl.full({self.shape}, {self.start}, {triton_type(self.element)})"
        if self.has_index:
            no_index = f"tl.full({self.shape}, {LARGEST_INT32}, tl.int64)"
            return Line(f"{self.name}, {self.name}_index = {full}, {no_index}")
        if self.online is not None:
            full = per_group(full)
        return Line(f"{self.name} = {full}")

    def update(self) -> list[Line]:
        """What one step of the loop does."""
        first, *others = self.update_texts()  # only the first reads the value
        return [Line(first, reads=reads_of(self.value)), *plain(others)]

    def update_texts(self) -> list[str]:
        name = self.name
        if self.has_index:
            pair, here = f"{name}, {name}_index", ", ".join(self.inside())
            return [f"{pair} = {self.reducer.combine.format(a=pair, b=here)}"]
        if self.online is not None:
            return self.online.update_texts(self.inside()[0])
        text = self.reducer.combine.format(a=name, b=self.value)
        if self.row_mask:
            text = f"tl.where({self.row_mask}, {text}, {name})"
        return [f"{name} = {text}"]

    def inside(self) -> tuple[str, str]:
        """Value and index, with what lies beyond the end of the row made neutral."""
        if not self.mask:
            return self.term, self.index
        return (
            f"tl.where({self.mask}, {self.term}, {self.start})",
            f"tl.where({self.mask}, {self.index}, {LARGEST_INT32})",
        )

    def whole(self, writer: TritonExpressions) -> Tile:
        """The column of a row in one tile."""
        term, index = self.inside()
        tile = f"{term}, {index}" if self.has_index else term
        return self.column(writer, tile, reads_of(self.value))

    def finish(self, writer: TritonExpressions) -> Tile:
        """The column, after the loop."""
        tile = f"{self.name}, {self.name}_index" if self.has_index else self.name
        return self.column(writer, tile, frozenset())

    def column(self, writer: TritonExpressions, tile: str, reads: frozenset[str]) -> Tile:
        text = self.reducer.column.format(a=tile)
        if self.has_index:
            text = f"{text}[1][:, None]"
        elif self.kind == "any":
            text = f"{text}[:, None] != 0"
        else:
            text = as_narrow(f"{text}[:, None]", self.element)
        self.result = writer.named(text, self.dtype, frozenset("x"), reads)
        return self.result


class OnlineSum:
    """sum(exp(v - max)), updated together with its maximum."""

    def __init__(self, writer: TritonExpressions, maximum: Accumulator, dtype: torch.dtype):
        self.maximum, self.dtype = maximum, dtype
        self.name = writer.outside.fresh("acc")

    def running(self) -> Tile:
        return Tile(self.name, self.dtype, frozenset("xr"))

    def declaration(self) -> Line:
        top = self.maximum
        full = f"tl.full({top.shape}, 0.0, {triton_type(top.element)})"
        return Line(f"{self.name} = {per_group(full)}")

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

    def finish(self, writer: TritonExpressions) -> Tile:
        top = self.maximum
        assert top.result is not None  # its accumulator stands before this one
        text = f"tl.sum({self.name} * tl.exp({top.name} - {top.result}), 1)[:, None]"
        return writer.named(text, top.dtype, frozenset("x"), reads_of(top.result))


def per_group(full: str) -> str:
    """The tile of a row's elements as one of groups of neighbours."""
    return full.replace("RBLOCK", f"RBLOCK // {NEIGHBOURS}")


def pending(value: object, state: str) -> Accumulator | None:
    """The maximum that is still being found, if `value` is its "max", "shifted" or "exp"."""
    return value.maximum if isinstance(value, Pending) and value.state == state else None
