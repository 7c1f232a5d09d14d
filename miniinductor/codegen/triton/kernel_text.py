r"""The text of a kernel: values with the axes along which they vary, lines, and the functions that
a kernel carries.

In:   expressions of values.  Out: lines, each value named once, and at the end a complete file.

    >>> scope = TileScope()
    >>> scope.name("in0 * 2"), scope.name("in0 * 2")  # once
    ('tmp0', 'tmp0')
    >>> scope.code
    [Line(text='tmp0 = in0 * 2')]
    >>> whole_file("@triton.jit\ndef NAME(in0): tl.reduce(in0, 0, larger)").splitlines()[4:6]
    ['@triton.jit', 'def larger(a, b):                       # a NaN wins, as in torch']

What Triton lacks stands in `HELPERS`: a kernel carries the text of those that it names.

Mirrors torch/_inductor/runtime/triton_helpers.py and the CSE of torch/_inductor/codegen/common.py.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from ...devices import e4m3_most
from ...ir.loops import Buffer, playing
from ...records import indent
from ..kernels import Scope, marked

Axes: TypeAlias = frozenset[str]
NO_AXES: Axes = frozenset()


@dataclass(frozen=True)
class Tile:
    """A value: a name in the kernel, or a literal."""

    text: str
    dtype: torch.dtype
    axes: Axes = NO_AXES  # along which it varies: "x", "r", ...
    is_literal: bool = False  # a Python number, which has no dtype

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Line:
    text: str
    # what it computes, as `marked` (codegen/kernels.py) takes it; else what is being played
    origin: Any = field(default_factory=lambda: playing.value, compare=False, repr=False)


@dataclass
class Loop:
    """A loop or a branch: a header and a body."""

    header: str
    body: "Sequence[Code]"


Code: TypeAlias = Line | Loop


def noted(line: str, comment: str) -> str:
    """A line with its comment in a column of comments."""
    return f"{line:66}  # {comment}" if comment else line


def noted_line(text: str, origin: Any = None) -> Line:
    """A line that says which FX node it computes."""
    node = playing.value.about[1] if playing.value else ""
    return Line(noted(text, node), origin=origin or playing.value)


def plain(texts: Iterable[str], origin: Any) -> list[Line]:
    """Lines of one origin that do not say which FX node they compute."""
    return [Line(text, origin=origin) for text in texts]


class TileScope(Scope):
    """The lines of one nesting level."""

    def __init__(self, parent: "TileScope | None" = None):
        super().__init__(parent)
        self.code: list[Code] = []

    def name(self, expression: str) -> str:
        """The name of a value; an expression is computed once."""
        name = self.lookup(expression)
        if name is None:
            name = self.known[expression] = self.fresh("tmp")
            self.makers[name] = [playing.value]
            self.code.append(noted_line(f"{name} = {expression}", self.makers[name]))
        return name


def texts(code: Iterable[Code]) -> list[str]:
    """The lines as text."""
    found: list[str] = []
    for piece in code:
        if isinstance(piece, Line):
            found.append(marked(piece.text, piece.origin))
        else:
            found.append(marked(piece.header, "a loop"))
            found += indent(texts(piece.body))
    return found


# --- functions that a kernel carries --------------------------------------------------------------
HELPERS = {
    "larger": """
def larger(a, b):                       # a NaN wins, as in torch
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)""",
    "smaller": """
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)""",
    "multiply": """
def multiply(a, b):
    return a * b""",
    "argument_of_larger": """
def argument_of_larger(a, i, b, j):     # the first of equals; a NaN is larger than everything
    a_wins = (a > b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = a_wins | (equal & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)""",
    "argument_of_smaller": """
def argument_of_smaller(a, i, b, j):
    a_wins = (a < b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = a_wins | (equal & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)""",
    "log_of_sum": """
def log_of_sum(a, b):                   # of exp(a) + exp(b)
    top, low = larger(a, b), smaller(a, b)
    both_infinite = (top == low) & (tl.abs(top) == float("inf"))
    return tl.where(both_infinite, top, top + libdevice.log1p(libdevice.exp(low - top)))""",
    "integer_floordiv": """
def integer_floordiv(a, b):             # `//` and `%` of integers truncate in Triton
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)""",
    "integer_remainder": """
def integer_remainder(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)""",
    "integer_maximum": """
def integer_maximum(a, b):              # Triton sees which elements have the same, as it would
    return tl.where(a > b, a, b)        # not of tl.maximum""",
    "integer_minimum": """
def integer_minimum(a, b):
    return tl.where(a < b, a, b)""",
    "float_remainder": """
def float_remainder(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)""",
    "float_floordiv": """
def float_floordiv(a, b):               # torch's: from the remainder, so that it is exact
    rest = libdevice.fmod(a, b)
    quotient = (a - rest) / b
    quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1, whole)
    whole = tl.where(quotient == 0, libdevice.copysign(quotient * 0, a / b), whole)
    return tl.where(b == 0, a / b, whole)""",
    "integer_pow": """
def integer_pow(base, exponent):
    result = base * 0 + 1
    negative = exponent < 0
    minus_one = base == base * 0 - 1  # Triton 3.9 refuses to compare an unsigned tensor with -1
    of_minus_one = tl.where(exponent % 2 == 0, result, -result)
    small = tl.where(base == 1, result, tl.where(minus_one, of_minus_one, result * 0))
    for _ in tl.static_range(64):
        result = tl.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return tl.where(negative, small, result)""",
    "float8_e4m3fn_to_float": """
def float8_e4m3fn_to_float(x):
    return x.to(tl.float8e4nv, bitcast=True).to(tl.float32)""",
    "float8_e5m2_to_float": """
def float8_e5m2_to_float(x):
    return x.to(tl.float8e5, bitcast=True).to(tl.float32)""",
    "sign_of_byte": """
def sign_of_byte(x):
    return (x.to(tl.int32, bitcast=True) >> 24 & 0x80).to(tl.uint8)""",
    "to_float8_e4m3fn": """
def to_float8_e4m3fn(x):                # the processor's conversion saturates, and NaN has no sign
    is_none = (tl.abs(x) > 464) & (E4M3_MOST == 480)
    code = tl.where(is_none, float("nan"), x).to(tl.float8e4nv)
    return code.to(tl.uint8, bitcast=True) | sign_of_byte(x)""",
    "to_float8_e5m2": """
def to_float8_e5m2(x):
    code = x.to(tl.float8e5).to(tl.uint8, bitcast=True)
    return tl.where(tl.abs(x) >= 61440, 0x7C, code) | sign_of_byte(x)""",
}


def with_wide_indices(source: str, blocks: Iterable[str]) -> str:
    """The kernel with indices of 64 bits.  blocks: the names of its block sizes."""
    indices = [f"tl.arange(0, {block})" for block in blocks]
    for index in ["tl.program_id(0)", *indices]:
        source = source.replace(index, f"{index}.to(tl.int64)")
    return source


def whole_file(text: str) -> str:
    """The kernel as a complete file: imports, and the helpers that it names."""
    for name in reversed(HELPERS):  # a helper stands behind those that it calls
        if re.search(rf"\b{name}\b", text):
            text = f"@triton.jit{HELPERS[name]}\n\n\n{text}"
    text = text.replace("E4M3_MOST", str(e4m3_most()))
    imports = "import triton\nimport triton.language as tl\n"
    if "libdevice." in text:
        imports += "from triton.language.extra import libdevice\n"
    return f"{imports}\n\n{text}"


@dataclass
class Memory:
    """The buffers of a kernel: what it takes, reads and stores."""

    buffers: Mapping[str, Buffer]
    keep: set[str]  # whose values must be in memory afterwards
    overwritten: Mapping[str, str]  # buffer -> the input that is written in place
    pointers: dict[str, str] = field(default_factory=dict)  # buffer -> the parameter's name
    stored: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def place(self, name: str) -> str:
        """The buffer whose memory holds it: an input that is written in place, or its own."""
        return self.overwritten.get(name, name)

    def dtype(self, name: str) -> torch.dtype:
        return self.buffers[name].layout.dtype

    def pointer(self, name: str, written: bool) -> str:
        """The parameter that points to it, named when it is first read or written."""
        name = self.place(name)
        if name not in self.pointers:
            kind = "out" if written else "in"
            if name in self.overwritten.values():
                kind = "inout"
            number = sum(p.startswith(kind) for p in self.pointers.values())
            self.pointers[name] = f"{kind}{number}"
        return self.pointers[name]
