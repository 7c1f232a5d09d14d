"""Divisions by sums of sizes: (x*(s + 1) + y) // (s + 1) is x + y // (s + 1).

In:   an expression, and a divisor that is a sum (sizes/expressions.py asks).  Out: quotient, rest.

    >>> s, x, y = sympy.symbols("s x y", integer=True, positive=True)
    >>> split(x * s + x + y, s + 1)
    (x, y)
"""

import functools
from collections import Counter
from fractions import Fraction

import sympy

from ..sizes.expressions import BY_SUMS
from .polynomials import Monomial, Polynomial, plus, polynomial, times


def split(expression: sympy.Expr, divisor: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    quotient, rest = divided(polynomial(expression), polynomial(divisor))
    return as_expression(quotient), as_expression(rest)


def as_expression(terms: Polynomial) -> sympy.Expr:
    """The polynomial as sympy writes it."""
    return sympy.Add(
        *[
            sympy.Mul(sympy.sympify(number), *[atom**power for atom, power in monomial])
            for monomial, number in terms.items()
        ]
    )


def divided(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    """(quotient, rest) with a = quotient * b + rest, the quotient's coefficients integers."""
    atoms = sorted({atom for terms in (a, b) for m in terms for atom, _ in m}, key=_name)

    def place(monomial: Monomial) -> list[int]:
        """Monomials in the order of a dictionary: that of a product is the sum of theirs."""
        powers = dict(monomial)
        return [powers.get(atom, 0) for atom in atoms]

    found: dict[Monomial, int | Fraction] = {}
    rest: dict[Monomial, int | Fraction] = {}
    if not b:
        return {}, a
    first = max(b, key=place)
    while a:
        highest = max(a, key=place)
        powers = Counter(dict(highest))
        powers.subtract(dict(first))
        number = Fraction(a[highest]) / b[first]
        if number.denominator == 1 and min(powers.values(), default=0) >= 0:
            monomial = frozenset((atom, power) for atom, power in powers.items() if power)
            found[monomial] = int(number)
            a = plus(a, times({monomial: 1}, b), -int(number))
        else:
            rest[highest] = a[highest]
            a = plus(a, {highest: a[highest]}, -1)
    return found, rest


@functools.lru_cache(20_000)
def _name(atom: sympy.Expr) -> str:
    return str(atom)


BY_SUMS.append(split)
