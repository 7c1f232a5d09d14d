"""Sizes and indices as text: Python for guards, messages and the wrapper; C and Triton for kernels.

In:   a sympy expression over sizes and loop variables.   Out: text that computes it.

    >>> s, x = sympy.symbols("s x", integer=True, nonnegative=True)
    >>> python_code(2 * s + FloorDiv(x, 3), {s: "a.shape[0]"})
    '2*a.shape[0] + x // 3'
    >>> index_text(8 * s + FloorDiv(x, 3))
    '8*s + x/3'

sympy's own printer writes sums, products and the parentheses around them; the subclasses say how
the rest is written.  Mirrors torch/utils/_sympy/printers.py.
"""

import functools
from collections.abc import Mapping, Sequence

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from .expressions import FloorDiv, Mod


class Printer(StrPrinter):
    """What the languages share.  sympy calls the method that is named after an expression's class:
    `_print_Mod` for a remainder."""

    language: str

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

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        return self.quotient(expr, " // ")

    def _print_Mod(self, expr: sympy.Expr) -> str:
        return self.quotient(expr, " % ")

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

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        return self.division(expr, self.divide, "floordiv")

    def _print_Mod(self, expr: sympy.Expr) -> str:
        return self.division(expr, "%", "remainder")

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
    return isinstance(expr, CLOSED) and all(map(never_negative, expr.args))
