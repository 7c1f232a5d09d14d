"""bfloat16 and float16 in C++: 16 bits in memory, floats while they are computed with.

In:   the elements that a kernel reads and writes, and conversions.  Out: lines that convert.

    const float tmp0 = mini::to_float(in0[x0]);
    const float tmp1 = mini::round_bfloat16(tmp0 * 2.0f);       // an explicit conversion rounds
    out0[x0] = mini::to_bfloat16(tmp1);

A store need not convert what a conversion or a load has just made: the writer remembers of a
rounded value the float that was rounded, and of a loaded one the element that it came from.
# PyTorch: keeps low precision in vectors of its own (`at::vec`).
"""

from pathlib import Path
from typing import Any, TypeAlias

import sympy
import torch

from ..codegen.code import Code, call, code
from ..codegen.common import Value
from ..codegen.cpp import CppKernelWriter, combined
from ..codegen.cpp_expressions import TYPES, compute_type
from ..replaceable import replaceable
from ..runtime.build import PRELUDES
from . import rounded_operands  # noqa: F401  (eager rounds before it computes)
from .scatters import combined_in_place

HALVES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
ROUNDINGS = {f"round_{name}" for name in HALVES.values()}  # functions of the prelude
TYPES |= {dtype: (f"mini::{name}", "float") for dtype, name in HALVES.items()}
PRELUDES.append(Path(__file__).with_name("half_types.h"))

Writer: TypeAlias = Any  # a CppKernelWriter, with the fields that `decide` adds

plain_decide = CppKernelWriter.decide
plain_loaded = CppKernelWriter.loaded
plain_store_element = CppKernelWriter.store_element
plain_to_dtype = CppKernelWriter.to_dtype


def decide(self: Writer) -> None:
    self.any_nan = may_read_nan(self)
    # a rounded value -> the float that was rounded; a loaded one -> the element it came from
    self.raw, self.copies = {}, {}
    plain_decide(self)


def may_read_nan(writer: Writer) -> bool:
    """Does it read floats other than bfloat16?  Some of their NaNs are none any more when
    rounding to bfloat16 cuts them off (see `rounded` in the prelude)."""
    floats = (torch.float16, torch.float32, torch.float64)
    made = {n.name for n in writer.plan.nodes}
    return any(
        access.name not in made and writer.buffers[access.name].layout.dtype in floats
        for body in writer.plan.bodies.values()
        for access in body.reads()
    )


@replaceable
def narrowed(writer: Writer, function: str, wide: Code, dtype: torch.dtype) -> Code:
    """A call of a function of the prelude: mini::to_bfloat16(tmp1) of "to".
    (speed/exact_values.py knows what needs none.)"""
    is_plain = dtype is torch.bfloat16 and not writer.any_nan
    return call(f"{function}_{HALVES[dtype]}", wide, of="false" if is_plain else "")


def loaded(self: Writer, name: str, index: sympy.Expr, element: Code, inner: bool) -> Value:
    dtype = self.buffers[name].layout.dtype
    if dtype not in HALVES:
        return plain_loaded(self, name, index, element, inner)
    converted = self.ask("float_place", name, index, dtype, False)
    if converted is not None:
        if self.is_tiled:  # a copy is made from the tile
            element = self.ask("element", name, index, dtype, element) or element
        value = self.temporary(converted, dtype, inner)
        if not index.free_symbols & self.inner_symbols:  # (16 bits are not gathered in vectors)
            self.copies[value.text, dtype] = element
        return value
    element = self.ask("element", name, index, dtype, element) or element
    value = self.temporary(call("to_float", element), dtype, inner)
    if not self.overwritten:
        self.copies[value.text, dtype] = element
    return value


def store_element(self: Writer, name: str, index: sympy.Expr, target: Code, value: Value) -> None:
    dtype = self.buffers[name].layout.dtype
    if dtype not in HALVES:
        plain_store_element(self, name, index, target, value)
        return
    key = (value.text, dtype)
    wide, copied = self.raw.get(key, value.text), self.copies.get(key)
    text = copied or narrowed(self, "to", wide, dtype)
    converted = None if copied else self.ask("float_place", name, index, dtype, True)
    if converted is not None:
        target, text = converted, wide
    self.scope.add(code("{} = {};", target, text))


@combined.replaced
def combined_halves(writer: Any, mode: str, target: Code, value: Value, dtype: torch.dtype) -> Code:
    if dtype not in HALVES:
        return combined_in_place(writer, mode, target, value, dtype)
    text = combined_in_place(writer, mode, call("to_float", target), value, dtype)
    return narrowed(writer, "to", text, dtype)


def to_dtype(
    self: Writer, x: Value, dtype: torch.dtype, src_dtype: torch.dtype | None = None
) -> Value:
    source = x.dtype
    if dtype in HALVES and dtype != source:
        wide = x if compute_type(source) == "float" else self.to_dtype(x, torch.float32)
        if source is torch.bool:
            return Value(wide.text, dtype, x.inner)
        value = self.temporary(narrowed(self, "round", wide.text, dtype), dtype, x.inner)
        self.raw[value.text, dtype] = wide.text
        return value
    if source in HALVES and dtype is torch.float32:
        return Value(x.text, dtype, x.inner, x.number)
    return plain_to_dtype(self, x, dtype, src_dtype)


for _method in (decide, loaded, store_element, to_dtype):
    setattr(CppKernelWriter, _method.__name__, _method)
