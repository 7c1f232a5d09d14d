"""Reductions in C++: accumulators.

In:   the value that one iteration adds.  Out: declarations, updates, pragma clauses.

    >>> Accumulator("acc0", "sum", torch.float32, term=named("tmp3")).update("tmp3")
    Line(text='acc0 = acc0 + tmp3;', sets_error=False)

The reduction's loop is the vector loop, each lane keeps a part.  Long float sums are sums of
chunks, added up in double.  Where memory runs along the outer loop, the lanes do too:
speed/rows.py.

Mirrors the reduction half of CppVecKernel in torch/_inductor/codegen/cpp.py.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import Any, ClassVar, TypeAlias

import sympy
import torch

from ..ir import playing
from ..sizes.symbols import Size
from .code import Code, code, named
from .common import Value
from .cpp_expressions import compute_type, limit_text
from .tree import Bound, Line, Statement

CHUNK = 512  # longest run of float additions into one accumulator; chunks are then added in double


@dataclass
class Accumulator:
    """A sum or product."""

    name: str
    kind: str
    dtype: torch.dtype  # of the elements (max, argmax) or of the result (sum, prod)
    term: Code = Code("")  # what one iteration adds
    # it adds up partial sums: in double, so that their number costs no accuracy
    over_chunks: bool = False
    # the reduction's instruction
    origin: Any = field(default_factory=lambda: playing.value, compare=False, repr=False)

    is_arg: ClassVar[bool] = False  # does it look for a place (lowerings/extremes.py)?
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
    def clause(self) -> str | None:
        """How `omp simd` is told of it; None: its loop cannot be one."""
        return f" reduction({'+' if self.kind == 'sum' else '*'}:{self.name})"

    def line(self, text: str) -> Line:
        """A line of the reduction."""
        return Line(text, origin=self.origin)

    def before_lanes(self) -> list[Line]:
        return []

    def in_lanes(self) -> list[Line]:
        return [self.update(self.term)]

    def after_lanes(self) -> list[Line]:
        return []

    @property
    def loses_bits(self) -> bool:
        """Does a long run of it lose accuracy?"""
        return self.kind in ("sum", "prod") and self.dtype.is_floating_point

    def renamed(self, prefix: str) -> "Accumulator":
        name = prefix + self.name.lstrip(ascii_lowercase)  # acc3 -> part3
        return replace(self, name=name, over_chunks=False)

    @property
    def reads(self) -> tuple[str, ...]:
        """Of what one iteration computes."""
        return self.term.reads

    def result(self, dtype: torch.dtype, place: str = "") -> Code:
        """The accumulator (its element at `place`) as a plain value, once its loop has ended."""
        narrows = self.c_type == "double" and compute_type(dtype) != "double"
        return code("{}{}{}", "(float)" if narrows else "", named(self.name), place)

    def combine(self, a: str, b: str) -> str:
        return f"{a} {'+' if self.kind == 'sum' else '*'} {b}"

    def update(self, term: str, place: str = "") -> Line:
        target = self.name + place
        return self.line(f"{target} = {self.combine(target, term)};")


class Extreme(Accumulator):
    """The largest or smallest element, or a NaN.  Vector maximum instructions drop NaN, so lanes of
    floats take the plain maximum and note whether they saw one."""

    of_elements = True

    @property
    def initial(self) -> str:
        return limit_text(self.dtype, self.kind == "max")

    @property
    def nan_flag(self) -> str:
        return f"{self.name}_nan" if self.dtype.is_floating_point else ""

    @property
    def clause(self) -> str | None:
        watch = f" reduction(|:{self.nan_flag})" if self.nan_flag else ""
        return f" reduction({self.kind}:{self.name}){watch}"

    def before_lanes(self) -> list[Line]:
        return [self.line(f"int32_t {self.nan_flag} = 0;")] if self.nan_flag else []

    def in_lanes(self) -> list[Line]:
        if not self.nan_flag:
            return super().in_lanes()
        sign = ">" if self.kind == "max" else "<"
        return [
            self.line(f"{self.name} = {self.term} {sign} {self.name} ? {self.term} : {self.name};"),
            self.line(f"{self.nan_flag} |= {self.term} != {self.term};"),
        ]

    def after_lanes(self) -> list[Line]:
        if not self.nan_flag:
            return []
        return [self.line(f"{self.name} = {self.nan_flag} ? mini::nan : {self.name};")]

    def combine(self, a: str, b: str) -> str:
        name = "maximum" if self.kind == "max" else "minimum"
        return f"mini::{name}<{self.c_type}>({a}, {b})"


# kind of a reduction -> its accumulator; lowerings/extremes.py adds argmax, argmin and any
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


def in_parts(
    accumulators: Sums, prefix: str, loop: Callable[[Sums], list[Statement]]
) -> list[Statement]:
    """loop(parts), which computes parts of the accumulators, and what adds them up."""
    parts = parts_of(accumulators, prefix)
    lines = loop(parts)  # it comes first: it may make doubles of the parts
    added = [a.update(part.name) for a, part in zip(accumulators, parts)]
    return [*declarations(parts), *lines, *added]


def declarations(accumulators: Iterable[Accumulator]) -> list[Line]:
    return [a.line(f"{a.c_type} {a.name} = {a.initial};") for a in accumulators]


def bound(name: str, wanted: str, end: Bound) -> Line:
    """Where a part of a loop ends: at `wanted`, but not beyond the loop's own end."""
    text = f"const int64_t {name} = mini::minimum<int64_t>({wanted}, {end});"
    return Line(text, origin="where a part of a loop ends")


def longest(size: Size) -> int | float:
    """How many iterations a loop may have.  A symbolic size may be anything, whatever it was in the
    run that is compiled: accuracy must not depend on that."""
    return size if isinstance(size, int) else math.inf
