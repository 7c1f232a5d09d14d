"""Reductions in C++: accumulators, and the form that adds up rows.

In:   what one iteration adds.  Out: declarations, updates, pragma clauses.

    >>> Accumulator("acc0", "sum", torch.float32, term="tmp3").update("tmp3")
    Line(text='acc0 = acc0 + tmp3;', sets_error=False)

Two forms.  *Lanes* (in `cpp`): the reduction's loop is the vector loop, each lane keeps a part.
*Rows* (here): memory runs along the outer loop, so the lanes do too, and the accumulators are
arrays with one element per column; four rows are added at a time.  Long float sums are sums of
chunks, added up in double.

Mirrors the reduction half of CppVecKernel and the outer-reduction tiling in
torch/_inductor/codegen/cpp.py.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from .. import config
from ..sizes.symbols import Size, hint
from .cpp_expressions import CppScope, compute_type, limit_text
from .plan import estimate
from .tree import (
    Block,
    Line,
    Loop,
    Pragma,
    Statement,
    Statements,
    has_branch,
    nest,
    printed,
)

CHUNK = 512  # longest run of float additions into one accumulator; chunks are then added in double
ROWS_CHUNK = 128  # the same where rows are added up
WHOLE_ROW = (
    2048  # outer elements reduced together at most, when a reduction steps through memory by rows
)
COLUMNS = 512  # the same where rows are longer than that
# partial sums of a vector loop, and places that argmax keeps apart: several vectors, whose
# latencies overlap
LANES = 64
ROWS = 4  # rows added at a time there: one load and store of the accumulator per four elements

# kind -> (initial value, combining expression, OpenMP's name of it)
REDUCERS = {
    "sum": ("0", "{a} + {b}", "+"),
    "prod": ("1", "{a} * {b}", "*"),
    "max": ("lowest", "mini::maximum{type}({a}, {b})", "max"),
    "min": ("highest", "mini::minimum{type}({a}, {b})", "min"),
    "any": ("0", "{a} | {b}", "|"),
    "argmax": ("lowest", "mini::larger({a}, {b})", None),
    "argmin": ("highest", "mini::smaller({a}, {b})", None),
}


@dataclass
class Accumulator:
    name: str
    kind: str
    dtype: torch.dtype  # of the elements (max, argmax) or of the result (sum, prod)
    term: str = ""  # what one iteration adds
    at: str = ""  # argmax, argmin: the place of `term`
    # it adds up partial sums: in double, so that their number costs no accuracy
    over_chunks: bool = False

    @property
    def c_type(self) -> str:
        if self.over_chunks and self.loses_bits:
            return "double"
        if self.is_arg:
            return f"mini::Extreme<{compute_type(self.dtype)}>"
        return "int32_t" if self.kind == "any" else compute_type(self.dtype)

    @property
    def initial(self) -> str:
        start = REDUCERS[self.kind][0]
        if start in ("lowest", "highest"):
            start = limit_text(self.dtype, start == "lowest")
        return f"{{{start}, 0x7fffffffffffffffLL}}" if self.is_arg else start

    @property
    def clause(self) -> str | None:
        operator = REDUCERS[self.kind][2]
        watch = f" reduction(|:{self.nan_flag})" if self.nan_flag else ""
        return operator and f" reduction({operator}:{self.name}){watch}"

    @property
    def nan_flag(self) -> str | None:
        """Vector maximum instructions drop NaN, so lanes take the plain maximum and note whether
        they saw one."""
        watches = self.kind in ("max", "min") and self.dtype.is_floating_point
        return f"{self.name}_nan" if watches else None

    def before_lanes(self) -> list[Line]:
        return [Line(f"int32_t {self.nan_flag} = 0;")] if self.nan_flag else []

    @property
    def is_arg(self) -> bool:
        return self.kind.startswith("arg")

    def arg_arrays(self, lane: str, start: str) -> list[Statement]:
        """A best element and its place for each of LANES lanes.  The first element of a lane is the
        place of the initial value: nothing replaces it if all elements are as low as that."""
        lowest = limit_text(self.dtype, self.kind == "argmax")
        first = [
            Line(f"{self.name}_best[{lane} - {start}] = {lowest};"),
            Line(f"{self.name}_at[{lane} - {start}] = {self.at};"),
        ]
        return [
            Line(f"{compute_type(self.dtype)} {self.name}_best[{LANES}];"),
            Line(f"int64_t {self.name}_at[{LANES}];"),
            *nest(first, [(lane, start, f"{start} + {LANES}")]),
        ]

    @property
    def arrays(self) -> list[tuple[str, str, str]]:
        """(type, name, initial value) of what there is one of for each lane or column."""
        if self.is_arg:
            return [
                (
                    compute_type(self.dtype),
                    f"{self.name}_best",
                    limit_text(self.dtype, self.kind == "argmax"),
                ),
                ("int64_t", f"{self.name}_at", "0"),
            ]
        return [(self.c_type, self.name, self.initial)]

    def in_arg_lanes(self, place: str) -> list[Line]:
        """Places grow within a lane, so only a better one replaces the best: not (v <= best), which
        a NaN is, unless best is one."""
        best, at, no_better = (
            f"{self.name}_best[{place}]",
            f"{self.name}_at[{place}]",
            "<=" if self.kind == "argmax" else ">=",
        )
        take = f"{self.name}_take"
        return [
            Line(f"const bool {take} = !({self.term} {no_better} {best}) & ({best} == {best});"),
            Line(f"{best} = {take} ? {self.term} : {best};"),
            Line(f"{at} = {take} ? {self.at} : {at};"),
        ]

    def in_lane_array(self, lane: str) -> Line:
        return self.update(self.term, f"[{lane}]")

    def after_arg_lanes(self) -> list[Line]:
        best = self.update(f"{self.c_type}{{{self.name}_best[k], {self.name}_at[k]}}")
        return [Line(f"for (int64_t k = 0; k < {LANES}; k++) {best.text}")]

    def in_lanes(self) -> list[Line]:
        if self.is_arg:
            return [self.update(f"{self.c_type}{{{self.term}, {self.at}}}")]
        if not self.nan_flag:
            return [self.update(self.term)]
        sign = ">" if self.kind == "max" else "<"
        return [
            Line(f"{self.name} = {self.term} {sign} {self.name} ? {self.term} : {self.name};"),
            Line(f"{self.nan_flag} |= {self.term} != {self.term};"),
        ]

    def after_lanes(self) -> list[Line]:
        if not self.nan_flag:
            return []
        return [Line(f"{self.name} = {self.nan_flag} ? mini::nan : {self.name};")]

    @property
    def loses_bits(self) -> bool:
        """Does a long run of it lose accuracy?"""
        return self.kind in ("sum", "prod") and self.dtype.is_floating_point

    def renamed(self, prefix: str) -> "Accumulator":
        return Accumulator(
            re.sub(r"^[a-z]+", prefix, self.name), self.kind, self.dtype, self.term, self.at
        )

    def merge(self) -> list[Line]:
        """To column k what a later part of the rows has added up."""
        if self.is_arg:
            return replace(
                self, term=f"{self.name}_bests[part][k]", at=f"{self.name}_ats[part][k]"
            ).in_arg_lanes("k")
        return [self.update(f"{self.name}s[part][k]", "[k]")]

    def combine(self, a: str, b: str) -> str:
        return REDUCERS[self.kind][1].format(a=a, b=b, type=f"<{self.c_type}>")

    def update(self, term: str, place: str = "") -> Line:
        target = self.name + place
        return Line(f"{target} = {self.combine(target, term)};")


def array_declarations(
    accumulators: Iterable[Accumulator], width: int | str, used: int | str | None = None
) -> list[Line]:
    """Arrays of `width` elements, the first `used` of them set."""
    return [
        line
        for a in accumulators
        for c_type, name, start in a.arrays
        for line in (Line(f"{c_type} {name}[{width}];"), filled(name, used or width, start))
    ]


def filled(name: str, count: int | str, value: str) -> Line:
    return Line(f"for (int64_t k = 0; k < {count}; k++) {name}[k] = {value};")


def declarations(accumulators: Iterable[Accumulator]) -> list[Line]:
    return [Line(f"{a.c_type} {a.name} = {a.initial};") for a in accumulators]


def bound(name: str, wanted: str, end: str) -> Line:
    """Where a part of a loop ends: at `wanted`, but not beyond the loop's own end."""
    return Line(f"const int64_t {name} = mini::minimum<int64_t>({wanted}, {end});")


def longest(size: Size) -> int | float:
    """Iterations that a loop may have: accuracy must not depend on the sizes of one run."""
    return size if isinstance(size, int) else math.inf


UNROLLED = 32  # iterations up to which gcc may unroll a loop wholly: 16, unless flags say otherwise
BARRIER = Line('asm volatile("");')


def alone(lines: Statements, count: int | str | None = None) -> list[Line]:
    """What stands before a marked loop (`omp simd`) over `lines`, so that no loop around is
    vectorised.

    gcc 12 vectorises this loop wrongly (wrong elements, taken from memory that nobody wrote):

        for (x = 0; x < 20; x++) {                  two elements of one array in each iteration,
            float a = 0, b = 0;                     both loaded under the same condition
            if (2 <= x && x < 18) a = in[2*x];
            out[2*x] = a;
            if (2 <= x && x < 18) b = in[2*x + 1];
            out[2*x + 1] = b;
        }

    What must hold of a loop that is vectorised: an iteration writes at most one element through
    each pointer, or loads nothing under a condition.  It holds of the lanes that we mark, but of no
    loop around short lanes: unrolled, they are the loop above.  A loop with an empty `asm` in it is
    never vectorised, and costs nothing.  (-fno-tree-loop-vectorize would stop the marked loops,
    too.) count: how many lanes, where that is known."""
    is_short = count is None or not isinstance(count, int) or count <= UNROLLED
    return [BARRIER] if is_short and has_branch(lines) else []


class RowReductions:
    """The part of `CppKernelWriter` that writes a group whose reductions step through memory by
    rows.

    Columns are reduced in blocks, whole rows where they are short enough: then memory is read from
    its start to its end.  Each block is a thread's work, or (`self.spread`, of whole rows) threads
    share the rows: each has accumulators of its own, which are put together at the end.
    """

    def plan_rows(self):
        """Width of a block, and whether threads share its rows."""
        threads, size, rows = (
            torch.get_num_threads(),
            hint(self.plan.outer[-1], 512),
            hint(self.plan.inner[0], 512),
        )
        spread = (
            self.parallel
            and threads > 1
            and config.split_reductions
            and not self.group.has_scan
            and size <= WHOLE_ROW
            and rows >= ROWS * threads
            and estimate(self.plan.outer[:-1]) < threads
        )
        blocks = (
            max(1, threads // estimate(self.plan.outer[:-1])) if self.parallel and not spread else 1
        )  # at least, so that every thread has one
        width = -(-size // blocks // LANES) * LANES
        self.width = min(
            width if width <= WHOLE_ROW else COLUMNS,
            self.plan.outer[-1] if isinstance(self.plan.outer[-1], int) else WHOLE_ROW,
        )
        return spread

    def write_by_rows(self):
        column, size = self.plan.x[-1], self.size(self.plan.outer[-1])
        whole = size == str(self.width)
        start, end = ("0", size) if whole else (f"{column}_block", f"{column}_end")
        self.columns, self.count = (column, start, end), size if whole else f"{end} - {start}"
        self.place = f"[{column}]" if whole else f"[{column} - {start}]"
        lines = []
        self.arrays = {}  # buffer -> array that holds its value for each column of the block
        for stage in self.plan.stages():
            inner_nodes = self.plan.inner_nodes(stage)
            outer_nodes = self.plan.outer_nodes(stage)
            self.deferred, self.accumulators = [], []
            if inner_nodes:
                lines += self.rows_loop(inner_nodes)
            deferred = self.deferred
            if deferred or outer_nodes:
                scope = self.own_scope(())
                for name, index, value, mode in deferred:
                    self.store(name, index, self.finished(value), mode)
                for node in outer_nodes:
                    self.play(node)
                for name in [name for name, *_ in deferred] + [n.name for n in outer_nodes]:
                    if self.plan.is_read_after(name, stage):
                        array = self.arrays[name] = f"column{len(self.arrays)}"
                        value = self.values[name]
                        lines.append(Line(f"{compute_type(value.dtype)} {array}[{self.width}];"))
                        scope.add(f"{array}{self.place} = {value};")
                lines += self.columns_loop(scope.lines)
        if whole:
            return lines
        ending = bound(end, f"{start} + {self.width}", size)
        return nest([ending, *lines], [(start, "0", size, self.width)])

    def own_scope(self, inner_variables):
        """Where nothing is known yet but what lies in arrays."""
        scope, self.values = CppScope(), {}
        scope.counter = self.outside.counter
        self.where_am_i(scope, inner_variables)
        return scope

    def columns_loop(self, lines):
        pragma = Pragma(simd=True) if config.vectorize else None
        return alone(lines) + nest(lines, [self.columns], pragma)

    def rows_loop(self, nodes):
        """`loop_over_rows`, and before it what is the same in each row."""
        if config.lane_tables and isinstance(self.width, int):
            self.above = CppScope()
            self.above.counter = self.outside.counter
            self.begin_rows(
                self.columns, self.place, self.width, (*self.plan.x, *self.arrays.values())
            )
        lines = self.loop_over_rows(nodes)
        lines, self.above = (self.above.lines if self.above is not None else []) + lines, None
        return lines

    def row_body(self, nodes, step):
        """The nodes for row `row + step`: lines, and the accumulators with what is added to
        each."""
        scope = self.own_scope((self.plan.x[-1], *self.plan.r))
        self.accumulators, self.deferred = [], []
        first = self.outside.counter.get("acc", -1)
        for node in nodes:
            body = self.plan.bodies[node.name]
            self.play(
                node,
                body.substitute(body.outer, body.inner, {self.plan.r[-1]: self.plan.r[-1] + step})
                if step
                else body,
            )
        if step:
            self.outside.counter["acc"] = first
        return scope.lines, self.accumulators

    def loop_over_rows(self, nodes):
        """All rows of a block: what they add to the accumulators, which are declared here, or what
        is stored of each."""
        one, accumulators = self.row_body(nodes, 0)
        deferred, first, size, threads_used = (
            self.deferred,
            self.plan.r[0],
            self.size(self.plan.inner[0]),
            torch.get_num_threads(),
        )
        threads = Pragma("parallel for", condition=self.threads_if)
        if not accumulators:
            loops = [(r, "0", self.size(n)) for r, n in zip(self.plan.r, self.plan.inner)]
            threads = replace(threads, collapse=len(loops)) if self.spread else None
            return nest(self.columns_loop(self.definitions(one) + one), loops, threads)
        self.steps = [(one, accumulators)]
        if not any(
            re.search(r"mini::(?!to_float)", line) for line in printed(one)
        ):  # else there is enough to do with one row
            self.steps += [self.row_body(nodes, step) for step in range(1, ROWS)]
        self.accumulators, self.deferred = accumulators, deferred
        added = [f"{t.term} {t.at}" for _, terms in self.steps for t in terms]
        self.before_each = self.definitions(
            [line for some, _ in self.steps for line in some], added
        )
        if not self.spread:
            lines = self.all_rows(accumulators, "0", size)
            return array_declarations(accumulators, self.width, self.count) + lines
        start, end = f"{first}_start", f"{first}_end"
        lines = self.all_rows(accumulators, start, end)
        arrays = [array for a in accumulators for array in a.arrays]
        own = [
            line
            for c_type, name, value in arrays
            for line in (
                Line(f"{c_type}* {name} = {name}s[part];"),
                filled(name, self.count, value),
            )
        ]
        bounds = Line(
            f"const int64_t {start} = {size}*part/{threads_used}, "
            f"{end} = {size}*(part + 1)/{threads_used};"
        )
        return [
            *[
                Line(f"{c_type} {name}s[{threads_used}][{self.width}];")
                for c_type, name, _ in arrays
            ],
            *nest([bounds, *own, *lines], [("part", "0", threads_used)], threads),
            *[Line(f"{c_type}* {name} = {name}s[0];") for c_type, name, _ in arrays],
            *nest(
                [line for a in accumulators for line in a.merge()],
                [("part", "1", threads_used), ("k", "0", self.count)],
            ),
        ]

    def all_rows(self, accumulators, start, end):
        """The reduction's loops, the first from `start` to `end`.  A long sum of floats is the sum
        of the sums of ROWS_CHUNK rows."""
        row, size = self.plan.r[-1], self.plan.inner[-1]
        low, high = ("0", self.size(size)) if self.plan.r[:-1] else (start, end)
        if longest(math.prod(self.plan.inner)) > 2 * ROWS_CHUNK and any(
            a.loses_bits for a in accumulators
        ):
            parts = [a if a.is_arg else a.renamed("part") for a in accumulators]
            pairs = [(a, p) for a, p in zip(accumulators, parts) if not a.is_arg]
            for accumulator, _ in pairs:
                accumulator.over_chunks = True
            lines = nest(
                [
                    bound(f"{row}_stop", f"{row}_chunk + {ROWS_CHUNK}", high),
                    *array_declarations([p for _, p in pairs], self.width, self.count),
                    *self.rows(parts, f"{row}_chunk", f"{row}_stop"),
                    *nest(
                        [a.update(p.name + "[k]", "[k]") for a, p in pairs],
                        [("k", "0", self.count)],
                    ),
                ],
                [(f"{row}_chunk", low, high, ROWS_CHUNK)],
            )
        else:
            lines = self.rows(accumulators, low, high)
        return nest(lines, self.loops_of_reduction(self.plan.r[:-1], start, end))

    def rows(self, accumulators, start, end):
        """Rows one by one, or ROWS at a time and then what is left."""
        row, together, exact = self.plan.r[-1], len(self.steps), start == "0" and end.isdigit()
        one = self.columns_loop(self.added(accumulators, 1))
        if together == 1 or exact and int(end) < together:
            return nest(one, [(row, start, end)])
        many = self.columns_loop(self.added(accumulators, together))
        if exact and int(end) % together == 0:
            return nest(many, [(row, start, end, together)])
        room = f"{row} < {end} - {together - 1}"
        return [
            Block(
                [
                    Line(f"int64_t {row} = {start};"),
                    Loop(row, None, end, many, together, condition=room),
                    Loop(row, None, end, one),
                ]
            )
        ]

    def added(self, accumulators, count):
        """The lines of `count` rows for one column."""
        steps = self.steps[:count]
        result = self.before_each + [line for lines, _ in steps for line in lines]
        for k, a in enumerate(accumulators):
            terms = [terms[k] for _, terms in steps]
            if a.is_arg:
                for t in terms:
                    better = replace(t, name=a.name).in_arg_lanes(self.place[1:-1])
                    result.append(Line(f"{{ {' '.join(line.text for line in better)} }}"))
                continue
            terms = [t.term for t in terms]
            while len(terms) > 1:  # a tree
                terms = [f"({a.combine(*pair)})" for pair in zip(terms[::2], terms[1::2])]
            result.append(a.update(terms[0], self.place))
        return result
