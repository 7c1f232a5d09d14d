"""Chapter 12: the same kernels in Triton.

A Triton program is written for a whole block of elements at once: here for one row.  What were
passes over the columns are lines that work on a vector of all columns; a reduction makes one
number of it.  The vector is as long as the next power of two, and a mask keeps out what lies
beyond the last column.

Without a GPU the kernels run in Triton's interpreter (TRITON_INTERPRET=1), which is slow and exact.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import torch

from .cpp import FORMS, Writer, offset
from .fusion import Kernel
from .graph import Refused
from .loops import Load, Loop
from .sizes import Size, product, text_of

REDUCTIONS = {
    "sum": "tl.sum(tl.where(inside, {}, 0.0), 0)",
    "amax": 'tl.reduce(tl.where(inside, {}, float("-inf")), 0, larger)',
}
HEAD = """\
import triton
import triton.language as tl

@triton.jit
def larger(a, b):       # a NaN on either side wins
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)

@triton.jit
def tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    large = tl.where(x < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e)
    return tl.where(tl.abs(x) < 0.01, x - x * x * x / 3.0, large)

@triton.jit
"""


class TritonWriter(Writer):
    """The source of one kernel, with other forms and places than C++ has.  Everything that it makes
    is stored, and a variable stays one: there are no passes that it could be lost between."""

    forms = FORMS | {"exp": "tl.exp({})", "log": "tl.log({})", "tanh": "tanh({})"}
    forms |= {
        "sqrt": "tl.sqrt_rn({})",
        "maximum": "larger({}, {})",
        "where": "tl.where({}, {}, {})",
    }

    def __init__(self, kernel: Kernel, symbols: list[str]) -> None:
        super().__init__(kernel, {*kernel.writes}, symbols)

    def source(self) -> str:
        """`HEAD`, and a function `kernel` of the buffers, the symbols and BLOCK: first the place
        of its row (i0, i1, ...), then the lines of each loop (`step`; v0, v1, ...)."""
        names = ", ".join([*(buffer.name for buffer in self.buffers), *self.symbols])
        lines = [f"def kernel({names}, BLOCK: tl.constexpr):", "    row = tl.program_id(0)"]
        rest = "row"
        for place in reversed(range(len(self.kernel.rows))):
            size = text_of(self.kernel.rows[place])
            lines.append(f"    i{place} = {rest} % {size}")
            rest = f"({rest} // {size})"
        for place, loop in enumerate(self.kernel.loops):
            lines += self.step(loop, f"v{place}")
        return HEAD + "\n".join([*lines, ""])

    def step(self, loop: Loop, name: str) -> list[str]:
        """The lines that compute one loop's value, called `name`, and store it: c and its mask, the
        value, what `REDUCTIONS` makes of it.  `registers` remembers it, by the Load that reads it.
        Only a store of columns has a mask."""
        lines = [
            "    c = tl.arange(0, BLOCK)",
            f"    inside = c < {text_of(loop.columns)}",
            f"    {name} = {self.text(loop.value)}",
        ]
        if loop.reduction:
            lines.append(f"    {name} = {REDUCTIONS[loop.reduction].format(name)}")
        mask = "" if loop.reduction else ", mask=inside"
        lines.append(f"    tl.store({loop.buffer.name} + {offset(loop.result)}, {name}{mask})")
        self.registers[loop.result] = name
        return lines

    def place(self, load: Load) -> str:
        """A `tl.load` of the element, with mask and `other=0` if the index goes over the columns.
        Refused: another element of what this very kernel makes, which it has not in a variable."""
        if load.buffer in self.kernel.writes:
            raise Refused("another element of the row than the one that was just computed")
        mask = ", mask=inside, other=0" if "c" in load.index else ""
        return f"tl.load({load.buffer.name} + {offset(load)}{mask})"

    def number(self, value: float) -> str:
        """`float("...")`, which can be infinite, too; of a Size its text."""
        return text_of(value) if isinstance(value, Size) else f'float("{float(value)}")'

    def build(self) -> Callable[..., None]:
        """The kernel as a function of tensors and sizes.  Its rows are programs; its BLOCK is the
        power of two that all columns fit in."""
        source = self.source()
        name = f"<triton {id(self)}>"  # Triton reads its functions' sources again
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        variables: dict[str, Any] = {}
        exec(compile(source, name, "exec"), variables)
        longest = max(int(loop.columns) for loop in self.kernel.loops)
        block = 1 << (longest - 1).bit_length()
        grid = (int(product(self.kernel.rows)),)

        def launch(*arguments: torch.Tensor | int) -> None:
            variables["kernel"][grid](*arguments, BLOCK=block)

        return launch
