"""The rows of a pointwise kernel in C++: what is the same in each is computed once, and indices
become steps of a constant width.

In:   a pointwise group's loop bodies.  Out: longer lanes, loops over parts of the lanes, arrays
      filled before the rows.

    for (int64_t x1 = 0; x1 < 128; x1++)            bilinear upsampling: which columns a column of the result is made of is the same in each row
        for (int64_t r0 = 0; r0 < 128; r0++) {
            const int64_t tmp9 = table0[r0];        filled by a loop before that over x1; what is as cheap as reading it is computed here

  * Longer lanes: loops over (pixels, 3) become (pixels/32, 96), in which the last variable is r0 %
    3: three lanes fill no vector.
  * Pieces: reflect padding reads at 63 - |63 - |r0 - 1||, which is 1 - r0, then r0 - 1, then 127 -
    r0: a loop for each.
  * Tables: a value that varies with the lane but not with the row around it.  Values that vary with
    neither are moved before the rows, too.
  * Blocks: more lanes than a table holds are taken MOST_LANES at a time, all rows for each (grid
    sampling: one grid, many channels).

The rows of a reduction along rows (cpp_reductions.py) use the tables, too.  Mirrors nothing in
PyTorch, whose C++ kernels compute such values for each element.  Left out: pieces of outer loops,
tables of symbolic sizes, transposed reads that come in pieces (`roll` from channels-last memory).
"""

import math
import re
from dataclasses import replace

import sympy
import torch

from .. import config
from ..dependencies import COMPARED, loop_variable, mergeable, stride_of
from ..interpreter import evaluate
from ..sizes.expressions import FloorDiv, Mod
from ..sizes.printing import index_text
from ..sizes.symbols import hint
from .cpp_expressions import CppScope
from .cpp_reductions import bound
from .plan import KernelPlan
from .tree import Line, Pragma, nest, printed

SHORT_LANES, LONGER_LANES = (
    16,
    512,
)  # lanes that are joined with the loop around them, and how many they become at most
LEAST_ROWS, MOST_LANES = 8, 1024  # rows that share a table; its elements
MOST_PIECES, LONGEST = 5, 1 << 22  # pieces are found by looking at every lane, of so many at most
TABLE_COST = 6  # operations that cost more than reading a table
NAME = re.compile(
    r"\b(?!u?int\d)[a-z]+\d+(?:_\w+)?\b(?![(<])"
)  # x0, tmp3, r0_part: a variable, neither a type nor a function


def with_longer_lanes(bodies):
    """Pointwise bodies whose last loop is short, over (rows/k, k*lanes) instead of (rows, lanes),
    if that is what they store side by side."""
    sizes = bodies[0].outer
    if (
        len(sizes) < 2
        or not config.lane_tables
        or not all(isinstance(n, int) for n in sizes[-2:])
        or not 1 < sizes[-1] < SHORT_LANES
    ):
        return bodies
    (rows, lanes), a, b = (
        sizes[-2:],
        loop_variable("x", len(sizes) - 2),
        loop_variable("x", len(sizes) - 1),
    )
    if not all(
        mergeable(access.index, a, b, lanes) for body in bodies for access in body.writes()
    ) or any(
        i.op == "masked" for body in bodies for i in body.walk()
    ):  # their conditions may be those of pieces
        return bodies
    left = lambda k: rows // k if k < rows else hint(sizes[-3], 512) if len(sizes) > 2 else 1  # noqa: E731
    joined = max(
        (k for k in range(1, LONGER_LANES // lanes + 1) if rows % k == 0 and left(k) >= LEAST_ROWS),
        default=1,
    )
    if joined * lanes < SHORT_LANES:
        return bodies
    outer = sizes[:-2] + ((rows // joined,) if joined < rows else ()) + (joined * lanes,)
    lane = loop_variable("x", len(outer) - 1)
    mapping = {a: FloorDiv(lane, lanes) + (joined * a if joined < rows else 0), b: Mod(lane, lanes)}
    return [body.substitute(outer, (), mapping) for body in bodies]


class RowInvariants:
    """The part of `CppKernelWriter` that moves work out of the rows of a pointwise kernel."""

    def plan_lanes(self):
        self.pieces: list[KernelPlan] = [self.plan]
        self.above, self.lane_block = None, 0
        self.small = set()  # indices that 32 bits hold
        if (
            self.plan.is_pointwise
            and self.plan.inner
            and not self.is_tiled
            and not self.has_scatter
            and isinstance(self.plan.inner[-1], int)
        ):
            self.pieces = (
                self.plan_pieces()
                if config.lane_tables and self.plan.inner[-1] <= LONGEST
                else self.pieces
            )
            if (
                config.lane_tables
                and 4 <= self.plan.inner[-1]
                and self.plan.outer
                and hint(self.plan.outer[-1], 512) >= LEAST_ROWS
            ):
                self.above = CppScope()
                self.lane_block = (
                    MOST_LANES if self.plan.inner[-1] > MOST_LANES and len(self.pieces) == 1 else 0
                )

    def plan_pieces(self):
        """A plan for each part of the lanes, in which indices and conditions that vary
        with the lane alone take simpler forms."""
        lane, size, cuts, runs = self.plan.r[-1], self.plan.inner[-1], {0, self.plan.inner[-1]}, 0
        ranges = dict(zip(self.plan.x + self.plan.r, self.plan.outer + self.plan.inner))
        for body in self.plan.bodies.values():
            for access in body.reads():
                if (part := self.lane_part(access.index)) is not None:
                    steps = evaluate(part, {lane: torch.arange(size)}).diff()
                    cuts.update(k + int(steps[k] != 1) for k in changes(steps))
                    runs += int((steps.abs() == 1).sum())
            for test, difference in body.recorded(ranges)[0].undecided:
                if difference.free_symbols == {lane}:
                    cuts.update(
                        changes(COMPARED[test](evaluate(difference, {lane: torch.arange(size)}), 0))
                    )
                    runs += size
        ends = sorted(cuts)
        if not 2 < len(ends) <= MOST_PIECES + 1 or runs < size // 2:
            return self.pieces
        return [self.piece(start, end, ranges) for start, end in zip(ends, ends[1:])]

    def piece(self, start, end, ranges):
        """The plan of the lanes from `start` to `end`."""
        lane, count = self.plan.r[-1], end - start
        bodies = {}
        for name, body in self.plan.bodies.items():
            moved = body.substitute(self.plan.outer, (count,), {lane: lane + start})
            bodies[name] = moved.recorded({**ranges, lane: count})[1]
        return replace(self.plan, inner=(count,), bodies=bodies)

    def lane_part(self, index):
        """The part of an index that varies with the lane alone, if not by a constant step."""
        lane = self.plan.r[-1]
        part = sympy.Add(*[term for term in sympy.Add.make_args(index) if term.has(lane)])
        return part if part.free_symbols == {lane} and stride_of(part, lane) is None else None

    def place_of(self, name, index):
        """The index of a read; what varies with the lane alone, if not by a constant step, has a
        name of its own."""
        if self.above is None or self.in_mask():
            return index
        lane = self.plan.r[-1]
        part = sympy.Add(
            *[
                term
                for term in sympy.Add.make_args(index)
                if all(s == lane or s.name in self.lazy for s in term.free_symbols)
            ]
        )
        if part.free_symbols <= {lane} and stride_of(part, lane) is not None or len(part.args) == 0:
            return index
        number = self.temporary(index_text(part), torch.int64, True).text
        numel = self.buffers[name].layout.numel
        if getattr(numel, "is_Integer", True) and numel < 1 << 31:
            self.small.add(number)
        return index - part + sympy.Symbol(number)

    # -- tables
    def begin_lanes(self):
        """For one piece of the lanes; long ones are taken in blocks, so that a table stays in the
        cache."""
        lane, size = self.plan.r[-1], self.plan.inner[-1]
        if self.above is None or not self.lane_block and size > MOST_LANES:
            self.above = None
        elif self.lane_block:
            self.begin_rows(
                (lane, f"{lane}_part", f"{lane}_end"),
                f"[{lane} - {lane}_part]",
                self.lane_block,
                (*self.plan.x[:-1], lane),
            )
        else:
            self.begin_rows(
                (lane, "0", self.size(size)), f"[{lane}]", size, (*self.plan.x[:-1], lane)
            )

    def is_worth_blocks(self, lines):
        """Would one of the tables that these lines need save anything?"""
        return (
            not self.lane_block
            or self.above is None
            or any(self.cost(name, set()) >= TABLE_COST for name in self.needed(printed(lines)))
        )

    def begin_rows(self, lanes, place, width, outer):
        """From now on, what does not vary between rows comes before them."""
        self.lanes_now, self.table_place, self.table_width = lanes, place, width
        self.lazy, self.table_checks, self.lane_scope = (
            {},
            [],
            CppScope(self.above),
        )  # lazy: name -> (type, expression) of what varies with the lane
        self.same_in_rows = {
            *map(str, outer),
            *[p for n, p in self.pointers.items() if self.is_only_read(n)],
        }

    def is_only_read(self, name):
        return name not in self.overwritten.values() and self.pointers[name].startswith("in")

    def is_same_in_rows(self, expression):
        return (
            self.above is not None
            and not self.in_mask()
            and all(
                name in self.same_in_rows or sympy.Symbol(name) in self.sizes
                for name in NAME.findall(expression)
            )
        )

    def above_rows(self, expression, c_type, inner):
        """A name for what no row changes.  Of what varies with the lane, `definitions` decides
        where it is computed."""
        name = self.lane_scope.lookup((expression, c_type))
        if name is None and not inner:
            name = self.above.temporary(expression, c_type)
        elif name is None:
            name = self.lane_scope.known[expression, c_type] = self.above.fresh("tmp")
            self.lazy[name] = (c_type, expression)
        self.same_in_rows.add(name)
        return name

    def cost(self, name, seen):
        """Operations that make the value, apart from those that made the values `seen`."""
        expression = self.lazy[name][1]
        names = [n for n in NAME.findall(expression) if n in self.lazy and n not in seen]
        seen.update(names)
        cheap = not re.search(r"[/%]|mini::(?!to_float|abs|maximum|minimum)|\[.*tmp", expression)
        return (1 if cheap else TABLE_COST) + sum(self.cost(n, seen) for n in names)

    def needed(self, lines, is_end=lambda name: False):
        """The lazy values that `lines` are made of, in order; of what `is_end` says no further."""
        found, stack = set(), NAME.findall("\n".join(lines))
        while stack:
            name = stack.pop()
            if name in self.lazy and name not in found:
                found.add(name)
                stack += [] if is_end(name) else NAME.findall(self.lazy[name][1])
        return [name for name in self.lazy if name in found]

    def definitions(self, lines, added=()):
        """What the lanes' loop begins with, so that `lines` (and what is `added` to accumulators)
        find all values; fills `self.above` with what comes before the rows."""
        if self.above is None:
            return []
        result, fill = [], list(self.table_checks)
        is_table = lambda name: self.cost(name, set()) >= TABLE_COST  # noqa: E731
        for name in self.needed([*printed(lines), *added], is_table):
            c_type, expression = self.lazy[name]
            if is_table(name):
                array = self.above.fresh("table")
                self.above.add(
                    f"{'int32_t' if name in self.small else c_type} {array}[{self.table_width}];"
                )
                expression = f"{array}{self.table_place}"
                fill.append(Line(f"{expression} = {name};"))
            result.append(Line(f"const {c_type} {name} = {expression};"))
        if fill:
            made = [
                Line(f"const {self.lazy[name][0]} {name} = {self.lazy[name][1]};")
                for name in self.needed(printed(fill))
            ]
            pragma = Pragma(simd=True) if config.vectorize else None
            self.above.lines += nest(made + fill, [self.lanes_now], pragma)
        return result

    def rows_below(self, lines, loops, shared):
        """(lines, loops around them, how many of those threads share): the rows, below what is
        computed for all of a block of them."""
        (row, start, size), around = (
            loops[-1],
            math.prod(hint(n, 512) for n in self.plan.outer[:-1]),
        )
        if self.lane_block:
            lane, lanes = self.plan.r[-1], self.size(self.plan.inner[-1])
            ending = bound(f"{lane}_end", f"{lane}_part + {self.lane_block}", lanes)
            return (
                [ending, *self.above.lines, *nest(lines, [loops[-1]])],
                [*loops[:-1], (f"{lane}_part", "0", lanes, self.lane_block)],
                len(loops),
            )
        count, wanted = hint(self.plan.outer[-1], 512), 4 * torch.get_num_threads()
        block = max(LEAST_ROWS, -(-count * around // wanted))
        if not shared or block >= count and isinstance(self.plan.outer[-1], int):
            return self.above.lines + nest(lines, [loops[-1]]), loops[:-1], len(loops) - 1
        ending = bound(f"{row}_end", f"{row}_block + {block}", size)
        return (
            [ending, *self.above.lines, *nest(lines, [(row, f"{row}_block", f"{row}_end")])],
            [*loops[:-1], (f"{row}_block", start, size, block)],
            len(loops),
        )

    def before_all_rows(self):
        """Of what comes before the rows, the lines that stand before all loops: no outer loop
        changes them."""
        lines = self.above.lines if self.above is not None else []
        if self.lane_block or any(
            str(v) in NAME.findall(line) for v in self.plan.x for line in printed(lines)
        ):
            return []
        self.above = None
        return lines


def changes(values):
    """Where an element differs from the one before."""
    return ((values[1:] != values[:-1]).nonzero().flatten() + 1).tolist()
