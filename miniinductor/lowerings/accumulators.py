"""Accumulators of C++ for places and truths: argmax, argmin, any.

mini::Extreme<float> acc0 = {-mini::inf, 0x7fffffffffffffffLL};
acc0 = mini::larger(acc0, mini::Extreme<float>{tmp3, r0});      // the element and its place
"""

from dataclasses import dataclass
from typing import Any

import sympy
import torch

from ..codegen.common import Value
from ..codegen.cpp_expressions import compute_type, limit_text
from ..codegen.cpp_reductions import ACCUMULATORS, Accumulator
from ..codegen.tree import Line


@dataclass
class PlaceOfExtreme(Accumulator):
    at: str = ""  # the place of `term`
    few_places: bool = False  # 32 bits hold every place

    is_arg = of_elements = True
    clause = None

    def take(self, writer: Any, value: Value, place: sympy.Expr) -> None:
        super().take(writer, value, place)
        self.at = writer.index(place)

    @staticmethod
    def of_one(writer: Any, value: Value, dtype: torch.dtype) -> Value:
        return Value("0", dtype, number=0)

    @property
    def c_type(self) -> str:
        return f"mini::Extreme<{compute_type(self.dtype)}>"

    @property
    def initial(self) -> str:
        return f"{{{limit_text(self.dtype, self.kind == 'argmax')}, 0x7fffffffffffffffLL}}"

    def in_lanes(self) -> list[Line]:
        return [self.update(f"{self.c_type}{{{self.term}, {self.at}}}")]

    def result(self, dtype: torch.dtype, place: str = "") -> str:
        return f"(int64_t){self.name}_at{place}" if place else f"{self.name}.index"

    def combine(self, a: str, b: str) -> str:
        return f"mini::{'larger' if self.kind == 'argmax' else 'smaller'}({a}, {b})"


class IsAny(Accumulator):
    c_type, initial, of_elements = "int32_t", "0", True

    def take(self, writer: Any, value: Value, place: sympy.Expr) -> None:
        self.term = f"int32_t({value} != 0)"

    @staticmethod
    def of_one(writer: Any, value: Value, dtype: torch.dtype) -> Value:
        return writer.to_dtype(value, torch.bool)

    @property
    def clause(self) -> str | None:
        return f" reduction(|:{self.name})"

    def result(self, dtype: torch.dtype, place: str = "") -> str:
        return f"({self.name}{place} != 0)"

    def combine(self, a: str, b: str) -> str:
        return f"{a} | {b}"


ACCUMULATORS |= {"argmax": PlaceOfExtreme, "argmin": PlaceOfExtreme, "any": IsAny}
