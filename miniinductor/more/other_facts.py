"""Facts that are no equality or order of integers, and answers that are kept.

In:   facts that the prover learns, and questions that it is asked (sizes/facts.py).
Out:  more of them answered, each but once until something is learnt.

    >>> facts.learn(sympy.And(s >= 4, sympy.Ne(s, 4)))
    >>> facts.prove(s > 4), facts.prove(sympy.Ne(s, 4))
    (True, True)

Without this file the guards say more than they need to, and take longer to find.
"""

from typing import Any

import sympy

from ..sizes.facts import Facts, is_of_integers
from ..sizes.intervals import UNKNOWN, Interval

plain_init = Facts.__init__
plain_bounds, plain_proof, plain_learn = Facts.bounds, Facts.prove, Facts.learn
plain_prove, plain_prove_zero = Facts._prove, Facts._prove_zero


def init(self: Any, *table: Any) -> None:
    plain_init(self, *table)
    self.facts = {}  # sums that are known to be >= 0, for sums.py
    self.unequal = set()  # integer expressions that are known not to be 0
    self.divisible = set()  # (a, b) with a % b == 0, for divisors.py
    self.known = {}  # other relations (of floats): expression -> its value
    # answers, so that the same is not asked twice
    self._proofs, self._bounds = {}, {}
    # for quotient_facts.py: what was simplified; what was learnt of the lowest and highest value of
    # quotients, remainders, maxima, ...
    self.remembered, self.limits = {}, {}


def forget_answers(self: Any) -> None:
    """Forget the answers given so far: by what was learnt there may be others now."""
    self._proofs.clear()
    self._bounds.clear()
    self.remembered.clear()


def bounds(self: Any, expr: sympy.Expr) -> Interval:
    expr = sympy.sympify(expr)
    if expr not in self._bounds:
        low, high = plain_bounds(self, expr)
        least, most = self.limits.get(expr, UNKNOWN)
        self._bounds[expr] = max(low, least), min(high, most)
    return self._bounds[expr]


def prove(self: Any, expr: sympy.Expr) -> bool | None:
    if expr not in self._proofs:
        self._proofs[expr] = plain_proof(self, expr)
    return self._proofs[expr]


def _prove(self: Any, expr: sympy.Expr) -> bool | None:
    if expr.is_Relational and not is_of_integers(expr):
        return self.known.get(expr)
    return plain_prove(self, expr)


def _prove_zero(self: Any, gap: sympy.Expr) -> bool | None:
    if gap != 0 and (gap in self.unequal or -gap in self.unequal):
        return False
    return plain_prove_zero(self, gap)


def learn(self: Any, fact: sympy.Expr, line: str = "") -> None:
    self.forget_answers()  # and at the end once more, since learning asks questions itself
    if isinstance(fact, sympy.And):
        for part in fact.args:
            self.learn(part, line)
        return
    if not is_of_integers(fact):
        self.known.update({fact: True, sympy.Not(fact): False})
        return
    if isinstance(fact, sympy.Ne):
        learn_unequal(self, self._gap(fact), line)
    plain_learn(self, fact, line)
    self.forget_answers()


def learn_unequal(facts: Any, gap: sympy.Expr, line: str) -> None:
    facts.unequal.add(gap)
    for side in (gap, -gap):  # >= 0 and not 0: at least 1
        if facts._nonnegative(side):
            facts._learn_nonnegative(side - 1, line)


setattr(Facts, "__init__", init)
for _method in (forget_answers, bounds, prove, _prove, _prove_zero, learn):
    setattr(Facts, _method.__name__, _method)
