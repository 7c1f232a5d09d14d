"""What guards say of sums of sizes: s0 - s1 >= 0; and relations that are joined by and, or, not.

In:   facts that the prover learns, and questions that it is asked (sizes/facts.py).
Out:  more of them proved: what the bounds do not show may be a known fact plus something that they
      do.

    >>> facts.learn(s - t >= 0)
    >>> facts.prove(s - t + 5 > 2)
    True

Without this file such a question becomes a guard each time that it is asked.
"""

import itertools
from collections.abc import Iterator

import sympy

from ..sizes.facts import Facts
from .exact_bounds import of_terms
from .polynomials import CONSTANT, Polynomial, plus, polynomial

MOST_STEPS = 500  # facts that are tried for one question; then its answer is not known
by_bounds = Facts._nonnegative
plain_prove = Facts._prove


def _learn_sum(self: Facts, gap: sympy.Expr) -> None:
    # (monomial, is it added?) -> polynomials with such a term that are known to be >= 0
    terms = polynomial(gap)
    for monomial, number in terms.items():
        if monomial != CONSTANT:
            self.facts.setdefault((monomial, number > 0), []).append(terms)


def _nonnegative(self: Facts, gap: sympy.Expr) -> bool:
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


def near(facts: Facts, terms: Polynomial) -> Iterator[Polynomial]:
    """Polynomials that are >= 0 and have a term in common with `terms`, each once."""
    for source in NEAR:
        yield from source(facts, terms)


def learnt(facts: Facts, terms: Polynomial) -> Iterator[Polynomial]:
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
