"""Simpler quotients and remainders by sizes that are symbols.

In:   a quotient or remainder, and the ranges of loop variables (sizes/ranges.py).
Out:  a simpler one that is equal for every index in range.

    (8*i + j) // (8*t)      =   i // t          for 0 <= j < 8
    x // s, x % s           =   0, x            for 0 <= x < s
"""

import sympy

from ..sizes.expressions import FloorDiv, Mod
from ..sizes.ranges import DIVISIONS, Simplifier, lies_in


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
