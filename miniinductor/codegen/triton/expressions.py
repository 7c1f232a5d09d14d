"""Tile ops in, Triton expressions out: types, constants, and one rule per op or family of ops.

In:   `Tile`s (a name in the generated code, its dtype, the axes along which it varies).  Out:
      `Tile`s; `self.make` names each computed value and writes its line.

    >>> x = Tile("tmp0", torch.float32, frozenset("x"))
    >>> writer.add(x, Tile("1.5", torch.float32, is_literal=True))        # tmp1 = tmp0 + 1.5
    Tile(text='tmp1', dtype=torch.float32, axes=frozenset({'x'}), is_literal=False)

Where C++ has a prelude, Triton has `tl.*` and CUDA's libdevice; what neither has stands in
kernel_text.py, and a kernel that needs one carries its text.  bfloat16 and float16 are float32
while they are computed with; a conversion to them rounds.

Mirrors TritonOverrides in torch/_inductor/codegen/triton.py.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import sympy
import torch

from ...devices import FLOAT8
from ...ir.ops import COMPARISON, NARROW, OpsHandler, compute_dtype
from ...sizes.expressions import Position, index_text
from ...sizes.symbols import Size
from ..kernels import INFIX as INFIX_OF_ALL
from ..kernels import LOGICAL, wrapped
from .kernel_text import HELPERS, NO_AXES, Axes, Line, Tile, TileScope
from .tile_plan import TilePlan

DIVISIONS = ("truncdiv", "fmod")
INFIX = INFIX_OF_ALL | {
    "bitwise_left_shift": "<<",
    "bitwise_right_shift": ">>",
    "truncdiv": "//",
    "fmod": "%",
}
TESTS = {"logical_not": "{0} == 0", "isnan": "{0} != {0}", "isinf": 'tl.abs({0}) == float("inf")'}
IN_TRITON = ("exp2", "log", "log2", "sin", "cos", "rsqrt", "erf", "abs", "floor", "ceil")
# The others are CUDA's libdevice's: exp, too, since tl.exp is 15 ulp off at 88; libdevice's costs
# two more FMAs.  A kernel whose results all have 16 bits takes these short forms instead: 15 ulp of
# float32 are 0.0002 of bfloat16's ulp, 0.002 of float16's.
COARSE = {"exp": "tl.exp({})", "sqrt": "tl.sqrt({})"}
# eager's CUDA kernels multiply by the reciprocal of a number that is known beforehand, too
RECIPROCALS = (1e-30, 1e30)


@functools.cache
def templates(dtype: torch.dtype) -> dict[str, str]:
    """The ops of one operand that are no call of libdevice."""
    kind = triton_type(compute_dtype(dtype))
    return {op: f"tl.{op}({{}})" for op in IN_TRITON} | {
        # Triton's unary minus is 0 - x, which loses the sign of zero
        "neg": "{} * -1.0" if dtype.is_floating_point else "-{}",
        "bitwise_not": "~{}",
        "sign": f"({{0}} > 0).to({kind}) - ({{0}} < 0).to({kind})",
        "sqrt": "tl.sqrt({})" if dtype is torch.float64 else "tl.sqrt_rn({})",
    }


def triton_type(dtype: torch.dtype) -> str:
    return "tl.int1" if dtype is torch.bool else "tl." + str(dtype).removeprefix("torch.")


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return str(bool(value))
    if not dtype.is_floating_point:  # wraps, as a Python number does in torch
        return str(wrapped(value, dtype))
    number = float(value)
    if dtype is not torch.float64:
        number = torch.tensor(number, dtype=torch.float32).item()
    return repr(number) if math.isfinite(number) else f'float("{number}")'


class TritonExpressions(OpsHandler):
    """The ops without memory and reductions; `TritonKernelWriter` adds those."""

    plan: TilePlan

    def __init__(self) -> None:
        self.outside = TileScope()  # what does not change along r
        self.scope = self.outside
        self.mask: Tile | None = None  # of the `masked` blocks around
        # a loaded value -> the mask outside of which it is 0
        self.zero_outside: dict[str, str] = {}
        self.symbols: set[sympy.Symbol] = set()  # sizes that the lines name
        self.symbol_axes: dict[sympy.Symbol, Axes] = {}  # indices that were read from memory
        self.asserts = False  # does the kernel check indices?
        self.is_coarse = False  # do 16 bits hold all results?

    # -- values ------------------------------------------------------------------------------------
    def make(self, template: str, dtype: torch.dtype, *operands: Tile) -> Tile:
        """The value of an expression of these operands; it varies as they do."""
        axes = NO_AXES.union(*[operand.axes for operand in operands])
        return self.named(template.format(*operands), dtype, axes)

    def named(self, expression: str, dtype: torch.dtype, axes: Axes) -> Tile:
        """Name a value where it is known: what does not change along r, before the loop over r."""
        scope = self.scope if "r" in axes else self.outside
        return Tile(scope.name(expression), dtype, axes)

    def solid(self, value: Tile) -> Tile:
        """A literal as a Triton scalar of its own dtype: Python numbers have none."""
        if not value.is_literal:
            return value
        kind = triton_type(compute_dtype(value.dtype))
        return self.named(f"tl.full([], {value}, {kind})", value.dtype, NO_AXES)

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Tile:
        result = Tile(literal(value, dtype), dtype, is_literal=True)
        # a Python number may be rounded to float32
        return self.solid(result) if dtype is torch.float64 else result

    def spread(self, value: Tile) -> str:
        """The value as a tile along all axes, as text."""
        if value.axes == self.plan.all_axes:
            return str(value)
        return f"tl.broadcast_to({value}, {self.plan.shape()})"

    # -- indices and masks -------------------------------------------------------------------------
    def index(self, expr: sympy.Expr) -> tuple[str, Axes]:
        """An index as text, and the axes along which it changes; sizes in it become arguments."""
        axes = NO_AXES
        for symbol in expr.free_symbols:
            if symbol in self.symbol_axes:
                axes |= self.symbol_axes[symbol]
            elif symbol in self.plan.axis_of:
                axes |= {self.plan.axis_of[symbol]}
            else:
                self.symbols.add(symbol)
        for axis in self.plan.axes:
            expr = axis.over_flat(expr)
        return index_text(expr, "triton"), axes

    def mask_text(self, axes: Axes) -> str:
        """Which elements along these axes exist; "" for all."""
        masks = [axis.mask for axis in self.plan.axes if axis.mask and axis.name in axes]
        if self.mask is not None:
            masks.append(self.mask.text)
        return " & ".join(masks)

    def index_expr(self, expr: Size, dtype: torch.dtype) -> Tile:
        expr = sympy.sympify(expr)
        if expr.is_Integer:
            return self.constant(int(expr), dtype)
        text, axes = self.index(expr)
        return self.named(f"({text}).to({triton_type(compute_dtype(dtype))})", dtype, axes)

    def indirect_indexing(
        self, value: Tile, size: Size | None, wrap_neg: bool = True
    ) -> sympy.Expr:
        index = self.solid(value)
        if size is not None:
            end, _ = self.index(sympy.sympify(size))
            if wrap_neg:
                index = self.make(f"tl.where({{0}} < 0, {{0}} + {end}, {{0}})", value.dtype, index)
            mask = self.mask_text(index.axes)
            unless = f" | ~({mask})" if mask else ""
            inside = f"(0 <= {index}) & ({index} < {end})"
            self.asserts = True
            # eager's kernels end the process' CUDA context in the same way
            text = f'tl.device_assert({inside}{unless}, "index out of range in self")'
            self.scope.code.append(Line(text))
        symbol = Position(index.text, integer=True)
        self.symbol_axes[symbol] = index.axes
        return symbol

    # -- conversions -------------------------------------------------------------------------------
    def to_dtype(self, x: Tile, dtype: torch.dtype, src_dtype: torch.dtype | None = None) -> Tile:
        source = x.dtype
        if dtype == source:
            return x
        x = self.solid(x)
        if source in FLOAT8:  # a byte
            x = self.make(f"{triton_type(source)[3:]}_to_float({{}})", torch.float32, x)
            return self.to_dtype(x, dtype)
        if dtype in FLOAT8:
            wide = self.to_dtype(x, torch.float32)
            return self.make(f"to_{triton_type(dtype)[3:]}({{}})", dtype, wide)
        if dtype in NARROW:
            wide = x if x.dtype in NARROW else self.to_dtype(x, torch.float32)
            return self.make(f"{{}}.to({triton_type(dtype)}).to(tl.float32)", dtype, wide)
        if compute_dtype(source) == dtype:
            return replace(x, dtype=dtype)
        if dtype is torch.bool:
            return self.make("{} != 0", dtype, x)
        if source.is_floating_point and dtype.itemsize < 4:
            # through int: a negative one wraps, as in C
            return self.make(f"{{}}.to(tl.int32).to({triton_type(dtype)})", dtype, x)
        return self.make(f"{{}}.to({triton_type(dtype)})", dtype, x)

    # -- control -----------------------------------------------------------------------------------
    def alike(self, a: Tile, b: Tile) -> tuple[Tile, Tile]:
        """Two operands of which at most one is a bare literal: one of them has a dtype."""
        return (self.solid(a) if b.is_literal else a), b

    def where(self, condition: Tile, a: Tile, b: Tile) -> Tile:
        a, b = self.alike(a, b)
        return self.make("tl.where({}, {}, {})", a.dtype, self.solid(condition), a, b)

    def masked(self, mask: Tile, body: Callable[[], Tile], other: bool | int | float) -> Tile:
        before, mask = self.mask, self.solid(mask)
        self.mask = mask if before is None else self.binary("bitwise_and", before, mask)
        value = body()
        is_zero = not other and self.zero_outside.get(value.text) == self.mask.text
        self.mask = before
        return value if is_zero else self.where(mask, value, self.constant(other, value.dtype))

    # -- random numbers: Triton's own counter-based generator (Philox) -----------------------------
    def rand(self, seed: Tile, offset: Tile) -> Tile:
        bits = self.make(
            "tl.randint({}, {}.to(tl.int32)).to(tl.uint32)", torch.uint32, seed, self.solid(offset)
        )
        # as the C++ prelude
        return self.make("({} >> 8).to(tl.float32) * 5.9604644775390625e-08", torch.float32, bits)

    # -- families ----------------------------------------------------------------------------------
    def unary(self, op: str, x: Tile) -> Tile:
        x = self.solid(x)
        if op in TESTS:
            return self.make(TESTS[op], torch.bool, x)
        template = templates(x.dtype).get(op)
        if self.is_coarse and x.dtype is not torch.float64:
            template = COARSE.get(op, template)
        if template is None:
            return self.called(f"libdevice.{'rint' if op == 'round' else op}", x)
        return self.make(template, x.dtype, x)

    def signbit(self, x: Tile) -> Tile:
        x = self.solid(x)
        if not x.dtype.is_floating_point:
            return self.make("{} < 0", torch.bool, x)
        bits = "tl.int64" if x.dtype is torch.float64 else "tl.int32"
        return self.make(f"{{}}.to({bits}, bitcast=True) < 0", torch.bool, x)

    def reciprocal(self, x: Tile) -> Tile:
        return self.truediv(self.constant(1.0, x.dtype), self.solid(x))

    def sigmoid(self, x: Tile) -> Tile:
        """1 / (1 + exp(-x))"""
        exp = self.unary("exp", self.unary("neg", x))
        return self.make("1 / (1 + {})", x.dtype, exp)

    def truediv(self, a: Tile, b: Tile) -> Tile:
        a, b = self.alike(a, b)
        if b.is_literal and RECIPROCALS[0] < abs(float(b.text)) < RECIPROCALS[1]:
            return self.binary("mul", a, self.constant(1.0 / float(b.text), a.dtype))
        a, b = self.solid(a), self.solid(b)
        is_exact = a.dtype is torch.float64 or self.is_coarse
        return self.make("{} / {}" if is_exact else "tl.div_rn({}, {})", a.dtype, a, b)

    def binary(self, op: str, a: Tile, b: Tile) -> Tile:
        a, b = self.alike(a, b)
        is_float = a.dtype.is_floating_point
        if op in LOGICAL:
            a, b = self.to_dtype(a, torch.bool), self.to_dtype(b, torch.bool)
            return self.make(f"{{}} {LOGICAL[op]} {{}}", torch.bool, a, b)
        if op in COMPARISON:
            if a.dtype is torch.bool:
                a, b = (self.to_dtype(self.solid(x), torch.int32) for x in (a, b))
            return self.make(f"{{}} {INFIX[op]} {{}}", torch.bool, a, b)
        if not is_float and op not in INFIX_OF_ALL:  # a bare literal would be an int32 there
            a, b = self.solid(a), self.solid(b)
        if op in INFIX and not (is_float and op in DIVISIONS):
            return self.make(f"{{}} {INFIX[op]} {{}}", a.dtype, a, b)
        if op in ("maximum", "minimum"):
            return self.make(extremum(op, a.dtype), a.dtype, a, b)
        if op == "truncdiv":
            return self.unary("trunc", self.truediv(a, b))
        helper = f"{'float' if is_float else 'integer'}_{op}"
        return self.called(helper if helper in HELPERS else f"libdevice.{op}", a, b)

    def called(self, function: str, *operands: Tile) -> Tile:
        """A call of one of CUDA's functions, or of a helper that the kernel then carries."""
        operands = tuple(map(self.solid, operands))
        places = ", ".join(["{}"] * len(operands))
        return self.make(f"{function}({places})", operands[0].dtype, *operands)


def extremum(op: str, dtype: torch.dtype) -> str:
    """The template of "maximum" or "minimum"; NaN wins."""
    if dtype is torch.bool:
        return "{} | {}" if op == "maximum" else "{} & {}"
    if dtype.is_floating_point:
        return f"tl.{op}({{}}, {{}}, propagate_nan=tl.PropagateNan.ALL)"
    return as_narrow(f"tl.{op}({{}}, {{}})", dtype)


def as_narrow(text: str, dtype: torch.dtype) -> str:
    """An expression converted back to integers of 8 or 16 bits: Triton's reductions and scans of
    them have 32 bits, and so have maxima in some versions."""
    narrow = not dtype.is_floating_point and dtype is not torch.bool and dtype.itemsize < 4
    return f"{text}.to({triton_type(dtype)})" if narrow else text
