"""Horizontal fusion: several groups of the same body in, one C++ function out, a loop over the
groups in one parallel region.

    extern "C" int adam_kernel(void** args) {
        static const int64_t sizes[30] = {65536, 256, ...};
        #pragma omp parallel
        for (int64_t part = 0; part < 30; part++) {
            const int64_t size = sizes[part];
            float* in0 = (float*)args[part*4 + 0];
            ...
            #pragma omp for simd nowait schedule(static)
            for (int64_t r0 = 0; r0 < size; r0++) {

Every thread takes its share of every part and never waits for the others.  The idea is torch's
multi_tensor_apply.
"""

import math
from dataclasses import replace
from typing import Any

import sympy

from ... import config
from ...schedule.after_fusion import Foreach
from ...sizes.symbols import Size
from ..common import Kernel, of_all_parts
from ..kernel_plan import PARALLEL_WORK, KernelPlan, estimate
from .kernel_writer import CppKernelWriter
from .statements import Line, Pragma, Statement, nest

PARTS = "which of the alike parts is computed"
SIZE = sympy.Symbol("size", integer=True, nonnegative=True)


class ForeachWriter(CppKernelWriter):
    """Writes the body of the first part; the others differ in their pointers and number of
    elements."""

    def __init__(self, group: Foreach, *context: Any):
        super().__init__(group.parts[0].group, *context)
        self.parts = group.parts

    def plan_loops(self) -> KernelPlan:
        return replace(super().plan_loops(), inner=(SIZE,))

    def decide_threads(self) -> None:
        work = sum(estimate(part.group.outer) for part in self.parts) * self.plan.work_per_element
        self.parallel, self.threads_if = config.openmp and work >= PARALLEL_WORK, ""

    def size(self, number: Size) -> int | str:
        return "size" if number == SIZE else super().size(number)

    def simd(self) -> Pragma | None:
        if self.parallel:
            return Pragma("for", simd=config.vectorize)
        return super().simd()

    def function(self, lines: list[Statement]) -> Kernel:
        count, width, names = len(self.parts), len(self.pointers), self.parts[0].names
        memory = lambda name: self.overwritten.get(name, name)  # noqa: E731
        first = list(map(memory, names))

        body = [
            Line("const int64_t size = sizes[part];", origin=PARTS),
            *self.pointer_lines(f"args[part*{width} + {{}}]"),
            *lines,
        ]
        sizes = ", ".join(str(self.size(math.prod(part.group.outer))) for part in self.parts)
        every = [Line(f"const int64_t sizes[{count}] = {{{sizes}}};", origin=PARTS)]
        if self.parallel:
            every.append(Line("#pragma omp parallel", origin=PARTS))
        kernel = self.finish(
            every + nest(body, [("part", 0, count)]),
            [
                memory(part.names[first.index(name)])
                for part in self.parts
                for name in self.pointers
            ],
        )
        return of_all_parts(kernel, self.parts)
