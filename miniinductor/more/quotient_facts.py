"""What is known of quotients beyond their intervals, and answers that are kept.

In:   facts that the prover learns, and questions that it is asked (sizes/facts.py).
Out:  bounds of what is divided, and the definition of a quotient as a fact; what was simplified
      once is not simplified again before something is learnt.

    >>> facts.learn(FloorDiv(s, 4) >= 3)    # says that s >= 12
    >>> facts.prove(s - 4 * FloorDiv(s, 4) <= 3)
    True

Without this file the guards say more than they need to, and take longer to find.
"""

from collections.abc import Iterator
from typing import Any

import sympy

from ..sizes.expressions import FloorDiv
from ..sizes.facts import Facts, limits_of
from ..sizes.intervals import UNKNOWN
from .polynomials import CONSTANT, Polynomial, plus, polynomial
from . import divisors  # noqa: F401  (whose answers are kept, too)
from .sums import NEAR

learn_limit = Facts._learn_limit


def definitions(facts: Facts, terms: Polynomial) -> Iterator[Polynomial]:
    """0 <= a - b * (a // b) <= b - 1 for each quotient in `terms`."""
    for atom in {atom for monomial in terms for atom, _ in monomial}:
        if isinstance(atom, FloorDiv) and atom.args[1].is_Integer:
            a, b = atom.args
            rest = plus(polynomial(facts._divide(a)), polynomial(atom), -int(b))
            yield rest
            yield plus({CONSTANT: int(b) - 1}, rest, -1)


def _learn_limit(self: Any, atom: sympy.Expr, factor: int, constant: int, line: str) -> None:
    """a // 4 >= 3 says that a >= 12, and a // 4 <= 3 that a <= 15."""
    learn_limit(self, atom, factor, constant, line)
    if not atom.is_Symbol:
        (low, high), (least, most) = limits_of(factor, constant), self.limits.get(atom, UNKNOWN)
        self.limits[atom] = max(least, low), min(most, high)
    if isinstance(atom, FloorDiv) and atom.args[1].is_Integer:
        a, b = atom.args
        if factor > 0:
            edge = a + b * (constant // factor)
        else:
            edge = b * (constant // -factor) + b - 1 - a
        self._learn_nonnegative(sympy.expand(edge), line)


def remember(name: str) -> None:
    """Keep the answers of this method of an expression until a fact is learnt."""
    method = getattr(Facts, name)

    def answer(self: Facts, expr: sympy.Expr) -> sympy.Expr:
        key = (name, expr)
        if key not in self.remembered:
            self.remembered[key] = method(self, expr)
        return self.remembered[key]

    setattr(Facts, name, answer)


NEAR.insert(0, definitions)
setattr(Facts, "_learn_limit", _learn_limit)
for _name in ("simplify", "_divide"):
    remember(_name)
