"""What is known to divide what: once a guard says that 8 divides s0, 8 * (s0 // 8) is s0.

In:   facts that the prover learns, and expressions that it simplifies (sizes/facts.py).
Out:  fractions in place of quotients that are exact, and `multiples`, for the ranges of loops.

    >>> facts.learn(sympy.Eq(Mod(s, 8), 0))
    >>> facts.simplify(8 * FloorDiv(s, 8)), facts.multiples()
    (s0, {s0: 8})
"""

import math
from typing import Any

import sympy

from ..sizes.expressions import FloorDiv, Mod, exact
from ..sizes.facts import Facts, reduced
from . import other_facts  # noqa: F401  (it adds `divisible`)

plain_simplify = Facts.simplify
plain_learn_equal = Facts._learn_equal


def simplify(self: Any, expr: sympy.Expr) -> sympy.Expr:
    expr = plain_simplify(self, expr)
    is_relation = isinstance(expr, sympy.logic.boolalg.Boolean)
    if self.divisible and not is_relation and expr.has(FloorDiv):
        divided = sympy.expand(self._divide(expr))
        if sympy.denom(sympy.together(divided)) == 1:
            return divided
    return expr


def _divide(self: Any, expr: sympy.Expr) -> sympy.Expr:
    """The polynomial `expr` with a fraction s0 / 8 in place of each s0 // 8 that is exact."""
    if expr.is_Add or expr.is_Mul or expr.is_Pow:
        return expr.func(*map(self._divide, expr.args))
    if not isinstance(expr, FloorDiv) or not self.divisible:
        return expr
    a, b = map(self._divide, expr.args)
    quotient = a / b if expr.args in self.divisible else exact(a, b)
    return expr if quotient is None else quotient


def _small_mod(self: Any, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """a % b: 0 where b is known to divide a, and a where 0 <= a < b."""
    if self.divisible and exact(self._divide(a), self._divide(b)) is not None:
        return sympy.Integer(0)
    return a if self._nonnegative(a) and self._nonnegative(b - a - 1) else Mod(a, b)


def _gap(self: Any, relation: sympy.Expr) -> sympy.Expr:
    return reduced(self._divide((relation.lhs - relation.rhs).replace(Mod, self._small_mod)))


def divisibility(gap: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr] | None:
    """(a, b) if gap == 0 says that b divides a: Mod(a, b), or b * (a // b) - a."""
    for sign in (gap, -gap):
        if isinstance(sign, Mod):
            return sign.args
        for quotient in sign.atoms(FloorDiv):
            a, b = quotient.args
            if sympy.expand(sign - b * quotient + a) == 0:
                return a, b
    return None


def _learn_equal(self: Any, gap: sympy.Expr, line: str) -> None:
    divided = divisibility(gap)
    if divided is None:
        plain_learn_equal(self, gap, line)
        return
    self.divisible.add(divided)
    self.replacements[Mod(*divided)] = sympy.Integer(0)


def multiples(self: Any) -> dict[sympy.Symbol, int]:
    """symbol -> the number that is known to divide it."""
    found: dict[sympy.Symbol, int] = {}
    for a, b in self.divisible:
        if a.is_Symbol and b.is_Integer and self.simplify(a) == a:
            found[a] = math.lcm(found.get(a, 1), int(b))
    return found


for _method in (simplify, _divide, _small_mod, _gap, _learn_equal, multiples):
    setattr(Facts, _method.__name__, _method)
