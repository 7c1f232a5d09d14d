"""Simpler quotients and remainders by sizes that are symbols.

In:   a quotient or remainder, and the ranges of loop variables (sizes/ranges.py).
Out:  a simpler one that is equal for every index in range.

    (8*i + j) // (8*t)      =   i // t          for 0 <= j < 8
    x // s, x % s           =   0, x            for 0 <= x < s
"""

import sympy

from ..sizes.expressions import FloorDiv, Mod, Size
from ..sizes.prover import is_nonnegative
from ..sizes.ranges import DIVISIONS, Ranges, Simplifier, bounds


def lies_in(expression: sympy.Expr, size: Size, ranges: Ranges) -> bool:
    """Is 0 <= expression < size for all indices in range, for sure?"""
    limits = bounds(expression, ranges)
    if limits is not None and isinstance(size, (int, sympy.Integer)):
        return bool(limits[0] >= 0 and limits[1] < size)
    if expression.has(sympy.Abs, sympy.Max, sympy.Min):  # not highest where its variables are
        return False
    highest = expression.replace(Mod, lambda a, b: b - 1).xreplace(
        {v: sympy.sympify(n) - 1 for v, n in ranges.items()}
    )
    return is_nonnegative(expression) and is_nonnegative(size - 1 - highest)


def symbolic(self: Simplifier, e: sympy.Expr) -> sympy.Expr:
    if not e.args[1].is_Integer:
        e = cut(self, e)
    if not isinstance(e, DIVISIONS):
        return e
    numerator, divisor = e.args
    if lies_in(numerator, divisor, self.ranges):
        return sympy.Integer(0) if isinstance(e, FloorDiv) else numerator
    return e


def cut(self: Simplifier, e: sympy.Expr) -> sympy.Expr:
    """A quotient or remainder by k*t, where dividing by k alone comes out: (8*i + j) // (8*t)
    is i // t for 0 <= j < 8."""
    numerator = sympy.expand(e.args[0])
    k, rest = e.args[1].as_coeff_Mul()
    if not k.is_Integer or k <= 1:
        return e
    inner = self.visit(FloorDiv(numerator, k))
    if inner.has(*DIVISIONS) or not inner.has(*numerator.free_symbols):
        return e
    if isinstance(e, FloorDiv):
        return FloorDiv(inner, rest)
    return k * Mod(inner, rest) + sympy.expand(numerator - k * inner)


setattr(Simplifier, "symbolic", symbolic)
