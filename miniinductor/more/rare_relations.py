"""Sizes as Python, the rare parts: maxima, powers, truth values, `and`, `or`, `not`, floats.

In:   a sympy expression or relation over sizes.  Out: Python that computes it (sizes/printing.py).

    >>> s, t = sympy.symbols("s t", integer=True)
    >>> python_code(sympy.Max(s, t) + s**2)
    'max(s, t) + s**2'
"""

import sympy

from ..sizes.printing import ATOM, UNARY, PythonPrinter

FUNCTIONS = {  # class -> what stands around the arguments, and between them
    sympy.Max: ("max({})", ", "),
    sympy.Min: ("min({})", ", "),
    sympy.Abs: ("abs({})", ", "),
    sympy.And: ("({})", " and "),
    sympy.Or: ("({})", " or "),
}


def write_BooleanAtom(self: PythonPrinter, expr: sympy.Expr) -> tuple[str, int]:
    return str(bool(expr)), ATOM


def write_Infinity(self: PythonPrinter, expr: sympy.Expr) -> tuple[str, int]:
    return "float('inf')", ATOM


def write_NegativeInfinity(self: PythonPrinter, expr: sympy.Expr) -> tuple[str, int]:
    return "float('-inf')", ATOM


def write_Pow(self: PythonPrinter, expr: sympy.Expr) -> tuple[str, int]:
    return f"{self.within(expr.base, UNARY)}**{self.within(expr.exp, UNARY)}", UNARY


def write_function(self: PythonPrinter, expr: sympy.Expr) -> tuple[str, int]:
    text, joined_by = FUNCTIONS[type(expr)]
    return text.format(joined_by.join(map(self.text, expr.args))), ATOM


def write_Not(self: PythonPrinter, expr: sympy.Expr) -> tuple[str, int]:
    return f"(not {self.within(expr.args[0], UNARY)})", ATOM


def write_Opaque(self: PythonPrinter, expr: sympy.Expr) -> tuple[str, int]:
    return expr.texts["python"].format(*[self.within(a, UNARY) for a in expr.args]), ATOM


RARE = (write_BooleanAtom, write_Infinity, write_NegativeInfinity, write_Pow, write_Not)
for _method in (*RARE, write_Opaque):
    setattr(PythonPrinter, _method.__name__, _method)
for _kind in FUNCTIONS:
    setattr(PythonPrinter, f"write_{_kind.__name__}", write_function)
