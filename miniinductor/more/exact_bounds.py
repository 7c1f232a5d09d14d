"""Exact intervals of sums and products: `s*t - s` is never negative for sizes s and t.

In:   an expression over sizes.  Out: its lowest and highest value, as far as its symbols tell.

    >>> s, t = sympy.symbols("s t", integer=True, positive=True)
    >>> assumed(s * t - s)                                 # s, t >= 1: sympy itself does not see it
    (0, oo)
    >>> is_nonnegative(s * t - s)
    True

`of_terms` writes each atom as its lowest value plus something that is >= 0, expands, and reads the
sign of each term.  `assumed` (what the symbols say of themselves: sizes are >= 1) and the prover of
sizes/facts.py (what guards say) use it.  Lowering asks tens of thousands of times for indices such
as `8*i0 + i1`, where the arithmetic of sizes/intervals.py gives the same answer: 1000 such indices
take 0.01 s there, and 0.3 s here.  Without this file there are more guards.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import sympy

from ..sizes.expressions import ATOMS, INFINITY
from ..sizes.facts import Facts
from ..sizes.intervals import BELOW_ALL, UNKNOWN, Interval, of_function
from . import divisors  # noqa: F401  (it adds `_divide`)
from .polynomials import CONSTANT, MOST_TERMS, Monomial, Polynomial, polynomial, shifted


def of_terms(terms: Polynomial, interval_of: Callable[[sympy.Expr], Interval]) -> Interval:
    """The interval of a polynomial in atoms (symbols, quotients, maxima, ...), whose intervals
    `interval_of` gives.

    Each atom is written as its lowest value plus a rest, which is >= 0.  For s, t >= 1 the
    polynomial s*t - s becomes (1 + a)*(1 + b) - (1 + a) = a*b + b: no term is ever negative."""
    if sum(math.prod(power + 1 for _, power in monomial) for monomial in terms) > MOST_TERMS:
        return UNKNOWN
    lowest: dict[sympy.Expr, Any] = {}
    heights: dict[sympy.Expr, Any] = {}  # how far above its lowest value an atom can be
    for atom in {atom for monomial in terms for atom, _ in monomial}:
        if not atom.is_Symbol and not isinstance(atom, ATOMS):
            return UNKNOWN  # a negative power, or a product that is too long
        lowest[atom], most = interval_of(atom)
        if lowest[atom] is BELOW_ALL:
            return UNKNOWN
        heights[atom] = INFINITY if most is INFINITY else most - lowest[atom]
    low: Any = 0
    high: Any = 0
    for monomial, number in shifted(terms, lowest).items():
        if monomial == CONSTANT:
            low += number
            high += number
            continue
        most = _most(monomial, heights)
        change = INFINITY if most is INFINITY else abs(number) * most
        if number > 0:
            high += change
        else:
            low -= change
    return low, high


def _most(monomial: Monomial, heights: dict[sympy.Expr, Any]) -> Any:
    """The highest value of a product of rests."""
    factors = [(heights[atom], power) for atom, power in monomial]
    if any(height == 0 for height, _ in factors):
        return 0  # such an atom has one value alone; 0 times infinity is 0 here
    if any(height is INFINITY for height, _ in factors):
        return INFINITY
    return math.prod(height**power for height, power in factors)


def interval(
    expr: sympy.Expr,
    of_symbol: Callable[[sympy.Expr], Interval],
    of_part: Callable[[sympy.Expr], Interval],
) -> Interval:
    """The interval of any expression, from those of its symbols and of its parts."""
    if expr.is_number:
        return (int(expr), int(expr)) if expr.is_Integer else (expr, expr)
    if expr.is_Symbol:
        return of_symbol(expr)
    if isinstance(expr, ATOMS):
        return of_function(expr, [of_part(a) for a in expr.args])
    return of_terms(polynomial(expr), of_part)


# --- what guards say ------------------------------------------------------------------------------
def _interval(self: Facts, expr: sympy.Expr) -> Interval:
    return interval(self._divide(expr), self._of_symbol, self.bounds)


def _nonnegative(self: Facts, gap: sympy.Expr) -> bool:
    return bool(of_terms(polynomial(self._divide(gap)), self.bounds)[0] >= 0)


for _method in (_interval, _nonnegative):
    setattr(Facts, _method.__name__, _method)


# --- what symbols say of themselves ---------------------------------------------------------------
@functools.lru_cache(10_000)
def assumed(expr: sympy.Expr) -> Interval:
    """For all values that the symbols' assumptions allow: `positive` (sizes), `nonnegative` (loop
    variables)."""
    return interval(expr, _of_symbol, assumed)


def _of_symbol(symbol: sympy.Expr) -> Interval:
    if symbol.is_positive:
        return 1, INFINITY
    return (0, INFINITY) if symbol.is_nonnegative else UNKNOWN


def is_nonnegative(expr: sympy.Expr) -> bool:
    """Is it >= 0, for sure, for all values of its symbols?"""
    return bool(assumed(expr)[0] >= 0)
