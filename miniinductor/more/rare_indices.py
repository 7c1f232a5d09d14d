"""Parts of an index that few kernels have: maxima, powers, floats, quotients of negative numbers.

In:   a sympy expression over sizes and loop variables.  Out: C or Triton that computes it
      (sizes/printing.py); NotImplementedError where a language has no text for it.

    >>> i, j = sympy.symbols("i j", integer=True)
    >>> index_text(sympy.Max(i, j))
    'mini::maximum<int64_t>(i, j)'

Without this file a graph with such an index runs eagerly.
"""

from collections.abc import Sequence

import sympy

from ..sizes.printing import ATOM, FUNCTIONS, PRODUCT, UNARY, IndexPrinter, never_negative

exact_division = IndexPrinter._division
FUNCTIONS |= {
    sympy.Max: ("maximum", "maximum"),
    sympy.Min: ("minimum", "minimum"),
    sympy.Abs: ("maximum", "maximum"),
}


def write_Float(self: IndexPrinter, expr: sympy.Expr) -> tuple[str, int]:
    return repr(float(expr)), ATOM


def write_Pow(self: IndexPrinter, expr: sympy.Expr) -> tuple[str, int]:
    if not expr.exp.is_Integer or not 0 < expr.exp < 8:
        raise NotImplementedError(f"no text for the power {expr}")
    return "*".join([self.within(expr.base, UNARY)] * int(expr.exp)), PRODUCT


def write_Max(self: IndexPrinter, expr: sympy.Expr) -> tuple[str, int]:
    return pairwise(self, "maximum", expr.args)


def write_Min(self: IndexPrinter, expr: sympy.Expr) -> tuple[str, int]:
    return pairwise(self, "minimum", expr.args)


def write_Abs(self: IndexPrinter, expr: sympy.Expr) -> tuple[str, int]:
    return pairwise(self, "maximum", (expr.args[0], -expr.args[0]))


def pairwise(self: IndexPrinter, function: str, args: Sequence[sympy.Expr]) -> tuple[str, int]:
    """Raises NotImplementedError for a fraction: these functions compute with integers."""
    for arg in args:
        if arg.has(sympy.Float) or arg.is_integer is False:
            raise NotImplementedError(f"no text for the {function} of the fraction {arg}")
    text = self.text(args[0])
    for other in args[1:]:
        text = f"{self.functions.format(function)}({text}, {self.text(other)})"
    return text, ATOM


def write_Opaque(self: IndexPrinter, expr: sympy.Expr) -> tuple[str, int]:
    """A number made of sizes in floating point, computed as Python does."""
    spelling = expr.texts[self.language]
    if not spelling:
        raise NotImplementedError(f"no text for {type(expr).__name__} in an index: {expr}")
    return spelling.format(*map(self.text, expr.args)), ATOM


def _division(
    self: IndexPrinter, expr: sympy.Expr, operator: str, function: str
) -> tuple[str, int]:
    """Where a side may be negative, a function of the language that rounds down."""
    a, b = expr.args
    if never_negative(a) and never_negative(b):
        return exact_division(self, expr, operator, function)
    return f"{self.functions.format(function)}({self.text(a)}, {self.text(b)})", ATOM


for _method in (write_Float, write_Pow, write_Max, write_Min, write_Abs, write_Opaque, _division):
    setattr(IndexPrinter, _method.__name__, _method)
