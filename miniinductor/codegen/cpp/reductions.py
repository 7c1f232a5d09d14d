"""Reductions in C++: accumulators, and loops in which each lane has one of its own.

In:   what one iteration computes, and what it adds.  Out: the reduction's loops.

    float lane0[64];                        64 sums: several vectors, whose additions overlap
    for (int64_t k = 0; k < 64; k++) lane0[k] = 0;
    for (int64_t r0_group = 0; r0_group < 1024; r0_group += 64) {
        #pragma omp simd
        for (int64_t k = 0; k < 64; k++) {
            const int64_t r0 = r0_group + k;
            const float tmp0 = in0[r0];
            lane0[k] = lane0[k] + tmp0;
        }
    }
    acc0 = acc0 + mini::sum_of(lane0);      horizontal reduction, half to half (prelude.h)

Long sums of floats are sums of chunks, added up in double.  argmax first asks whether any lane is
larger than the best element so far, and only then looks at the lanes one by one:

    mini::Extreme<float> acc0 = {-mini::inf, 0};
    if (mini::any_larger(lane0, 64, acc0.value)) {      // of each lane the element, and its place
        ... acc0 = mini::larger(acc0, mini::Extreme<float>{lane0[k], r0});

Where memory runs along the outer loop, the lanes run along it, too (`Rows` in layouts.py).  Mirrors
the reduction half of CppVecKernel in torch/_inductor/codegen/cpp.py.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import sympy
import torch

from ... import config
from ...ir.loops import playing
from ...sizes.symbols import Size, estimate
from ..common import Value
from .expressions import ARRAY_TYPES, compute_type, limit_text
from .statements import Block, Bound, Branch, Line, Loop, Pragma, Statement, Statements, nest

if TYPE_CHECKING:
    from .kernel_writer import CppKernelWriter

STACK = "memory for values between two loops"  # what lines that declare it are for
WIDTHS = (64, 32, 16, 8, 4, 2, 1)  # lanes, several vectors of them; short loops have fewer
MOST_ADDITIONS = 32  # of floats into one lane, then it is added up in double


@dataclass
class Accumulator:
    """A sum or product."""

    name: str
    kind: str
    dtype: torch.dtype  # of the elements (max, argmax) or of the result (sum, prod)
    term: str = ""  # what one iteration adds
    # it adds up partial sums: in double, so that their number costs no accuracy
    over_chunks: bool = False
    # the reduction's instruction
    origin: Any = field(default_factory=lambda: playing.value, compare=False, repr=False)

    of_elements: ClassVar[bool] = False  # is its dtype that of the elements?

    def take(self, writer: "CppKernelWriter", value: Value, place: sympy.Expr) -> None:
        """`value` is what one iteration adds; place: which iteration it is."""
        self.term = writer.to_dtype(value, self.dtype).text

    @staticmethod
    def of_one(writer: "CppKernelWriter", value: Value, dtype: torch.dtype) -> Value:
        """The result where there is one element alone."""
        return writer.to_dtype(value, dtype)

    @property
    def c_type(self) -> str:
        is_wide = self.over_chunks and self.loses_bits
        return "double" if is_wide else compute_type(self.dtype)

    @property
    def initial(self) -> str:
        return "0" if self.kind == "sum" else "1"

    @property
    def loses_bits(self) -> bool:
        """Does a long run of it lose accuracy?"""
        return self.kind in ("sum", "prod") and self.dtype.is_floating_point

    def renamed(self, prefix: str) -> "Accumulator":
        name = prefix + self.name.lstrip(ascii_lowercase)  # acc3 -> part3
        return replace(self, name=name, over_chunks=False)

    def declared(self) -> Line:
        return Line(f"{self.c_type} {self.name} = {self.initial};", origin=self.origin)

    def result(self, dtype: torch.dtype, place: str = "") -> str:
        """The accumulator (its element at `place`) as a plain value, once its loop has ended."""
        narrows = self.c_type == "double" and compute_type(dtype) != "double"
        return f"{'(float)' if narrows else ''}{self.name}{place}"

    def combine(self, a: str, b: str) -> str:
        return f"{a} {'+' if self.kind == 'sum' else '*'} {b}"

    def update(self, term: str, place: str = "") -> Line:
        target = self.name + place
        return Line(f"{target} = {self.combine(target, term)};", origin=self.origin)

    def taken(self, place: str = "") -> Line:
        """The line that adds what one iteration adds.  place: "[k]", an element of an array."""
        return self.update(self.term, place)

    def arrays(self, width: Bound) -> list[Line]:
        """Declare and initialise an array of accumulators, one for each column."""
        c_type = ARRAY_TYPES.get(self.c_type, self.c_type)
        texts = [
            f"{c_type} {self.name}[{width}];",
            f"for (int64_t k = 0; k < {width}; k++) {self.name}[k] = {self.initial};",
        ]
        return [Line(text, origin=self.origin) for text in texts]

    # -- one for each lane
    def lanes(self, width: int) -> list[Line]:
        return self.renamed("lane").arrays(width)

    def in_lane(self) -> Line:
        """What stands in the loop over the lanes."""
        return self.renamed("lane").taken("[k]")

    def after_lanes(self, place: Line, count: Bound) -> list[Statement]:
        """What follows a loop over so many lanes.  place: the line that says which lane k is."""
        return []

    def gathered(self) -> list[Line]:
        """All lanes are added."""
        return [self.update(f"mini::{self.kind}_of({self.renamed('lane').name})")]


class Extreme(Accumulator):
    """The largest or smallest element, or a NaN."""

    of_elements = True

    @property
    def initial(self) -> str:
        return limit_text(self.dtype, self.kind == "max")

    def combine(self, a: str, b: str) -> str:
        name = "maximum" if self.kind == "max" else "minimum"
        return f"mini::{name}<{self.c_type}>({a}, {b})"


@dataclass
class PlaceOfExtreme(Accumulator):
    """Where the largest or smallest element lies: the first of equals, or of NaNs."""

    of_elements = True
    element: str = ""  # what one iteration computes
    at: str = ""  # its place

    def take(self, writer: "CppKernelWriter", value: Value, place: sympy.Expr) -> None:
        super().take(writer, value, place)
        self.element, self.at = self.term, writer.index(place)
        self.term = self.of(self.element)

    def of(self, element: str) -> str:
        return f"{self.c_type}{{{element}, {self.at}}}"

    @staticmethod
    def of_one(writer: "CppKernelWriter", value: Value, dtype: torch.dtype) -> Value:
        return Value("0", dtype, number=0)

    @property
    def c_type(self) -> str:
        return f"mini::Extreme<{compute_type(self.dtype)}>"

    @property
    def initial(self) -> str:
        return f"{{{limit_text(self.dtype, self.kind == 'argmax')}, 0}}"

    def result(self, dtype: torch.dtype, place: str = "") -> str:
        return f"{self.name}_at{place}" if place else f"{self.name}.index"

    def arrays(self, width: Bound) -> list[Line]:
        """Elements and places of the columns' extremes: gcc makes vectors of no structures."""
        best, first = self.name, limit_text(self.dtype, self.kind == "argmax")
        c_type = compute_type(self.dtype)
        texts = [
            f"{ARRAY_TYPES.get(c_type, c_type)} {best}[{width}];",
            f"int64_t {best}_at[{width}];",
            f"for (int64_t k = 0; k < {width}; k++) {best}[k] = {first}, {best}_at[k] = 0;",
        ]
        return [Line(text, origin=self.origin) for text in texts]

    def taken(self, place: str = "") -> Line:
        if not place:
            return super().taken()
        best, name = self.name + place, "larger" if self.kind == "argmax" else "smaller"
        text = f"mini::keep_{name}({best}, {self.name}_at{place}, {self.element}, {self.at});"
        return Line(text, origin=self.origin)

    def combine(self, a: str, b: str) -> str:
        return f"mini::{'larger' if self.kind == 'argmax' else 'smaller'}({a}, {b})"

    def lanes(self, width: int) -> list[Line]:
        c_type = compute_type(self.dtype)
        declared = f"{ARRAY_TYPES.get(c_type, c_type)} {self.renamed('lane').name}[{width}];"
        return [Line(declared, origin=self.origin)]

    def in_lane(self) -> Line:
        return Line(f"{self.renamed('lane').name}[k] = {self.element};", origin=self.origin)

    def after_lanes(self, place: Line, count: Bound) -> list[Statement]:
        lanes, name = self.renamed("lane").name, "larger" if self.kind == "argmax" else "smaller"
        search = nest([place, self.update(self.of(f"{lanes}[k]"))], [("k", 0, count)])
        return [Branch(f"mini::any_{name}({lanes}, {count}, {self.name}.value)", search)]

    def gathered(self) -> list[Line]:
        return []


class IsAny(Accumulator):
    c_type, initial, of_elements = "int32_t", "0", True

    def take(self, writer: "CppKernelWriter", value: Value, place: sympy.Expr) -> None:
        self.term = f"int32_t({value} != 0)"

    @staticmethod
    def of_one(writer: "CppKernelWriter", value: Value, dtype: torch.dtype) -> Value:
        return writer.to_dtype(value, torch.bool)

    def result(self, dtype: torch.dtype, place: str = "") -> str:
        return f"({self.name}{place} != 0)"

    def combine(self, a: str, b: str) -> str:
        return f"{a} | {b}"


# kind of a reduction -> its accumulator
ACCUMULATORS: dict[str, type[Accumulator]] = {
    "sum": Accumulator,
    "prod": Accumulator,
    "max": Extreme,
    "min": Extreme,
    "argmax": PlaceOfExtreme,
    "argmin": PlaceOfExtreme,
    "any": IsAny,
}
Sums: TypeAlias = list[Accumulator]  # or products, maxima, ...


def parts_of(accumulators: Sums, prefix: str) -> Sums:
    """For each accumulator one that adds up a part, such as a row.  The accumulators themselves are
    changed: from now on they add up the parts."""
    parts = [a.renamed(prefix) for a in accumulators]
    for accumulator in accumulators:
        accumulator.over_chunks = True
    return parts


def bound(name: str, wanted: str, end: Bound) -> Line:
    """Where a part of a loop ends: at `wanted`, but not beyond the loop's own end."""
    text = f"const int64_t {name} = mini::minimum<int64_t>({wanted}, {end});"
    return Line(text, origin="where a part of a loop ends")


def longest(size: Size) -> int | float:
    """How many iterations a loop may have.  A symbolic size may be anything, whatever it was in the
    run that is compiled: accuracy must not depend on that."""
    return size if isinstance(size, int) else math.inf


# --- the loops ------------------------------------------------------------------------------------
@dataclass
class Lanes:
    """Loops that add to accumulators.  loops: (variable, start, end), the innermost last."""

    writer: "CppKernelWriter"
    body: Statements
    accumulators: Sums
    loops: list[tuple]

    def statements(self) -> list[Statement]:
        """The loops; a long sum of floats as sums of chunks, for which the accumulators become
        doubles."""
        *around, (variable, start, end) = self.loops
        *others, size = [longest(n) for n in self.writer.plan.inner]
        additions = math.prod([-(-size // self.width), *others])
        if additions <= 2 * MOST_ADDITIONS or not any(a.loses_bits for a in self.accumulators):
            return self.gathering(self.loops)
        for accumulator in self.accumulators:
            accumulator.over_chunks = True
        step, within = MOST_ADDITIONS * self.width, []
        if size <= step:  # a chunk is several runs of the innermost loop
            if not around:
                return self.gathering(self.loops)
            within, step = self.loops[-1:], max(1, step // max(int(size), self.width))
            *around, (variable, start, end) = around
        first, stop = f"{variable}_chunk", f"{variable}_stop"
        chunk = self.gathering([(variable, first, stop), *within])
        ending = bound(stop, f"{first} + {step}", end)
        return nest([ending, *chunk], [*around, (first, start, end, step)])

    @property
    def width(self) -> int:
        """How many lanes; 1: there are none."""
        writer, most = self.writer, estimate(self.writer.plan.inner[-1:])
        if not config.vectorize or not writer.lanes_are_free() or most < 8:
            return 1
        wanted = WIDTHS[0] if len(self.body) <= 16 else WIDTHS[1]  # (the compiler's time counts)
        return next(n for n in WIDTHS if n <= min(most, wanted))

    def gathering(self, loops: list[tuple]) -> list[Statement]:
        """The loops, and before them the lanes' arrays, which are put together after them."""
        *around, (lane, start, end) = loops
        if self.width == 1:
            parts = [a.renamed("part") for a in self.accumulators]
            inside = nest([*self.body, *[p.taken() for p in parts]], loops)
            added = [a.update(p.name) for a, p in zip(self.accumulators, parts)]
            return [Block([*[p.declared() for p in parts], *inside, *added])]
        group, last = f"{lane}_group", f"{lane}_last"
        text = f"const int64_t {last} = {start} + ({end} - {start})/{self.width}*{self.width};"
        groups = Loop(group, start, last, self.lanes_from(lane, group, self.width), self.width)
        left = self.lanes_from(lane, last, f"{end} - {last}")
        lines = [Line(text, origin="where whole groups of lanes end"), groups, *left]
        if isinstance(start, int) and isinstance(end, int):
            whole = (end - start) // self.width * self.width
            groups.end = start + whole
            left = self.lanes_from(lane, start + whole, end - start - whole)
            lines = [groups, *left]
        before = [line for a in self.accumulators for line in a.lanes(self.width)]
        after = [line for a in self.accumulators for line in a.gathered()]
        return [Block([*before, *nest(lines, around), *after])]

    def lanes_from(self, variable: object, first: Bound, count: Bound) -> list[Statement]:
        """`count` lanes from the iteration `first` on."""
        if count == 0:
            return []
        place = Line(f"const int64_t {variable} = {first} + k;", origin="which lane it is")
        added = [a.in_lane() for a in self.accumulators]
        pragma = Pragma(simd=True)
        vectors = self.writer.vector_loop("k", 0, count, [place, *self.body, *added], pragma)
        return vectors + [one for a in self.accumulators for one in a.after_lanes(place, count)]


def declarations(accumulators: Iterable[Accumulator]) -> list[Line]:
    return [a.declared() for a in accumulators]
