"""Chapter 11: kernels in C++.

A kernel goes through its rows, shared among the threads, and for each row through the columns as
often as it needs to: loops that can run in one walk over the columns are one *pass*.  Inside a
pass a value that was just computed stays in a register.

Sixteen columns are worked on at once ("lanes"), so that the compiler can use vector instructions;
a sum has sixteen partial sums, which are added up at the end of the row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from .fusion import Kernel
from .loops import Apply, Buffer, Expression, Load, Loop, loads
from .sizes import Size
from .sizes import text_of as python_text

TYPES = {torch.float32: "float", torch.int64: "int64_t", torch.bool: "bool"}
START = {"sum": "0.0f", "amax": "-mini::inf"}
FORMS = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "div": "({} / {})",
    "neg": "(-{})",
    "exp": "mini::exp({})",
    "log": "mini::log({})",
    "tanh": "mini::tanh({})",
    "sqrt": "mini::sqrt({})",
    "maximum": "mini::maximum({}, {})",
    "amax": "mini::maximum({}, {})",
    "sum": "({} + {})",
    "eq": "({} == {})",
    "where": "({} ? {} : {})",
    "index": "{}",
    "is_index": "({} == {} ? 1.0f : 0.0f)",
}
DRIVER = """\
#ifndef COLUMNS
#define COLUMNS
template <class Step> static inline __attribute__((always_inline))
void columns(int64_t count, Step step) {      // step(column, lane) for every column
    int64_t c = 0;
    for (; c + 16 <= count; c += 16) {
        #pragma omp simd
        for (int lane = 0; lane < 16; lane++) step(c + lane, lane);
    }
    for (; c < count; c++) step(c, 0);
}
#endif
"""


def text_of(size: int) -> str:
    """A size in C++, where `//` would begin a comment.  Sizes are not negative."""
    return python_text(size).replace("//", "/")


@dataclass
class Pass:
    """Loops that run in one walk over the columns."""

    columns: int
    loops: list[Loop] = field(default_factory=list)

    def takes(self, loop: Loop) -> bool:
        """May it run here?  What it reads of this pass must be the element just computed."""
        if text_of(loop.columns) != text_of(self.columns):
            return False
        made = {other.buffer: other for other in self.loops}
        return all(
            load.buffer not in made
            or not made[load.buffer].reduction
            and load == made[load.buffer].result
            for load in loads(loop.value)
        )


def passes(kernel: Kernel) -> list[Pass]:
    """The loops of a kernel in as few walks as their order allows."""
    found: list[Pass] = []
    for loop in kernel.loops:
        if not found or not found[-1].takes(loop):
            found.append(Pass(loop.columns))
        found[-1].loops.append(loop)
    return found


def stored_buffers(kernel: Kernel, read_elsewhere: set[Buffer]) -> set[Buffer]:
    """Of what a kernel makes, what has to lie in memory: it is read by others, or in another pass
    than the one that makes it.  (The result of a reduction stays in a register for the row.)"""
    result = {buffer for buffer in kernel.writes if buffer in read_elsewhere}
    reduced = {loop.buffer for loop in kernel.loops if loop.reduction}
    for walk in passes(kernel):
        here = {loop.buffer for loop in walk.loops}
        for loop in walk.loops:
            result |= {load.buffer.root for load in loads(loop.value)} - here - reduced
    return result & {*kernel.writes}


class Writer:
    """The source of one kernel.  stored: its buffers that are written to memory."""

    def __init__(self, kernel: Kernel, stored: set[Buffer], symbols: list[str]) -> None:
        self.kernel = kernel
        self.stored = stored
        self.symbols = symbols
        self.registers: dict[Load, str] = {}  # what a pass has computed for its column
        self.row_values: dict[Load, str] = {}  # results of reductions of this row
        made = {*kernel.writes}
        inputs = [buffer for buffer in kernel.reads if buffer not in made]
        self.buffers = [*inputs, *(b for b in kernel.writes if b in stored)]

    def source(self) -> str:
        """The whole function; NAME stands where its name goes."""
        lines = [DRIVER, 'extern "C" int NAME(void** args) {']
        for number, buffer in enumerate(self.buffers):
            kind = TYPES[buffer.dtype]
            lines.append(f"    auto {buffer.name} = ({kind}* __restrict__)args[{number}];")
        for number, name in enumerate(self.symbols, len(self.buffers)):
            lines.append(f"    auto {name} = (int64_t)args[{number}];")
        lines += self.row_loops()
        return "\n".join([*lines, "    return 0;", "}", ""])

    def row_loops(self) -> list[str]:
        """The loops over the rows, one for each of their dimensions (i0, i1, ...), with one
        pragma in front for all of them; inside, in braces, the lines of each pass (`walk`)."""
        rows = self.kernel.rows
        lines = []
        if rows:
            lines.append(f"    #pragma omp parallel for collapse({len(rows)})")
        for number, size in enumerate(rows):
            head = f"for (int64_t i{number} = 0; i{number} < {text_of(size)}; i{number}++)"
            lines.append(f"    {head}")
        lines.append("    {")
        for walk in passes(self.kernel):
            lines += self.walk(walk)
        return [*lines, "    }"]

    def walk(self, walk: Pass) -> list[str]:
        """One pass: what its reductions start with, the columns, what the reductions end with."""
        self.registers.clear()
        sums = [loop for loop in walk.loops if loop.reduction]
        lines = [line for loop in sums for line in self.start(loop)]
        lines.append(f"        columns({text_of(walk.columns)}, [&](int64_t c, int lane) {{")
        for number, loop in enumerate(walk.loops):
            lines += self.step(loop, f"v{number}")
        lines.append("        });")
        return [*lines, *(line for loop in sums for line in self.end(loop))]

    def start(self, loop: Loop) -> list[str]:
        """Before the columns: an array `lanes_NAME` of 16 floats, each as `START` says."""
        name = f"lanes_{loop.buffer.name}"
        return [
            f"        float {name}[16]; for (float& lane : {name}) lane = {START[loop.reduction]};"
        ]

    def end(self, loop: Loop) -> list[str]:
        """Behind the columns: the 16 partial results `lanes_NAME` become one, in the variable
        `row_NAME`.  It is remembered in `row_values`, by the Load that reads it, and written to
        its place if the buffer is stored."""
        name = f"lanes_{loop.buffer.name}"
        row = f"row_{loop.buffer.name}"
        joined = FORMS[loop.reduction].format(row, f"{name}[lane]")
        self.row_values[loop.result] = row
        lines = [
            f"        float {row} = {name}[0];",
            f"        for (int lane = 1; lane < 16; lane++) {row} = {joined};",
        ]
        if loop.buffer in self.stored:
            lines.append(f"        {self.place(loop.buffer, loop.store_index)} = {row};")
        return lines

    def step(self, loop: Loop, name: str) -> list[str]:
        """What one column of a loop does: its value goes into a variable `name` of the buffer's
        type.  A reduction joins it to `lanes_NAME[lane]`.  Otherwise it is remembered in
        `registers`, by the Load that reads it, and written to its place if the buffer is stored."""
        kind = TYPES[loop.buffer.dtype]
        lines = [f"            {kind} {name} = {self.text(loop.value)};"]
        if loop.reduction:
            lane = f"lanes_{loop.buffer.name}[lane]"
            lines.append(f"            {lane} = {FORMS[loop.reduction].format(lane, name)};")
            return lines
        self.registers[loop.result] = name
        if loop.buffer in self.stored:
            lines.append(f"            {self.place(loop.buffer, loop.store_index)} = {name};")
        return lines

    def text(self, value: Expression | Any) -> str:
        """An expression in C++.  A Load is the variable that has it (`registers`, `row_values`), or
        its place; an operation is its form, filled in; an index is a text already; a Size is
        made a float; and for a number there is `number`."""
        if isinstance(value, Load):
            known = self.registers.get(value) or self.row_values.get(value)
            return known or self.place(value.buffer, value.index)
        if isinstance(value, Apply):
            return FORMS[value.op].format(*map(self.text, value.args))
        if isinstance(value, (str, Size)):
            return value if isinstance(value, str) else f"(float){text_of(value)}"
        return number(value)

    def place(self, buffer: Buffer, index: tuple[str, ...]) -> str:
        """An element in memory: the offset by Horner's rule, since buffers are contiguous."""
        offset = "0"
        for size, position in zip(buffer.shape, index, strict=True):
            offset = f"({offset} * {text_of(size)} + {position})" if offset != "0" else position
        return f"{buffer.root.name}[{offset}]"


def number(value: float) -> str:
    """A constant as a float."""
    value = float(value)
    if value != value:
        return "mini::nan"
    if value in (float("inf"), float("-inf")):
        return "mini::inf" if value > 0 else "(-mini::inf)"
    return f"{value!r}f"
