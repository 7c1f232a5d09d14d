"""Several groups of the same body in, one Triton function out: each program finds out which part
its block belongs to.

    def foreach_adam_kernel(in0_0, out0_0, in0_1, out0_1, in0_2, out0_2, XBLOCK: tl.constexpr):
        block = tl.program_id(0)
        first, size, in0, out0 = 0, 65536, in0_0, out0_0
        first, size, in0, out0 = (..., 65536 // XBLOCK, 256, in0_1, out0_1)      where block >= 65536 // XBLOCK
        ...
        x0 = (block - first) * XBLOCK + tl.arange(0, XBLOCK)

The pointers are chosen by scalar selects: a few hundred, beside 1024 elements and more for each of
them. Mirrors torch/_inductor/codegen/triton_combo_kernel.py; the idea is torch's
multi_tensor_apply.
"""

import itertools
import math
from dataclasses import replace

import sympy

from ..foreach import Foreach
from ..codegen.common import Kernel
from .kernel_writer import TritonKernelWriter
from .block_sizes import foreach_config
from .launch import Launch
from .tile_plan import TilePlan, noted

SIZE = sympy.Symbol("size", integer=True, nonnegative=True)


class TritonForeachWriter(TritonKernelWriter):
    """Writes the body of the first part; the others differ in their pointers and number of
    elements."""

    def __init__(self, group: Foreach, *context: object):
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
        first = list(map(self.memory, self.parts[0][1]))
        return [
            (f"{pointer}_{k}", self.memory(names[first.index(name)]))
            for k, (_, names) in enumerate(self.parts)
            for name, pointer in self.pointers.items()
        ]

    def grid_lines(self) -> list[str]:
        [axis], own = self.plan.axes, list(self.pointers.values())
        lines = [
            "block = tl.program_id(0)",
            f"first, size, {', '.join(own)} = {self.firsts[0]}, {self.counts[0]}, {', '.join(f'{p}_0' for p in own)}",
        ]
        for k in range(1, len(self.parts)):
            chosen = {"first": self.firsts[k], "size": self.counts[k]} | {
                p: f"{p}_{k}" for p in own
            }
            lines += [
                f"here = block >= {self.firsts[k]}",
                "; ".join(f"{p} = tl.where(here, {v}, {p})" for p, v in chosen.items()),
            ]
        return lines + axis.lines("(block - first) * XBLOCK")

    def kernel(self, body: list[str], launch: Launch, blocks: list[str]) -> Kernel:
        places, first = self.places(), self.parts[0][1]
        launch = Launch(
            "foreach",
            self.plan.sizes,
            self.plan.configs,
            [self.buffers[n].layout.dtype for _, n in places],
            False,
            [self.reach(n) for _, n in places],
        )
        kernel = super().kernel(
            [
                noted(f"# {len(self.parts)} times the same, with other buffers; the first:", ""),
                *body,
            ],
            launch,
            blocks,
        )
        own = ", ".join(self.pointers.values())
        kernel.source = kernel.source.replace(
            f"NAME({own}", f"NAME({', '.join(p for p, _ in places)}", 1
        )
        kernel.summary, kernel.arguments = "foreach_" + kernel.summary, [n for _, n in places]
        kernel.stored, kernel.read = (
            [names[first.index(n)] for _, names in self.parts for n in some]
            for some in (self.stored, self.read)
        )
        kernel.reruns = len(kernel.stored) > 1
        return kernel
