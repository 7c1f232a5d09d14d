"""What is known about sizes, and what follows from it: intervals, and a small prover.

In:   an expression and the intervals of its parts; or rows of the symbol table, and facts (sympy
      relations that hold).
Out:  the lowest and highest value of the expression, infinite where unknown; `simplify`, `bounds`
      and `prove` of expressions over the symbols.

    >>> def of_part(part):                  # for i in 0 ... 31
    ...     return (0, 31) if part == i else interval(part, of_part)
    >>> of_part(FloorDiv(i, 8)), of_part(8 * FloorDiv(i, 8) + 3)
    ((0, 3), (3, 27))
    >>> prover = SizeProver({s0: Symbol(s0, hint=8, sources=["x.shape[0]"], low=2, high=LARGEST)})
    >>> prover.prove(s0 * 2 > 3), prover.prove(s0 > 7)   # (True, None): some are, some are not
    >>> prover.learn(s0 >= 6)
    >>> prover.prove(s0 > 5), prover.bounds(s0 + 1)
    (True, (7, oo))

`interval` does not see that `s*t - s` is never negative, since it takes the two `s` for two values;
`exact_interval` does, but takes thirty times as long.  An integer relation is a question about the
sign of one expression, the gap between its sides, which `PROOFS` are asked in order.
minidynamo/shapes/symbolic_shapes.py makes guards of what is not proved: a weaker prover means more
guards, never wrong ones.

Mirrors torch/utils/_sympy/value_ranges.py, and `_maybe_evaluate_static`, `replacements` and
`bound_sympy` of torch/fx/experimental/symbolic_shapes.py (paper section 5).  Left out: systems of
inequalities (PyTorch hands those of torch.export to a solver).
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from .expressions import (
    ATOMS,
    INFINITY,
    FloorDiv,
    Mod,
    as_number,
    at_least,
    divisibility,
    is_of_integers,
    reduced,
    settled,
)

Interval = tuple[Any, Any]  # integers (Python's or sympy's), or infinities
BELOW_ALL = -INFINITY
UNKNOWN: Interval = (BELOW_ALL, INFINITY)


# --- functions ------------------------------------------------------------------------------------
def _quotient(a: Any, b: Any) -> Any:
    """a // b, where either may be infinite; b >= 1."""
    if a is INFINITY or a is BELOW_ALL:
        return a
    if b is INFINITY:
        return 0 if a >= 0 else -1
    return a // b


def _floor_div(dividend: Interval, divisor: Interval) -> Interval:
    """Divisors are positive: whoever made the quotient saw to that."""
    low, high = dividend
    least, most = divisor
    if most < 1:
        return UNKNOWN
    least = max(least, 1)
    # the larger the divisor, the nearer to 0 is the quotient
    lowest = _quotient(low, most if low >= 0 else least)
    highest = _quotient(high, least if high >= 0 else most)
    return lowest, highest


def _mod(dividend: Interval, divisor: Interval) -> Interval:
    low, high = dividend
    largest = divisor[1] - 1
    if low >= 0:
        largest = min(largest, high)
    return 0, largest


def _of_ends(choose: Callable) -> Callable[..., Any]:
    """The largest or smallest of some parts: that of their lower ends, that of their upper ends."""
    return lambda *parts: tuple(map(choose, zip(*parts)))


RULES: dict[type, Callable[..., Interval]] = {FloorDiv: _floor_div, Mod: _mod}
RULES |= {sympy.Max: _of_ends(max), sympy.Min: _of_ends(min)}
RULES[sympy.Abs] = lambda part: (max(part[0], -part[1], 0), max(-part[0], part[1]))


def of_function(expr: sympy.Expr, parts: Sequence[Interval]) -> Interval:
    """The interval of a quotient, remainder, maximum, ..., from those of its arguments."""
    rule = RULES.get(type(expr))
    return UNKNOWN if rule is None else rule(*parts)


# --- sums and products ----------------------------------------------------------------------------
def interval(expr: sympy.Expr, of_part: Callable[[sympy.Expr], Interval]) -> Interval:
    """The interval of an expression that is no symbol, from those of its parts."""
    if expr.is_Integer:
        return int(expr), int(expr)
    parts = [of_part(part) for part in expr.args]
    if expr.is_Add:
        return sum([low for low, _ in parts]), sum([high for _, high in parts])
    if expr.is_Mul:
        return functools.reduce(_product, parts)
    return of_function(expr, parts) if parts else (expr, expr)


def _product(a: Interval, b: Interval) -> Interval:
    # what is 0 stays 0, however large the other side may be
    ends = [x * y if x and y else 0 for x in a for y in b]
    return min(ends), max(ends)


LARGEST = 2**63 - 1
MOST_TERMS = 400  # of a polynomial: what has more is one atom, of which nothing is known
MOST_STEPS = 500  # facts that are tried for one question: then its answer is not known


@dataclass
class Symbol:
    """One row of the symbol table.  `sources` are what it can be read from; the first defines it,
    the others are guarded equal."""

    symbol: sympy.Symbol
    hint: Any  # the value in this run; None: it is drawn when the graph runs
    sources: list[Any]
    low: int
    high: int
    line: str = ""
    bounded_at: str = ""  # the line whose decision moved a bound
    pinned_at: str = ""  # the line that needed the number
    created_by: str = ""  # the function that draws it

    @property
    def name(self) -> str:
        return self.symbol.name


# --- polynomials ----------------------------------------------------------------------------------
# {monomial: coefficient}, a form that equal polynomials share; a monomial is the set of its (atom,
# power).  An atom is a symbol, or a quotient, maximum, ... as a whole.  (sympy's `expand` takes
# about fifty times as long.)
Monomial = frozenset[tuple[sympy.Expr, int]]
Polynomial = Mapping[Monomial, int]
CONSTANT: Monomial = frozenset()  # the monomial of the term without atoms


@functools.lru_cache(20_000)
def polynomial(expr: sympy.Expr) -> Polynomial:
    """The expression, multiplied out."""
    if expr.is_Integer:
        return {CONSTANT: int(expr)} if expr else {}
    if expr.is_Add:
        return functools.reduce(plus, map(polynomial, expr.args))
    is_power = expr.is_Pow and expr.exp.is_Integer and expr.exp > 0
    if not expr.is_Mul and not is_power:
        return atom_alone(expr)
    terms: Polynomial = {CONSTANT: 1}
    for factor in [expr.base] * int(expr.exp) if is_power else expr.args:
        terms = times(terms, polynomial(factor))
        if len(terms) > MOST_TERMS:
            return atom_alone(expr)
    return terms


def atom_alone(atom: sympy.Expr) -> Polynomial:
    return {frozenset({(atom, 1)}): 1}


def plus(a: Polynomial, b: Polynomial, factor: int = 1) -> Polynomial:
    """a + factor * b"""
    total = dict(a)
    for monomial, number in b.items():
        total[monomial] = total.get(monomial, 0) + factor * number
    return {monomial: number for monomial, number in total.items() if number}


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    product: dict[Monomial, int] = {}
    for first, number in a.items():
        for second, factor in b.items():
            powers = Counter(dict(first))
            powers.update(dict(second))
            monomial = frozenset(powers.items())
            product[monomial] = product.get(monomial, 0) + number * factor
    return {monomial: number for monomial, number in product.items() if number}


def atoms_of(terms: Polynomial) -> set[sympy.Expr]:
    return {atom for monomial in terms for atom, _ in monomial}


# --- exact intervals ------------------------------------------------------------------------------
def of_terms(terms: Polynomial, interval_of: Callable[[sympy.Expr], Interval]) -> Interval:
    """The interval of a polynomial in atoms whose intervals `interval_of` gives.

    Each atom is written as its lowest value plus a rest, which is >= 0.  For s, t >= 1 the
    polynomial s*t - s becomes (1 + a)*(1 + b) - (1 + a) = a*b + b: no term is ever negative.
    (The arithmetic of intervals above does not see that, and is much faster.)"""
    if sum(math.prod(power + 1 for _, power in monomial) for monomial in terms) > MOST_TERMS:
        return UNKNOWN
    heights: dict[sympy.Expr, Any] = {}  # how far above its lowest value an atom can be
    moved: dict[sympy.Expr, Polynomial] = {}
    for atom in atoms_of(terms):
        if not atom.is_Symbol and not isinstance(atom, ATOMS):
            return UNKNOWN  # a negative power, or a product that is too long
        least, most = interval_of(atom)
        if least is BELOW_ALL:
            return UNKNOWN
        moved[atom] = plus(atom_alone(atom), {CONSTANT: least})
        heights[atom] = most - least
    low: Any = 0
    high: Any = 0
    for monomial, number in shifted(terms, moved).items():
        change = number * _most(monomial, heights)
        low += change if number < 0 or not monomial else 0
        high += change if number > 0 or not monomial else 0
    return low, high


def shifted(terms: Polynomial, moved: Mapping[sympy.Expr, Polynomial]) -> Polynomial:
    """The polynomial with `moved[atom]` in place of each atom."""
    total: Polynomial = {}
    for monomial, number in terms.items():
        factors = [moved[atom] for atom, power in monomial for _ in range(power)]
        total = plus(total, functools.reduce(times, factors, {CONSTANT: number}))
    return total


def _most(monomial: Monomial, heights: dict[sympy.Expr, Any]) -> Any:
    """The highest value of a product of rests."""
    if any(heights[atom] == 0 for atom, _ in monomial):
        return 0  # such an atom has one value alone; 0 times infinity is 0 here
    return math.prod(heights[atom] ** power for atom, power in monomial)


def exact_interval(expr: sympy.Expr, of_part: Callable[[sympy.Expr], Interval]) -> Interval:
    """The interval of what is no symbol, from those of its parts."""
    if expr.is_number:
        return (int(expr), int(expr)) if expr.is_Integer else (expr, expr)
    if isinstance(expr, ATOMS):
        return of_function(expr, [of_part(a) for a in expr.args])
    return of_terms(polynomial(expr), of_part)


# --- the prover -----------------------------------------------------------------------------------
def remembered(method: Callable[..., Any]) -> Any:
    """Decorator: what this method of an expression answers is kept until a fact is learnt."""
    name = method.__name__

    @functools.wraps(method)
    def answer(self: "SizeProver", expr: Any) -> Any:
        key = name, expr
        if key not in self.answers:
            self.answers[key] = method(self, expr)
        return self.answers[key]

    return answer


class SizeProver:
    """`table`: sympy symbol -> Symbol, whose bounds move as facts are learnt."""

    def __init__(self, table: dict[sympy.Symbol, Symbol] | None = None) -> None:
        self.table: dict[sympy.Symbol, Symbol] = {} if table is None else table
        # a symbol, a quotient or a remainder -> what it was found equal to
        self.replacements: dict[sympy.Expr, sympy.Expr] = {}
        # (monomial, is it added?) -> polynomials with such a term that are known to be >= 0
        self.facts: dict[tuple[Monomial, bool], list[Polynomial]] = {}
        self.unequal: set[sympy.Expr] = set()  # expressions that are known not to be 0
        self.known: dict[sympy.Expr, bool] = {}  # relations of floats
        self.answers: dict[tuple[str, sympy.Expr], Any] = {}
        self.steps = 0  # facts that were tried for all the questions so far

    def size_hint(self, expr: sympy.Expr) -> Any:
        """The value of `expr` in this run; None if it depends on a symbol without a hint."""
        expr = sympy.sympify(expr)
        if any(self.table[s].hint is None for s in expr.free_symbols):
            return None
        value = expr.xreplace({s: sympy.sympify(self.table[s].hint) for s in expr.free_symbols})
        return bool(value) if value in (sympy.true, sympy.false) else as_number(value)

    # ---- expressions
    @remembered
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
                lambda e: settled(e, self.is_nonnegative),
            )
        if expr.has(Mod):  # the remainder of less than the divisor
            expr = expr.replace(
                lambda e: isinstance(e, Mod) and self.is_below(*e.args), lambda e: e.args[0]
            )
        return expr

    def is_below(self, a: sympy.Expr, b: sympy.Expr) -> bool:
        return self.is_nonnegative(a) and self.is_nonnegative(b - a - 1)

    def gap(self, relation: sympy.Expr) -> sympy.Expr:
        """The left side minus the right side of an integer relation, in a form that relations of
        the same meaning share: so a known fact is found again in a question."""
        return reduced(relation.lhs - relation.rhs)

    @remembered
    def bounds(self, expr: sympy.Expr) -> Interval:
        """(lowest, highest) value that `expr` can have as far as is known; -oo and oo where
        unknown."""
        expr = sympy.sympify(expr)
        if not expr.is_Symbol:
            return exact_interval(expr, self.bounds)
        row = self.table[expr]
        low = sympy.Integer(row.low) if row.low > -LARGEST else -INFINITY
        return low, sympy.Integer(row.high) if row.high < LARGEST else INFINITY

    # ---- questions
    @remembered
    def prove(self, expr: sympy.Expr) -> bool | None:
        """True or False if `expr` (a sympy relation, or And, Or, Not of such) has that value for
        all sizes let through, else None."""
        expr = self.simplify(expr)
        if expr in (sympy.true, sympy.false):
            return bool(expr)
        if isinstance(expr, sympy.Not):
            part = self.prove(expr.args[0])
            return None if part is None else not part
        if isinstance(expr, (sympy.And, sympy.Or)):
            decisive = isinstance(expr, sympy.Or)  # the value of a part that settles the whole
            parts = [self.prove(a) for a in expr.args]
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        if not is_of_integers(expr):
            return self.known.get(expr)
        gap = self.gap(expr)
        if isinstance(expr, (sympy.Eq, sympy.Ne)):
            is_zero = self.is_zero(gap)
            return is_zero if is_zero is None else is_zero is isinstance(expr, sympy.Eq)
        gap = at_least(expr, gap)
        if self.is_nonnegative(gap):
            return True
        return False if self.is_nonnegative(-gap - 1) else None

    def is_zero(self, gap: sympy.Expr) -> bool | None:
        if gap == 0:
            return True
        if gap in self.unequal or -gap in self.unequal:
            return False
        if self.is_nonnegative(gap - 1) or self.is_nonnegative(-gap - 1):
            return False
        return True if self.is_nonnegative(gap) and self.is_nonnegative(-gap) else None

    def is_nonnegative(self, gap: sympy.Expr) -> bool:
        """Is the integer expression `gap` >= 0, for sure?"""
        terms = polynomial(gap)
        return any(proof(self, terms) for proof in PROOFS)

    # ---- learning
    def learn(self, fact: sympy.Expr, line: str = "") -> None:
        """`fact` holds from now on: later questions may be proved by it."""
        self.answers.clear()  # and at the end once more, since learning asks questions itself
        if isinstance(fact, sympy.And):
            for part in fact.args:
                self.learn(part, line)
        elif not is_of_integers(fact):
            self.known.update({fact: True, sympy.Not(fact): False})
        elif isinstance(fact, sympy.Eq):
            self._learn_zero(self.gap(fact), line)
        elif isinstance(fact, sympy.Ne):
            gap = self.gap(fact)
            self.unequal.add(gap)
            for side in (gap, -gap):  # >= 0 and not 0: at least 1
                if self.is_nonnegative(side):
                    self._learn_nonnegative(side - 1, line)
        else:
            self._learn_nonnegative(at_least(fact, self.gap(fact)), line)
        self.answers.clear()

    def _learn_nonnegative(self, gap: sympy.Expr, line: str) -> None:
        constant, rest = gap.as_coeff_Add()
        factor, atom = rest.as_coeff_Mul()
        if atom.is_Symbol and constant.is_Integer and factor.is_Integer:
            row = self.table[atom]
            row.bounded_at = line
            if factor > 0:  # 2*s0 - 5 >= 0: s0 is at least 3
                row.low = max(row.low, -(int(constant) // int(factor)))
            else:
                row.high = min(row.high, int(constant) // -int(factor))
            return
        terms = polynomial(gap)
        for monomial, number in terms.items():
            if monomial:
                self.facts.setdefault((monomial, number > 0), []).append(terms)

    def _learn_zero(self, gap: sympy.Expr, line: str) -> None:
        division = divisibility(gap)
        if division is not None:
            a, b = division
            self.replacements[Mod(a, b)] = sympy.Integer(0)
            self._learn_nonnegative(sympy.expand(b * FloorDiv(a, b) - a), line)
            return
        constant, rest = gap.as_coeff_Add()
        factor, atom = rest.as_coeff_Mul()
        if atom.is_Symbol or isinstance(atom, ATOMS):  # 2*s0 == 10, s0 // 2 == 3
            self.replacements[atom] = -constant / factor
            if atom.is_Symbol:
                self.table[atom].pinned_at = line
                return
        elif self._replace_a_symbol(gap):
            return
        self._learn_nonnegative(gap, line)
        self._learn_nonnegative(-gap, line)

    def _replace_a_symbol(self, gap: sympy.Expr) -> bool:
        """Use the equation gap == 0: s0 - 2*s1 == 0 replaces s0 by 2*s1.  The newest symbol that
        stands alone is replaced; False if there is none."""
        order = list(self.table)
        pairs = [term.as_coeff_Mul() for term in sympy.Add.make_args(gap)]
        alone = [factor for number, factor in pairs if factor.is_Symbol and abs(number) == 1]
        for symbol in sorted(alone, key=order.index, reverse=True):
            rest = sympy.expand(symbol - gap * gap.coeff(symbol))
            if symbol not in rest.free_symbols:
                self.replacements[symbol] = rest
                return True
        return False


# --- how a polynomial is shown to be >= 0 ---------------------------------------------------------
def by_bounds(prover: SizeProver, terms: Polynomial) -> bool:
    """Proof by the lowest value that the atoms allow."""
    return bool(of_terms(terms, prover.bounds)[0] >= 0)


def by_facts(source: Callable[[SizeProver, Polynomial], Iterator[Polynomial]]) -> Callable:
    """Proof as the sum of a fact that is >= 0 and a rest that is >= 0 by its bounds."""

    def proof(prover: SizeProver, terms: Polynomial) -> bool:
        for fact in itertools.islice(source(prover, terms), MOST_STEPS):
            prover.steps += 1
            if by_bounds(prover, plus(terms, fact, -1)):
                return True
        return False

    return proof


def definitions(prover: SizeProver, terms: Polynomial) -> Iterator[Polynomial]:
    """0 <= a - b * (a // b) <= b - 1 for each quotient in `terms`."""
    for atom in atoms_of(terms):
        if isinstance(atom, FloorDiv) and atom.args[1].is_Integer:
            a, b = atom.args
            rest = plus(polynomial(a), polynomial(atom), -int(b))
            yield rest
            yield plus({CONSTANT: int(b) - 1}, rest, -1)


def learnt(prover: SizeProver, terms: Polynomial) -> Iterator[Polynomial]:
    """What was learnt, where it has a term in common with `terms`; each once."""
    found = [prover.facts.get((m, n > 0), ()) for m, n in terms.items() if m]
    yield from {id(fact): fact for some in found for fact in some}.values()


PROOFS: list[Callable[[SizeProver, Polynomial], bool]] = [
    by_bounds,
    by_facts(definitions),
    by_facts(learnt),
]
