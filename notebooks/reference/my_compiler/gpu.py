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

from .cpp import FORMS as CPP_FORMS
from .cpp import offset
from .fusion import Kernel
from .graph import Refused
from .loops import Apply, Expression, Load, Loop
from .sizes import Size, product, text_of

FORMS = CPP_FORMS | {
    "exp": "tl.exp({})",
    "log": "tl.log({})",
    "tanh": "tanh({})",
    "sqrt": "tl.sqrt_rn({})",
    "maximum": "larger({}, {})",
    "where": "tl.where({}, {}, {})",
}
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
    small = x - x * x * x / 3.0
    large = tl.where(x < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e)
    return tl.where(tl.abs(x) < 0.01, small, large)

@triton.jit
"""


class TritonWriter:
    """The source of one kernel.  Everything that it makes is stored."""

    def __init__(self, kernel: Kernel, symbols: list[str]) -> None:
        self.kernel = kernel
        self.symbols = symbols
        self.made: dict[Load, str] = {}
        inputs = [buffer for buffer in kernel.reads if buffer not in kernel.writes]
        self.buffers = [*inputs, *kernel.writes]

    @property
    def programs(self) -> int:
        """How many rows there are: each is one program."""
        return product(self.kernel.rows)

    def source(self) -> str:
        """`HEAD`, and a function `kernel` of the buffers, the symbols and BLOCK: first the place
        of its row (i0, i1, ...), then the lines of each loop."""
        names = ", ".join([*(buffer.name for buffer in self.buffers), *self.symbols])
        lines = [f"def kernel({names}, BLOCK: tl.constexpr):", "    row = tl.program_id(0)"]
        rest = "row"
        for place in reversed(range(len(self.kernel.rows))):
            size = text_of(self.kernel.rows[place])
            lines.append(f"    i{place} = {rest} % {size}")
            rest = f"({rest} // {size})"
        for place, loop in enumerate(self.kernel.loops):
            lines += self.loop(loop, f"v{place}")
        return HEAD + "\n".join([*lines, ""])

    def loop(self, loop: Loop, name: str) -> list[str]:
        """The lines that compute one loop's value, called `name`, and store it.  `made` remembers
        the name, by the Load that reads it."""
        lines = [
            "    c = tl.arange(0, BLOCK)",
            f"    inside = c < {text_of(loop.columns)}",
            f"    {name} = {self.text(loop.value)}",
        ]
        if loop.reduction:
            lines.append(f"    {name} = {REDUCTIONS[loop.reduction].format(name)}")
        place = offset(loop.buffer, loop.store_index)
        mask = "" if loop.reduction else ", mask=inside"
        lines.append(f"    tl.store({loop.buffer.name} + {place}, {name}{mask})")
        self.made[loop.result] = name
        return lines

    def text(self, value: Expression | Any) -> str:
        """An expression in Triton.  A Load is the variable that has it (`made`), or what `load`
        says; a number is `float("...")`, which can be infinite, too."""
        if isinstance(value, Apply):
            return FORMS[value.op].format(*map(self.text, value.args))
        if isinstance(value, Load):
            return self.made.get(value) or self.load(value)
        if isinstance(value, str):
            return value
        return text_of(value) if isinstance(value, Size) else f'float("{float(value)}")'

    def load(self, load: Load) -> str:
        """A `tl.load` of the element, with mask and `other=0` if the index goes over the columns.
        Refused: another element of what this very kernel makes, which it has not in a variable."""
        if load.buffer.root in self.kernel.writes:
            raise Refused("another element of the row than the one that was just computed")
        mask = ", mask=inside, other=0" if "c" in load.index else ""
        return f"tl.load({load.buffer.root.name} + {offset(load.buffer, load.index)}{mask})"

    def build(self) -> Callable[..., None]:
        """The kernel as a function of tensors and sizes."""
        source = self.source()
        name = f"<triton {id(self)}>"  # Triton reads its functions' sources again
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        variables: dict[str, Any] = {}
        exec(compile(source, name, "exec"), variables)
        longest = max(int(loop.columns) for loop in self.kernel.loops)
        block = 1 << (longest - 1).bit_length()

        def launch(*arguments: torch.Tensor | int) -> None:
            variables["kernel"][(int(self.programs),)](*arguments, BLOCK=block)

        return launch
