"""The lowest and highest value that an expression can have: the arithmetic of intervals.

In:   an expression, and the intervals of its parts.
Out:  (lowest, highest), infinite where unknown.

    >>> of_function(FloorDiv(i, 8), [(0, 31), (8, 8)])      # i // 8 for i in 0 ... 31
    (0, 3)
    >>> s, t = sympy.symbols("s t", integer=True, positive=True)
    >>> assumed(s * t - s)                                 # s, t >= 1: sympy itself does not see it
    (0, oo)
    >>> is_nonnegative(s * t - s)
    True

There is one rule for each function (`RULES`), and there are two ways to go through sums and
products:

* `of_terms` is exact for `s*t - s`: it writes each atom as its lowest value plus something
  that is >= 0, expands, and reads the sign of each term.  `assumed` (what the symbols say of
  themselves: sizes are >= 1) and `facts.Facts.bounds` (what guards say) use it.
* `ranges.bounds` adds and multiplies the intervals of the parts.  That is less exact, but needs no
  sympy arithmetic, and lowering asks it tens of thousands of times for indices such as
  `8*i0 + i1`, where both give the same answer: 1000 such indices take 0.01 s, and 0.3 s in the
  other way.

Mirrors torch/utils/_sympy/value_ranges.py (paper section 5).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy

from .expressions import ATOMS, INFINITY, FloorDiv, Mod
from .polynomials import CONSTANT, MOST_TERMS, Monomial, Polynomial, polynomial, shifted

Interval = tuple[Any, Any]  # integers (Python's or sympy's), or infinities
BELOW_ALL = -INFINITY
UNKNOWN: Interval = (BELOW_ALL, INFINITY)


# --- functions ------------------------------------------------------------------------------------
def _quotient(a: Any, b: Any) -> Any:
    """a // b, where either may be infinite; b >= 1."""
    if a is INFINITY or a is BELOW_ALL:
        return a
    if b is INFINITY:
        return 0 if a >= 0 else -1
    return a // b


def _floor_div(dividend: Interval, divisor: Interval) -> Interval:
    """Divisors are positive: whoever made the quotient saw to that."""
    low, high = dividend
    least, most = divisor
    if most < 1:
        return UNKNOWN
    least = max(least, 1)
    lowest = _quotient(low, most if low >= 0 else least)
    highest = _quotient(high, least if high >= 0 else most)
    return lowest, highest


def _mod(dividend: Interval, divisor: Interval) -> Interval:
    low, high = dividend
    largest = divisor[1] - 1
    if low >= 0:
        largest = min(largest, high)
    return 0, largest


# more/extremes.py has those of maxima, minima and absolute values
RULES: dict[type, Callable[..., Interval]] = {FloorDiv: _floor_div, Mod: _mod}


def of_function(expr: sympy.Expr, parts: Sequence[Interval]) -> Interval:
    """The interval of a quotient, remainder, maximum, ..., from those of its arguments."""
    rule = RULES.get(type(expr))
    return UNKNOWN if rule is None else rule(*parts)


def settled(expr: sympy.Expr, is_nonnegative: Callable[[sympy.Expr], bool]) -> sympy.Expr:
    """A maximum, minimum or absolute value as the one of its parts that it is for sure, if there is
    such a part: max(1, s0 - 1) is s0 - 1 where s0 >= 2.

    is_nonnegative: says whether an expression is >= 0 for sure."""
    parts = [expr.args[0], -expr.args[0]] if isinstance(expr, sympy.Abs) else expr.args
    sign = -1 if isinstance(expr, sympy.Min) else 1
    for part in parts:
        if all(part is other or is_nonnegative(sign * (part - other)) for other in parts):
            return part
    return expr


# --- sums and products ----------------------------------------------------------------------------
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
