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

import sympy

from ..current import Current
from .expressions import FloorDiv, Mod

_multiples = Current({})  # symbol -> a number that divides it for all sizes
multiples = _multiples.set


def opened(expression):
    """The expression with 8*t for each symbol that 8 divides: divisions by 8 come out at
    construction.  `closed` takes it back."""
    return expression.xreplace({s: k * _part(s, k) for s, k in _multiples.value.items()})


def closed(expression):
    parts = {_part(s, k): (s, k) for s, k in _multiples.value.items()}
    if not parts or not expression.has(*parts):
        return expression

    def close(e):
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
def _part(symbol, k):
    return sympy.Symbol(f"{symbol}_by_{k}", integer=True, positive=True)


def bounds(expression, ranges):
    """(lowest, highest) value of an expression whose variables v run over [0, ranges[v]); None
    where unknown."""
    if expression.is_Integer:
        return int(expression), int(expression)
    if expression.is_Symbol:
        size = ranges.get(expression)
        return (
            (0, int(size) - 1) if size is not None and getattr(size, "is_Integer", True) else None
        )
    parts = [bounds(a, ranges) for a in expression.args]
    if None in parts:
        return None
    if expression.is_Add:
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if expression.is_Mul:
        low, high = 1, 1
        for a, b in parts:
            ends = (low * a, low * b, high * a, high * b)
            low, high = min(ends), max(ends)
        return low, high
    if isinstance(expression, FloorDiv) and parts[1][0] == parts[1][1] > 0:
        return parts[0][0] // parts[1][0], parts[0][1] // parts[1][0]
    if isinstance(expression, (sympy.Max, sympy.Min)):
        choose = max if isinstance(expression, sympy.Max) else min
        return choose(low for low, _ in parts), choose(high for _, high in parts)
    if isinstance(expression, sympy.Abs):
        low, high = parts[0]
        return max(low, -high, 0), max(-low, high)
    if isinstance(expression, Mod) and parts[1][0] == parts[1][1] > 0:
        return 0, min(parts[1][0] - 1, parts[0][1] if parts[0][0] >= 0 else parts[1][0] - 1)
    return None


SIMPLIFIED = (FloorDiv, Mod, sympy.Abs, sympy.Max, sympy.Min)


def simplify(expression, ranges):
    """An expression equal to `expression` while each variable v stays in [0, ranges[v])."""
    expression = sympy.sympify(expression)
    if not expression.has(*SIMPLIFIED):
        return sympy.expand(expression)
    expression = opened(expression)
    ranges = {v: opened(sympy.sympify(n)) for v, n in ranges.items()}

    def visit(e):
        if not e.args or not e.has(*SIMPLIFIED):
            return e
        given, e = e, e.func(*[visit(a) for a in e.args])
        if isinstance(e, (sympy.Abs, sympy.Max, sympy.Min)):
            return _decided(e, ranges)
        if not isinstance(
            e, (FloorDiv, Mod)
        ):  # a quotient that came apart has new quotients in its parts
            return visit(e) if isinstance(given, (FloorDiv, Mod)) else e
        if not e.args[1].is_Integer:
            return _below_divisor(_cut(e, visit), ranges)
        numerator, divisor = sympy.expand(e.args[0]), int(e.args[1])
        limits = bounds(numerator, ranges)
        if limits is None:
            return _below_divisor(e.func(numerator, e.args[1]), ranges)
        if limits[0] // divisor == limits[1] // divisor:  # one quotient for all indices
            quotient = limits[0] // divisor
            return (
                sympy.Integer(quotient)
                if isinstance(e, FloorDiv)
                else numerator - quotient * divisor
            )
        terms = [
            (math.gcd(int(t.as_coeff_Mul()[0]), divisor), t) for t in sympy.Add.make_args(numerator)
        ]
        for k in sorted(
            {k for k, _ in terms if 1 < k < divisor}, reverse=True
        ):  # (8*i + j) // 24 is i // 3 for 0 <= j < 8
            small = sympy.Add(*[t for g, t in terms if g % k])
            limits = bounds(small, ranges)
            if limits and 0 <= limits[0] and limits[1] < k:
                inner, rest = sympy.expand((numerator - small) / k), sympy.Integer(divisor // k)
                return visit(
                    FloorDiv(inner, rest)
                    if isinstance(e, FloorDiv)
                    else k * Mod(inner, rest) + small
                )
        return e.func(numerator, e.args[1])

    return closed(join_quotients(sympy.expand(visit(expression))))


def _decided(e, ranges):
    """The one that is always the largest (smallest), if there is one."""
    parts = [e.args[0], -e.args[0]] if isinstance(e, sympy.Abs) else list(e.args)
    sign = -1 if isinstance(e, sympy.Min) else 1
    for part in parts:
        limits = [
            bounds(sympy.expand(sign * (part - other)), ranges)
            for other in parts
            if other is not part
        ]
        if all(found and found[0] >= 0 for found in limits):
            return part
    return e


def _cut(e, visit):
    """A quotient or remainder by k*t, where dividing by k alone comes out: (8*i + j) // (8*t) is i
    // t for 0 <= j < 8."""
    numerator, (k, rest) = sympy.expand(e.args[0]), e.args[1].as_coeff_Mul()
    inner = visit(FloorDiv(numerator, k)) if k.is_Integer and k > 1 else numerator
    if k == 1 or inner.has(FloorDiv, Mod) or not inner.has(*numerator.free_symbols):
        return e
    return (
        FloorDiv(inner, rest)
        if isinstance(e, FloorDiv)
        else k * Mod(inner, rest) + sympy.expand(numerator - k * inner)
    )


@functools.lru_cache(10_000)
def is_nonnegative(expression):
    """Is it >= 0 for all symbols in their range?  Reads the signs after writing each positive
    symbol (a size) as 1 + something >= 0."""
    low = {
        s: sympy.Symbol(f"_{s.name}", integer=True, nonnegative=True) + 1
        for s in expression.free_symbols
        if s.is_positive
    }
    return bool(sympy.expand(expression.xreplace(low)).is_nonnegative)


def lies_in(expression, size, ranges):
    """Is 0 <= expression < size for all indices in range, for sure?"""
    limits = bounds(expression, ranges)
    if limits is not None and getattr(size, "is_Integer", True):
        return limits[0] >= 0 and limits[1] < size
    if expression.has(sympy.Abs, sympy.Max, sympy.Min):  # not highest where its variables are
        return False
    highest = expression.replace(Mod, lambda a, b: b - 1).xreplace(
        {v: sympy.sympify(n) - 1 for v, n in ranges.items()}
    )
    return is_nonnegative(expression) and is_nonnegative(size - 1 - highest)


def _below_divisor(e, ranges):
    """A quotient or remainder by a symbolic divisor, or of a symbolic range: x // s = 0 and x % s =
    x where 0 <= x < s."""
    if not isinstance(e, (FloorDiv, Mod)):
        return e
    numerator, divisor = e.args
    if lies_in(numerator, divisor, ranges):
        return sympy.Integer(0) if isinstance(e, FloorDiv) else numerator
    return e


def join_quotients(expression):
    """c*b*FloorDiv(a, b) + c*Mod(a, b)  ->  c*a: what merging two dimensions that lie side by side
    leaves behind."""
    if not expression.is_Add or not expression.has(Mod):
        return expression
    for term in expression.args:
        remainder = next((f for f in sympy.Mul.make_args(term) if isinstance(f, Mod)), None)
        if remainder is None:
            continue
        (a, b), c = remainder.args, term / remainder
        quotient = c * b * FloorDiv(a, b)
        if quotient in expression.args:
            return join_quotients(sympy.expand(expression - term - quotient + c * a))
    return expression
