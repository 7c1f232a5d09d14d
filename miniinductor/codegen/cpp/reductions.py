"""Accumulators of reductions in C++: sums, products, extremes and their places.

In:   what one iteration adds.  Out: lines that declare an accumulator, add to it, and put several
      of them together, one of each lane (lanes.py).

argmax first asks whether any lane is larger than the best element so far, and only then looks at
the lanes one by one:

    mini::Extreme<float> acc0 = {-mini::inf, 0};
    if (mini::any_larger(lane0, 64, acc0.value)) {      // of each lane the element, and its place
        ... acc0 = mini::larger(acc0, mini::Extreme<float>{lane0[k], r0});

Mirrors the reduction half of CppVecKernel in torch/_inductor/codegen/cpp.py.
"""

from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import sympy
import torch

from ...ir.loops import playing
from ..kernels import Value, limit
from .expressions import EXTREMES, array_type, compute_type, constant_text
from .statements import Bound, Branch, Line, Statement, nest

if TYPE_CHECKING:
    from .kernel_writer import CppKernelWriter


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
        c_type = array_type(self.c_type)
        texts = [
            f"{c_type} {self.name}[{width}];",
            f"for (int64_t k = 0; k < {width}; k++) {self.name}[k] = {self.initial};",
        ]
        return [Line(text, origin=self.origin) for text in texts]

    # -- one for each lane, in an array whose name begins with `prefix`
    def lanes(self, prefix: str, width: int) -> list[Line]:
        return self.renamed(prefix).arrays(width)

    def in_lane(self, prefix: str) -> Line:
        """What stands in the loop over the lanes."""
        return self.renamed(prefix).taken("[k]")

    def after_lanes(self, prefix: str, place: Line, count: Bound) -> list[Statement]:
        """What follows a loop over so many lanes.  place: the line that says which lane k is."""
        return []

    def gathered(self, prefix: str) -> list[Line]:
        """All lanes are added."""
        return [self.update(f"mini::{self.kind}_of({self.renamed(prefix).name})")]


class Extreme(Accumulator):
    """The largest or smallest element, or a NaN."""

    of_elements = True

    def take(self, writer: "CppKernelWriter", value: Value, place: sympy.Expr) -> None:
        """The largest of rounded elements is the largest element, rounded."""
        self.term = writer.unrounded(value)

    @property
    def initial(self) -> str:
        return constant_text(limit(self.dtype, self.kind.endswith("max")), self.dtype)

    def combine(self, a: str, b: str) -> str:
        return f"mini::{EXTREMES[self.kind]}<{self.c_type}>({a}, {b})"


@dataclass
class PlaceOfExtreme(Extreme):
    """Where the largest or smallest element lies: the first of equals, or of NaNs."""

    element: str = ""  # what one iteration computes
    at: str = ""  # its place

    def take(self, writer: "CppKernelWriter", value: Value, place: sympy.Expr) -> None:
        self.element, self.at = value.text, writer.index(place)
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
        return f"{{{super().initial}, 0}}"

    def result(self, dtype: torch.dtype, place: str = "") -> str:
        return f"{self.name}_at{place}" if place else f"{self.name}.index"

    def arrays(self, width: Bound) -> list[Line]:
        """Elements and places of the columns' extremes: gcc makes vectors of no structures."""
        best, first, element = self.name, super().initial, array_type(compute_type(self.dtype))
        texts = [
            f"{element} {best}[{width}];",
            f"int64_t {best}_at[{width}];",
            f"for (int64_t k = 0; k < {width}; k++) {best}[k] = {first}, {best}_at[k] = 0;",
        ]
        return [Line(text, origin=self.origin) for text in texts]

    def taken(self, place: str = "") -> Line:
        if not place:
            return super().taken()
        extreme = f"{self.name}{place}, {self.name}_at{place}"
        text = f"mini::keep_{EXTREMES[self.kind]}({extreme}, {self.element}, {self.at});"
        return Line(text, origin=self.origin)

    def combine(self, a: str, b: str) -> str:
        return f"mini::{EXTREMES[self.kind]}({a}, {b})"

    def lanes(self, prefix: str, width: int) -> list[Line]:
        element, array = array_type(compute_type(self.dtype)), self.renamed(prefix).name
        return [Line(f"{element} {array}[{width}];", origin=self.origin)]

    def in_lane(self, prefix: str) -> Line:
        return Line(f"{self.renamed(prefix).name}[k] = {self.element};", origin=self.origin)

    def after_lanes(self, prefix: str, place: Line, count: Bound) -> list[Statement]:
        lanes = self.renamed(prefix).name
        search = nest([place, self.update(self.of(f"{lanes}[k]"))], [("k", 0, count)])
        is_any_beyond = f"any_{EXTREMES[self.kind]}({lanes}, {count}, {self.name}.value)"
        return [Branch(f"mini::{is_any_beyond}", search)]

    def gathered(self, prefix: str) -> list[Line]:
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
