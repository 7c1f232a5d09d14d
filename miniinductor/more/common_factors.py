"""Common factors of a quotient's or remainder's two sides: s0*s1 // (8*s0) is s1 // 8.

In:   FloorDiv(a, b) or Mod(a, b), while it is made (sizes/expressions.py).  Out: a shorter one.

    >>> i = sympy.Symbol("i", integer=True, nonnegative=True)
    >>> FloorDiv(4 * i, 8), Mod(4 * i, 8)
    (FloorDiv(i, 2), 4*(Mod(i, 2)))
"""

from typing import Any

import sympy

from ..sizes.expressions import Mod, shortened


def common_factor(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """The largest positive product of a number and symbols that divides all terms of both.

    Of s0*s1 and 8*s0 it is s0, so s0*s1 // (8*s0) is s1 // 8."""
    terms = [*sympy.Add.make_args(a), *sympy.Add.make_args(b)]
    coefficients = [term.as_coeff_Mul()[0] for term in terms]
    common = sympy.Integer(1)
    if all(c.is_Integer for c in coefficients):
        common = sympy.Integer(sympy.igcd(*coefficients) or 1)
    for symbol in b.free_symbols & a.free_symbols:
        power = min(term.as_powers_dict()[symbol] for term in terms)
        if symbol.is_positive and power > 0:
            common *= symbol**power
    return common


@shortened.replaced
def without_common_factor(function: Any, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    common = common_factor(a, b)
    if common == 1:
        return None
    inner = function(sympy.expand(a / common), sympy.expand(b / common))
    return sympy.expand(common * inner) if function is Mod else inner
