"""Chapter 11: kernels in C++.

The threads share the rows of a kernel.  For each row the kernel walks over the columns, once or
several times.  Loops that can share one walk over the columns are one *pass*.  Inside a pass a
value that was just computed stays in a register.

After `#pragma omp simd` the compiler handles several columns at once, with vector instructions.
It keeps several partial sums of a row, and adds them at the end of the row.  For this the pragma
names the variable, and the operation that joins two parts.
"""

from __future__ import annotations

from typing import Any

import torch

from .fusion import Kernel
from .loops import Apply, Buffer, Expression, Load, Loop, loads
from .sizes import Size
from .sizes import text_of as python_text

TYPES = {torch.float32: "float", torch.int64: "int64_t", torch.bool: "bool"}
# the first value of a reduction; its name in `reduction(...)`, of which LARGEST declares one
START = {"sum": "0.0f", "amax": "-mini::inf"}
JOIN = {"sum": "+", "amax": "largest"}
LARGEST = """\
    #pragma omp declare reduction(largest : float : omp_out = mini::maximum(omp_out, omp_in)) \\
        initializer(omp_priv = -mini::inf)
"""
SYMBOLS = {"add": "+", "sum": "+", "sub": "-", "mul": "*", "div": "/", "eq": "=="}
FORMS = {op: f"({{}} {symbol} {{}})" for op, symbol in SYMBOLS.items()} | {"neg": "(-{})"}
CPP = {op: f"mini::{op}({{}})" for op in ("exp", "log", "tanh", "sqrt")}
CPP |= dict.fromkeys(("maximum", "amax"), "mini::maximum({}, {})") | {"where": "({} ? {} : {})"}


def offset(load: Load) -> str:
    """The offset of an element in its contiguous buffer, by Horner's rule."""
    text = "0"
    for size, position in zip(load.buffer.shape, load.index, strict=True):
        text = f"({text} * {python_text(size)} + {position})" if text != "0" else position
    return text


def text_of(size: int) -> str:
    """A size in C++, where `//` would begin a comment.  Sizes are not negative."""
    return python_text(size).replace("//", "/")


Pass = list[Loop]  # those that run in one walk over the columns


def takes(walk: Pass, loop: Loop) -> bool:
    """May the loop join this walk?  It must have the same number of columns.  If it reads a buffer
    of the walk, it must read the element just computed, and not a reduction's result."""
    if text_of(loop.columns) != text_of(walk[0].columns):
        return False
    made = {other.buffer: other for other in walk}
    read = [load for load in loads(loop.value) if load.buffer in made]
    return all(made[at.buffer].result == at and not made[at.buffer].reduction for at in read)


def passes(kernel: Kernel) -> list[Pass]:
    """The loops of a kernel in as few walks as their order allows."""
    found: list[Pass] = []
    for loop in kernel.loops:
        if found and takes(found[-1], loop):
            found[-1].append(loop)
        else:
            found.append([loop])
    return found


def stored_buffers(kernel: Kernel, read_elsewhere: set[Buffer]) -> set[Buffer]:
    """The buffers of a kernel that must be in memory: another kernel reads them, or another pass
    of this one.  (A later pass finds the result of a reduction in a register.)"""
    result = {buffer for buffer in kernel.writes if buffer in read_elsewhere}
    reduced = {loop.buffer for loop in kernel.loops if loop.reduction}
    for walk in passes(kernel):
        here = {loop.buffer for loop in walk}
        for loop in walk:
            result |= {load.buffer for load in loads(loop.value)} - here - reduced
    return result & {*kernel.writes}


class Writer:
    """The source of one kernel.  stored: the buffers that it writes to memory.  forms: the C++ text
    of each operation."""

    forms = FORMS | CPP

    def __init__(self, kernel: Kernel, stored: set[Buffer], symbols: list[str]) -> None:
        self.kernel = kernel
        self.stored = stored
        self.symbols = symbols
        self.registers: dict[Load, str] = {}  # what a pass has computed for its column
        self.row_values: dict[Load, str] = {}  # results of reductions of this row
        inputs = [buffer for buffer in kernel.reads if buffer not in kernel.writes]
        self.buffers = [*inputs, *(b for b in kernel.writes if b in stored)]

    def source(self) -> str:
        """The whole function; NAME is in the place of its name."""
        lines = ['extern "C" int NAME(void** args) {', LARGEST]
        for number, buffer in enumerate(self.buffers):
            kind = TYPES[buffer.dtype]
            lines.append(f"    auto {buffer.name} = ({kind}* __restrict__)args[{number}];")
        for number, name in enumerate(self.symbols, len(self.buffers)):
            lines.append(f"    auto {name} = (int64_t)args[{number}];")
        lines += self.row_loops()
        return "\n".join([*lines, "    return 0;", "}", ""])

    def row_loops(self) -> list[str]:
        """One loop for each dimension of the rows (i0, i1, ...), and one pragma before all of them.
        Inside, in braces, the lines of each pass (`walk`)."""
        rows = self.kernel.rows
        lines = [f"    #pragma omp parallel for collapse({len(rows)})"] if rows else []
        for number, size in enumerate(rows):
            i = f"i{number}"
            lines.append(f"    for (int64_t {i} = 0; {i} < {text_of(size)}; {i}++)")
        lines.append("    {")
        for walk in passes(self.kernel):
            lines += self.walk(walk)
        return [*lines, "    }"]

    def walk(self, walk: Pass) -> list[str]:
        """One pass.  Clear `registers` first.  Then write, in this order:
        a float `row_NAME` for each reduction, which begins with its `START`;
        `#pragma omp simd`, with `reduction(JOIN:row_NAME)` for each reduction;
        the loop over the columns (c), with the `step` of each loop (v0, v1, ...);
        the `end` of each reduction."""
        self.registers.clear()
        sums = [loop for loop in walk if loop.reduction]
        lines = [f"        float row_{s.buffer.name} = {START[s.reduction]};" for s in sums]
        joins = "".join(f" reduction({JOIN[s.reduction]}:row_{s.buffer.name})" for s in sums)
        lines.append(f"        #pragma omp simd{joins}")
        lines.append(f"        for (int64_t c = 0; c < {text_of(walk[0].columns)}; c++) {{")
        for number, loop in enumerate(walk):
            lines += self.step(loop, f"v{number}")
        return [*lines, "        }", *(line for loop in sums for line in self.end(loop))]

    def end(self, loop: Loop) -> list[str]:
        """After the loop over the columns `row_NAME` has the result.  Remember this name in
        `row_values`, under the Load that reads it.  If the buffer is stored, write the result to
        its place."""
        row = f"row_{loop.buffer.name}"
        self.row_values[loop.result] = row
        if loop.buffer not in self.stored:
            return []
        return [f"        {self.place(loop.result)} = {row};"]

    def step(self, loop: Loop, name: str) -> list[str]:
        """One column of a loop.  Compute its value into a variable `name` of the buffer's type.  A
        reduction joins the value to `row_NAME`, by its form.  For another loop remember `name` in
        `registers`, under the Load that reads it, and write the value to its place if the buffer is
        stored."""
        lines = [f"            {TYPES[loop.buffer.dtype]} {name} = {self.text(loop.value)};"]
        if loop.reduction:
            row = f"row_{loop.buffer.name}"
            lines.append(f"            {row} = {self.forms[loop.reduction].format(row, name)};")
            return lines
        self.registers[loop.result] = name
        if loop.buffer in self.stored:
            lines.append(f"            {self.place(loop.result)} = {name};")
        return lines

    def text(self, value: Expression | Any) -> str:
        """The C++ text of an expression.  A Load becomes the variable that has its value
        (`registers`, `row_values`), or its `place`.  An operation becomes its form, filled in.
        `number` writes a number."""
        if isinstance(value, Load):
            known = self.registers.get(value) or self.row_values.get(value)
            return known or self.place(value)
        if isinstance(value, Apply):
            return self.forms[value.op].format(*map(self.text, value.args))
        return self.number(value)

    def place(self, load: Load) -> str:
        """An element in memory."""
        return f"{load.buffer.name}[{offset(load).replace('//', '/')}]"

    def number(self, value: float) -> str:
        """A constant, or a Size, as a float."""
        if isinstance(value, Size):
            return f"(float){text_of(value)}"
        special = {"inf": "mini::inf", "-inf": "(-mini::inf)", "nan": "mini::nan"}
        return special.get(str(float(value)), f"{float(value)!r}f")
