"""What is the same in each row of a kernel is computed before the rows.

In:   the expressions of a loop body, as they are written.  Out: names for what no row changes, and
      arrays ("tables") for what varies with the lane, but not with the row.

    float table0[128];
    for (int64_t r0 = 0; r0 < 128; r0++) { ... table0[r0] = tmp9; }
    for (int64_t x1 = 0; x1 < 128; x1++)
        for (int64_t r0 = 0; r0 < 128; r0++) {
            const float tmp9 = table0[r0];          what is as cheap as reading it is computed here

Values that vary with neither stand before the rows, too.  tables.py does it for pointwise kernels,
rows.py for reductions along rows.  PyTorch: computes such values for each element.
"""

from collections.abc import Callable, Iterable
from typing import Any

import sympy
import torch

from ... import config
from ...ir.dependencies import stride_of
from ...ir.loops import playing
from ..common import Code, Value, code, index_code, named
from ..tree import Bound, Definition, Line, Pragma, Statement, Statements, names_in, nest
from .expressions import CppScope
from .reductions import ARRAY_TYPES
from .strategy import Found, Strategy

TABLE_COST = 6  # operations that cost more than reading a table
CHEAP = {"to_float", "abs", "maximum", "minimum", "[]"}


class RowInvariants(Strategy):
    """Moves work out of rows, between `begin_rows` and the end of the rows' lines."""

    is_on = False  # are lines of rows being written?

    def begin_rows(
        self,
        lanes: tuple[sympy.Symbol, Bound, Bound],
        place: Code,
        width: int,
        outer: Iterable[str | sympy.Symbol],
    ) -> None:
        """From now on, what does not vary between rows comes before them.

        lanes: the loop that fills tables; place: an element of a table of `width` elements; outer:
        variables that no row changes."""
        self.is_on = True
        self.lanes, self.place, self.width = lanes, place, width
        # name -> (type, expression) of what varies with the lane
        self.lazy: dict[str, tuple[str, Code]] = {}
        self.makers: dict[str, Any] = {}  # name -> the instruction that it is the value of
        self.table_checks: list[Statement] = []
        self.computed: set[str] = set()  # names that `name_above` gave
        self.lane_scope = CppScope(self.above)
        self.same_in_rows = set(map(str, outer))

    def new_scope_above(self) -> None:
        self.above = CppScope()
        self.above.counter = self.writer.outside.counter

    # -- what the writer asks ----------------------------------------------------------------------
    def name_above(self, expression: Code, c_type: str, inner: bool) -> str | None:
        """A name for what no row changes.  Of what varies with the lane, `first_in_lanes` decides
        where it is computed."""
        if not self.is_on or self.writer.in_mask():
            return None
        if not all(map(self.is_same, expression.reads)):
            return None
        name = self.lane_scope.lookup((expression, c_type))
        if name is None and not inner:
            name = self.above.temporary(expression, c_type)
        elif name is None:
            name = self.lane_scope.known[expression, c_type] = self.above.fresh("tmp")
            self.lazy[name] = (c_type, expression)
            self.makers[name] = self.lane_scope.makers[name] = [playing.value]
        self.same_in_rows.add(name)
        self.computed.add(name)
        return name

    def is_same(self, name: str) -> bool:
        """Is what has this name the same in each row?"""
        writer = self.writer
        if name in self.same_in_rows:
            return True
        written = writer.overwritten.values()
        return name.startswith("in") and any(
            pointer == name and buffer not in written for buffer, pointer in writer.pointers.items()
        )

    def error_lines(self, condition: Value) -> Found:
        if not self.is_on or condition.text not in self.same_in_rows:
            return None
        return self.table_checks if condition.text in self.lazy else self.above.lines

    def place_of(self, name: str, index: sympy.Expr) -> sympy.Expr | None:
        """The index of a read, in which what varies with the lane alone, but not by a constant
        step, has a name of its own."""
        writer = self.writer
        if not self.is_on or writer.in_mask():
            return None
        lane = writer.plan.r[-1]
        terms = [
            term
            for term in sympy.Add.make_args(index)
            if all(s == lane or s.name in self.lazy for s in term.free_symbols)
        ]
        part = sympy.Add(*terms)
        is_step = part.free_symbols <= {lane} and stride_of(part, lane) is not None
        if is_step or len(part.args) == 0:
            return None
        number = writer.temporary(index_code(part), torch.int64, True).text
        numel = writer.buffers[name].layout.numel
        if getattr(numel, "is_Integer", True) and numel < 1 << 31:
            writer.small.add(number)
        return index - part + writer.position(number)

    def first_in_lanes(self, lines: Statements, added: Iterable[str] = ()) -> list[Statement]:
        """What the lanes' loop begins with, so that `lines` (and what is `added` to accumulators)
        find all values; fills `self.above` with what comes before the rows."""
        if not self.is_on:
            return []
        result: list[Statement] = []
        fill = list(self.table_checks)
        for name in self.needed([*names_in(lines), *added], self.is_table):
            c_type, expression = self.lazy[name]
            if self.is_table(name):
                array = self.above.fresh("table")
                in_arrays = ARRAY_TYPES.get(c_type, c_type)
                element_type = "int32_t" if name in self.writer.small else in_arrays
                declared = code("{} {}[{}];", element_type, named(array), self.width)
                self.above.add(declared, "a table for all rows")
                expression = code("{}{}", named(array), self.place)
                kept = code("{} = {};", expression, named(name))
                fill.append(Line(kept, origin=self.makers[name]))
            result.append(Definition.of(c_type, name, expression, self.makers[name]))
        if fill:
            pragma = Pragma(simd=True) if config.vectorize else None
            made: list[Statement] = [self.definition(name) for name in self.needed(names_in(fill))]
            self.above.lines += nest(made + fill, [self.lanes], pragma)
        return result

    # -- what a table is worth ---------------------------------------------------------------------
    def definition(self, name: str) -> Line:
        c_type, expression = self.lazy[name]
        return Definition.of(c_type, name, expression, self.makers[name])

    def is_table(self, name: str) -> bool:
        return self.cost(name, set()) >= TABLE_COST

    def cost(self, name: str, seen: set[str]) -> int:
        """Operations that make the value, apart from those that made the values `seen`."""
        expression = self.lazy[name][1]
        names = [n for n in expression.reads if n in self.lazy and n not in seen]
        seen.update(names)
        own = TABLE_COST if self.is_dear(expression) else 1
        return own + sum(self.cost(n, seen) for n in names)

    def is_dear(self, expression: Code) -> bool:
        """Does it divide, call what takes long, or read an element at a place that is computed?"""
        is_gathered = "[]" in expression.uses and not self.computed.isdisjoint(expression.reads)
        return bool(expression.uses - CHEAP) or is_gathered

    def needed(
        self, names: Iterable[str], is_end: Callable[[str], bool] = lambda name: False
    ) -> list[str]:
        """The lazy values that these are made of, in order; of what `is_end` says no further."""
        found: set[str] = set()
        stack = list(names)
        while stack:
            name = stack.pop()
            if name in self.lazy and name not in found:
                found.add(name)
                stack += [] if is_end(name) else self.lazy[name][1].reads
        return [name for name in self.lazy if name in found]
