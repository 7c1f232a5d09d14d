"""Tile ops in, Triton expressions out: types, constants, and one rule per op or family of ops.

In:   `Value`s (a name in the generated code, its dtype, the axes it varies along).  Out: `Value`s;
      what has to be computed
is named through `self.temporary`.

    >>> writer.add(Value("tmp0", torch.float32, {"x"}), Value("1.5", torch.float32))        # tmp1 = tmp0 + 1.5
    Value(text='tmp1', dtype=torch.float32, inner=frozenset({'x'}))

Where C++ has a prelude, Triton has `tl.*` and CUDA's libdevice; what neither has stands in HELPERS,
and a kernel that needs one carries its text.  bfloat16 and float16 are float32 while they are
computed with; a conversion to them rounds.

Mirrors TritonOverrides in torch/_inductor/codegen/triton.py.
"""

import math
from collections.abc import Callable

import sympy
import torch

from ..ops import BINARY, COMPARISON, UNARY, OpsHandler
from ..sizes.symbols import Size
from ..codegen.common import Value

NARROW = (torch.bfloat16, torch.float16)
INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "bitwise_left_shift": "<<",
    "bitwise_right_shift": ">>",
    "truncdiv": "//",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
TESTS = {"logical_not": "{0} == 0", "isnan": "{0} != {0}", "isinf": 'tl.abs({0}) == float("inf")'}
LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
IN_TRITON = ("exp2", "log", "log2", "sin", "cos", "rsqrt", "erf", "abs", "floor", "ceil")
LIBDEVICE = {
    "round": "rint",
    **{
        name: name
        for name in (  # tl.exp is 15 ulp off at 88; libdevice's costs two more FMAs
            "exp",
            "expm1",
            "log10",
            "log1p",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "erfc",
            "erfinv",
            "lgamma",
            "trunc",
            "pow",
            "atan2",
            "copysign",
            "nextafter",
            "hypot",
            "fmod",
        )
    },
}

# Functions that a kernel carries when it uses them; names that occur in a text are carried too.
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
    "reciprocal": """
def reciprocal(x):                      # the bits of tl.div_rn(1, x) for all 2**32 floats, in fewer instructions
    return tl.inline_asm_elementwise("rcp.rn.f32 $0, $1;", "=r,r", [x], tl.float32, True, 1)""",
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
    return tl.where((top == low) & (tl.abs(top) == float("inf")), top, top + libdevice.log1p(libdevice.exp(low - top)))""",
    "integer_floordiv": """
def integer_floordiv(a, b):             # `//` and `%` of integers truncate in Triton
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)""",
    "integer_remainder": """
def integer_remainder(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)""",
    "integer_maximum": """
def integer_maximum(a, b):
    return tl.maximum(a, b)""",
    "integer_minimum": """
def integer_minimum(a, b):
    return tl.minimum(a, b)""",
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
    small = tl.where(base == 1, result, tl.where(minus_one, tl.where(exponent % 2 == 0, result, -result), result * 0))
    for _ in tl.static_range(6):
        result = tl.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return tl.where(negative, small, result)""",
}


def triton_type(dtype: torch.dtype) -> str:
    return "tl.int1" if dtype is torch.bool else "tl." + str(dtype).removeprefix("torch.")


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in NARROW else dtype


def literal(value: object, dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return str(bool(value))
    if not dtype.is_floating_point:  # wraps, as a Python number does in torch
        bits = 8 * dtype.itemsize
        value = int(value) % (1 << bits)
        return str(value - (1 << bits) if dtype.is_signed and value >> bits - 1 else value)
    value = float(value)
    if dtype is not torch.float64:
        value = torch.tensor(value, dtype=torch.float32).item()
    return repr(value) if math.isfinite(value) else f'float("{value}")'


class TritonExpressions(OpsHandler):
    """The ops without memory and reductions; `TritonKernelWriter` adds those."""

    # -- values ------------------------------------------------------------------------------------
    def solid(self, value: Value) -> Value:
        """A literal as a Triton scalar of its own dtype: Python numbers have none."""
        if not self.is_literal(value):
            return value
        text = f"tl.full([], {value}, {triton_type(compute_dtype(value.dtype))})"
        return self.temporary(text, value.dtype, frozenset())

    def is_literal(self, value: Value) -> bool:
        return value.text in self.literals

    def literal_value(self, text: str, dtype: torch.dtype) -> Value:
        self.literals.add(text)
        return Value(text, dtype, frozenset())

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Value:
        text = literal(value, dtype)
        result = self.literal_value(text, dtype)
        return (
            self.solid(result) if dtype is torch.float64 else result
        )  # a Python number may be rounded to float32

    def index_expr(self, expr: Size, dtype: torch.dtype) -> Value:
        expr = sympy.sympify(expr)
        if expr.is_Integer:
            return self.constant(int(expr), dtype)
        axes = self.axes_of(expr)
        text = self.index(expr)
        text = f"({text})" if not text.isidentifier() else text
        return self.temporary(f"{text}.to({triton_type(compute_dtype(dtype))})", dtype, axes)

    def indirect_indexing(self, value: Value, size: Size, wrap_neg: bool = True) -> sympy.Expr:
        index, size = self.solid(value), self.index(sympy.sympify(size))
        if wrap_neg:
            index = self.temporary(
                f"tl.where({index} < 0, {index} + {size}, {index})", value.dtype, index.inner
            )
        mask = self.mask_text(index.inner)
        inside = f"(0 <= {index}) & ({index} < {size})"
        self.asserts = True
        # eager's kernels end the process' CUDA context in the same way
        self.scope.add(
            f'tl.device_assert({inside}{f" | ~({mask})" if mask else ""}, "index out of range in self")'
        )
        symbol = sympy.Symbol(index.text, integer=True)
        self.symbol_axes[symbol] = index.inner
        return symbol

    # -- conversions -------------------------------------------------------------------------------
    def to_dtype(self, x: Value, dtype: torch.dtype, src_dtype: torch.dtype | None = None) -> Value:
        source = x.dtype
        if dtype == source:
            return x
        if self.is_literal(x):
            number = eval(x.text, {"float": float})
            if not dtype.is_floating_point and not (
                isinstance(number, float) and not math.isfinite(number)
            ):
                return self.constant(bool(number) if dtype is torch.bool else int(number), dtype)
            if dtype.is_floating_point:
                return self.constant(torch.tensor(number, dtype=dtype).item(), dtype)
            x = self.solid(x)
        if dtype in NARROW:
            wide = self.to_dtype(x, torch.float32) if source not in NARROW else x
            narrow = self.temporary(f"{wide}.to({triton_type(dtype)})", dtype, x.inner)
            value = self.temporary(f"{narrow}.to(tl.float32)", dtype, x.inner)
            self.raw[value.text, dtype] = narrow.text
            return value
        if compute_dtype(source) == dtype:
            return Value(x.text, dtype, x.inner)
        if dtype is torch.bool:
            return self.temporary(f"{x} != 0", dtype, x.inner)
        text = x.text
        if (
            source.is_floating_point and dtype.itemsize < 4
        ):  # through int: a negative one wraps, as in C
            text = f"{text}.to(tl.int32)"
        return self.temporary(f"{text}.to({triton_type(dtype)})", dtype, x.inner)

    # -- control -----------------------------------------------------------------------------------
    def alike(self, a: Value, b: Value) -> tuple[Value, Value]:
        """At most one of two operands is a bare literal; Python numbers take the other's dtype."""
        if not isinstance(a, Value):
            a = self.constant(a, b.dtype)
        if not isinstance(b, Value):
            b = self.constant(b, a.dtype)
        return (self.solid(a) if self.is_literal(b) else a), b

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        a, b = self.alike(a, b)
        condition = self.solid(condition)
        return self.temporary(
            f"tl.where({condition}, {a}, {b})", a.dtype, condition.inner | a.inner | b.inner
        )

    def masked(self, mask: Value, body: Callable[[], Value], other: object) -> Value:
        before, mask = self.mask, self.solid(mask)
        self.mask = mask if before is None else self.binary("bitwise_and", before, mask)
        value = body()
        self.mask = before
        return self.where(mask, value, self.constant(other, value.dtype))

    # -- random numbers: Triton's own counter-based generator (Philox) -----------------------------
    def rand(self, seed: Value, offset: Value) -> Value:
        bits = self.temporary(
            f"tl.randint({seed}, {self.solid(offset)}.to(tl.int32)).to(tl.uint32)",
            torch.uint32,
            seed.inner | offset.inner,
        )
        return self.temporary(
            f"({bits} >> 8).to(tl.float32) * 5.9604644775390625e-08", torch.float32, bits.inner
        )  # as the C++ prelude

    # -- families ----------------------------------------------------------------------------------
    def unary(self, op: str, x: Value) -> Value:
        x = self.solid(x)
        if op == "neg":
            # Triton's unary minus is 0 - x, which loses the sign of zero
            return self.temporary(
                f"{x} * -1.0" if x.dtype.is_floating_point else f"-{x}", x.dtype, x.inner
            )
        if op in TESTS:
            return self.temporary(TESTS[op].format(x), torch.bool, x.inner)
        if op == "bitwise_not":
            return self.temporary(f"~{x}", x.dtype, x.inner)
        if op == "signbit":
            bits = "tl.int64" if x.dtype is torch.float64 else "tl.int32"
            return self.temporary(
                f"{x}.to({bits}, bitcast=True) < 0" if x.dtype.is_floating_point else f"{x} < 0",
                torch.bool,
                x.inner,
            )
        if op == "sign":
            kind = triton_type(compute_dtype(x.dtype))
            return self.temporary(f"({x} > 0).to({kind}) - ({x} < 0).to({kind})", x.dtype, x.inner)
        if op == "reciprocal":
            return self.truediv(self.constant(1.0, x.dtype), x)
        if op == "sigmoid":
            return self.reciprocal(self.add(self.constant(1.0, x.dtype), self.exp(self.neg(x))))
        if op == "sqrt":
            return self.temporary(
                f"tl.{'sqrt' if x.dtype is torch.float64 else 'sqrt_rn'}({x})", x.dtype, x.inner
            )
        if op in IN_TRITON:
            return self.temporary(f"tl.{op}({x})", x.dtype, x.inner)
        return self.temporary(f"libdevice.{LIBDEVICE[op]}({x})", x.dtype, x.inner)

    def truediv(self, a: Value, b: Value) -> Value:
        a, b = self.alike(a, b)
        if a.dtype is torch.float64:
            text = f"{a} / {b}"
        else:
            text = (
                f"reciprocal({b})"
                if a.text == "1.0"
                else f"tl.div_rn({self.solid(a)}, {self.solid(b)})"
            )
        return self.temporary(text, a.dtype, a.inner | b.inner)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        a, b = self.alike(a, b)
        axes, is_float = a.inner | b.inner, a.dtype.is_floating_point
        same = None if is_float else unchanged(op, a, b)
        if same is not None:
            return same
        if op in LOGICAL:
            a, b = (v if v.dtype is torch.bool else self.to_dtype(v, torch.bool) for v in (a, b))
            return self.temporary(f"{a} {LOGICAL[op]} {b}", torch.bool, axes)
        if op in INFIX and not (op == "truncdiv" and is_float):
            if op in COMPARISON and a.dtype is torch.bool:
                a, b = (
                    self.temporary(f"{self.solid(v)}.to(tl.int32)", torch.int32, v.inner)
                    for v in (a, b)
                )
            dtype = torch.bool if op in COMPARISON else a.dtype
            return self.temporary(f"{a} {INFIX[op]} {b}", dtype, axes)
        if op in ("maximum", "minimum"):
            return self.temporary(extremum(op, a, b), a.dtype, axes)
        return self.temporary(self.call_text(op, self.solid(a), self.solid(b)), a.dtype, axes)

    def call_text(self, op: str, a: Value, b: Value) -> str:
        """An operation that is a function of a library, or of the helpers."""
        is_float = a.dtype.is_floating_point
        if op == "fmod" and not is_float:
            return f"{a} % {b}"
        if op == "truncdiv":
            return f"libdevice.trunc({self.truediv(a, b)})"
        if op in ("floordiv", "remainder") or op == "pow" and not is_float:
            return f"{'float' if is_float else 'integer'}_{op}({a}, {b})"
        return f"libdevice.{LIBDEVICE[op]}({a}, {b})"


def unchanged(op: str, a: Value, b: Value) -> Value | None:
    """The operand that an integer operation gives back: x + 0, x - 0, x * 1; or None."""
    neutral = {"add": "0", "sub": "0", "mul": "1"}.get(op)
    if neutral is None:
        return None
    if b.text == neutral:
        return a
    return b if a.text == neutral and op != "sub" else None


def extremum(op: str, a: Value, b: Value) -> str:
    """NaN wins."""
    if a.dtype is torch.bool:
        return f"{a} {'|' if op == 'maximum' else '&'} {b}"
    nan = ", propagate_nan=tl.PropagateNan.ALL" if a.dtype.is_floating_point else ""
    return f"tl.{op}({a}, {b}{nan})"


def _install(names, family):
    for name in names:
        if name not in vars(TritonExpressions):
            setattr(
                TritonExpressions,
                name,
                lambda self, *args, _name=name: getattr(self, family)(_name, *args),
            )


_install(UNARY, "unary")
_install(BINARY + COMPARISON, "binary")
