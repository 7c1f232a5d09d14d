"""Sizes and indices as text: Python for guards, messages and the wrapper; C and Triton for kernels.

In:   a sympy expression over sizes and loop variables.   Out: text that computes it.

    >>> s, x = sympy.symbols("s x", integer=True, nonnegative=True)
    >>> python_code(2 * s + FloorDiv(x, 3), {s: "a.shape[0]"})
    'a.shape[0] * 2 + (x // 3)'
    >>> index_text(8 * s + FloorDiv(x, 3))
    'x/3 + 8*s'

One walk over the expression, `Printer`; a language is a subclass that says how each class of
expression is written.  Mirrors torch/utils/_sympy/printers.py.
"""

import functools
from collections.abc import Mapping, Sequence

import sympy

from .expressions import FloorDiv, Mod, as_number

SUM, PRODUCT, UNARY, ATOM = 1, 2, 3, 4  # how strongly the outermost operator of a text binds


class Printer:
    """Writes an expression by the method that is named after its class, `write_Add` for a sum.
    Such a method gives the text and how strongly its outermost operator binds."""

    def visit(self, expr: sympy.Expr) -> tuple[str, int]:
        for cls in type(expr).__mro__:
            method = getattr(self, f"write_{cls.__name__}", None)
            if method is not None:
                return method(expr)
        raise NotImplementedError(f"no text for the expression {expr} ({type(expr).__name__})")

    def within(self, expr: sympy.Expr, strength: int) -> str:
        """The text of a part, in parentheses where it binds less than `strength`."""
        text, own = self.visit(expr)
        return text if own >= strength else f"({text})"

    def text(self, expr: sympy.Expr) -> str:
        return self.visit(expr)[0]

    def write_Symbol(self, expr: sympy.Expr) -> tuple[str, int]:
        return expr.name, ATOM

    def write_Add(self, expr: sympy.Expr) -> tuple[str, int]:
        first, *others = sorted(expr.args, key=self.place)
        text = self.text(first)
        for term in others:
            _, is_subtracted, _ = self.place(term)
            if is_subtracted:
                text += f" - {self.within(-term, PRODUCT)}"
            else:
                text += f" + {self.text(term)}"
        return text, SUM

    def place(self, term: sympy.Expr) -> tuple[bool, bool, str]:
        """In a sum: (is it a number, which comes last?  is it subtracted?  its name)"""
        return term.is_number, term.could_extract_minus_sign(), str(term)


# --- Python ---------------------------------------------------------------------------------------
class PythonPrinter(Printer):
    """names: symbol -> how it is written; the other symbols have their own names."""

    divisions = {FloorDiv: "//", Mod: "%"}

    def __init__(self, names: Mapping[sympy.Symbol, str] | None = None) -> None:
        self.names = names or {}

    def write_Symbol(self, expr: sympy.Expr) -> tuple[str, int]:
        return self.names.get(expr, expr.name), ATOM

    def write_Number(self, expr: sympy.Expr) -> tuple[str, int]:
        return repr(as_number(expr)), ATOM

    write_NumberSymbol = write_Number  # pi

    def write_Mul(self, expr: sympy.Expr) -> tuple[str, int]:
        number, rest = expr.as_coeff_Mul()
        factors = sorted(sympy.Mul.make_args(rest), key=str)
        text = " * ".join(self.within(factor, UNARY) for factor in factors)
        if number == 1:
            return text, PRODUCT
        if number == -1:
            return f"-{text}", PRODUCT
        return f"{text} * {as_number(number)!r}", PRODUCT

    def write_Relational(self, expr: sympy.Expr) -> tuple[str, int]:
        return f"{self.text(expr.lhs)} {expr.rel_op} {self.text(expr.rhs)}", SUM

    def write_FloorDiv(self, expr: sympy.Expr) -> tuple[str, int]:
        a, b = (self.within(part, UNARY) for part in expr.args)
        return f"({a} {self.divisions[type(expr)]} {b})", ATOM

    write_Mod = write_FloorDiv

    def write_BooleanAtom(self, expr: sympy.Expr) -> tuple[str, int]:
        return str(bool(expr)), ATOM

    def write_Infinity(self, expr: sympy.Expr) -> tuple[str, int]:
        return f"float('{float(expr)}')", ATOM

    write_NegativeInfinity = write_Infinity

    def write_Pow(self, expr: sympy.Expr) -> tuple[str, int]:
        return f"{self.within(expr.base, UNARY)}**{self.within(expr.exp, UNARY)}", UNARY

    def write_Not(self, expr: sympy.Expr) -> tuple[str, int]:
        return f"(not {self.within(expr.args[0], UNARY)})", ATOM

    def write_call(self, expr: sympy.Expr) -> tuple[str, int]:
        text, joined_by = CALLS[type(expr)]
        return text.format(joined_by.join(map(self.text, expr.args))), ATOM

    write_Max = write_Min = write_Abs = write_And = write_Or = write_call

    def write_Opaque(self, expr: sympy.Expr) -> tuple[str, int]:
        """What is computed in floating point: floats.py."""
        return expr.texts["python"].format(*[self.within(a, UNARY) for a in expr.args]), ATOM


CALLS = {  # class -> what stands around the arguments in Python, and between them
    sympy.Max: ("max({})", ", "),
    sympy.Min: ("min({})", ", "),
    sympy.Abs: ("abs({})", ", "),
    sympy.And: ("({})", " and "),
    sympy.Or: ("({})", " or "),
}


def python_code(expr: sympy.Expr, names: Mapping[sympy.Symbol, str] | None = None) -> str:
    """`expr` as Python, its symbols written as `names` says: "x.shape[0] * 2 + 1"."""
    return PythonPrinter(names).text(sympy.sympify(expr))


# --- indices in kernels ---------------------------------------------------------------------------
class IndexPrinter(Printer):
    """What C and Triton (codegen/triton/kernel_text.py) share.

    `/` and `%` stand where both sides are known not to be negative, so that they are exact."""

    language: str
    divide = "/"
    functions = "{}"

    def write_Integer(self, expr: sympy.Expr) -> tuple[str, int]:
        return str(int(expr)), ATOM if expr >= 0 else UNARY

    def place(self, term: sympy.Expr) -> tuple[bool, bool, str]:
        coefficient, rest = term.as_coeff_Mul()
        return rest == 1, coefficient.is_negative or False, str(rest)

    def write_Mul(self, expr: sympy.Expr) -> tuple[str, int]:
        coefficient, rest = expr.as_coeff_Mul()
        if coefficient == -1:
            return "-" + self.within(rest, UNARY), UNARY
        return "*".join(self.within(factor, UNARY) for factor in expr.args), PRODUCT

    def write_FloorDiv(self, expr: sympy.Expr) -> tuple[str, int]:
        return self._division(expr, self.divide, "floordiv")

    def write_Mod(self, expr: sympy.Expr) -> tuple[str, int]:
        return self._division(expr, "%", "remainder")

    def _division(self, expr: sympy.Expr, operator: str, function: str) -> tuple[str, int]:
        """Where a side may be negative, a function of the language that rounds down."""
        a, b = expr.args
        if never_negative(a) and never_negative(b):
            return f"{self.within(a, PRODUCT)}{operator}{self.within(b, UNARY)}", PRODUCT
        return f"{self.functions.format(function)}({self.text(a)}, {self.text(b)})", ATOM

    def write_Float(self, expr: sympy.Expr) -> tuple[str, int]:
        return repr(float(expr)), ATOM

    def write_Pow(self, expr: sympy.Expr) -> tuple[str, int]:
        if not expr.exp.is_Integer or not 0 < expr.exp < 8:
            raise NotImplementedError(f"no text for the power {expr}")
        return "*".join([self.within(expr.base, UNARY)] * int(expr.exp)), PRODUCT

    def write_Max(self, expr: sympy.Expr) -> tuple[str, int]:
        return self._pairwise("maximum", expr.args)

    def write_Min(self, expr: sympy.Expr) -> tuple[str, int]:
        return self._pairwise("minimum", expr.args)

    def write_Abs(self, expr: sympy.Expr) -> tuple[str, int]:
        return self._pairwise("maximum", (expr.args[0], -expr.args[0]))

    def _pairwise(self, function: str, args: Sequence[sympy.Expr]) -> tuple[str, int]:
        """Raises NotImplementedError for a fraction: these functions compute with integers."""
        for arg in args:
            if arg.has(sympy.Float) or arg.is_integer is False:
                raise NotImplementedError(f"no text for the {function} of the fraction {arg}")
        name = self.functions.format(function)
        return functools.reduce(lambda a, b: f"{name}({a}, {b})", map(self.text, args)), ATOM

    def write_Opaque(self, expr: sympy.Expr) -> tuple[str, int]:
        """A number made of sizes in floating point, computed as Python does."""
        spelling = expr.texts[self.language]
        if not spelling:
            raise NotImplementedError(f"no text for {type(expr).__name__} in an index: {expr}")
        return spelling.format(*map(self.text, expr.args)), ATOM


class CPrinter(IndexPrinter):
    language = "c"
    functions = "mini::{}<int64_t>"

    def write_Integer(self, expr: sympy.Expr) -> tuple[str, int]:
        text, strength = super().write_Integer(expr)
        return (text + "LL" if abs(int(expr)) > 2**31 - 1 else text), strength


# the printers of kernels; codegen/triton/kernel_text.py adds Triton's
LANGUAGES: dict[str, IndexPrinter] = {"c": CPrinter()}


# what divides or is called -> how it is written where no side is negative, and else
FUNCTIONS: dict[type, tuple[str, str]] = {
    FloorDiv: ("/", "floordiv"),
    Mod: ("%", "remainder"),
    sympy.Max: ("maximum", "maximum"),
    sympy.Min: ("minimum", "minimum"),
    sympy.Abs: ("maximum", "maximum"),
}


def functions_of(expr: sympy.Expr) -> frozenset[str]:
    """What the text of an index divides by and calls."""
    parts = [part for part in sympy.preorder_traversal(expr) if type(part) in FUNCTIONS]
    return frozenset(
        FUNCTIONS[type(part)][not all(map(never_negative, part.args))] for part in parts
    )


@functools.lru_cache(50_000)
def index_text(expr: sympy.Expr, language: str = "c") -> str:
    """A sympy index expression as text of a kernel.  NotImplementedError where there is none."""
    return LANGUAGES[language].text(sympy.sympify(expr))


# of parts that are not negative they are not negative
CLOSED = (sympy.Add, sympy.Mul, sympy.Pow, FloorDiv, Mod, sympy.Max, sympy.Min)


def never_negative(expr: sympy.Expr) -> bool:
    """True only when sure: no negative coefficient, and only loop variables and sizes (not what is
    read, see `Position`)."""
    if expr.is_Integer or expr.is_Symbol:
        return bool(expr.is_nonnegative)
    return isinstance(expr, CLOSED) and all(map(never_negative, expr.args))
