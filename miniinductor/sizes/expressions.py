"""The functions that sizes and indices are made of, where sympy's own would be wrong or too eager.

In:   sympy expressions over integer symbols (sizes, loop variables).
Out:  expressions with `FloorDiv` and `Mod`, simplified at construction by what holds for all
      integers; and functions of floats, which sympy keeps as they were written, for floats must
      round as Python's.

    >>> i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    >>> FloorDiv(8 * i + j, 8), Mod(8 * i + j, 8)
    (i + FloorDiv(j, 8), Mod(j, 8))
    >>> FloorDiv(FloorDiv(i, 3), 4), FloorDiv(4 * i, 8)
    (FloorDiv(i, 12), FloorDiv(i, 2))
    >>> ToFloat(i), ToFloat(2)
    (ToFloat(i), 2.00000000000000)

Both packages use this file: a size that minidynamo captured is the expression that kernels index
with.  `ranges.py` adds what follows from the ranges of loop variables, `prover.py` what follows
from guards.  Mirrors torch/utils/_sympy/functions.py (paper section 5).
"""

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import sympy
import torch
from sympy.printing.precedence import PRECEDENCE

Size: TypeAlias = int | sympy.Expr  # of a tensor: a number, or an expression over symbols
INFINITY = sympy.oo
ZERO = sympy.Integer(0)


class Position(sympy.Symbol):
    """A place that a kernel reads from memory or computes.  Nobody knows its sign; loop variables
    and sizes are never negative."""

    class_key = sympy.Symbol.class_key  # sums and products are sorted as if it were any symbol


def is_indirect(index: sympy.Expr) -> bool:
    """Does it depend on a place that is read or computed?"""
    return any(isinstance(symbol, Position) for symbol in index.free_symbols)


def as_number(expr: sympy.Expr) -> int | float:
    return int(expr) if expr.is_Integer else float(expr)


def flatten(index: Iterable[Size], sizes: Iterable[Size]) -> sympy.Expr:
    """The place of the element at `index` among all elements of a tensor of these sizes."""
    linear = ZERO
    for i, n in zip(index, sizes):
        linear = linear * n + i
    return sympy.expand(linear)


# --- division -------------------------------------------------------------------------------------
def exact(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    """a / b where that is a polynomial with integer coefficients: s0*s1 / s0; else None."""
    quotient, rest = split_multiples(a, b)
    return quotient if rest == 0 else None


def split_multiples(expression: sympy.Expr, divisor: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """(quotient, rest) with expression = quotient * divisor + rest, term by term.

    A term goes into the quotient if the divisor divides it: 8*i + j by 8 gives (i, j)."""
    quotient, rest = [], []
    for term in sympy.Add.make_args(expression):
        part = _divide_term(term, divisor)
        if part is None:
            rest.append(term)
        else:
            quotient.append(part)
    return sympy.Add(*quotient), sympy.Add(*rest)


def _divide_term(term: sympy.Expr, divisor: sympy.Expr) -> sympy.Expr | None:
    """term / divisor where that is a whole number for all values, else None."""
    quotient = term / divisor
    # (s + t) * u / (2 * u) is s/2 + t/2: each part must be whole
    parts = sympy.Add.make_args(quotient)
    whole = all(p.as_coeff_Mul()[0].is_Integer and sympy.denom(p) == 1 for p in parts)
    return quotient if whole else None


def shortened(function: Any, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    """FloorDiv(a, b) or Mod(a, b) without the factors that both sides share: s0*s1 // (8*s0) is
    s1 // 8.  None if there are none."""
    terms = [*sympy.Add.make_args(a), *sympy.Add.make_args(b)]
    coefficients = [term.as_coeff_Mul()[0] for term in terms]
    common = sympy.Integer(1)
    if all(c.is_Integer for c in coefficients):
        common = sympy.Integer(sympy.igcd(*coefficients) or 1)
    for symbol in b.free_symbols & a.free_symbols:
        power = min(term.as_powers_dict()[symbol] for term in terms)
        if symbol.is_positive and power > 0:
            common *= symbol**power
    if common == 1:
        return None
    inner = function(sympy.expand(a / common), sympy.expand(b / common))
    return sympy.expand(common * inner) if function is Mod else inner


class FloorDiv(sympy.Function):
    """a // b, rounding down; b > 0."""

    nargs = (2,)
    precedence = PRECEDENCE["Mul"]  # in texts
    is_integer = True

    @classmethod
    def eval(cls, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        if b == 1 or a == 0:
            return a
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) // int(b))
        if isinstance(a, FloorDiv):  # (x // 3) // 4 is x // 12
            return FloorDiv(a.args[0], a.args[1] * b)
        quotient, rest = split_multiples(a, b)
        if quotient != 0:  # (8*i + j) // 8 is i + j // 8
            return quotient + FloorDiv(rest, b)
        return shortened(cls, a, b)

    def _eval_is_nonnegative(self) -> bool | None:
        return self.args[0].is_nonnegative


class Mod(sympy.Function):
    """a % b with the sign of b; b > 0."""

    nargs = (2,)
    precedence = PRECEDENCE["Mul"]  # in texts
    is_integer = True
    is_nonnegative = True

    @classmethod
    def eval(cls, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        if b == 1 or a == 0:
            return ZERO
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) % int(b))
        if isinstance(a, Mod) and exact(a.args[1], b) is not None:  # (x % 12) % 4 is x % 4
            return Mod(a.args[0], b)
        quotient, rest = split_multiples(a, b)
        if quotient != 0:
            return Mod(rest, b)
        return shortened(cls, a, b)


# what arithmetic of polynomials takes as a whole
ATOMS = (sympy.Function, sympy.Max, sympy.Min)


# --- numbers in floating point: n ** -0.5, n / 3 --------------------------------------------------
class Opaque(sympy.Function):
    """A function that is computed on numbers and otherwise kept."""

    is_real = True
    methods: list[str]  # of minidynamo's SymNode, whose results it stands for
    compute: Callable  # the function on numbers
    in_graph: Callable  # the function on torch's symbolic numbers, which a node of a graph calls
    texts: dict[str, str]  # "python", "c" or "triton" -> how the call is written there

    @classmethod
    def eval(cls, *args: sympy.Expr) -> sympy.Expr | None:
        if not all(a.is_number for a in args):
            return None
        return sympy.Float(cls.compute(*map(as_number, args)))


# name -> (methods of SymNode, what computes it, the same in a graph: Python's own (math.sqrt) would
# make a plain number of a symbolic one; how it is written in Python, in C and in Triton)
TABLE: dict[str, tuple] = {
    "ToFloat": (
        *("sym_float", float, torch.sym_float),
        *("float({})", "(double)({})", "tl.cast({}, tl.float64)"),
    ),
    "FloatAdd": ("add", operator.add, operator.add, *["({} + {})"] * 3),
    "FloatSub": ("sub", operator.sub, operator.sub, *["({} - {})"] * 3),
    "FloatMul": ("mul", operator.mul, operator.mul, *["({} * {})"] * 3),
    "FloatNeg": ("neg", operator.neg, operator.neg, *["(-{})"] * 3),
    "TrueDiv": (
        *("truediv int_truediv float_truediv", operator.truediv, operator.truediv, "({} / {})"),
        *("((double)({})/(double)({}))", "(tl.cast({}, tl.float64)/tl.cast({}, tl.float64))"),
    ),
    "FloatPow": (
        *("pow float_pow", operator.pow, operator.pow, "({} ** {})"),
        *("__builtin_pow({}, {})", "tl.exp2(tl.log2({})*{})"),
    ),
    "Sqrt": (
        *("sym_sqrt", math.sqrt, torch.sym_sqrt),
        *("math.sqrt({})", "__builtin_sqrt({})", "tl.sqrt({})"),
    ),
}


def made(name: str, methods: str, compute: Callable, in_graph: Callable, *texts: str) -> Any:
    fields: dict[str, Any] = {
        "methods": methods.split(),
        "compute": staticmethod(compute),
        "in_graph": staticmethod(in_graph),
        "texts": dict(zip(("python", "c", "triton"), texts)),
        "__module__": __name__,  # pickle finds it here
    }
    return type(name, (Opaque,), fields)


FUNCTIONS = {name: made(name, *row) for name, row in TABLE.items()}
globals().update(FUNCTIONS)
ToFloat = FUNCTIONS["ToFloat"]
