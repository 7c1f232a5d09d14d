"""The lowest and highest value that an expression can have: the arithmetic of intervals.

In:   an expression, and the intervals of its parts.
Out:  (lowest, highest), infinite where unknown.

    >>> def of_part(part):                  # for i in 0 ... 31
    ...     return (0, 31) if part == i else interval(part, of_part)
    >>> of_part(FloorDiv(i, 8)), of_part(8 * FloorDiv(i, 8) + 3)
    ((0, 3), (3, 27))

Sums and products are those of the parts' intervals, and there is one rule for each function
(`RULES`).  `ranges.bounds` (what loop variables can be) uses it.  It does not see that `s*t - s` is
never negative, since it takes the two `s` for two values; prover.py does.

Mirrors torch/utils/_sympy/value_ranges.py (paper section 5).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy

from .expressions import INFINITY, FloorDiv, Mod

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
    # the larger the divisor, the nearer to 0 is the quotient
    lowest = _quotient(low, most if low >= 0 else least)
    highest = _quotient(high, least if high >= 0 else most)
    return lowest, highest


def _mod(dividend: Interval, divisor: Interval) -> Interval:
    low, high = dividend
    largest = divisor[1] - 1
    if low >= 0:
        largest = min(largest, high)
    return 0, largest


def _maximum(*parts: Interval) -> Interval:
    return max(low for low, _ in parts), max(high for _, high in parts)


def _minimum(*parts: Interval) -> Interval:
    return min(low for low, _ in parts), min(high for _, high in parts)


def _absolute(part: Interval) -> Interval:
    low, high = part
    return max(low, -high, 0), max(-low, high)


RULES: dict[type, Callable[..., Interval]] = {FloorDiv: _floor_div, Mod: _mod}
RULES |= {sympy.Max: _maximum, sympy.Min: _minimum, sympy.Abs: _absolute}


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
def interval(expr: sympy.Expr, of_part: Callable[[sympy.Expr], Interval]) -> Interval:
    """The interval of an expression that is no symbol, from those of its parts."""
    if expr.is_Integer:
        return int(expr), int(expr)
    parts = [of_part(part) for part in expr.args]
    if expr.is_Add:
        return sum([low for low, _ in parts]), sum([high for _, high in parts])
    if expr.is_Mul:
        return functools.reduce(_product, parts)
    return of_function(expr, parts) if parts else (expr, expr)


def _product(a: Interval, b: Interval) -> Interval:
    # what is 0 stays 0, however large the other side may be
    ends = [x * y if x and y else 0 for x in a for y in b]
    return min(ends), max(ends)
