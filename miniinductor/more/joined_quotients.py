"""Sums in which a quotient and its remainder stand together: 8*(a // 8) + a % 8 is a.

In:   an index (sizes/ranges.py asks).  Out: an equal one.

    >>> join_quotients(8 * FloorDiv(i, 8) + Mod(i, 8))
    i

Without this file some loops over dimensions that lie side by side in memory stay apart.
"""

import sympy

from ..sizes.expressions import FloorDiv, Mod
from ..sizes.ranges import joined


@joined.replaced
def join_quotients(expression: sympy.Expr) -> sympy.Expr:
    """Writes c*b*(a // b) + c*(a % b) as c*a.  Two dimensions that lie side by side in memory leave
    such a sum behind when they are merged."""
    if not expression.is_Add or not expression.has(Mod):
        return expression
    for term in expression.args:
        remainder = next((f for f in sympy.Mul.make_args(term) if isinstance(f, Mod)), None)
        if remainder is None:
            continue
        a, b = remainder.args
        c = term / remainder
        quotient = c * b * FloorDiv(a, b)
        if quotient in expression.args:
            return join_quotients(sympy.expand(expression - term - quotient + c * a))
    return expression
