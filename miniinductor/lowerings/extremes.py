"""Lowerings of extremes' places, and of truth values together.

In:   argmax, argmin, max and min along a dimension; any, all.  Out: a `Reduction`, of places one
      that gives an index: the first among equals, or that of a NaN; and their accumulators in C++:

    mini::Extreme<float> acc0 = {-mini::inf, 0x7fffffffffffffffLL};
    acc0 = mini::larger(acc0, mini::Extreme<float>{tmp3, r0});      // the element and its place

Mirrors torch/_inductor/lowering.py (`make_reduction`).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from ..codegen.code import Code, code, named
from ..codegen.common import Value
from ..codegen.cpp_expressions import compute_type, limit_text
from ..codegen.cpp_reductions import ACCUMULATORS, ARRAY_TYPES, Accumulator, longest
from ..codegen.tree import Line
from ..ir import TensorBox
from ..lowering.pointwise import truth
from ..lowering.reductions import extreme, reduce
from ..lowering.registry import Call, NotLowered, aten, lower, mapped
from ..ops import ops


@lower(aten.max.dim, aten.min.dim)
def extreme_with_index(
    call: Call, x: TensorBox, dim: int, keepdim: bool = False
) -> list[TensorBox]:
    return [extreme(call, x, [dim], keepdim), place_of_extreme(call, x, dim, keepdim)]


@lower(aten.argmax.default, aten.argmin.default)
def place_of_extreme(
    call: Call, x: TensorBox, dim: int | None = None, keepdim: bool = False
) -> TensorBox:
    compute = torch.uint8 if x.dtype == torch.bool else x.dtype
    return reduce(call, x, dim, keepdim, "arg" + call.name[-3:], compute, torch.int64)


@lower(aten.any, aten.all)
def any_or_all(call: Call, x: TensorBox, dims: Any = None, keepdim: bool = False) -> TensorBox:
    """all(x) is not any(not x)."""
    if call.value.dtype != torch.bool:
        raise NotLowered("uint8 result")
    box = x
    if x.dtype != torch.bool:
        box = mapped(call, x, lambda v: truth(v, x.dtype), torch.bool)
    if call.name == "any":
        return reduce(call, box, dims, keepdim, "any", torch.bool, torch.bool)
    box = mapped(call, box, ops.logical_not, torch.bool)
    some_false = reduce(call, box, dims, keepdim, "any", torch.bool, torch.bool)
    return mapped(call, some_false, ops.logical_not, torch.bool, x)


# --- in C++ ---------------------------------------------------------------------------------------
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
