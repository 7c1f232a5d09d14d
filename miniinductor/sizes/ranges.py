"""What follows from the ranges of loop variables: bounds and simpler indices.

In:   index expressions over loop variables and sizes, and how far each loop variable runs.
Out:  simpler expressions that are equal for every index in range.

    >>> i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    >>> simplify(FloorDiv(8 * i + j, 8), {j: 8})
    i

Construction (`expressions.py`) applies what holds for all integers; `simplify` adds what needs
ranges.
Mirrors torch/_inductor/sizevars.py.
"""

import math
from collections.abc import Mapping

import sympy

from .expressions import FloorDiv, Mod, Size
from .intervals import Interval, interval, settled
from .prover import is_nonnegative

Ranges = Mapping[sympy.Symbol, Size]  # a variable -> how far it runs
DIVISIONS = (FloorDiv, Mod)
SIMPLIFIED = (*DIVISIONS, sympy.Abs, sympy.Max, sympy.Min)


# --- bounds and simpler indices -------------------------------------------------------------------
def joined(expression: sympy.Expr) -> sympy.Expr:
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
            return joined(sympy.expand(expression - term - quotient + c * a))
    return expression


class Unbounded(Exception):
    """It is not known as a number how far a variable runs."""


def bounds(expression: sympy.Expr, ranges: Ranges) -> tuple[int, int] | None:
    """(lowest, highest) value of an expression whose variables v run over [0, ranges[v]); None
    where unknown."""

    def of_part(part: sympy.Expr) -> Interval:
        if not part.is_Symbol:
            return interval(part, of_part)
        size = ranges.get(part)
        if not isinstance(size, (int, sympy.Integer)):
            raise Unbounded
        return 0, int(size) - 1

    try:
        low, high = of_part(expression)
    except Unbounded:
        return None
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def simplify(expression: sympy.Expr, ranges: Ranges) -> sympy.Expr:
    """An expression equal to `expression` while each variable v stays in [0, ranges[v])."""
    expression = sympy.sympify(expression)
    if not expression.has(*SIMPLIFIED):
        return sympy.expand(expression)
    return joined(sympy.expand(Simplifier(ranges).visit(expression)))


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


class Simplifier:
    """Rewrites an expression from its leaves up: each quotient, remainder, maximum, ... takes a
    simpler form where the ranges of the loop variables allow one."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges

    def visit(self, given: sympy.Expr) -> sympy.Expr:
        if not given.args or not given.has(*SIMPLIFIED):
            return given
        e = given.func(*[self.visit(a) for a in given.args])
        if isinstance(e, (sympy.Abs, sympy.Max, sympy.Min)):
            return settled(e, self._nonnegative)
        if isinstance(e, DIVISIONS):
            return self._division(e)
        # building it again has taken the quotient apart, such as (8*i + j // 2) // 4 into
        # 2*i + j // 8: then its parts have new quotients
        return self.visit(e) if isinstance(given, DIVISIONS) else e

    def _nonnegative(self, expr: sympy.Expr) -> bool:
        limits = bounds(sympy.expand(expr), self.ranges)
        return limits is not None and limits[0] >= 0

    def _division(self, e: sympy.Expr) -> sympy.Expr:
        """A quotient or remainder whose arguments are simple."""
        if not e.args[1].is_Integer:
            return self.symbolic(e)
        numerator = sympy.expand(e.args[0])
        divisor = int(e.args[1])
        limits = bounds(numerator, self.ranges)
        if limits is None:
            return self.symbolic(e.func(numerator, e.args[1]))
        quotient = limits[0] // divisor
        if quotient == limits[1] // divisor:  # one quotient for all indices
            if isinstance(e, FloorDiv):
                return sympy.Integer(quotient)
            return numerator - quotient * divisor
        simpler = self._without_small_terms(e, numerator, divisor)
        return e.func(numerator, e.args[1]) if simpler is None else self.visit(simpler)

    def _without_small_terms(
        self, e: sympy.Expr, numerator: sympy.Expr, divisor: int
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

    def symbolic(self, e: sympy.Expr) -> sympy.Expr:
        """A division by a symbol, or one whose bounds depend on a symbol: x // s is 0, and x % s is
        x, for 0 <= x < s."""
        numerator, divisor = e.args
        if lies_in(numerator, divisor, self.ranges):
            return sympy.Integer(0) if isinstance(e, FloorDiv) else numerator
        return e
