"""Sums of sizes: what guards say of them, and divisions by them.

What guards say of sums of sizes: s0 - s1 >= 0; and relations that are joined by and, or, not.

In:   facts that the prover learns, and questions that it is asked (sizes/facts.py).
Out:  more of them proved: what the bounds do not show may be a known fact plus something that they
      do.

    >>> facts.learn(s - t >= 0)
    >>> facts.prove(s - t + 5 > 2)
    True

Without this file such a question becomes a guard each time that it is asked.

Divisions by sums of sizes: (x*(s + 1) + y) // (s + 1) is x + y // (s + 1).

In:   an expression, and a divisor that is a sum (sizes/expressions.py asks).  Out: quotient, rest.

    >>> s, x, y = sympy.symbols("s x y", integer=True, positive=True)
    >>> split(x * s + x + y, s + 1)
    (x, y)
"""

import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import sympy

from ..sizes.expressions import ZERO, split_by_sum
from ..sizes.facts import Facts
from . import other_facts  # noqa: F401  (its answers come first)
from .exact_bounds import of_terms
from .polynomials import CONSTANT, Monomial, Polynomial, plus, polynomial, times

MOST_STEPS = 500  # facts that are tried for one question; then its answer is not known
by_bounds = Facts._nonnegative
plain_prove = Facts._prove


def _learn_sum(self: Any, gap: sympy.Expr) -> None:
    # (monomial, is it added?) -> polynomials with such a term that are known to be >= 0
    terms = polynomial(gap)
    for monomial, number in terms.items():
        if monomial != CONSTANT:
            self.facts.setdefault((monomial, number > 0), []).append(terms)


def _nonnegative(self: Any, gap: sympy.Expr) -> bool:
    """By its bounds, or as a fact plus something >= 0?  False, too, where the answer would take
    more than `MOST_STEPS` facts."""
    if by_bounds(self, gap):
        return True
    terms = polynomial(self._divide(gap))
    for fact in itertools.islice(near(self, terms), MOST_STEPS):
        self.steps += 1
        if of_terms(plus(terms, fact, -1), self.bounds)[0] >= 0:
            return True
    return False


def near(facts: Any, terms: Polynomial) -> Iterator[Polynomial]:
    """Polynomials that are >= 0 and have a term in common with `terms`, each once."""
    for source in NEAR:
        yield from source(facts, terms)


def learnt(facts: Any, terms: Polynomial) -> Iterator[Polynomial]:
    found = [facts.facts.get((m, n > 0), ()) for m, n in terms.items() if m != CONSTANT]
    yield from {id(fact): fact for some in found for fact in some}.values()


NEAR = [learnt]  # quotient_facts.py adds what defines a quotient


def _prove(self: Facts, expr: sympy.Expr) -> bool | None:
    if isinstance(expr, sympy.Not):
        part = self.prove(expr.args[0])
        return None if part is None else not part
    if isinstance(expr, (sympy.And, sympy.Or)):
        decisive = isinstance(expr, sympy.Or)  # the value of a part that settles the whole
        parts = [self.prove(a) for a in expr.args]
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    return plain_prove(self, expr)


for _method in (_learn_sum, _nonnegative, _prove):
    setattr(Facts, _method.__name__, _method)


# --- divisors of sums -----------------------------------------------------------------------------
@split_by_sum.replaced
def split(expression: sympy.Expr, divisor: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    if not expression.has(*divisor.free_symbols):
        return ZERO, expression
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
