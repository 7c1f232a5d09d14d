"""Intervals are never too narrow: every value that an expression takes lies inside."""

import itertools
import random

import pytest
import sympy

from miniinductor.sizes.expressions import FloorDiv, Mod
from miniinductor.sizes.prover import (
    LARGEST,
    SizeProver,
    Symbol,
    interval,
    of_function,
    of_terms,
    polynomial,
)
from miniinductor.sizes.symbols import assumed, bounds, is_nonnegative

I, J, K = LOOPS = sympy.symbols("i j k", integer=True, nonnegative=True)
S, T = SIZES = sympy.symbols("s t", integer=True, positive=True)
RANGES = {I: 4, J: 3, K: 5}


def expressions(depth, leaves, rng):
    """A random expression over `leaves`; divisors are positive numbers."""
    if not depth:
        return rng.choice([*leaves, sympy.Integer(rng.randint(-3, 9))])
    a, b = (expressions(depth - 1, leaves, rng) for _ in range(2))
    number = sympy.Integer(rng.randint(1, 9))
    return rng.choice(
        [
            *(a + b, a - b, a * number, a * b, FloorDiv(a, number), Mod(a, number)),
            *(sympy.Max(a, b), sympy.Min(a, b), sympy.Abs(a)),
        ]
    )


def values(expression, ranges):
    """What the expression is for each combination of its variables' values."""
    for numbers in itertools.product(*ranges.values()):
        yield expression.xreplace(dict(zip(ranges, map(sympy.Integer, numbers))))


def inside(found, taken):
    low, high = found
    return low <= min(taken) and max(taken) <= high


@pytest.mark.parametrize("seed", range(40))
def test_loop_variables(seed):
    expression = expressions(2, LOOPS, random.Random(seed))
    taken = list(values(expression, {v: range(n) for v, n in RANGES.items()}))
    found = bounds(expression, RANGES)
    assert found is None or inside(found, taken), expression

    def of_atom(atom):
        if atom.is_Integer:
            return atom, atom
        if atom.is_Symbol:
            return sympy.Integer(0), sympy.Integer(RANGES[atom] - 1)
        if atom.is_Add or atom.is_Mul or atom.is_Pow:
            return of_terms(polynomial(atom), of_atom)
        return of_function(atom, [of_atom(a) for a in atom.args])

    assert inside(of_atom(expression), taken), expression


@pytest.mark.parametrize("seed", range(40))
def test_sizes(seed):
    expression = expressions(2, SIZES, random.Random(seed))
    taken = list(values(expression, dict.fromkeys(SIZES, range(1, 9))))
    assert inside(assumed(expression), taken), expression


@pytest.mark.parametrize("seed", range(40))
def test_guarded_sizes(seed):
    expression = expressions(2, SIZES, random.Random(seed))
    facts = SizeProver({S: Symbol(S, 5, [], 3, 8), T: Symbol(T, 4, [], 2, LARGEST)})
    taken = list(values(expression, {S: range(3, 9), T: range(2, 12)}))
    assert inside(facts.bounds(expression), taken), expression


def test_what_sympy_does_not_see():
    assert is_nonnegative(S * T - S)
    assert not is_nonnegative(S * T - 2 * S)  # s = t = 1
    assert is_nonnegative(FloorDiv(S, 2)) and not is_nonnegative(FloorDiv(S, 2) - 1)
    assert is_nonnegative(sympy.Max(1, FloorDiv(S, 2)) - 1)


def test_negative_dividends_round_down():
    assert of_function(FloorDiv(I, 3), [(-7, -1), (2, 3)]) == (-4, -1)
    assert of_function(FloorDiv(I, 3), [(-7, 7), (2, sympy.oo)]) == (-4, 3)
    assert of_function(Mod(I, 3), [(-7, -1), (3, 3)]) == (0, 2)


@pytest.mark.parametrize("seed", range(40))
def test_sums_and_products_of_intervals(seed):
    """The arithmetic of the core alone: wider, and never too narrow."""
    expression = expressions(2, SIZES, random.Random(seed))
    taken = list(values(expression, {S: range(3, 9), T: range(2, 12)}))

    def of_part(part):
        return {S: (3, 8), T: (2, sympy.oo)}.get(part) or interval(part, of_part)

    assert inside(of_part(expression), taken), expression
    assert interval(S * T - S, of_part) == (-2, sympy.oo)
    assert interval(FloorDiv(S, 9) * T, of_part) == (0, 0)
    assert interval(FloorDiv(S, 8) * T, of_part) == (0, sympy.oo)
