"""What follows from the ranges of loop variables: bounds and simpler indices.

In:   index expressions over loop variables and sizes, and how far each loop variable runs.
Out:  simpler expressions that are equal for every index in range.

    >>> i, j, s = sympy.symbols("i j s", integer=True, nonnegative=True)
    >>> simplify(FloorDiv(8 * i + j, 8), {j: 8})
    i

    >>> with multiples({s: 8}):                 # a guard says that 8 divides the size s
    ...     simplify(FloorDiv(s * i + j, 8), {j: 8})
    i*FloorDiv(s, 8)

Construction (`expressions.py`) applies what holds for all integers; `simplify` adds what needs
ranges, and what is known to divide a size.
Mirrors torch/_inductor/sizevars.py.
"""

import functools
import math
from collections.abc import Iterable, Mapping

import sympy

from ..current import Current
from .expressions import FloorDiv, Mod, Size
from .intervals import is_nonnegative, of_function, settled

Ranges = Mapping[sympy.Symbol, Size]  # a variable -> how far it runs
DIVISIONS = (FloorDiv, Mod)
SIMPLIFIED = (*DIVISIONS, sympy.Abs, sympy.Max, sympy.Min)

_multiples = Current({})  # symbol -> a number that divides it for all sizes
multiples = _multiples.set


def opened(expression: sympy.Expr) -> sympy.Expr:
    """The expression with 8*t for each symbol that 8 divides: divisions by 8 come out at
    construction.  `closed` takes it back."""
    return expression.xreplace({s: k * _part(s, k) for s, k in _multiples.value.items()})


def closed(expression: sympy.Expr) -> sympy.Expr:
    """The expression with s // 8 for each symbol t that `opened` wrote s = 8*t with."""
    parts = {_part(s, k): (s, k) for s, k in _multiples.value.items()}
    if not parts or not expression.has(*parts):
        return expression

    def close(e: sympy.Expr) -> sympy.Expr:
        if e in parts:
            return FloorDiv(*parts[e])
        if e.is_Mul:
            number, rest = e.as_coeff_Mul()
            for part in parts.keys() & set(sympy.Mul.make_args(rest)):
                symbol, k = parts[part]
                if number % k == 0:
                    return close(number / k * symbol * (rest / part))
        return e.func(*map(close, e.args)) if e.args else e

    return close(expression)


@functools.lru_cache(None)
def _part(symbol: sympy.Symbol, k: int) -> sympy.Symbol:
    return sympy.Symbol(f"{symbol}_by_{k}", integer=True, positive=True)


def bounds(expression: sympy.Expr, ranges: Ranges) -> tuple[int, int] | None:
    """(lowest, highest) value of an expression whose variables v run over [0, ranges[v]); None
    where unknown."""
    if expression.is_Integer:
        return int(expression), int(expression)
    if expression.is_Symbol:
        size = ranges.get(expression)
        if size is None or not getattr(size, "is_Integer", True):
            return None
        return 0, int(size) - 1
    parts = []
    for argument in expression.args:
        part = bounds(argument, ranges)
        if part is None:
            return None
        parts.append(part)
    if expression.is_Add:
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if expression.is_Mul:
        return _product(parts)
    low, high = of_function(expression, parts)
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def _product(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    low = high = 1
    for a, b in parts:
        ends = (low * a, low * b, high * a, high * b)
        low = min(ends)
        high = max(ends)
    return low, high


def simplify(expression: sympy.Expr, ranges: Ranges) -> sympy.Expr:
    """An expression equal to `expression` while each variable v stays in [0, ranges[v])."""
    expression = sympy.sympify(expression)
    if not expression.has(*SIMPLIFIED):
        return sympy.expand(expression)
    ranges = {v: opened(sympy.sympify(n)) for v, n in ranges.items()}
    found = _Simplifier(ranges).visit(opened(expression))
    return closed(join_quotients(sympy.expand(found)))


class _Simplifier:
    """From the leaves up: each quotient, remainder, maximum ... in a simpler form where the ranges
    of loop variables allow one."""

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
        # a quotient that came apart has new quotients in its parts
        return self.visit(e) if isinstance(given, DIVISIONS) else e

    def _nonnegative(self, expr: sympy.Expr) -> bool:
        limits = bounds(sympy.expand(expr), self.ranges)
        return limits is not None and limits[0] >= 0

    def _division(self, e: sympy.Expr) -> sympy.Expr:
        """A quotient or remainder whose arguments are simple."""
        if not e.args[1].is_Integer:
            return _below_divisor(self._cut(e), self.ranges)
        numerator = sympy.expand(e.args[0])
        divisor = int(e.args[1])
        limits = bounds(numerator, self.ranges)
        if limits is None:
            return _below_divisor(e.func(numerator, e.args[1]), self.ranges)
        quotient = limits[0] // divisor
        if quotient == limits[1] // divisor:  # one quotient for all indices
            if isinstance(e, FloorDiv):
                return sympy.Integer(quotient)
            return numerator - quotient * divisor
        split = self._without_small_terms(e, numerator, divisor)
        return e.func(numerator, e.args[1]) if split is None else self.visit(split)

    def _without_small_terms(
        self, e: sympy.Expr, numerator: sympy.Expr, divisor: int
    ) -> sympy.Expr | None:
        """(8*i + j) // 24 is i // 3 for 0 <= j < 8; None where no such terms are found."""
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

    def _cut(self, e: sympy.Expr) -> sympy.Expr:
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


def lies_in(expression: sympy.Expr, size: Size, ranges: Ranges) -> bool:
    """Is 0 <= expression < size for all indices in range, for sure?"""
    limits = bounds(expression, ranges)
    if limits is not None and getattr(size, "is_Integer", True):
        return bool(limits[0] >= 0 and limits[1] < size)
    if expression.has(sympy.Abs, sympy.Max, sympy.Min):  # not highest where its variables are
        return False
    highest = expression.replace(Mod, lambda a, b: b - 1).xreplace(
        {v: sympy.sympify(n) - 1 for v, n in ranges.items()}
    )
    return is_nonnegative(expression) and is_nonnegative(size - 1 - highest)


def _below_divisor(e: sympy.Expr, ranges: Ranges) -> sympy.Expr:
    """A quotient or remainder by a symbolic divisor, or of a symbolic range: x // s = 0 and x % s =
    x where 0 <= x < s."""
    if not isinstance(e, DIVISIONS):
        return e
    numerator, divisor = e.args
    if lies_in(numerator, divisor, ranges):
        return sympy.Integer(0) if isinstance(e, FloorDiv) else numerator
    return e


def join_quotients(expression: sympy.Expr) -> sympy.Expr:
    """c*b*FloorDiv(a, b) + c*Mod(a, b)  ->  c*a: what merging two dimensions that lie side by side
    leaves behind."""
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
