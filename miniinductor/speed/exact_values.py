"""Values that 16 bits hold anyway are not rounded to them.

    const float tmp0 = mini::to_float(in0[r0]);
    const float tmp1 = mini::abs(tmp0);             16 bits held tmp0, so they hold this
    const float tmp2 = mini::round_float16(tmp1);   not written
    out0[r0] = mini::upper_half(tmp0);              of bfloat16: the other 16 bits are zeros

In:   conversions to float16 and bfloat16, which eager makes after each operation.  Out: none where
      the value is an element that was read, or one of several such, or such a one without its sign,
      or rounded to an integer; nor where it is an integer of 8 bits.
"""

from pathlib import Path

from typing import Any

import torch

from ..codegen.code import Code, call
from ..codegen.common import Value
from ..codegen.cpp import CppKernelWriter
from ..lowerings.half_types import HALVES, narrowed
from ..runtime.build import PRELUDES

SELECTING = ("maximum", "minimum")  # their result is one of their arguments, or a NaN
# what they make of an element needs no more bits: one that is large enough is whole already
KEEPING = ("abs", "neg", "round", "floor", "ceil", "trunc")
BYTES = (torch.int8, torch.uint8)  # bfloat16 has 8 bits, float16 11
Exact = set[tuple[str, torch.dtype]]  # the text of a value, and what holds it without a loss
PRELUDES.append(Path(__file__).with_name("exact_values.h"))


def exact_values(writer: CppKernelWriter) -> Exact:
    return writer.__dict__.setdefault("exact", set())


def is_exact(writer: CppKernelWriter, value: Any, dtype: torch.dtype) -> bool:
    """Is nothing of the value lost in `dtype`?"""
    number = value.number if isinstance(value, Value) else value
    if number is not None:
        return torch.tensor(number, dtype=torch.float64).to(dtype).item() == number
    return (value.text, dtype) in exact_values(writer)


def to_dtype(plain: Any) -> Any:
    def method(
        self: CppKernelWriter, x: Value, dtype: torch.dtype, src_dtype: torch.dtype | None = None
    ) -> Value:
        exact = exact_values(self)
        if x.dtype in HALVES and x.number is None:
            exact.add((x.text, x.dtype))
        if dtype in HALVES and x.dtype is torch.float32 and (x.text, dtype) in exact:
            return Value(x.text, dtype, x.inner)
        if dtype in HALVES and x.dtype in BYTES and x.number is None:
            x = self.to_dtype(x, torch.float32)
            return Value(x.text, dtype, x.inner)
        found = plain(self, x, dtype, src_dtype)
        if x.dtype in BYTES and dtype is torch.float32:
            exact.update((found.text, half) for half in HALVES)
        if dtype in HALVES and found.number is None:
            exact.add((found.text, dtype))
        return found

    return method


def loaded(plain: Any) -> Any:
    def method(self: CppKernelWriter, name: str, *args: Any) -> Value:
        found = plain(self, name, *args)
        if found.dtype in HALVES:
            exact_values(self).add((found.text, found.dtype))
        return found

    return method


def keeping(plain: Any, which: Any) -> Any:
    """The writer's method `plain`, whose result is exact if the arguments which(*arguments) are."""

    def method(self: CppKernelWriter, *args: Any) -> Value:
        found, exact = plain(self, *args), exact_values(self)
        is_float = found.dtype is torch.float32 or found.dtype in HALVES
        values = which(*args) if exact and is_float else []
        for dtype in [found.dtype] if found.dtype in HALVES else HALVES:
            if values and all(is_exact(self, value, dtype) for value in values):
                exact.add((found.text, dtype))
        return found

    return method


def forgetting(plain: Any) -> Any:
    """`write_into`, after which names may be used anew."""

    def method(self: CppKernelWriter, *args: Any) -> None:
        exact_values(self).clear()
        plain(self, *args)

    return method


plain_narrowed = narrowed.answer


@narrowed.replaced
def narrowed_exactly(
    writer: CppKernelWriter, function: str, wide: Code, dtype: torch.dtype
) -> Code:
    """Of a bfloat16 as a float, its upper half."""
    if function == "to" and dtype is torch.bfloat16 and (wide, dtype) in exact_values(writer):
        return call("upper_half", wide)
    return plain_narrowed(writer, function, wide, dtype)


for _name, _which in {
    "unary": lambda op, x: [x] if op in KEEPING else [],
    "binary": lambda op, a, b: [a, b] if op in SELECTING else [],
    "where": lambda condition, a, b: [a, b],
}.items():
    setattr(CppKernelWriter, _name, keeping(getattr(CppKernelWriter, _name), _which))
setattr(CppKernelWriter, "loaded", loaded(CppKernelWriter.loaded))
setattr(CppKernelWriter, "to_dtype", to_dtype(CppKernelWriter.to_dtype))
setattr(CppKernelWriter, "write_into", forgetting(CppKernelWriter.write_into))
