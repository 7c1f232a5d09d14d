"""The functions that sizes and indices are made of, where sympy's own would be wrong or too eager.

In:   sympy expressions over integer symbols (sizes, loop variables).
Out:  expressions with `FloorDiv`, `Mod` and the opaque float functions, simplified at construction
      by what holds for all integers.

    >>> i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    >>> FloorDiv(8 * i + j, 8), Mod(8 * i + j, 8)
    (i + FloorDiv(j, 8), Mod(j, 8))
    >>> FloorDiv(FloorDiv(i, 3), 4), FloorDiv(4 * i, 8)
    (FloorDiv(i, 12), FloorDiv(i, 2))
    >>> FLOAT_FUNCTIONS["TrueDiv"](i, 2)        # float arithmetic is kept as it was written
    TrueDiv(i, 2)

Both packages use this file: a size that minidynamo captured is the expression that kernels index
with.  `ranges.py` adds what follows from the ranges of loop variables, `facts.py` what follows from
guards.  Mirrors torch/utils/_sympy/functions.py (paper section 5).
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import sympy

Size = int | sympy.Expr  # of a tensor: a number, or an expression over symbols
INFINITY = sympy.oo
ZERO = sympy.Integer(0)


def as_number(expr: sympy.Expr) -> int | float:
    return int(expr) if expr.is_Integer else float(expr)


# --- division -------------------------------------------------------------------------------------
def exact(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    """a / b where that is a polynomial with integer coefficients: s0*s1 / s0; else None."""
    quotient = sympy.cancel(a / b)
    if sympy.denom(quotient) != 1:
        return None
    terms = sympy.Add.make_args(sympy.expand(quotient))
    return quotient if all(term.is_integer for term in terms) else None


def split_multiples(expression: sympy.Expr, divisor: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """(quotient, rest) with expression = quotient * divisor + rest, term by term.

    A term goes into the quotient if the divisor divides it: 8*i + j by 8 gives (i, j)."""
    if divisor.is_Add and expression.has(*divisor.free_symbols):
        return _divide_by_sum(expression, divisor)
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
    if divisor.is_Add:
        return None
    quotient = term / divisor
    # (s + t) * u / (2 * u) is s/2 + t/2: each part must be whole
    parts = sympy.Add.make_args(quotient)
    whole = all(p.as_coeff_Mul()[0].is_Integer and sympy.denom(p) == 1 for p in parts)
    return quotient if whole else None


def _divide_by_sum(expression: sympy.Expr, divisor: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """The same for a divisor that is a sum, as polynomials: x*(s + 1) + y = x * (s + 1) + y."""
    quotient = exact(expression, divisor)
    if quotient is not None:
        return quotient, ZERO
    try:
        quotient, rest = sympy.div(expression, divisor, *divisor.free_symbols)
    except sympy.PolynomialError:
        return ZERO, expression
    numbers = quotient.atoms(sympy.Number) | rest.atoms(sympy.Number)
    return (quotient, rest) if all(n.is_Integer for n in numbers) else (ZERO, expression)


def common_factor(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """The largest positive product of a number and symbols that divides all terms of both.

    s0*s1 // (8*s0) is s1 // 8: the common factor is s0."""
    terms = [*sympy.Add.make_args(a), *sympy.Add.make_args(b)]
    coefficients = [term.as_coeff_Mul()[0] for term in terms]
    number = 1
    if all(c.is_Integer for c in coefficients):
        number = sympy.igcd(*coefficients)
    common = sympy.Integer(number or 1)
    for symbol in b.free_symbols & a.free_symbols:
        power = min(term.as_powers_dict()[symbol] for term in terms)
        if symbol.is_positive and power > 0:
            common *= symbol**power
    return common


class FloorDiv(sympy.Function):
    """a // b, rounding down; b > 0."""

    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        if b == 1 or a == 0:
            return a
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) // int(b))
        if isinstance(a, FloorDiv):
            return FloorDiv(a.args[0], a.args[1] * b)
        quotient, rest = split_multiples(a, b)
        if quotient != 0:
            return quotient + FloorDiv(rest, b)
        common = common_factor(a, b)
        if common != 1:
            return FloorDiv(sympy.expand(a / common), sympy.expand(b / common))
        return None

    def _eval_is_nonnegative(self) -> bool | None:
        return self.args[0].is_nonnegative


class Mod(sympy.Function):
    """a % b with the sign of b; b > 0."""

    nargs = (2,)
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
        common = common_factor(a, b)
        if common != 1:
            inner = Mod(sympy.expand(a / common), sympy.expand(b / common))
            return sympy.expand(common * inner)
        return None


# --- float arithmetic, and what sympy cannot write ------------------------------------------------
def _kept_as_written(name: str, code: str, result: type, compute: Callable) -> type:
    """A function that is computed on numbers and otherwise kept: floats must round as Python's."""

    def evaluate(cls: type, *args: sympy.Expr) -> sympy.Expr | None:
        if not all(a.is_number for a in args):
            return None
        value = compute(*[as_number(a) for a in args])
        return sympy.Integer(value) if result is int else sympy.Float(value)

    fields: dict[str, Any] = {
        "eval": classmethod(evaluate),
        "is_integer": True if result is int else None,
        "is_real": True,
        "code": code,  # how Python writes it
        "compute": staticmethod(compute),
        "result": result,
        "__module__": __name__,
    }
    return type(name, (sympy.Function,), fields)


MATH = (
    "sqrt exp log log2 log10 sin cos tan sinh cosh tanh asin acos atan"  # of the math module
).split()
_TABLE = (
    ("TrueDiv", "({} / {})", float, operator.truediv),
    ("ToFloat", "float({})", float, float),
    ("FloatAdd", "({} + {})", float, operator.add),
    ("FloatSub", "({} - {})", float, operator.sub),
    ("FloatMul", "({} * {})", float, operator.mul),
    ("FloatPow", "({} ** {})", float, operator.pow),
    ("FloatFloorDiv", "({} // {})", float, operator.floordiv),
    ("FloatMod", "({} % {})", float, operator.mod),
    ("FloatMin", "min({}, {})", float, min),
    ("FloatMax", "max({}, {})", float, max),
    ("FloatNeg", "(-{})", float, operator.neg),
    ("FloatAbs", "abs({})", float, abs),
    ("Floor", "math.floor({})", int, math.floor),
    ("Ceil", "math.ceil({})", int, math.ceil),
    ("Trunc", "math.trunc({})", int, math.trunc),
    ("Round", "round({})", int, round),
    ("RoundTo", "round({}, {})", float, round),
    ("BitAnd", "({} & {})", int, operator.and_),
    ("BitOr", "({} | {})", int, operator.or_),
    ("BitXor", "({} ^ {})", int, operator.xor),
    *((f"Math_{name}", f"math.{name}({{}})", float, getattr(math, name)) for name in MATH),
)
FLOAT_FUNCTIONS: dict[str, Any] = {row[0]: _kept_as_written(*row) for row in _TABLE}
globals().update(FLOAT_FUNCTIONS)  # pickle looks for them here: compiled graphs are kept on disk
NEVER_BELOW_0 = tuple(  # those that are not negative where no argument is
    FLOAT_FUNCTIONS[name]
    for name in (
        *("ToFloat", "TrueDiv", "FloatAdd", "FloatMul", "FloatFloorDiv", "FloatMin", "FloatMax"),
        *("Math_sqrt", "Floor", "Ceil", "Trunc", "Round"),
    )
)
ATOMS = (FloorDiv, Mod, sympy.Max, sympy.Min, sympy.Abs, *FLOAT_FUNCTIONS.values())
