"""What is known about sizes, and what follows from it for all of them: bounds, equalities,
divisibility, and a small prover.

In:   rows of the symbol table, facts (sympy relations that hold).  Out: `simplify`, `bounds`,
      `prove` of expressions and relations.

    >>> facts = Facts({s0: Symbol(s0, hint=8, sources=["x.shape[0]"], low=2, high=LARGEST)})
    >>> facts.prove(s0 * 2 > 3), facts.prove(s0 > 7)            # (True, None): None is "some are, some are not"
    >>> facts.learn(sympy.Eq(Mod(s0, 8), 0))
    >>> facts.simplify(8 * FloorDiv(s0, 8)), facts.bounds(s0)   # (s0, (2, oo))

The proof is arithmetic of intervals: `a >= b` is a polynomial `a - b >= 0`; each symbol (and each
quotient, maximum, ...) is written as its lowest value plus something >= 0; then every term's lowest
value can be read off.  What the bounds do not show may be a known fact plus something that they do.
Mirrors `_maybe_evaluate_static`, `replacements` and `bound_sympy` of
torch/fx/experimental/symbolic_shapes.py (paper section 5). Left out: systems of inequalities
(PyTorch hands those of torch.export to a solver).
"""

import math
from dataclasses import dataclass

import sympy

from .expressions import ATOMS, FLOAT_FUNCTIONS, INFINITY, FloorDiv, Mod, as_number, exact

LARGEST = 2**63 - 1


@dataclass
class Symbol:
    """One row of the symbol table.  `sources` are what it can be read from; the first defines it,
    the others are guarded equal."""

    symbol: sympy.Symbol
    hint: int | None  # the value in this run; None: unbacked
    sources: list
    low: int
    high: int
    line: str = ""
    bounded_at: str = ""  # the line whose decision moved a bound
    pinned_at: str = ""  # the line that needed the number
    created_by: str = ""  # unbacked: the operation

    @property
    def name(self):
        return self.symbol.name

    @property
    def range(self):
        """What the bounds allow: "2 ... 64"; open above: "2 ..."."""
        return " ".join(
            ["" if self.low <= -LARGEST else str(self.low), "..."]
            + ([str(self.high)] if self.high < LARGEST else [])
        ).strip()


class Facts:
    """`table`: sympy symbol -> Symbol, whose bounds move as facts are learnt."""

    def __init__(self, table=None):
        self.table = {} if table is None else table
        self.replacements = {}  # symbol, or Mod(a, b) -> what it was found equal to
        self.facts, self.unequal = [], set()  # integer expressions that are >= 0; that are not 0
        self.divisible = set()  # (a, b) with a % b == 0
        self.known = {}  # other relations (of floats) -> bool
        self._proofs, self._bounds, self._monomials = {}, {}, {}

    def size_hint(self, expr):
        """The value of `expr` in this run; None if it depends on an unbacked symbol."""
        expr = sympy.sympify(expr)
        if any(self.table[s].hint is None for s in expr.free_symbols):
            return None
        value = expr.xreplace({s: sympy.Integer(self.table[s].hint) for s in expr.free_symbols})
        return bool(value) if value in (sympy.true, sympy.false) else as_number(value)

    def simplify(self, expr):
        """`expr` after everything found equal, maxima that are known, and exact divisions: 8 * (s0
        // 8) is s0 once 8 divides s0."""
        while self.replacements and any(
            e in self.replacements for e in sympy.preorder_traversal(expr)
        ):
            expr = expr.xreplace(self.replacements)
        if expr.has(sympy.Max, sympy.Min):
            expr = expr.replace(sympy.Max, self._extreme(sympy.Max, 1)).replace(
                sympy.Min, self._extreme(sympy.Min, -1)
            )
        if (
            self.divisible
            and expr.has(FloorDiv)
            and not isinstance(expr, sympy.logic.boolalg.Boolean)
        ):
            exact = sympy.expand(self._divide(expr))
            if sympy.denom(sympy.together(exact)) == 1:
                return exact
        return expr

    def _extreme(self, function, sign):
        """max(1, s0 - 1) is s0 - 1 where s0 >= 2."""
        return lambda *args: next(
            (a for a in args if all(a is b or self._nonnegative(sign * (a - b)) for b in args)),
            function(*args),
        )

    def _divide(self, expr):
        """`expr`, a polynomial, with exact divisions as fractions."""
        if expr.is_Add or expr.is_Mul or expr.is_Pow:
            return expr.func(*map(self._divide, expr.args))
        if isinstance(expr, FloorDiv) and self.divisible:
            a, b = map(self._divide, expr.args)
            quotient = a / b if expr.args in self.divisible else exact(a, b)
            return expr if quotient is None else quotient
        return expr

    def _gap(self, relation):
        """The difference of an integer relation's sides, in the form that facts and questions
        share."""
        return reduced(self._divide((relation.lhs - relation.rhs).replace(Mod, self._small_mod)))

    def bounds(self, expr):
        """(lowest, highest) value that `expr` can have as far as is known; -oo and oo where
        unknown."""
        expr = sympy.sympify(expr)
        if expr not in self._bounds:
            self._bounds[expr] = self._find_bounds(expr)
        return self._bounds[expr]

    def _find_bounds(self, expr):
        if expr.is_number:
            return expr, expr
        if expr.is_Symbol:
            row = self.table[expr]
            return sympy.Integer(row.low) if row.low > -LARGEST else -INFINITY, sympy.Integer(
                row.high
            ) if row.high < LARGEST else INFINITY
        if isinstance(expr, ATOMS):
            return self._bounds_of_atom(expr)
        polynomial = sympy.expand(
            self._divide(expr)
        )  # each atom q becomes q' + its lowest value; then signs can be read off
        shifted, limits = {}, {}
        for atom in [
            a for a in polynomial.atoms(sympy.Symbol, *ATOMS) if self._is_top(polynomial, a)
        ]:
            low, high = self.bounds(atom)
            if low > -INFINITY:
                rest = sympy.Dummy(integer=True, nonnegative=True)
                shifted[atom], limits[rest] = rest + low, high - low
        polynomial = sympy.expand(polynomial.xreplace(shifted))
        low = high = sympy.Integer(0)
        for term in sympy.Add.make_args(polynomial):
            number, factors = term.as_coeff_Mul()
            most = self._most(factors, limits) if factors != 1 else sympy.Integer(1)
            least = sympy.Integer(0) if factors != 1 else sympy.Integer(1)
            if most is None:
                return -INFINITY, INFINITY
            ends = (number * least, number * most if most != INFINITY else INFINITY * number)
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _is_top(self, polynomial, atom):
        return any(
            atom in (factor, getattr(factor, "base", None))
            for term in sympy.Add.make_args(polynomial)
            for factor in sympy.Mul.make_args(term)
        )

    def _most(self, factors, limits):
        """The highest value of a product of shifted atoms, None if one has no lowest value."""
        most = sympy.Integer(1)
        for factor in sympy.Mul.make_args(factors):
            base, power = factor.as_base_exp()
            if base not in limits or not power.is_Integer or power < 0:
                return None
            if limits[base] == 0:
                return sympy.Integer(0)  # it is its lowest value: 0 even times infinity
            most *= limits[base] ** power
        return most

    def _bounds_of_atom(self, expr):
        parts = [self.bounds(a) for a in expr.args]
        (low, high), (low2, high2) = parts[0], parts[-1]
        if isinstance(expr, FloorDiv):
            if low2 >= 1 and low >= 0:
                return (
                    low // high2 if high2 != INFINITY else sympy.Integer(0)
                ), high // low2 if high != INFINITY else INFINITY
            return -INFINITY, INFINITY
        if isinstance(expr, Mod):
            return sympy.Integer(0), min(high2 - 1, high if low >= 0 else INFINITY)
        if isinstance(expr, (sympy.Max, sympy.Min)):
            pick = max if isinstance(expr, sympy.Max) else min
            return pick(p[0] for p in parts), pick(p[1] for p in parts)
        if isinstance(expr, sympy.Abs):
            return max(sympy.Integer(0), low), max(abs(low), abs(high))
        if isinstance(
            expr,
            (
                FLOAT_FUNCTIONS["TrueDiv"],
                FLOAT_FUNCTIONS["FloatMul"],
                FLOAT_FUNCTIONS["FloatAdd"],
                FLOAT_FUNCTIONS["Math_sqrt"],
            ),
        ):
            return (
                (sympy.Integer(0), INFINITY)
                if all(p[0] >= 0 for p in parts) and low2 >= 0
                else (-INFINITY, INFINITY)
            )
        if isinstance(
            expr, tuple(FLOAT_FUNCTIONS[n] for n in ("ToFloat", "Floor", "Trunc", "Round"))
        ):
            return (sympy.Integer(0) if low >= 0 else -INFINITY), INFINITY
        return -INFINITY, INFINITY

    def prove(self, expr):
        """True or False if `expr` (a sympy relation, or And, Or, Not of such) has that value for
        all sizes let through, else None."""
        if expr not in self._proofs:
            self._proofs[expr] = self._prove(self.simplify(expr))
        return self._proofs[expr]

    def _prove(self, expr):
        if expr in (sympy.true, sympy.false):
            return bool(expr)
        if isinstance(expr, sympy.Not):
            inner = self.prove(expr.args[0])
            return None if inner is None else not inner
        if isinstance(expr, (sympy.And, sympy.Or)):
            parts, stop = [self.prove(a) for a in expr.args], isinstance(expr, sympy.Or)
            return stop if stop in parts else None if None in parts else not stop
        if not expr.is_Relational:
            return None
        if not (expr.lhs.is_integer and expr.rhs.is_integer):
            return self.known.get(expr)
        gap = self._gap(expr)
        if isinstance(expr, (sympy.Eq, sympy.Ne)):
            equal = (
                True
                if gap == 0
                else False
                if gap in self.unequal
                or -gap in self.unequal
                or self._nonnegative(gap - 1)
                or self._nonnegative(-gap - 1)
                else True
                if self._nonnegative(gap) and self._nonnegative(-gap)
                else None
            )
            return equal if equal is None or isinstance(expr, sympy.Eq) else not equal
        gap = _at_least(expr, gap)
        return True if self._nonnegative(gap) else False if self._nonnegative(-gap - 1) else None

    def _nonnegative(self, gap):
        """Is the integer expression `gap` >= 0, by its bounds or as a fact plus something >= 0?"""
        if self.bounds(gap)[0] >= 0:
            return True
        own = self._terms(gap)  # a fact helps if it has a term in common
        return any(
            own & self._terms(fact) and self.bounds(gap - fact)[0] >= 0 for fact in self.facts
        )

    def _terms(self, expr):
        """{(monomial, is it added?)}"""
        if expr not in self._monomials:
            pairs = [
                t.as_coeff_Mul() for t in sympy.Add.make_args(sympy.expand(self._divide(expr)))
            ]
            self._monomials[expr] = {
                (monomial, number > 0) for number, monomial in pairs if monomial != 1
            }
        return self._monomials[expr]

    def _small_mod(self, a, b):
        """a % b is a where 0 <= a < b, 0 where b is known to divide a."""
        if self.divisible and exact(self._divide(a), self._divide(b)) is not None:
            return sympy.Integer(0)
        return a if self._nonnegative(a) and self._nonnegative(b - a - 1) else Mod(a, b)

    def multiples(self):
        """symbol -> the number that is known to divide it."""
        found = {}
        for a, b in self.divisible:
            if a.is_Symbol and b.is_Integer and self.simplify(a) == a:
                found[a] = math.lcm(found.get(a, 1), int(b))
        return found

    # ---- learning
    def forget_answers(self):
        """Something was learnt: what was asked before may have another answer."""
        self._proofs.clear()
        self._bounds.clear()

    def learn(self, fact, line=""):
        """`fact` holds from now on: later questions may be proved by it."""
        self.forget_answers()
        if isinstance(fact, sympy.And):
            for part in fact.args:
                self.learn(part, line)
            return
        if not fact.is_Relational or not (fact.lhs.is_integer and fact.rhs.is_integer):
            self.known.update({fact: True, sympy.Not(fact): False})
            return
        gap = self._gap(fact)
        if isinstance(
            fact, sympy.Eq
        ):  # not `gap`: what replaces a symbol must stay integer arithmetic
            self._learn_equal(reduced(fact.lhs - fact.rhs), line)
        elif isinstance(fact, sympy.Ne):
            self.unequal.add(gap)
            for side in (gap, -gap):  # >= 0 and not 0: at least 1
                if self._nonnegative(side):
                    self._learn_nonnegative(side - 1, line)
        else:
            self._learn_nonnegative(_at_least(fact, gap), line)
        self.forget_answers()

    def _learn_nonnegative(self, gap, line):
        constant, rest = gap.as_coeff_Add()
        factor, atom = rest.as_coeff_Mul()
        if atom.is_Symbol and factor.is_Integer:
            row = self.table[atom]
            if factor > 0:
                row.low, row.bounded_at = max(row.low, -(int(constant) // int(factor))), line
            else:
                row.high, row.bounded_at = min(row.high, int(constant) // -int(factor)), line
        else:
            self.facts.append(gap)

    def _learn_equal(self, gap, line):
        divided = divisibility(gap)
        if divided is not None:
            self.divisible.add(divided)
            self.replacements[Mod(*divided)] = sympy.Integer(0)
            return
        terms = sympy.Add.make_args(gap)
        for symbol in sorted(
            (
                t.as_coeff_Mul()[1]
                for t in terms
                if t.as_coeff_Mul()[1].is_Symbol and abs(t.as_coeff_Mul()[0]) == 1
            ),
            key=lambda s: -list(self.table).index(s),
        ):  # the newest symbol goes
            sign = gap.coeff(symbol)
            rest = sympy.expand(symbol - gap * sign)
            if rest.is_number:
                self.table[symbol].pinned_at = line
            if symbol not in rest.free_symbols and (
                self.table[symbol].hint is None
                or all(self.table[s].hint is not None for s in rest.free_symbols)
            ):
                self.replacements[symbol] = rest
                row = self.table[symbol]
                for bound in (rest - row.low, *([row.high - rest] if row.high < LARGEST else [])):
                    if bound.free_symbols:
                        self._learn_nonnegative(sympy.expand(bound), line)
                return
        constant, rest = gap.as_coeff_Add()
        factor, atom = rest.as_coeff_Mul()
        if isinstance(atom, ATOMS) or atom.is_Symbol:  # s0 // 2 == 3, 2*s0 == 10
            self.replacements[atom] = -constant / factor
            if atom.is_Symbol:
                self.table[atom].pinned_at = line
            return
        self.facts += [gap, -gap]


def _at_least(relation, gap):
    """The integer relation `gap` (>, >=, <, <=) 0 as an expression that is >= 0."""
    return {sympy.Gt: gap - 1, sympy.Ge: gap, sympy.Lt: -gap - 1, sympy.Le: -gap}[type(relation)]


def reduced(gap):
    """`gap`, expanded, without positive factors that all its terms share: integer coefficients, the
    same sign, the same zeros."""
    gap = sympy.expand(gap).primitive()[1]
    for symbol in gap.free_symbols:
        while (
            symbol.is_positive
            and gap != 0
            and all(t.as_powers_dict()[symbol] >= 1 for t in sympy.Add.make_args(gap))
        ):
            gap = sympy.expand(gap / symbol)
    return gap


def divisibility(gap):
    """(a, b) if gap == 0 says that b divides a: Mod(a, b), or b * (a // b) - a."""
    for sign in (gap, -gap):
        if isinstance(sign, Mod):
            return sign.args
        for quotient in sign.atoms(FloorDiv):
            a, b = quotient.args
            if sympy.expand(sign - b * quotient + a) == 0:
                return a, b
