"""Rows of 16-bit numbers that lanes read in another order are converted first, as a whole.

    float row0[32];
    #pragma omp simd
    for (int64_t k = 0; k < 32; k++) row0[k] = mini::to_float(in0[k + 1024*x0]);
    #pragma omp simd
    for (int64_t r0 = 0; r0 < 64; r0++) { ... row0[table0[r0]] ... }

In:   reads of bfloat16 or float16 at positions that vary along the lanes, such as the neighbours of
      a resampled image.  Out: an array of floats before the lanes, of which they read.

Processors gather 32 bits into vectors, but no 16, which gcc would read one by one.
"""

from typing import Any

import sympy
import torch

from .. import config
from ..codegen.code import Code, element, named
from ..codegen.cpp_expressions import CppExpressions
from ..codegen.cpp_reductions import Sums
from ..codegen.common import Value
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Line, Pragma, Statement, Statements, nest
from ..dependencies import LoopBody
from ..ir import playing
from ..sizes.ranges import bounds
from ..sizes.symbols import Size

LONGEST = 4096  # elements of a row
MOST_OF_LANES = 4  # elements of a row for each lane, at most


@strategy(order=6)
class GatheredRows(Strategy):
    is_asking = False  # are the loops being written, before which the rows come?

    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if not config.vectorize or not plan.is_pointwise or writer.has_scatter:
            return False
        return not all(copies(body) for body in plan.bodies.values())

    def begin_lanes(self) -> None:
        # (buffer, where a row begins) -> (array, its length, the instruction that reads it)
        self.rows: dict[tuple[str, sympy.Expr], tuple[str, int, Any]] = {}

    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> Code | None:
        """The place in the array of a row that stands for an element."""
        writer = self.writer
        if written or writer.in_mask() or writer.is_tiled or not writer.inner_variables:
            return None
        terms = sympy.Add.make_args(index)
        part = sympy.Add(*[t for t in terms if any(map(writer.changes_inside, t.free_symbols))])
        start, size = sympy.expand(index - part), self.count(part)
        lanes = writer.plan.inner[-1]
        if not isinstance(lanes, int) or not 0 < size <= min(LONGEST, MOST_OF_LANES * lanes):
            return None
        place = part if part.is_Symbol else writer.ask("place_of", name, part)
        if not getattr(place, "is_Symbol", False):
            return None  # positions a constant step apart, or to be computed for each element
        new = (writer.outside.fresh("row"), size, playing.value)
        array, longest, instruction = self.rows.setdefault((name, start), new)
        self.rows[name, start] = array, max(longest, size), instruction  # all reads lie in it
        return element(named(array), named(place))

    def count(self, part: sympy.Expr) -> int:
        """How many positions there are, from 0 on, of the part of an index that varies along the
        lanes; 0: that is not known, or it does not begin there."""
        lane, positions = self.writer.plan.r[-1], positions_of(self.writer)
        if part == lane:
            return 0
        ranges = {s: positions.get(s.name, 0) for s in part.free_symbols}
        limits = bounds(part, ranges | {lane: self.writer.plan.inner[-1]})
        return limits[1] + 1 if limits is not None and limits[0] == 0 else 0

    def inner_loop(self, body: Statements, accumulators: Sums) -> Found:
        if self.is_asking or not self.rows:
            return None
        self.is_asking = True
        lanes = self.writer.ask("inner_loop", body, accumulators)
        self.is_asking = False
        return [*[line for row in self.rows for line in self.converted(*row)], *lanes]

    def converted(self, name: str, start: sympy.Expr) -> list[Statement]:
        writer = self.writer
        array, size, instruction = self.rows[name, start]
        given = f"{writer.pointer(name, False)}[{writer.index(start + writer.local('k'))}]"
        copied = Line(f"{array}[k] = mini::to_float({given});", origin=instruction)
        return [
            Line(f"float {array}[{size}];", origin=instruction),
            *nest([copied], [("k", 0, size)], Pragma(simd=True)),
        ]


def copies(body: LoopBody) -> bool:
    """Does it store what it reads as it is?  Then nothing is gained: 16 bits go one by one."""
    loaded: set[Any] = set()
    for i in body.walk():
        if i.op == "load" or i.op == "to_dtype" and i.args[0] in loaded:
            loaded.add(i.result)
    return all(i.args[2] in loaded for i in body.walk() if i.op == "store")


def positions_of(writer: Any) -> dict[str, Size]:
    """Name of an index that is computed -> how many there are."""
    return writer.__dict__.setdefault("positions", {})


plain_indirect_indexing = CppExpressions.indirect_indexing


def indirect_indexing(
    self: CppExpressions, value: Value, size: Size, wrap_neg: bool = True
) -> sympy.Expr:
    """Notes of how many positions it is one."""
    symbol = plain_indirect_indexing(self, value, size, wrap_neg)
    positions_of(self)[symbol.name] = size
    return symbol


setattr(CppExpressions, "indirect_indexing", indirect_indexing)
