"""Strided reads under a condition that is the same for all lanes: read anyway, at a place that is.

    const int64_t tmp5 = tmp1 ? 3136*x0 + 112*x1 - 55 : 0;
    const int64_t tmp6 = tmp1 ? -1 : 0;
    #pragma omp simd
    for (int64_t r0 = 0; r0 < 27; r0++) {
        const float tmp7 = mini::to_float(in0[2*r0 + tmp5]);
        const float tmp8 = mini::chosen<float>(tmp6, tmp7, -mini::inf);

In:   a masked block of a pointwise kernel (padding around windows: max_pool2d) whose condition does
      not vary with the lane.  Out: its value, without a branch.

Compilers have masked reads of what lies side by side.  With steps of two and more between lanes
they read one element after the other, each in a branch.  Left out: blocks that do more than read,
symbolic sizes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import sympy
import torch

from .. import config
from ..codegen.code import code
from ..codegen.common import Value
from ..codegen.cpp import CppKernelWriter
from ..codegen.cpp_expressions import compute_type
from ..codegen.strategy import Strategy
from ..dependencies import Instruction, int_or_none, stride_of
from ..ir import playing
from ..runtime.build import PRELUDES
from ..sizes.expressions import is_indirect

WORDS = ("float", "double", "int32_t", "int64_t")  # what `chosen` takes
PRELUDES.append(Path(__file__).with_name("uniform_masks.h"))


class UniformMasks(Strategy):
    mask: Value | None = None  # of the block that is being played

    def applies(self) -> bool:
        plan = self.writer.plan
        if not config.vectorize or not plan.is_pointwise or not plan.inner:
            return False
        return any(i.op == "masked" for body in plan.bodies.values() for i in body.walk())

    def place_of(self, name: str, index: sympy.Expr) -> sympy.Expr | None:
        """The element, or, where the condition is false, one near the beginning of its buffer."""
        if self.mask is None:
            return None
        writer, lane = self.writer, self.writer.plan.r[-1]
        step = stride_of(index, lane) * lane
        rest = writer.index(sympy.expand(index - step))
        place = writer.temporary(code("{} ? {} : 0", self.mask, rest), torch.int64, False)
        return step + writer.local(place.text)

    def masked(self, mask: Value, body: Callable[[], Value], other: Any) -> Value | None:
        """The value of the masked block that is being played, if this is a way to compute it."""
        writer = self.writer
        if mask.inner or mask.number is not None or self.mask is not None or writer.is_tiled:
            return None
        if not writer.inner_variables or writer.in_mask() or not may_be_read(writer):
            return None
        self.mask = mask
        try:
            value = body()
        finally:
            self.mask = None
        c_type = compute_type(value.dtype)
        bits = writer.temporary(code("{} ? -1 : 0", mask), torch.int64, False)
        otherwise = writer.constant(other, value.dtype)
        found = writer.call("chosen", value.dtype, bits, value, otherwise, of=c_type)
        return Value(found.text, value.dtype, found.inner)


def may_be_read(writer: CppKernelWriter) -> bool:
    """Does the block do nothing but read, in steps of two and more elements, and may all lanes read
    from its buffers' beginnings?"""
    block = playing.value.block
    return bool(block) and all(has_long_steps(writer, one) for one in block)


def has_long_steps(writer: CppKernelWriter, one: Instruction) -> bool:
    if one.op != "load":
        return False
    name, index = one.args[:2]
    layout = writer.buffers[name].layout
    if is_indirect(index) or compute_type(layout.dtype) not in WORDS or name in writer.values:
        return False
    lanes = writer.plan.inner[-1]
    step = int_or_none(stride_of(index, writer.plan.r[-1]))
    numbers = (lanes, layout.offset, *layout.size, *layout.stride)
    if step is None or step < 2 or not all(isinstance(n, int) for n in numbers):
        return False
    if min(layout.size) < 1 or min(layout.stride) < 0:
        return False
    last = layout.offset + sum((n - 1) * s for n, s in zip(layout.size, layout.stride))
    return step * (lanes - 1) <= last
