"""What is known of quotients beyond their intervals.

In:   facts that the prover learns, and questions that it is asked (sizes/facts.py).
Out:  bounds of what is divided, and the definition of a quotient as a fact.

    >>> facts.learn(FloorDiv(s, 4) >= 3)    # says that s >= 12
    >>> facts.prove(s - 4 * FloorDiv(s, 4) <= 3)
    True

Without this file the guards say more than they need to.
"""

from collections.abc import Iterator

import sympy

from ..sizes.expressions import FloorDiv
from ..sizes.facts import Facts
from ..sizes.polynomials import CONSTANT, Polynomial, plus, polynomial

near = Facts._near
learn_limit = Facts._learn_limit


def _near(self: Facts, terms: Polynomial) -> Iterator[Polynomial]:
    """0 <= a - b * (a // b) <= b - 1 for each quotient in `terms`, and what the core knows."""
    for atom in {atom for monomial in terms for atom, _ in monomial}:
        if isinstance(atom, FloorDiv) and atom.args[1].is_Integer:
            a, b = atom.args
            rest = plus(polynomial(self._divide(a)), polynomial(atom), -int(b))
            yield rest
            yield plus({CONSTANT: int(b) - 1}, rest, -1)
    yield from near(self, terms)


def _learn_limit(self: Facts, atom: sympy.Expr, factor: int, constant: int, line: str) -> None:
    """a // 4 >= 3 says that a >= 12, and a // 4 <= 3 that a <= 15."""
    learn_limit(self, atom, factor, constant, line)
    if isinstance(atom, FloorDiv) and atom.args[1].is_Integer:
        a, b = atom.args
        if factor > 0:
            edge = a + b * (constant // factor)
        else:
            edge = b * (constant // -factor) + b - 1 - a
        self._learn_nonnegative(sympy.expand(edge), line)


Facts._near = _near
Facts._learn_limit = _learn_limit
