"""Reductions in C++: accumulators, and loops in which each lane has some of its own.

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
    acc0 = acc0 + mini::sum_of(lane0);      put together two halves at a time (cpp_prelude.h)

Long sums of floats are sums of chunks, added up in double.  Where memory runs along the outer loop,
the lanes do too: rows.py.

Mirrors the reduction half of CppVecKernel in torch/_inductor/codegen/cpp.py.

Accumulators in C++ of extremes' places, and of truth values together.

mini::Extreme<float> acc0 = {-mini::inf, 0x7fffffffffffffffLL};
acc0 = mini::larger(acc0, mini::Extreme<float>{tmp3, r0});      // the element and its place
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import sympy
import torch

from ... import config
from ...ir.loops import playing
from ...sizes.symbols import Size, estimate
from ..common import Code, Value, code, named
from ..plan import PARALLEL_WORK
from ..tree import Block, Bound, Line, Pragma, Statement, Statements, nest
from .expressions import compute_type, limit_text
from .strategy import Strategy

if TYPE_CHECKING:
    from .kernel_writer import CppKernelWriter

STACK = "memory for values between two loops"  # what lines that declare it are for
ARRAY_TYPES = {"bool": "uint8_t"}  # types of arrays of values: gcc takes bools one by one
LANES = 64  # partial results of a loop: several vectors, so that no addition waits for another
WIDTHS = (64, 32, 16, 8, 4, 2, 1)  # short loops have fewer
MOST_ADDITIONS = 32  # of floats into one lane, then it is added up in double


@dataclass
class Accumulator:
    """A sum or product, a maximum or minimum."""

    name: str
    kind: str
    dtype: torch.dtype  # of the elements (max, argmax) or of the result (sum, prod)
    term: Code = Code("")  # what one iteration adds
    # it adds up partial sums: in double, so that their number costs no accuracy
    over_chunks: bool = False
    # the reduction's instruction
    origin: Any = field(default_factory=lambda: playing.value, compare=False, repr=False)

    is_arg: ClassVar[bool] = False  # does it look for a place (lowering/reductions.py)?
    of_elements: ClassVar[bool] = False  # is its dtype that of the elements?

    def take(self, writer: Any, value: Value, place: sympy.Expr) -> None:
        """`value` is what one iteration adds; place: which iteration it is."""
        if value.dtype != self.dtype:
            value = writer.to_dtype(value, self.dtype)
        self.term = value.text

    @staticmethod
    def of_one(writer: Any, value: Value, dtype: torch.dtype) -> Value:
        """The result where there is one element alone."""
        return value if value.dtype == dtype else writer.to_dtype(value, dtype)

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

    @property
    def reads(self) -> tuple[str, ...]:
        """Of what one iteration computes."""
        return self.term.reads

    def line(self, text: str) -> Line:
        """A line of the reduction."""
        return Line(text, origin=self.origin)

    def renamed(self, prefix: str) -> "Accumulator":
        name = prefix + self.name.lstrip(ascii_lowercase)  # acc3 -> part3
        return replace(self, name=name, over_chunks=False)

    def result(self, dtype: torch.dtype, place: str = "") -> Code:
        """The accumulator (its element at `place`) as a plain value, once its loop has ended."""
        narrows = self.c_type == "double" and compute_type(dtype) != "double"
        return code("{}{}{}", "(float)" if narrows else "", named(self.name), place)

    def combine(self, a: str, b: str) -> str:
        return f"{a} {'+' if self.kind == 'sum' else '*'} {b}"

    def update(self, term: str, place: str = "") -> Line:
        target = self.name + place
        return self.line(f"{target} = {self.combine(target, term)};")

    # -- one for each lane, or for each column -----------------------------------------------------
    def arrays(self) -> list[tuple[str, str, str]]:
        """(type, name, initial value) of what each lane has one of."""
        return [(ARRAY_TYPES.get(self.c_type, self.c_type), self.name, self.initial)]

    def taken(self, place: str = "") -> list[Line]:
        """What one iteration adds, is added.  place: "[k]", of the lane; "": there are none."""
        return [self.update(self.term, place)]

    def gathered(self, lanes: "Accumulator", count: int) -> Line:
        """All of these lanes are added."""
        return self.update(f"mini::{self.kind}_of({lanes.name})")

    def merged(self, part: str) -> list[Line]:
        """To column k what another part of the rows has added up, in arrays of this number."""
        return [self.update(f"{self.name}s[{part}][k]", "[k]")]


class Extreme(Accumulator):
    """The largest or smallest element, or a NaN."""

    of_elements = True

    @property
    def initial(self) -> str:
        return limit_text(self.dtype, self.kind == "max")

    def combine(self, a: str, b: str) -> str:
        name = "maximum" if self.kind == "max" else "minimum"
        return f"mini::{name}<{self.c_type}>({a}, {b})"


# kind of a reduction -> its accumulator; lowering/reductions.py adds argmax, argmin and any
ACCUMULATORS: dict[str, type[Accumulator]] = {
    "sum": Accumulator,
    "prod": Accumulator,
    "max": Extreme,
    "min": Extreme,
}
Sums: TypeAlias = list[Accumulator]  # or products, maxima, ...


def parts_of(accumulators: Sums, prefix: str) -> Sums:
    """For each accumulator one that adds up a part, such as a row.  The accumulators themselves are
    changed: from now on they add up the parts."""
    parts = [a.renamed(prefix) for a in accumulators]
    for accumulator in accumulators:
        accumulator.over_chunks = True
    return parts


def declarations(accumulators: Iterable[Accumulator]) -> list[Line]:
    return [a.line(f"{a.c_type} {a.name} = {a.initial};") for a in accumulators]


def array_declarations(accumulators: Iterable[Accumulator], width: int | str) -> list[Line]:
    lines = []
    for a in accumulators:
        for c_type, name, start in a.arrays():
            lines.append(a.line(f"{c_type} {name}[{width}];"))
            lines.append(a.line(filled(name, width, start)))
    return lines


def filled(name: str, count: Bound, value: str) -> str:
    return f"for (int64_t k = 0; k < {count}; k++) {name}[k] = {value};"


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
        sizes = [longest(n) for n in self.writer.plan.inner]
        additions = math.prod([-(-sizes[-1] // self.width), *sizes[:-1]])
        if additions <= 2 * MOST_ADDITIONS or not any(a.loses_bits for a in self.accumulators):
            return self.gathering(self.loops)
        for accumulator in self.accumulators:
            accumulator.over_chunks = True
        in_a_row = additions // math.prod(sizes[:-1]) if math.isfinite(additions) else math.inf
        place, step = len(sizes) - 1, MOST_ADDITIONS * self.width
        if len(sizes) > 1 and in_a_row <= MOST_ADDITIONS:
            place, step = place - 1, int(MOST_ADDITIONS // in_a_row)
        variable, start, end = self.loops[place]
        first, stop = f"{variable}_chunk", f"{variable}_stop"
        chunk = self.gathering([(variable, first, stop), *self.loops[place + 1 :]])
        ending = bound(stop, f"{first} + {step}", end)
        return nest([ending, *chunk], [*self.loops[:place], (first, start, end, step)])

    @property
    def width(self) -> int:
        """How many lanes; 1: there are none."""
        writer, size = self.writer, self.writer.plan.inner[-1]
        most = estimate([size])
        if not config.vectorize or not writer.lanes_are_free() or most < 8:
            return 1
        if any(a.is_arg for a in self.accumulators) and most < 4 * LANES:
            return 1
        wanted = LANES if len(self.body) <= 16 else LANES // 2  # (the compiler's time counts)
        return next(n for n in WIDTHS if n <= min(most, wanted))

    def gathering(self, loops: list[tuple]) -> list[Statement]:
        """The loops, and before them the lanes' arrays, which are put together after them."""
        *around, (lane, start, end) = loops
        if self.width == 1:
            parts = [a.renamed("part") for a in self.accumulators]
            body = [*self.body, *[line for p in parts for line in p.taken()]]
            added = [a.update(p.name) for a, p in zip(self.accumulators, parts)]
            return [Block([*declarations(parts), *nest(body, loops), *added])]
        before: list[Statement] = []
        inside: list[Statement] = []
        after: list[Statement] = []
        for prefix, (first, stop, width) in zip(("lane", "rest"), self.pieces(start, end)):
            parts = [a.renamed(prefix) for a in self.accumulators]
            before += array_declarations(parts, width)
            lines = [*self.body, *[line for p in parts for line in p.taken("[k]")]]
            inside += self.writer.lanes_of(lane, first, stop, width, lines)
            after += [a.gathered(p, width) for a, p in zip(self.accumulators, parts)]
        return [Block([*before, *nest(inside, around), *after])]

    def pieces(self, start: Bound, end: Bound) -> Iterator[tuple[Bound, Bound, int]]:
        """(start, end, lanes): parts of the innermost loop.  What is left over has lanes of its
        own: what is written by parts of a vector, and read as a whole, has to reach the cache."""
        if not isinstance(start, int) or not isinstance(end, int):
            yield start, end, self.width
            return
        rest = (end - start) % self.width
        yield start, end - rest, self.width
        if rest:
            yield end - rest, end, next(n for n in reversed(WIDTHS) if n >= rest)


# --- few outer iterations over much ---------------------------------------------------------------
MOST_PARTS = 512  # partial results
LEAST = 512  # elements of a part
PARTS = "which part of the loop comes next"


class Spread(Strategy):
    """The reduction itself is spread over the threads.

        float block0s[128];
        #pragma omp parallel for schedule(static)
        for (int64_t block = 0; block < 128; block++) {
            float block0 = 0;
            for (int64_t r0 = ...) ...
            block0s[block] = block0;
        }
        double acc0 = 0;
        for (int64_t block = 0; block < 128; block++) { acc0 = acc0 + block0s[block]; }

    A loop over blocks, shared by the threads, and their results put together."""

    keeps_stack = False

    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if plan.is_pointwise or writer.group.has_scan or not config.split_reductions:
            return False
        few_over_much = plan.outer_count < 8 and plan.inner_count >= PARALLEL_WORK
        return writer.parallel and few_over_much

    def loop_nest(self, body: Statements) -> list[Statement]:
        return nest(body, self.writer.outer_loops())

    def inner_loop(self, body: Statements, accumulators: Sums) -> list[Statement]:
        writer = self.writer
        first, size = writer.plan.r[0], writer.size(writer.plan.inner[0])
        least = max(1, LEAST // estimate(writer.plan.inner[1:]))
        # (another stage has names of its own)
        rows, blocks = (writer.outside.fresh(name) for name in ("rows", "blocks"))
        wanted = f"({size} + {MOST_PARTS - 1})/{MOST_PARTS}"
        texts = [
            f"const int64_t {rows} = mini::maximum<int64_t>({least}, {wanted});",
            f"const int64_t {blocks} = ({size} + {rows} - 1)/{rows};",
        ]
        of_block = parts_of(accumulators, "block")
        # the loops come first: they may make doubles of the accumulators
        loops = writer.chunks(body, of_block, f"{first}_block", f"{first}_end")
        block = [
            Line(f"const int64_t {first}_block = block*{rows};", origin=PARTS),
            bound(f"{first}_end", f"{first}_block + {rows}", size),
            *declarations(of_block),
            *loops,
            *[b.line(f"{b.name}s[block] = {b.name};") for b in of_block],
        ]
        threads = Pragma("parallel for", condition=writer.threads_if)
        added = [a.update(f"{b.name}s[block]") for a, b in zip(accumulators, of_block)]
        return [
            *[Line(text, origin=PARTS) for text in texts],
            *[b.line(f"{b.c_type} {b.name}s[{MOST_PARTS}];") for b in of_block],
            *nest(block, [("block", 0, blocks)], threads),
            *declarations(accumulators),
            *nest(added, [("block", 0, blocks)] if added else []),
        ]


@dataclass
class PlaceOfExtreme(Accumulator):
    at: Code = Code("")  # the place of `term`
    place_type: str = "int64_t"

    is_arg = of_elements = True

    def take(self, writer: Any, value: Value, place: sympy.Expr) -> None:
        super().take(writer, value, place)
        self.at = writer.index(place)
        if longest(math.prod(writer.plan.inner)) < 1 << 31:
            self.place_type = "int32_t"

    @staticmethod
    def of_one(writer: Any, value: Value, dtype: torch.dtype) -> Value:
        return Value(Code("0"), dtype, number=0)

    @property
    def c_type(self) -> str:
        return f"mini::Extreme<{compute_type(self.dtype)}>"

    @property
    def initial(self) -> str:
        return f"{{{limit_text(self.dtype, self.kind == 'argmax')}, 0x7fffffffffffffffLL}}"

    @property
    def reads(self) -> tuple[str, ...]:
        return self.term.reads + self.at.reads

    def result(self, dtype: torch.dtype, place: str = "") -> Code:
        if place:
            return code("(int64_t){}{}", named(f"{self.name}_at"), place)
        return code("{}.index", named(self.name))

    def combine(self, a: str, b: str) -> str:
        return f"mini::{'larger' if self.kind == 'argmax' else 'smaller'}({a}, {b})"

    def arrays(self) -> list[tuple[str, str, str]]:
        """The first place is 0: nothing replaces it if all elements are as low as `lowest`."""
        lowest, c_type = limit_text(self.dtype, self.kind == "argmax"), compute_type(self.dtype)
        best = (ARRAY_TYPES.get(c_type, c_type), f"{self.name}_best", lowest)
        return [best, (self.place_type, f"{self.name}_at", "0")]

    def taken(self, place: str = "") -> list[Line]:
        """Places grow, so only a better element replaces the best: not (v <= best), which a NaN is,
        unless best is one.  (Two choices: what follows from two bools gcc computes as bytes.)"""
        if not place:
            return [self.update(f"{self.c_type}{{{self.term}, {self.at}}}")]
        (value_type, best, _), (at_type, at, _) = self.arrays()
        was, new, there = (f"{self.name}_{word}" for word in ("was", "new", "there"))
        worse = f"{self.term} {'<=' if self.kind == 'argmax' else '>='} {was}"
        texts = [
            f"const {value_type} {was} = {best}{place};",
            f"const {value_type} {new} = !({worse}) ? {self.term} : {was};",
            f"const {at_type} {there} = !({worse}) ? ({at_type})({self.at}) : {at}{place};",
            f"{best}{place} = {was} == {was} ? {new} : {was};",
            f"{at}{place} = {was} == {was} ? {there} : {at}{place};",
        ]
        return [self.line(text) for text in texts]

    def gathered(self, lanes: Accumulator, count: int) -> Line:
        best = self.update(f"{self.c_type}{{{lanes.name}_best[k], {lanes.name}_at[k]}}")
        return self.line(f"for (int64_t k = 0; k < {count}; k++) {best.text}")

    def merged(self, part: str) -> list[Line]:
        term, at = (Code(f"{self.name}_{word}s[{part}][k]") for word in ("best", "at"))
        return replace(self, term=term, at=at).taken("[k]")


class IsAny(Accumulator):
    c_type, initial, of_elements = "int32_t", "0", True

    def take(self, writer: Any, value: Value, place: sympy.Expr) -> None:
        self.term = code("int32_t({} != 0)", value)

    @staticmethod
    def of_one(writer: Any, value: Value, dtype: torch.dtype) -> Value:
        return writer.to_dtype(value, torch.bool)

    def result(self, dtype: torch.dtype, place: str = "") -> Code:
        return code("({}{} != 0)", named(self.name), place)

    def combine(self, a: str, b: str) -> str:
        return f"{a} | {b}"


ACCUMULATORS |= {"argmax": PlaceOfExtreme, "argmin": PlaceOfExtreme, "any": IsAny}
