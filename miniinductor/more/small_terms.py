"""Terms that are too small to change a quotient are left out: (8*i + j) // 24 is i // 3 for j < 8.

In:   a quotient or remainder by a number, and how far the loop variables run (sizes/ranges.py).
Out:  one that is equal for every index in range, in simpler terms.

    >>> i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    >>> simplify(FloorDiv(8 * i + j, 24), {i: 6, j: 8})
    FloorDiv(i, 3)
"""

import math

import sympy

from ..sizes.expressions import FloorDiv, Mod
from ..sizes.ranges import Simplifier, bounds


def divided(self: Simplifier, e: sympy.Expr, numerator: sympy.Expr, divisor: int) -> sympy.Expr:
    split = without_small_terms(self, e, numerator, divisor)
    return e.func(numerator, e.args[1]) if split is None else self.visit(split)


def without_small_terms(
    self: Simplifier, e: sympy.Expr, numerator: sympy.Expr, divisor: int
) -> sympy.Expr | None:
    """(8*i + j) // 24 is i // 3 for 0 <= j < 8; None where no such terms are found.

    For each factor k that some terms share with the divisor (8 here): are the other terms
    together at least 0 and below k?  Then they never change the quotient by k."""
    terms = [
        (math.gcd(int(term.as_coeff_Mul()[0]), divisor), term)
        for term in sympy.Add.make_args(numerator)
    ]
    for k in sorted({factor for factor, _ in terms if 1 < factor < divisor}, reverse=True):
        small = sympy.Add(*[term for factor, term in terms if factor % k])
        limits = bounds(small, self.ranges)
        if limits is None or limits[0] < 0 or limits[1] >= k:
            continue
        inner = sympy.expand((numerator - small) / k)
        rest = sympy.Integer(divisor // k)
        if isinstance(e, FloorDiv):
            return FloorDiv(inner, rest)
        return k * Mod(inner, rest) + small
    return None


setattr(Simplifier, "divided", divided)
