"""Polynomials in sizes as dictionaries, which are added and multiplied without sympy: its `expand`
takes about fifty times as long.

In:   an expression over symbols, quotients, remainders, maxima, ...: its atoms.
Out:  {monomial: coefficient}, a form that equal polynomials share; a monomial is the set of its
      (atom, power).

    >>> polynomial((s + 1) * FloorDiv(t, 2) - 3)    # s*(t // 2) + t // 2 - 3
    {...}

A quotient such as `(s // 4 - 9) // 2` is a symbol of its own here: nothing looks into it but
exact_bounds.py, which knows how low and how high it can be.  What has more than `MOST_TERMS` terms
is one atom as a whole, of which nothing is known: so the cost of a question is bounded.
"""

import functools
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

import sympy

Monomial = frozenset[tuple[sympy.Expr, int]]
Polynomial = Mapping[Monomial, int | Fraction]
CONSTANT: Monomial = frozenset()  # the monomial of the term without atoms
MOST_TERMS = 400


@functools.lru_cache(20_000)
def polynomial(expr: sympy.Expr) -> Polynomial:
    """The expression, multiplied out."""
    if expr.is_Rational:
        value = int(expr) if expr.is_Integer else Fraction(int(expr.p), int(expr.q))
        return {CONSTANT: value} if value else {}
    if expr.is_Add:
        return functools.reduce(plus, map(polynomial, expr.args))
    is_power = expr.is_Pow and expr.exp.is_Integer and expr.exp > 0
    if not expr.is_Mul and not is_power:
        return atom_alone(expr)
    terms: Polynomial = {CONSTANT: 1}
    for factor in [expr.base] * int(expr.exp) if is_power else expr.args:
        terms = times(terms, polynomial(factor))
        if len(terms) > MOST_TERMS:
            return atom_alone(expr)
    return terms


def atom_alone(atom: sympy.Expr) -> Polynomial:
    return {frozenset({(atom, 1)}): 1}


def plus(a: Polynomial, b: Polynomial, factor: int = 1) -> Polynomial:
    """a + factor * b"""
    total = dict(a)
    for monomial, number in b.items():
        total[monomial] = total.get(monomial, 0) + factor * number
    return {monomial: number for monomial, number in total.items() if number}


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    product: dict[Monomial, int | Fraction] = {}
    for first, number in a.items():
        for second, factor in b.items():
            monomial = _joined(first, second)
            product[monomial] = product.get(monomial, 0) + number * factor
    return {monomial: number for monomial, number in product.items() if number}


def _joined(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    if not a or not b:
        return a or b
    powers = Counter(dict(a))
    powers.update(dict(b))
    return frozenset(powers.items())


def shifted(terms: Polynomial, lowest: Mapping[sympy.Expr, int]) -> Polynomial:
    """The polynomial with `lowest[atom] + atom` in place of each atom."""
    moved = {atom: plus(atom_alone(atom), {CONSTANT: low}) for atom, low in lowest.items()}
    total: Polynomial = {}
    for monomial, number in terms.items():
        part: Polynomial = {CONSTANT: number}
        for atom, power in monomial:
            for _ in range(power):
                part = times(part, moved[atom])
        total = plus(total, part)
    return total
