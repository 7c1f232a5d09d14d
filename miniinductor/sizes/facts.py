"""What is known about sizes, and what follows from it for all of them: bounds, equalities,
divisibility, and a small prover.  It serves guards: minidynamo/symbolic_shapes.py asks it.

In:   rows of the symbol table, facts (sympy relations that hold).  Out: `simplify`, `bounds`,
      `prove` of expressions and relations.

    >>> facts = Facts({s0: Symbol(s0, hint=8, sources=["x.shape[0]"], low=2, high=LARGEST)})
    >>> facts.prove(s0 * 2 > 3), facts.prove(s0 > 7)   # (True, None): some are, some are not
    >>> facts.learn(s0 >= 6)
    >>> facts.prove(s0 > 5), facts.bounds(s0 + 1)
    (True, (7, oo))

The proof is arithmetic of intervals (intervals.py): `a >= b` is `a - b >= 0`, whose lowest value
follows from those of its symbols.  more/ adds exact bounds of sums (exact_bounds.py), what learnt
sums (sums.py), equalities (equal_sizes.py), divisors (divisors.py) and quotients
(quotient_facts.py) say, `and`, `or`, `not` (sums.py), and relations that are no equality or order
of integers (other_facts.py), which also keeps answers.
Mirrors `_maybe_evaluate_static`, `replacements` and `bound_sympy` of
torch/fx/experimental/symbolic_shapes.py (paper section 5). Left out: systems of inequalities
(PyTorch hands those of torch.export to a solver).
"""

from dataclasses import dataclass
from typing import Any

import sympy

from .expressions import ATOMS, INFINITY, as_number
from .intervals import Interval, interval, settled

LARGEST = 2**63 - 1


@dataclass
class Symbol:
    """One row of the symbol table.  `sources` are what it can be read from; the first defines it,
    the others are guarded equal."""

    symbol: sympy.Symbol
    hint: Any  # the value in this run; None: unbacked
    sources: list[Any]
    low: int
    high: int
    line: str = ""
    bounded_at: str = ""  # the line whose decision moved a bound
    pinned_at: str = ""  # the line that needed the number
    created_by: str = ""  # unbacked: the operation

    @property
    def name(self) -> str:
        return self.symbol.name


class Facts:
    """`table`: sympy symbol -> Symbol, whose bounds move as facts are learnt."""

    def __init__(self, table: dict[sympy.Symbol, Symbol] | None = None) -> None:
        self.table: dict[sympy.Symbol, Symbol] = {} if table is None else table
        # a symbol, a quotient or a remainder -> what it was found equal to
        self.replacements: dict[sympy.Expr, sympy.Expr] = {}
        self.steps = 0  # facts that were tried for all the questions so far (more/sums.py)

    def size_hint(self, expr: sympy.Expr) -> Any:
        """The value of `expr` in this run; None if it depends on an unbacked symbol."""
        expr = sympy.sympify(expr)
        if any(self.table[s].hint is None for s in expr.free_symbols):
            return None
        value = expr.xreplace({s: sympy.sympify(self.table[s].hint) for s in expr.free_symbols})
        return bool(value) if value in (sympy.true, sympy.false) else as_number(value)

    def simplify(self, expr: sympy.Expr) -> sympy.Expr:
        """`expr` in simpler form: symbols are replaced by what they were found equal to, maxima by
        the part that they are for sure."""
        while self.replacements and any(
            e in self.replacements for e in sympy.preorder_traversal(expr)
        ):
            expr = expr.xreplace(self.replacements)
        if expr.has(sympy.Max, sympy.Min):
            expr = expr.replace(
                lambda e: isinstance(e, (sympy.Max, sympy.Min)),
                lambda e: settled(e, self._nonnegative),
            )
        return expr

    def _gap(self, relation: sympy.Expr) -> sympy.Expr:
        """The left side minus the right side of an integer relation, in a form that relations of
        the same meaning share: so a known fact is found again in a question.  (more/divisors.py
        looks into its quotients and remainders.)"""
        return reduced(relation.lhs - relation.rhs)

    def bounds(self, expr: sympy.Expr) -> Interval:
        """(lowest, highest) value that `expr` can have as far as is known; -oo and oo where
        unknown."""
        expr = sympy.sympify(expr)
        return self._of_symbol(expr) if expr.is_Symbol else self._interval(expr)

    def _interval(self, expr: sympy.Expr) -> Interval:
        """The interval of what is no symbol.  (more/exact_bounds.py has a narrower one.)"""
        return interval(expr, self.bounds)

    def _of_symbol(self, symbol: sympy.Expr) -> Interval:
        row = self.table[symbol]
        low = sympy.Integer(row.low) if row.low > -LARGEST else -INFINITY
        return low, sympy.Integer(row.high) if row.high < LARGEST else INFINITY

    def prove(self, expr: sympy.Expr) -> bool | None:
        """True or False if `expr` (a sympy relation, or And, Or, Not of such) has that value for
        all sizes let through, else None."""
        return self._prove(self.simplify(expr))

    def _prove(self, expr: sympy.Expr) -> bool | None:
        if expr in (sympy.true, sympy.false):
            return bool(expr)
        if not is_of_integers(expr):
            return None
        gap = self._gap(expr)
        if isinstance(expr, sympy.Eq):
            return self._prove_zero(gap)
        if isinstance(expr, sympy.Ne):
            is_zero = self._prove_zero(gap)
            return None if is_zero is None else not is_zero
        gap = _at_least(expr, gap)
        if self._nonnegative(gap):
            return True
        return False if self._nonnegative(-gap - 1) else None

    def _prove_zero(self, gap: sympy.Expr) -> bool | None:
        if gap == 0:
            return True
        if self._nonnegative(gap - 1) or self._nonnegative(-gap - 1):
            return False
        if self._nonnegative(gap) and self._nonnegative(-gap):
            return True
        return None

    def _nonnegative(self, gap: sympy.Expr) -> bool:
        """Is the integer expression `gap` >= 0, by its bounds?"""
        return bool(self.bounds(gap)[0] >= 0)

    # ---- learning
    def forget_answers(self) -> None:
        """By what was learnt there may be other answers now.  (more/other_facts.py keeps some.)"""

    def learn(self, fact: sympy.Expr, line: str = "") -> None:
        """`fact` holds from now on: later questions may be proved by it.  (more/other_facts.py
        learns from facts that are no equality or order of integers, too.)"""
        if isinstance(fact, sympy.Ne) or not is_of_integers(fact):
            return
        if isinstance(fact, sympy.Eq):
            # not `_gap`: what replaces a symbol must stay integer arithmetic
            self._learn_equal(reduced(fact.lhs - fact.rhs), line)
        else:
            self._learn_nonnegative(_at_least(fact, self._gap(fact)), line)

    def _learn_nonnegative(self, gap: sympy.Expr, line: str) -> None:
        constant, rest = gap.as_coeff_Add()
        factor, atom = rest.as_coeff_Mul()
        if not (constant.is_Integer and factor.is_Integer):
            return
        if atom.is_Symbol or isinstance(atom, ATOMS):
            self._learn_limit(atom, int(factor), int(constant), line)
        else:
            self._learn_sum(gap)

    def _learn_sum(self, gap: sympy.Expr) -> None:
        """`gap`, a sum or product, is >= 0: s0 - s1 >= 0.  (more/sums.py remembers it.)"""

    def _learn_limit(self, atom: sympy.Expr, factor: int, constant: int, line: str) -> None:
        """factor * atom + constant >= 0.  (more/quotient_facts.py: of a quotient, too.)"""
        if atom.is_Symbol:
            row = self.table[atom]
            row.bounded_at = line
            low, high = limits_of(factor, constant)
            row.low, row.high = max(row.low, low), min(row.high, high)

    def _learn_equal(self, gap: sympy.Expr, line: str) -> None:
        constant, rest = gap.as_coeff_Add()
        factor, atom = rest.as_coeff_Mul()
        if atom.is_Symbol or isinstance(atom, ATOMS):  # 2*s0 == 10, s0 // 2 == 3
            self.replacements[atom] = -constant / factor
            if atom.is_Symbol:
                self.table[atom].pinned_at = line
                return
        elif self._replace_a_symbol(gap, line):
            return
        self._learn_nonnegative(gap, line)
        self._learn_nonnegative(-gap, line)

    def _replace_a_symbol(self, gap: sympy.Expr, line: str) -> bool:
        """Of s0 - 2*s1 == 0: s0 is 2*s1 from now on.  False if no symbol can be replaced.
        (more/equal_sizes.py knows which can.)"""
        return False


def limits_of(factor: int, constant: int) -> Interval:
    """What factor * x + constant >= 0 says of an integer x: 2*x - 5 >= 0 that it is at least 3."""
    if factor > 0:
        return -(constant // factor), INFINITY
    return -INFINITY, constant // -factor


def is_of_integers(expr: sympy.Expr) -> bool:
    """Is it a relation of integers?"""
    return expr.is_Relational and expr.lhs.is_integer and expr.rhs.is_integer


def _at_least(relation: sympy.Expr, gap: sympy.Expr) -> sympy.Expr:
    """The integer relation `gap` (>, >=, <, <=) 0 as an expression that is >= 0."""
    return {sympy.Gt: gap - 1, sympy.Ge: gap, sympy.Lt: -gap - 1, sympy.Le: -gap}[type(relation)]


def reduced(gap: sympy.Expr) -> sympy.Expr:
    """`gap`, expanded, without the positive factors that all its terms share: 4*s0*s1 - 2*s0 is
    2*s1 - 1.  The result is zero, positive or negative where `gap` is."""
    gap = sympy.expand(gap).primitive()[1]
    for symbol in gap.free_symbols:
        while (
            symbol.is_positive
            and gap != 0
            and all(t.as_powers_dict()[symbol] >= 1 for t in sympy.Add.make_args(gap))
        ):
            gap = sympy.expand(gap / symbol)
    return gap
