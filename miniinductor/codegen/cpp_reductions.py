"""Reductions in C++: accumulators, and the form that adds up rows.

In:   what one iteration adds.  Out: declarations, updates, pragma clauses.

    >>> Accumulator("acc0", "sum", torch.float32, term="tmp3").update("tmp3")
    'acc0 = acc0 + tmp3;'

Two forms.  *Lanes* (in `cpp`): the reduction's loop is the vector loop, each lane keeps a part.  *Rows* (here): memory
runs along the outer loop, so the lanes do too, and the accumulators are arrays with one element per column; four rows
are added at a time.  Long float sums are sums of chunks, added up in double.

Mirrors the reduction half of CppVecKernel and the outer-reduction tiling in torch/_inductor/codegen/cpp.py.
"""
import math
import re
from dataclasses import dataclass, replace

import torch

from .. import config
from ..dependencies import int_or_none
from ..sizes import hint
from .common import Scope, indent
from .cpp_expressions import compute_type, limit_text

CHUNK = 512                 # longest run of float additions into one accumulator; chunks are then added in double
ROWS_CHUNK = 128            # the same where rows are added up
COLUMNS = 512               # outer elements reduced together, when a reduction steps through memory by rows
LANES = 64                  # partial sums of a vector loop, and places that argmax keeps apart: several vectors, whose latencies overlap
ROWS = 4                    # rows added at a time there: one load and store of the accumulator per four elements

# kind -> (initial value, combining expression, OpenMP's name of it)
REDUCERS = {
    "sum": ("0", "{a} + {b}", "+"), "prod": ("1", "{a} * {b}", "*"),
    "max": ("lowest", "mini::maximum{type}({a}, {b})", "max"), "min": ("highest", "mini::minimum{type}({a}, {b})", "min"),
    "any": ("0", "{a} | {b}", "|"), "xor_sum": ("0", "{a} ^ {b}", "^"),
    "argmax": ("lowest", "mini::larger({a}, {b})", None),
    "argmin": ("highest", "mini::smaller({a}, {b})", None),
}


@dataclass
class Accumulator:
    name: str
    kind: str
    dtype: torch.dtype      # of the elements (max, argmax) or of the result (sum, prod)
    term: str = ""          # what one iteration adds
    at: str = ""            # argmax, argmin: the place of `term`
    over_chunks: bool = False   # it adds up partial sums: in double, so that their number costs no accuracy

    @property
    def c_type(self):
        if self.over_chunks and self.loses_bits:
            return "double"
        if self.is_arg:
            return f"mini::Extreme<{compute_type(self.dtype)}>"
        return "int32_t" if self.kind == "any" else compute_type(self.dtype)

    @property
    def initial(self):
        start = REDUCERS[self.kind][0]
        if start in ("lowest", "highest"):
            start = limit_text(self.dtype, start == "lowest")
        return f"{{{start}, INT64_MAX}}" .replace("INT64_MAX", "0x7fffffffffffffffLL") if self.is_arg \
            else start

    @property
    def clause(self):
        operator = REDUCERS[self.kind][2]
        watch = f" reduction(|:{self.nan_flag})" if self.nan_flag else ""
        return operator and f" reduction({operator}:{self.name}){watch}"

    @property
    def nan_flag(self):
        """Vector maximum instructions drop NaN, so lanes take the plain maximum and note whether they saw one."""
        return f"{self.name}_nan" if self.kind in ("max", "min") and self.dtype.is_floating_point else None

    def before_lanes(self):
        return [f"int32_t {self.nan_flag} = 0;"] if self.nan_flag else []

    @property
    def is_arg(self):
        return self.kind.startswith("arg")

    def arg_arrays(self, lane, start):
        """A best element and its place for each of LANES lanes.  The first element of a lane is the place of the initial
        value: nothing replaces it if all elements are as low as that."""
        c_type, start_value = compute_type(self.dtype), limit_text(self.dtype, self.kind == "argmax")
        return [f"{c_type} {self.name}_best[{LANES}];", f"int64_t {self.name}_at[{LANES}];",
                f"for (int64_t {lane} = {start}; {lane} < {start} + {LANES}; {lane}++) {{",
                f"    {self.name}_best[{lane} - {start}] = {start_value};",
                f"    {self.name}_at[{lane} - {start}] = {self.at};", "}"]

    def columns(self, width):
        """The same for each column, where rows are compared."""
        return [f"{compute_type(self.dtype)} {self.name}_best[{width}];", f"int64_t {self.name}_at[{width}];",
                f"for (int64_t k = 0; k < {width}; k++) {self.name}_best[k] = {limit_text(self.dtype, self.kind == 'argmax')}, {self.name}_at[k] = 0;"]

    def in_arg_lanes(self, place):
        """Places grow within a lane, so only a better one replaces the best: not (v <= best), which a NaN is, unless best is one."""
        best, at, no_better = f"{self.name}_best[{place}]", f"{self.name}_at[{place}]", "<=" if self.kind == "argmax" else ">="
        take = f"{self.name}_take"
        return [f"const bool {take} = !({self.term} {no_better} {best}) & ({best} == {best});",
                f"{best} = {take} ? {self.term} : {best};", f"{at} = {take} ? {self.at} : {at};"]

    def in_lane_array(self):
        return f"{self.name}[k] = {self.combine(self.name + '[k]', self.term)};"

    def after_arg_lanes(self):
        return [f"for (int64_t k = 0; k < {LANES}; k++) "
                + self.update(f"{self.c_type}{{{self.name}_best[k], {self.name}_at[k]}}")]

    def in_lanes(self):
        if self.is_arg:
            return [self.update(f"{self.c_type}{{{self.term}, {self.at}}}")]
        if not self.nan_flag:
            return [self.update(self.term)]
        sign = ">" if self.kind == "max" else "<"
        return [f"{self.name} = {self.term} {sign} {self.name} ? {self.term} : {self.name};",
                f"{self.nan_flag} |= {self.term} != {self.term};"]

    def after_lanes(self):
        return [f"{self.name} = {self.nan_flag} ? mini::nan : {self.name};"] if self.nan_flag else []

    @property
    def loses_bits(self):
        """Does a long run of it lose accuracy?"""
        return self.kind in ("sum", "prod") and self.dtype.is_floating_point

    def renamed(self, prefix):
        return Accumulator(re.sub(r"^[a-z]+", prefix, self.name), self.kind, self.dtype, self.term, self.at)

    def combine(self, a, b):
        return REDUCERS[self.kind][1].format(a=a, b=b, type=f"<{self.c_type}>")

    def update(self, term, place=""):
        target = self.name + place
        return f"{target} = {self.combine(target, term)};"


def array_declarations(accumulators, width):
    lines = []
    for a in accumulators:
        lines += a.columns(width) if a.is_arg else [f"{a.c_type} {a.name}[{width}];", f"for (int64_t k = 0; k < {width}; k++) {a.name}[k] = {a.initial};"]
    return lines


def declarations(accumulators):
    return [f"{a.c_type} {a.name} = {a.initial};" for a in accumulators]


def estimate(sizes):
    """Number of iterations in the run the graph was captured in; an unknown size counts as 512."""
    return math.prod(hint(n, 512) for n in sizes)


def longest(size):
    """Iterations that a loop may have: accuracy must not depend on the sizes of one run."""
    return size if isinstance(size, int) else math.inf


class RowReductions:
    """The part of `CppKernelWriter` that writes a group whose reductions step through memory by rows."""

    def write_by_rows(self):
        column, size = self.x[-1], self.outer[-1]
        width = min(size, COLUMNS) if isinstance(size, int) else COLUMNS
        if self.parallel and self.outer_count < COLUMNS * torch.get_num_threads():      # narrower blocks, so that every thread has one
            width = min(width, max(LANES, -(-self.outer_count // torch.get_num_threads() // LANES) * LANES))
        self.base = f"{column}_block"
        lines = []
        self.arrays = {}                # buffer -> array that holds its value for each column of the block
        for stage in range(-1, self.last_stage + 1):
            inner_nodes = [n for n in self.nodes if self.stage[n.name] == stage and self.is_inner[n.name]]
            outer_nodes = [n for n in self.nodes if self.stage[n.name] == stage and not self.is_inner[n.name]]
            deferred, accumulators = [], []
            if inner_nodes:
                stage_lines, deferred, accumulators = self.rows_loop(inner_nodes, width)
                lines += stage_lines
            if deferred or outer_nodes:
                scope = Scope()
                scope.counter = self.outside.counter
                self.where_am_i(scope, ())
                self.values = {}
                self.accumulators = accumulators
                for name, index, value, mode in deferred:
                    self.store(name, index, self.finished(value), mode)
                for node in outer_nodes:
                    self.play(node)
                for name in [name for name, *_ in deferred] + [n.name for n in outer_nodes]:
                    if any(a.name == name for n in self.nodes if self.stage[n.name] > stage for a in n.body.reads()):
                        array = self.arrays[name] = f"column{len(self.arrays)}"
                        value = self.values[name]
                        lines.append(f"{compute_type(value.dtype)} {array}[{width}];")
                        scope.add(f"{array}[{column} - {self.base}] = {value};")
                lines += self.columns_loop(scope.lines)
        end = self.size(size)
        head = f"for (int64_t {self.base} = 0; {self.base} < {end}; {self.base} += {width}) {{"
        bound = f"const int64_t {column}_end = mini::minimum<int64_t>({self.base} + {width}, {end});"
        return [head, *indent([bound] + lines), "}"]

    def columns_loop(self, lines):
        column = self.x[-1]
        pragma = ["#pragma omp simdERROR_CLAUSE"] if config.vectorize else []
        return [*pragma, f"for (int64_t {column} = {self.base}; {column} < {column}_end; {column}++) {{",
                *indent(lines), "}"]

    def rows_loop(self, nodes, width):
        column = self.x[-1]
        row, rows = self.r[-1], self.size(self.inner[-1])

        def body(step):
            """The nodes for row `row + step`: lines, and what each adds to its accumulator."""
            scope = Scope()
            scope.counter = self.outside.counter
            self.values, self.accumulators, self.deferred = {}, [], []
            self.where_am_i(scope, (column, *self.r))
            saved = self.bodies
            if step:
                self.bodies = {n: b.substitute(b.outer, b.inner, {row: row + step}) if b.inner else b
                               for n, b in saved.items()}
            first = self.outside.counter.get("acc", -1)
            for node in nodes:
                self.play(node)
            self.bodies = saved
            if step:
                self.outside.counter["acc"] = first
            return scope.lines, self.accumulators, self.deferred

        steps = [body(step) for step in range(ROWS)]
        accumulators, deferred = steps[0][1], steps[0][2]
        place = f"[{column} - {self.base}]"
        together, one = [], steps[0][0][:]
        for lines, _, _ in steps:
            together += lines
        for k, accumulator in enumerate(accumulators):
            if accumulator.is_arg:
                updates = [f"{{ {' '.join(replace(s[1][k], name=accumulator.name).in_arg_lanes(place[1:-1]))} }}" for s in steps]
                together += updates
                one.append(updates[0])
                continue
            parts = [s[1][k].term for s in steps]
            pairs = accumulator.combine(f"({accumulator.combine(parts[0], parts[1])})",
                                        f"({accumulator.combine(parts[2], parts[3])})")
            together.append(accumulator.update(f"({pairs})", place))
            one.append(accumulator.update(parts[0], place))
        count = int_or_none(self.inner[-1])
        whole = f"{rows} - {ROWS - 1}"
        loops = [f"int64_t {row} = 0;"]
        if count is None or count >= ROWS:
            loops += [f"for (; {row} < {whole}; {row} += {ROWS}) {{", *indent(self.columns_loop(together)), "}"]
        if count is None or count % ROWS:
            loops += [f"for (; {row} < {rows}; {row}++) {{", *indent(self.columns_loop(one)), "}"]
        lines = ["{", *indent(loops), "}"]
        if longest(self.inner[-1]) > 2 * ROWS_CHUNK and any(a.loses_bits for a in accumulators):
            lines = self.chunks_of_rows(loops, accumulators, width, row, rows)
        for variable, size in reversed(list(zip(self.r[:-1], self.inner[:-1]))):
            lines = [f"for (int64_t {variable} = 0; {variable} < {self.size(size)}; {variable}++) {{",
                     *indent(lines), "}"]
        return array_declarations(accumulators, width) + lines, deferred, accumulators

    def chunks_of_rows(self, loops, accumulators, width, row, rows):
        """Sum ROWS_CHUNK rows apart and add them up."""
        inside = [re.sub(r"\bacc(\d+)\[", r"part\1[", line).replace(f"int64_t {row} = 0", f"int64_t {row} = {row}_chunk")
                  .replace(f"{row} < {rows} ", f"{row} < {row}_stop ").replace(f"{row} < {rows};", f"{row} < {row}_stop;")
                  for line in loops]
        accumulators = [a for a in accumulators if not a.is_arg]
        parts = [a.renamed("part") for a in accumulators]
        for accumulator in accumulators:
            accumulator.over_chunks = True
        merge = [f"for (int64_t k = 0; k < {width}; k++) {a.update(p.name + '[k]', '[k]')}"
                 for a, p in zip(accumulators, parts)]
        return [f"for (int64_t {row}_chunk = 0; {row}_chunk < {rows}; {row}_chunk += {ROWS_CHUNK}) {{",
                *indent([f"const int64_t {row}_stop = mini::minimum<int64_t>({row}_chunk + {ROWS_CHUNK}, {rows});",
                         *array_declarations(parts, width), *inside, *merge]), "}"]
