"""Several groups of the same body in, one Triton function out: each program finds out which part
its block belongs to.

    def foreach_adam_kernel(in0_0, out0_0, in0_1, out0_1, in0_2, out0_2, XBLOCK: tl.constexpr):
        block = tl.program_id(0)
        first, size, in0, out0 = 0, 65536, in0_0, out0_0
        here = block >= 65536 // XBLOCK
        first = tl.where(here, 65536 // XBLOCK, first); size = tl.where(here, 256, size); ...
        ...
        x0 = (block - first) * XBLOCK + tl.arange(0, XBLOCK)

The pointers are chosen by scalar selects: a few hundred, beside 1024 elements and more for each of
them. Mirrors torch/_inductor/codegen/triton_combo_kernel.py; the idea is torch's
multi_tensor_apply.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy

from ..codegen.common import Kernel
from ..speed.foreach import Foreach, of_all_parts
from .block_sizes import foreach_config
from .kernel_writer import TritonKernelWriter
from .registration import TRITON
from .tile_plan import TilePlan
from .tiles import Code, Line, plain

PARTS = "which of the alike parts a program computes"
SIZE = sympy.Symbol("size", integer=True, nonnegative=True)


class TritonForeachWriter(TritonKernelWriter):
    """Writes the body of the first part; the others differ in their pointers and number of
    elements."""

    def __init__(self, group: Foreach, *context: Any):
        super().__init__(group.parts[0][0], *context)
        self.parts = group.parts

    def make_plan(self) -> TilePlan:
        """The first part's, over the programs of all parts."""
        plan = super().make_plan()
        self.counts = [int(math.prod(group.outer)) for group, _ in self.parts]
        config = foreach_config(self.counts)
        block = config.block("x")
        ends = itertools.accumulate([-(-n // block) for n in self.counts], initial=0)
        *self.firsts, blocks = ends
        [axis] = plan.axes
        axis.loops = [(axis.loops[0][0], SIZE)]
        axis.numel, axis.mask = SIZE, "xmask"
        return replace(plan, configs=[config], sizes={"x": blocks * block})

    def places(self) -> list[tuple[str, str]]:
        """(parameter, buffer) of every part, part by part."""
        memory = self.memory
        first = [memory.place(name) for name in self.parts[0][1]]
        return [
            (f"{pointer}_{k}", memory.place(names[first.index(name)]))
            for k, (_, names) in enumerate(self.parts)
            for name, pointer in memory.pointers.items()
        ]

    def grid_lines(self) -> list[Line]:
        [axis], own = self.plan.axes, list(self.memory.pointers.values())
        names, firsts = ", ".join(own), ", ".join([f"{pointer}_0" for pointer in own])
        lines = [
            "block = tl.program_id(0)",
            f"first, size, {names} = {self.firsts[0]}, {self.counts[0]}, {firsts}",
        ]
        for k in range(1, len(self.parts)):
            chosen = {"first": f"{self.firsts[k]}", "size": f"{self.counts[k]}"}
            chosen |= {pointer: f"{pointer}_{k}" for pointer in own}
            lines += [
                f"here = block >= {self.firsts[k]}",
                "; ".join(f"{p} = tl.where(here, {v}, {p})" for p, v in chosen.items()),
            ]
        return plain(lines, PARTS) + axis.lines("(block - first) * XBLOCK")

    def body(self) -> list[Code]:
        about = f"# {len(self.parts)} times the same, with other buffers; the first:"
        return [Line(about, is_comment=True, origin="a comment"), *super().body()]

    def kernel(self, code: Sequence[Code]) -> Kernel:
        kernel = of_all_parts(super().kernel(code), self.parts)
        return replace(kernel, reruns=len(kernel.stored) > 1)


TRITON.writers[Foreach] = TritonForeachWriter
