"""The functions that sizes and indices are made of, and how they are written as text.

In:   sympy expressions over integer symbols (sizes, loop variables).
Out:  expressions with `FloorDiv` and `Mod` (sympy's own would be wrong or too eager), simplified at
      construction by what holds for all integers; functions of floats, which sympy keeps as they
      were written, for floats must round as Python's; text that computes an expression: Python for
      guards, messages and the wrapper; C and Triton for kernels.

    >>> i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    >>> FloorDiv(8 * i + j, 8), Mod(8 * i + j, 8)
    (i + FloorDiv(j, 8), Mod(j, 8))
    >>> FloorDiv(FloorDiv(i, 3), 4), FloorDiv(4 * i, 8)
    (FloorDiv(i, 12), FloorDiv(i, 2))
    >>> ToFloat(i), ToFloat(2)
    (ToFloat(i), 2.00000000000000)
    >>> python_code(2 * i + FloorDiv(j, 3), {i: "a.shape[0]"})
    '2*a.shape[0] + j // 3'
    >>> index_text(8 * i + FloorDiv(j, 3))
    '8*i + j/3'

Both packages use this file: a size that minidynamo captured is the expression that kernels index
with.  symbols.py adds what follows from the ranges of loop variables, prover.py what follows from
guards.  sympy's own printer writes sums, products and the parentheses around them.

Mirrors torch/utils/_sympy/functions.py and printers.py (paper section 5).
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

Size: TypeAlias = int | sympy.Expr  # of a tensor: a number, or an expression over symbols
INFINITY = sympy.oo
ZERO = sympy.Integer(0)


class Position(sympy.Symbol):
    """A place that a kernel reads from memory or computes.  Nobody knows its sign; loop variables
    and sizes are never negative."""

    class_key = sympy.Symbol.class_key  # sums and products are sorted as if it were any symbol


def is_indirect(index: sympy.Expr) -> bool:
    """Does the index depend on a position that is data?"""
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


class Division(sympy.Function):
    """A quotient or remainder of integers."""

    # in texts: a part of a product has parentheses, also of -2*(a//b)
    precedence = PRECEDENCE["Add"]
    is_integer = True


class FloorDiv(Division):
    """a // b, rounding down; b > 0."""

    @classmethod
    def eval(cls, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        if b == 1 or a == 0:
            return a
        if a.is_Integer and b.is_Integer:
            return a // b
        if isinstance(a, FloorDiv):  # (x // 3) // 4 is x // 12
            return FloorDiv(a.args[0], a.args[1] * b)
        quotient, rest = split_multiples(a, b)
        if quotient != 0:  # (8*i + j) // 8 is i + j // 8
            return quotient + FloorDiv(rest, b)
        return shortened(cls, a, b)

    def _eval_is_nonnegative(self) -> bool | None:
        return self.args[0].is_nonnegative


class Mod(Division):
    """a % b with the sign of b; b > 0."""

    is_nonnegative = True

    @classmethod
    def eval(cls, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        if b == 1 or a == 0:
            return ZERO
        if a.is_Integer and b.is_Integer:
            return a % b
        if isinstance(a, Mod) and split_multiples(a.args[1], b)[1] == 0:  # (x % 12) % 4 is x % 4
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
    texts: dict[str, str]  # "python", "c" or "triton" -> how the call is written there

    @classmethod
    def eval(cls, *args: sympy.Expr) -> sympy.Expr | None:
        if not all(a.is_number for a in args):
            return None
        return sympy.Float(cls.compute(*map(as_number, args)))


def alike(text: str) -> dict[str, str]:
    return dict.fromkeys(("python", "c", "triton"), text)


class ToFloat(Opaque):
    methods, compute = ["sym_float"], float
    texts = {"python": "float({})", "c": "(double)({})", "triton": "tl.cast({}, tl.float64)"}


class FloatAdd(Opaque):
    methods, compute = ["add"], operator.add
    texts = alike("({} + {})")


class FloatSub(Opaque):
    methods, compute = ["sub"], operator.sub
    texts = alike("({} - {})")


class FloatMul(Opaque):
    methods, compute = ["mul"], operator.mul
    texts = alike("({} * {})")


class FloatNeg(Opaque):
    methods, compute = ["neg"], operator.neg
    texts = alike("(-{})")


class TrueDiv(Opaque):
    methods = ["truediv", "int_truediv", "float_truediv"]
    compute = operator.truediv
    texts = {
        "python": "({} / {})",
        "c": "((double)({})/(double)({}))",
        "triton": "(tl.cast({}, tl.float64)/tl.cast({}, tl.float64))",
    }


class FloatPow(Opaque):
    methods, compute = ["pow", "float_pow"], operator.pow
    texts = {
        "python": "({} ** {})",
        "c": "__builtin_pow({}, {})",
        "triton": "tl.exp2(tl.log2({})*{})",
    }


class Sqrt(Opaque):
    methods, compute = ["sym_sqrt"], math.sqrt
    texts = {"python": "math.sqrt({})", "c": "__builtin_sqrt({})", "triton": "tl.sqrt({})"}


FUNCTIONS = Opaque.__subclasses__()


class Printer(StrPrinter):
    """What the languages share.  sympy calls the method that is named after an expression's class:
    `_print_Mod` for a remainder."""

    language: str
    divide = "//"  # rounds down

    def part(self, expr: sympy.Expr, strength: str = "Pow") -> str:
        """The text of a part, in parentheses where it binds no stronger than this operator."""
        return self.parenthesize(expr, PRECEDENCE[strength])

    def _print_Float(self, expr: sympy.Expr) -> str:
        return repr(float(expr))

    def _print_Function(self, expr: sympy.Expr) -> str:
        """What is computed in floating point (`Opaque`).  Other functions are not known."""
        spelling = getattr(expr, "texts", {}).get(self.language)
        if not spelling:
            raise NotImplementedError(f"no text for {expr}")
        return spelling.format(*map(self.part, expr.args))

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        return self.division(expr, self.divide, "floordiv")

    def _print_Mod(self, expr: sympy.Expr) -> str:
        return self.division(expr, "%", "remainder")

    def division(self, expr: sympy.Expr, operator: str, function: str) -> str:
        return self.quotient(expr, f" {operator} ")

    def quotient(self, expr: sympy.Expr, operator: str) -> str:
        left = self.parenthesize(expr.args[0], PRECEDENCE["Mul"], strict=True)
        return f"{left}{operator}{self.part(expr.args[1], 'Mul')}"


# --- Python ---------------------------------------------------------------------------------------
class PythonPrinter(Printer):
    """names: symbol -> how it is written; the other symbols have their own names."""

    language = "python"

    def __init__(self, names: Mapping[sympy.Symbol, str]) -> None:
        super().__init__()
        self.names = names

    def _print_Symbol(self, expr: sympy.Expr) -> str:
        return self.names.get(expr, expr.name)

    def _print_Relational(self, expr: sympy.Expr) -> str:
        return f"{self.doprint(expr.lhs)} {expr.rel_op} {self.doprint(expr.rhs)}"

    def _print_Not(self, expr: sympy.Expr) -> str:
        return f"(not ({self.doprint(expr.args[0])}))"

    def _print_call(self, expr: sympy.Expr) -> str:
        text, joined_by = CALLS[type(expr)]
        return text.format(joined_by.join(map(self.doprint, expr.args)))

    _print_Max = _print_Min = _print_Abs = _print_And = _print_Or = _print_call


CALLS = {  # class -> what stands around the arguments in Python, and between them
    sympy.Max: ("max({})", ", "),
    sympy.Min: ("min({})", ", "),
    sympy.Abs: ("abs({})", ", "),
    sympy.And: ("({})", " and "),
    sympy.Or: ("({})", " or "),
}


def python_code(expr: sympy.Expr, names: Mapping[sympy.Symbol, str] | None = None) -> str:
    """`expr` as Python, its symbols written as `names` says: "2*x.shape[0] + 1"."""
    return PythonPrinter(names or {}).doprint(sympy.sympify(expr))


# --- indices in kernels ---------------------------------------------------------------------------
class IndexPrinter(Printer):
    """C and Triton.

    divide: the operator for two sides that are known not to be negative; functions: how a function
    of integers is called, such as the one that rounds down where a side may be negative."""

    def __init__(self, language: str, divide: str, functions: str) -> None:
        super().__init__()
        self.language, self.divide, self.functions = language, divide, functions

    def _print_Integer(self, expr: sympy.Expr) -> str:
        is_long = self.language == "c" and abs(int(expr)) > 2**31 - 1
        return f"{int(expr)}{'LL' if is_long else ''}"

    def division(self, expr: sympy.Expr, operator: str, function: str) -> str:
        if all(map(never_negative, expr.args)):
            return self.quotient(expr, operator)
        return self.pairwise(function, expr.args)

    def _print_Pow(self, expr: sympy.Expr, rational: bool = False) -> str:
        return f"({'*'.join([self.part(expr.base)] * int(expr.exp))})"

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self.pairwise("maximum", expr.args)

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self.pairwise("minimum", expr.args)

    def _print_Abs(self, expr: sympy.Expr) -> str:
        return self.pairwise("maximum", (expr.args[0], -expr.args[0]))

    def pairwise(self, function: str, args: Sequence[sympy.Expr]) -> str:
        """Raises NotImplementedError for a fraction: these functions compute with integers."""
        for arg in args:
            if arg.has(sympy.Float) or arg.is_integer is False:
                raise NotImplementedError(f"no text for the {function} of the fraction {arg}")
        name = self.functions.format(function)
        return functools.reduce(lambda a, b: f"{name}({a}, {b})", map(self.doprint, args))


LANGUAGES = {
    "c": IndexPrinter("c", "/", "mini::{}<int64_t>"),
    "triton": IndexPrinter("triton", "//", "integer_{}"),
}


@functools.lru_cache(50_000)
def index_text(expr: sympy.Expr, language: str = "c") -> str:
    """A sympy index expression as text of a kernel.  NotImplementedError where there is none: in
    kernels a fraction would be divided as integers are."""
    expr = sympy.sympify(expr)
    for part in sympy.preorder_traversal(expr):
        is_root = part.is_Pow and part.exp not in range(1, 8)
        if is_root or part.is_Rational and not part.is_Integer:
            raise NotImplementedError(f"no text for {part} in an index: {expr}")
    return LANGUAGES[language].doprint(expr)


# of parts that are not negative they are not negative
CLOSED = (sympy.Add, sympy.Mul, sympy.Pow, FloorDiv, Mod, sympy.Max, sympy.Min)


def never_negative(expr: sympy.Expr) -> bool:
    """True only when sure: no negative coefficient, and only loop variables and sizes (not what is
    read, see `Position`)."""
    if expr.is_Integer or expr.is_Symbol:
        return bool(expr.is_nonnegative)
    if isinstance(expr, sympy.Max) and any(a.is_Integer and a >= 0 for a in expr.args):
        return True
    return isinstance(expr, CLOSED) and all(map(never_negative, expr.args))


# --- relations ------------------------------------------------------------------------------------
def is_of_integers(expr: sympy.Expr) -> bool:
    """Is the expression a relation of integers?"""
    return expr.is_Relational and expr.lhs.is_integer and expr.rhs.is_integer


def at_least(relation: sympy.Expr, gap: sympy.Expr) -> sympy.Expr:
    """The integer relation `gap` (>, >=, <, <=) 0 as an expression that is >= 0."""
    return {sympy.Gt: gap - 1, sympy.Ge: gap, sympy.Lt: -gap - 1, sympy.Le: -gap}[type(relation)]


def divisibility(gap: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr] | None:
    """(a, b) if gap == 0 says that b divides a: Mod(a, b), or b * (a // b) - a."""
    for sign in (gap, -gap):
        if isinstance(sign, Mod):
            return sign.args
        for quotient in sign.atoms(FloorDiv):
            a, b = quotient.args
            if sympy.expand(sign - b * quotient + a) == 0:
                return a, b
    return None


def reduced(gap: sympy.Expr) -> sympy.Expr:
    """`gap`, expanded, without the positive factors that all its terms share: 4*s0*s1 - 2*s0 is
    2*s1 - 1.  The result is zero, positive or negative where `gap` is."""
    gap = sympy.expand(gap).primitive()[1]
    for symbol in gap.free_symbols:
        while (
            symbol.is_positive
            and gap != 0
            and all(t.as_powers_dict()[symbol] >= 1 for t in sympy.Add.make_args(gap))
        ):
            gap = sympy.expand(gap / symbol)
    return gap


def settled(expr: sympy.Expr, is_nonnegative: Callable[[sympy.Expr], bool]) -> sympy.Expr:
    """A maximum, minimum or absolute value as the one of its parts that it is for sure, if there is
    such a part: max(1, s0 - 1) is s0 - 1 where s0 >= 2.

    is_nonnegative: says whether an expression is >= 0 for sure."""
    parts = [expr.args[0], -expr.args[0]] if isinstance(expr, sympy.Abs) else expr.args
    sign = -1 if isinstance(expr, sympy.Min) else 1
    for part in parts:
        if all(part is other or is_nonnegative(sign * (part - other)) for other in parts):
            return part
    return expr
