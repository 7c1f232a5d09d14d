"""Sizes that are symbols: the ShapeEnv hands them out and remembers what the program assumed of them.

In:   sizes (and ints) of this run, each with the source it can be read from again.
Out:  `torch.SymInt`s that torch's fake tensors, the program and the backends compute with; guards: what must hold of other sizes.

    >>> env = ShapeEnv()
    >>> x = symbolic_fake(FakeTensorMode(static_shapes=True), env, torch.randn(5, 3), dims={0}, source=lambda d: f"x.shape[{d}]")
    >>> torch.cat([x, x]).shape                     # torch.Size([2*s0, 3])
    >>> bool(x.shape[0] > 4)                        # a decision: answered for this run and written down
    True
    >>> print(*env.guards())                        # x.shape[0] >= 5

torch.SymInt(node) forwards every operator to `node`, and C++ does the same (PythonSymNodeImpl); neither asks for its class.  A `SymNode`
is a sympy expression with its value in this run, the hint.  Where Python or torch needs a bool or an int, the hint answers; the answer
becomes a guard unless `prove` finds that it holds for all sizes the guards so far allow.

* 0 and 1 are never symbols (broadcasting depends on them): a symbol is at least 2, which is its first guard.
* Equal sizes share a symbol ("duck shaping"); every further source is guarded to be equal.
* An unbacked symbol (`x.nonzero()`, `.item()`) has no hint: it may be computed with, but a decision raises `DataDependentDecision`.

What a backend may use: `sym.node.expr` (sympy over the symbols, `FloorDiv`, `Mod` and the opaque functions below), `.hint`, and
`.shape_env`: `prove`, `simplify`, `bounds`, `size_hint`, `wrap`.
Mirrors torch/fx/experimental/symbolic_shapes.py and sym_node.py (paper section 5).
Left out: constraints of torch.export, nested tensors, translation validation.  miniinductor/index_math.py has a FloorDiv and Mod of its own: they
are simplified over loop ranges, these over what the guards say, and neither package needs the other.
"""
import functools
import math
import operator
from dataclasses import dataclass

import sympy
import torch

INFINITY = sympy.oo
LARGEST = 2**63 - 1


class DataDependentDecision(RuntimeError):
    """A decision needs a value that only the run knows."""
    needs_data = True       # for a backend, which imports nothing of ours


# ---- functions that sympy must leave alone ---------------------------------------------------------------------------
def _exact(a, b):
    """a / b where that is a polynomial with integer coefficients: 4*s0 / 4, s0*s1 / s0; else None."""
    quotient = sympy.cancel(a / b)
    if sympy.denom(quotient) == 1 and all(term.is_integer for term in sympy.Add.make_args(sympy.expand(quotient))):
        return quotient


class FloorDiv(sympy.Function):
    """a // b for b > 0."""
    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, a, b):
        if b == 1 or a == 0:
            return a
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) // int(b))
        return _exact(a, b)


class Mod(sympy.Function):
    """a % b for b > 0."""
    nargs = (2,)
    is_integer = True
    is_nonnegative = True

    @classmethod
    def eval(cls, a, b):
        if b == 1 or a == 0 or a == b:
            return sympy.Integer(0)
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) % int(b))
        if _exact(a, b) is not None:
            return sympy.Integer(0)


def _opaque(name, code, result, compute, target=None):
    """`target`: what computes it in a graph, where torch's numbers may come instead.  A function of Python numbers that is evaluated on numbers and otherwise kept as written: float arithmetic must round as Python's."""
    def evaluate(cls, *args):
        if all(a.is_number for a in args):
            value = compute(*[_number(a) for a in args])
            return sympy.Integer(value) if result is int else sympy.Float(value)
    return type(name, (sympy.Function,), {"eval": classmethod(evaluate), "is_integer": result is int or None, "is_real": True,
                                          "code": code, "compute": staticmethod(compute), "target": staticmethod(target or compute), "result": result})


def _number(expr):
    return int(expr) if expr.is_Integer else float(expr)


OPAQUE = {name: _opaque(name, code, result, compute) for name, code, result, compute in (
    ("TrueDiv", "({} / {})", float, operator.truediv), ("ToFloat", "float({})", float, float),
    ("FloatAdd", "({} + {})", float, operator.add), ("FloatSub", "({} - {})", float, operator.sub),
    ("FloatMul", "({} * {})", float, operator.mul), ("FloatPow", "({} ** {})", float, operator.pow),
    ("FloatFloorDiv", "({} // {})", float, operator.floordiv), ("FloatMod", "({} % {})", float, operator.mod),
    ("FloatMin", "min({}, {})", float, min), ("FloatMax", "max({}, {})", float, max),
    ("FloatNeg", "(-{})", float, operator.neg), ("FloatAbs", "abs({})", float, abs),
    ("Floor", "math.floor({})", int, math.floor), ("Ceil", "math.ceil({})", int, math.ceil), ("Trunc", "math.trunc({})", int, math.trunc),
    ("Round", "round({})", int, round), ("RoundTo", "round({}, {})", float, round),
    ("BitAnd", "({} & {})", int, operator.and_), ("BitOr", "({} | {})", int, operator.or_), ("BitXor", "({} ^ {})", int, operator.xor),
    *((f"Math_{name}", f"math.{name}({{}})", float, getattr(math, name)) for name in
      ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan")),
)}
ATOMS = (FloorDiv, Mod, sympy.Max, sympy.Min, sympy.Abs, *OPAQUE.values())
EXPRESSIONS = {     # a sympy class -> (the function that computes it in a graph, applied two by two?)
    sympy.Gt: (operator.gt, False), sympy.Ge: (operator.ge, False), sympy.Lt: (operator.lt, False), sympy.Le: (operator.le, False),
    sympy.Eq: (operator.eq, False), sympy.Ne: (operator.ne, False), sympy.Add: (operator.add, True), sympy.Mul: (operator.mul, True), sympy.Pow: (operator.pow, False), FloorDiv: (operator.floordiv, False),
    Mod: (operator.mod, False), sympy.Max: (torch.sym_max, True), sympy.Min: (torch.sym_min, True), sympy.Abs: (operator.abs, False)}


# ---- printing as Python ----------------------------------------------------------------------------------------------
def python_code(expr, names=None):
    """`expr` as Python, its symbols written as `names` says (symbol -> text): "x.shape[0] * 2 + 1"."""
    def show(e, tight=False):
        text = write(e)
        return f"({text})" if tight and (e.is_Add or e.is_Mul or getattr(e, "is_Relational", False)) else text

    def write(e):
        if e.is_Symbol:
            return names[e] if names is not None and e in names else e.name
        if e in (sympy.true, sympy.false):
            return str(bool(e))
        if e.is_number:
            return repr(_number(e)) if e not in (INFINITY, -INFINITY) else f"float('{'-' if e < 0 else ''}inf')"
        if e.is_Add:
            terms = sorted(e.args, key=lambda t: (t.is_number, t.could_extract_minus_sign(), str(t)))
            text = show(terms[0])
            for term in terms[1:]:
                minus = term.could_extract_minus_sign()
                text += f" - {show(-term, (-term).is_Add)}" if minus else f" + {show(term)}"
            return text
        if e.is_Mul:
            number, rest = e.as_coeff_Mul()
            factors = [show(f, True) for f in sorted(rest.args if rest.is_Mul else (rest,), key=str)]
            if number == -1:
                return "-" + " * ".join(factors)
            return " * ".join(factors + ([repr(_number(number))] if number != 1 else []))
        if e.is_Pow:
            return f"{show(e.base, True)}**{show(e.exp, True)}"
        if e.is_Relational:
            return f"{show(e.lhs)} {e.rel_op} {show(e.rhs)}"
        if isinstance(e, (sympy.And, sympy.Or)):
            return "(" + (" and " if isinstance(e, sympy.And) else " or ").join(map(show, e.args)) + ")"
        if isinstance(e, sympy.Not):
            return f"(not {show(e.args[0], True)})"
        if isinstance(e, (FloorDiv, Mod)):
            a, b = (show(a, True) for a in e.args)
            return f"({a} {'//' if isinstance(e, FloorDiv) else '%'} {b})"
        if isinstance(e, (sympy.Max, sympy.Min, sympy.Abs)):
            return f"{type(e).__name__.lower()}({', '.join(map(show, e.args))})"
        if isinstance(e, sympy.Piecewise):
            (a, condition), (b, _) = e.args
            return f"({show(a)} if {show(condition)} else {show(b)})"
        return type(e).code.format(*[show(a, True) for a in e.args])
    return write(sympy.sympify(expr))


# ---- the environment -------------------------------------------------------------------------------------------------
@dataclass
class Symbol:
    """One row of the symbol table.  `sources` are what it can be read from; the first defines it, the others are guarded equal."""
    symbol: sympy.Symbol
    hint: int | None                    # the value in this run; None: unbacked
    sources: list
    low: int
    high: int
    line: str = ""
    bounded_at: str = ""                # the line whose decision moved a bound
    pinned_at: str = ""                 # the line that needed the number
    created_by: str = ""                # unbacked: the operation

    @property
    def name(self):
        return self.symbol.name

    @property
    def range(self):
        """What the bounds allow: "2 ... 64"; open above: "2 ..."."""
        return " ".join(["" if self.low <= -LARGEST else str(self.low), "..."] + ([str(self.high)] if self.high < LARGEST else [])).strip()


@dataclass
class Decision:
    """A question that was answered: `fact` is what holds in this run; proved: it holds for all sizes that the guards let through."""
    fact: object
    proved: bool
    line: str

    def __str__(self):
        return python_code(self.fact) + ("    (always)" if self.proved else "") + (f"    # {self.line}" if self.line else "")


@dataclass
class ShapeGuard:
    """`check` is Python with {0}, {1}... for `sources`; kind: EQUAL (a duck-shaped source), RANGE, SIZES (a decision)."""
    kind: str
    check: str
    sources: tuple
    line: str

    @property
    def code(self):
        return self.check.format(*map(name_of, self.sources))

    def __str__(self):
        return self.code + (f"    # {self.line}" if self.line else "")


class ShapeEnv:
    """The symbols of one captured frame and what was assumed of them.  `where()` tells the line that is being compiled."""

    def __init__(self, where=lambda: ""):
        self.table = {}                 # sympy symbol -> Symbol, in the order they were made
        self.decisions = []             # every question once
        self.where = where
        self.replacements = {}          # symbol, or Mod(a, b) -> what it was found equal to
        self.facts, self.unequal = [], set()        # integer expressions that are >= 0; that are not 0
        self.divisible = set()          # (a, b) with a % b == 0
        self.known = {}                 # other relations (of floats) -> bool
        self._asked, self._proofs, self._bounds, self._monomials, self._by_hint, self._unbacked = set(), {}, {}, {}, {}, 0
        self.running = ""               # the operation that fake tensors are run with
        self.allow_scalar_outputs = self.allow_dynamic_output_shape_ops = True      # what fake tensors ask (unbacked sizes)
        self.var_to_range = {}

    # ---- making symbols
    def create_symbol(self, hint, source=None, duck=True):
        """A SymInt for a size or int of this run; `hint` itself below 2.  duck: one that has the same size already may stand for it."""
        if hint < 2:
            return hint
        symbol = self._by_hint.get(hint) if duck else None
        if symbol is None:
            symbol = sympy.Symbol(f"s{len(self.table) - self._unbacked}", integer=True, positive=True)
            self.table[symbol] = Symbol(symbol, hint, [], 2, LARGEST, self.where())
            if duck:
                self._by_hint[hint] = symbol
        if source not in self.table[symbol].sources:
            self.table[symbol].sources.append(source)
        return self.wrap(symbol)

    def create_unbacked(self, created_by="", low=-LARGEST, high=LARGEST, kind=int):
        """A SymInt (kind=float: a SymFloat) whose value only the run knows."""
        symbol = sympy.Symbol(f"u{self._unbacked}", **({"integer": True} if kind is int else {"real": True}), **({"nonnegative": True} if low >= 0 else {}))
        self._unbacked += 1
        self.table[symbol] = Symbol(symbol, None, [], low, high, self.where(), created_by=created_by or self.running)
        return self.wrap(symbol) if kind is int else torch.SymFloat(SymNode(self, symbol, float, None))

    def wrap(self, expr):
        """torch.SymInt of an integer expression over the symbols; a plain int if it is a number."""
        expr = sympy.sympify(expr)
        return int(expr) if expr.is_Integer else torch.SymInt(SymNode(self, expr, int, self.size_hint(expr)))

    def size_hint(self, expr):
        """The value of `expr` in this run; None if it depends on an unbacked symbol."""
        expr = sympy.sympify(expr)
        if any(self.table[s].hint is None for s in expr.free_symbols):
            return None
        value = expr.xreplace({s: sympy.Integer(self.table[s].hint) for s in expr.free_symbols})
        return bool(value) if value in (sympy.true, sympy.false) else _number(value)

    # ---- what is known
    def simplify(self, expr):
        """`expr` after everything found equal, maxima that are known, and exact divisions: 8 * (s0 // 8) is s0 once 8 divides s0."""
        while self.replacements and any(e in self.replacements for e in sympy.preorder_traversal(expr)):
            expr = expr.xreplace(self.replacements)
        if expr.has(sympy.Max, sympy.Min):
            expr = expr.replace(sympy.Max, self._extreme(sympy.Max, 1)).replace(sympy.Min, self._extreme(sympy.Min, -1))
        if self.divisible and expr.has(FloorDiv) and not isinstance(expr, sympy.logic.boolalg.Boolean):
            exact = sympy.expand(self._divide(expr))
            if sympy.denom(sympy.together(exact)) == 1:
                return exact
        return expr

    def _extreme(self, function, sign):
        """max(1, s0 - 1) is s0 - 1 where s0 >= 2."""
        return lambda *args: next((a for a in args if all(a is b or self._nonnegative(sign * (a - b)) for b in args)), function(*args))

    def _divide(self, expr):
        """`expr`, a polynomial, with exact divisions as fractions."""
        if expr.is_Add or expr.is_Mul or expr.is_Pow:
            return expr.func(*map(self._divide, expr.args))
        if isinstance(expr, FloorDiv) and expr.args in self.divisible:
            return self._divide(expr.args[0]) / self._divide(expr.args[1])
        return expr

    def bounds(self, expr):
        """(lowest, highest) value that `expr` can have as far as is known; -oo and oo where unknown."""
        expr = sympy.sympify(expr)
        if expr not in self._bounds:
            self._bounds[expr] = self._find_bounds(expr)
        return self._bounds[expr]

    def _find_bounds(self, expr):
        if expr.is_number:
            return expr, expr
        if expr.is_Symbol:
            row = self.table[expr]
            return sympy.Integer(row.low) if row.low > -LARGEST else -INFINITY, sympy.Integer(row.high) if row.high < LARGEST else INFINITY
        if isinstance(expr, ATOMS):
            return self._bounds_of_atom(expr)
        polynomial = sympy.expand(self._divide(expr))        # each atom q becomes q' + its lowest value; then signs can be read off
        shifted, limits = {}, {}
        for atom in [a for a in polynomial.atoms(sympy.Symbol, *ATOMS) if self._is_top(polynomial, a)]:
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
        return any(atom in (factor, getattr(factor, "base", None)) for term in sympy.Add.make_args(polynomial)
                   for factor in sympy.Mul.make_args(term))

    def _most(self, factors, limits):
        """The highest value of a product of shifted atoms, None if one has no lowest value."""
        most = sympy.Integer(1)
        for factor in sympy.Mul.make_args(factors):
            base, power = factor.as_base_exp()
            if base not in limits or not power.is_Integer or power < 0:
                return None
            if limits[base] == 0:
                return sympy.Integer(0)         # it is its lowest value: 0 even times infinity
            most *= limits[base] ** power
        return most

    def _bounds_of_atom(self, expr):
        parts = [self.bounds(a) for a in expr.args]
        (low, high), (low2, high2) = parts[0], parts[-1]
        if isinstance(expr, FloorDiv):
            if low2 >= 1 and low >= 0:
                return (low // high2 if high2 != INFINITY else sympy.Integer(0)), high // low2 if high != INFINITY else INFINITY
            return -INFINITY, INFINITY
        if isinstance(expr, Mod):
            return sympy.Integer(0), min(high2 - 1, high if low >= 0 else INFINITY)
        if isinstance(expr, (sympy.Max, sympy.Min)):
            pick = max if isinstance(expr, sympy.Max) else min
            return pick(p[0] for p in parts), pick(p[1] for p in parts)
        if isinstance(expr, sympy.Abs):
            return max(sympy.Integer(0), low), max(abs(low), abs(high))
        if isinstance(expr, (OPAQUE["TrueDiv"], OPAQUE["FloatMul"], OPAQUE["FloatAdd"], OPAQUE["Math_sqrt"])):
            return (sympy.Integer(0), INFINITY) if all(p[0] >= 0 for p in parts) and low2 >= 0 else (-INFINITY, INFINITY)
        if isinstance(expr, tuple(OPAQUE[n] for n in ("ToFloat", "Floor", "Trunc", "Round"))):
            return (sympy.Integer(0) if low >= 0 else -INFINITY), INFINITY
        return -INFINITY, INFINITY

    def prove(self, expr):
        """True or False if `expr` (a sympy relation, or And, Or, Not of such) has that value for all sizes let through, else None."""
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
        gap = _reduced(self._divide((expr.lhs - expr.rhs).replace(Mod, self._small_mod)))
        if isinstance(expr, (sympy.Eq, sympy.Ne)):
            equal = True if gap == 0 else \
                False if gap in self.unequal or -gap in self.unequal or self._nonnegative(gap - 1) or self._nonnegative(-gap - 1) else \
                True if self._nonnegative(gap) and self._nonnegative(-gap) else None
            return equal if equal is None or isinstance(expr, sympy.Eq) else not equal
        gap = _at_least(expr, gap)
        return True if self._nonnegative(gap) else False if self._nonnegative(-gap - 1) else None

    def _nonnegative(self, gap):
        """Is the integer expression `gap` >= 0, by its bounds or as a fact plus something >= 0?"""
        if self.bounds(gap)[0] >= 0:
            return True
        own = self._terms(gap)          # a fact helps if it has a term in common
        return any(own & self._terms(fact) and self.bounds(gap - fact)[0] >= 0 for fact in self.facts)

    def _terms(self, expr):
        """{(monomial, is it added?)}"""
        if expr not in self._monomials:
            pairs = [t.as_coeff_Mul() for t in sympy.Add.make_args(sympy.expand(self._divide(expr)))]
            self._monomials[expr] = {(monomial, number > 0) for number, monomial in pairs if monomial != 1}
        return self._monomials[expr]

    def _small_mod(self, a, b):
        """a % b is a where 0 <= a < b, 0 where b is known to divide a."""
        if self.divisible and _exact(self._divide(a), self._divide(b)) is not None:
            return sympy.Integer(0)
        return a if self._nonnegative(a) and self._nonnegative(b - a - 1) else Mod(a, b)

    # ---- decisions
    def decide(self, expr, line=None):
        """The truth of `expr` in this run; a guard on it unless it is proved."""
        expr = self.simplify(expr)
        known = self.prove(expr)
        if known is None and isinstance(expr, sympy.Not):
            return not self.decide(expr.args[0], line)
        if known is None and isinstance(expr, (sympy.And, sympy.Or)):       # part by part: short guards
            stop = isinstance(expr, sympy.Or)
            first = [a for a in expr.args if self.prove(a) is None and self.size_hint(a) is stop]
            return stop if first and self.decide(first[0], line) is stop else \
                stop if any(self.decide(a, line) is stop for a in expr.args) else not stop
        if known is not None and expr in self._asked:
            return known
        value = known if known is not None else self.size_hint(expr)
        fact = expr if value else sympy.Not(expr)
        line = line or self.where()
        if value is None:
            raise DataDependentDecision(f"whether {python_code(expr)} holds depends on {self._origin(expr)}")
        self._asked.update((expr, sympy.Not(expr)))
        if fact not in (sympy.true, sympy.false):
            self.decisions.append(Decision(_canonical(fact), known is not None, line))
        if known is None:
            self.learn(fact, line)
        return value

    def specialize(self, expr, line=None):
        """The number that `expr` has in this run, guarded: the program needs it (range(n), int(n), a list's length)."""
        expr = self.simplify(sympy.sympify(expr))
        value = self.size_hint(expr)
        if value is None:
            raise DataDependentDecision(f"the number {python_code(expr)} is needed, which depends on {self._origin(expr)}")
        if not expr.is_integer:         # a float: pin what it is computed from
            for symbol in expr.free_symbols:
                self.specialize(symbol, line)
        elif not expr.is_number:
            line = line or self.where()
            fact = sympy.Eq(expr, value)
            self.decisions.append(Decision(_canonical(fact), False, line))
            self.learn(fact, line)
        return value

    def _origin(self, expr):
        rows = [self.table[s] for s in sorted(expr.free_symbols, key=str) if self.table[s].hint is None]
        return ", ".join(f"{row.name} ({row.created_by}{' at ' + row.line if row.line else ''})" for row in rows)

    def learn(self, fact, line=""):
        """`fact` holds from now on: later questions may be proved by it."""
        self._proofs.clear()
        self._bounds.clear()
        if isinstance(fact, sympy.And):
            for part in fact.args:
                self.learn(part, line)
            return
        if not fact.is_Relational or not (fact.lhs.is_integer and fact.rhs.is_integer):
            self.known.update({fact: True, sympy.Not(fact): False})
            return
        gap = _reduced(fact.lhs - fact.rhs)
        if isinstance(fact, sympy.Eq):
            self._learn_equal(gap, line)
        elif isinstance(fact, sympy.Ne):
            self.unequal.add(gap)
            for side in (gap, -gap):        # >= 0 and not 0: at least 1
                if self._nonnegative(side):
                    self._learn_nonnegative(side - 1, line)
        else:
            self._learn_nonnegative(_at_least(fact, gap), line)
        self._proofs.clear()
        self._bounds.clear()

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
        divided = _divisibility(gap)
        if divided is not None:
            self.divisible.add(divided)
            self.replacements[Mod(*divided)] = sympy.Integer(0)
            return
        terms = sympy.Add.make_args(gap)
        for symbol in sorted((t.as_coeff_Mul()[1] for t in terms if t.as_coeff_Mul()[1].is_Symbol and abs(t.as_coeff_Mul()[0]) == 1),
                             key=lambda s: -list(self.table).index(s)):     # the newest symbol goes
            sign = gap.coeff(symbol)
            rest = sympy.expand(symbol - gap * sign)
            if rest.is_number:
                self.table[symbol].pinned_at = line
            if symbol not in rest.free_symbols and (self.table[symbol].hint is None or all(
                    self.table[s].hint is not None for s in rest.free_symbols)):
                self.replacements[symbol] = rest
                row = self.table[symbol]
                for bound in (rest - row.low, *([row.high - rest] if row.high < LARGEST else [])):
                    if bound.free_symbols:
                        self._learn_nonnegative(sympy.expand(bound), line)
                return
        constant, rest = gap.as_coeff_Add()
        factor, atom = rest.as_coeff_Mul()
        if isinstance(atom, ATOMS) or atom.is_Symbol:               # s0 // 2 == 3, 2*s0 == 10
            self.replacements[atom] = -constant / factor
            if atom.is_Symbol:
                self.table[atom].pinned_at = line
            return
        self.facts += [gap, -gap]

    # ---- the guards
    def guards(self):
        """What other sizes must satisfy, as `ShapeGuard`s: equalities of duck-shaped sources, bounds, then the rest.

        Facts that follow from the others are left out; `decisions` has them all.
        """
        final, found = ShapeEnv(), []
        final.table = {s: Symbol(s, row.hint, row.sources, row.low, row.high) for s, row in self.table.items()}
        for symbol, row in self.table.items():
            found += [ShapeGuard("EQUAL", "{0} == {1}", (row.sources[0], source), row.line) for source in row.sources[1:]]
            pinned = self.replacements.get(symbol)
            if row.hint is not None and not (pinned is not None and pinned.is_number):
                low, high = f"{{0}} >= {row.low}", f"{row.low} <= {{0}} <= {row.high}"
                found.append(ShapeGuard("RANGE", low if row.high == LARGEST else high, (row.sources[0],), row.bounded_at or row.line))
        for decision in self.decisions:
            fact = decision.fact
            if decision.proved or any(self.table[s].hint is None for s in fact.free_symbols) or final.prove(fact):
                continue
            final.learn(fact)
            symbols = sorted(fact.free_symbols, key=str)
            text = python_code(fact, {s: f"{{{n}}}" for n, s in enumerate(symbols)})
            found.append(ShapeGuard("SIZES", text, tuple(self.table[s].sources[0] for s in symbols), decision.line))
        return found

    def pinned(self):
        """[(source, value, line)] of the symbols that became numbers."""
        found = []
        for symbol, row in self.table.items():
            value = self.simplify(symbol)
            if value.is_number and row.sources:
                line = row.pinned_at or next((self.table[s].pinned_at for s in self.replacements[symbol].free_symbols if self.table[s].pinned_at), "")
                found += [(source, int(value), line) for source in row.sources]
        return found

    def names(self):
        """symbol -> how its first source is written."""
        return {s: name_of(row.sources[0]) if row.sources else s.name for s, row in self.table.items()}

    # ---- what torch's fake tensors ask of `node.shape_env`
    def evaluate_sym_node(self, node, size_oblivious=False, fallback_value=None):
        if fallback_value is not None and node.hint is None and self.prove(node.expr) is None:
            return fallback_value
        return self.decide(node.expr) if node.pytype is bool else self.specialize(node.expr)

    def create_unbacked_symint(self, source=None):
        return self.create_unbacked()

    def create_unbacked_symfloat(self):
        return self.create_unbacked(kind=float)

    def _constrain_range_for_size(self, symbol, min=None, max=None):
        row = self.table[symbol]
        row.low, row.high = builtin_max(row.low, min or 0), builtin_min(row.high, LARGEST if max is None else max)
        self._proofs.clear()
        self._bounds.clear()


builtin_min, builtin_max = min, max


def name_of(source):
    return source.name() if hasattr(source, "name") else str(source)


def _at_least(relation, gap):
    """The integer relation `gap` (>, >=, <, <=) 0 as an expression that is >= 0."""
    return {sympy.Gt: gap - 1, sympy.Ge: gap, sympy.Lt: -gap - 1, sympy.Le: -gap}[type(relation)]


def _reduced(gap):
    """`gap`, expanded, without positive factors that all its terms share: integer coefficients, the same sign, the same zeros."""
    gap = sympy.expand(gap).primitive()[1]
    for symbol in gap.free_symbols:
        while symbol.is_positive and gap != 0 and all(t.as_powers_dict()[symbol] >= 1 for t in sympy.Add.make_args(gap)):
            gap = sympy.expand(gap / symbol)
    return gap


def _divisibility(gap):
    """(a, b) if gap == 0 says that b divides a: Mod(a, b), or b * (a // b) - a."""
    for sign in (gap, -gap):
        if isinstance(sign, Mod):
            return sign.args
        for quotient in sign.atoms(FloorDiv):
            a, b = quotient.args
            if sympy.expand(sign - b * quotient + a) == 0:
                return a, b


def _canonical(fact):
    """An integer relation without common terms and factors: 2*s0 + s1 > s1 + 4 becomes s0 > 2."""
    if not fact.is_Relational or not (fact.lhs.is_integer and fact.rhs.is_integer):
        return fact
    gap = _reduced(fact.lhs - fact.rhs)
    divided = _divisibility(gap)
    if divided is not None and isinstance(fact, (sympy.Eq, sympy.Ne)):
        return fact.func(Mod(*divided), 0, evaluate=False)
    terms = sympy.Add.make_args(gap)
    left, right = [t for t in terms if t.as_coeff_Mul()[0] > 0], [-t for t in terms if t.as_coeff_Mul()[0] < 0]
    relation, numbers = fact.func, [t for t in left if t.is_number]
    if all(t.is_number for t in left) or not left:              # symbols stand on the left
        left, right, relation = right, left, fact.reversed.func
    elif numbers and not any(t.is_number for t in right):
        left, right = [t for t in left if not t.is_number], right + [-t for t in numbers]
    return relation(sympy.Add(*left), sympy.Add(*right), evaluate=False)


# ---- the node behind torch.SymInt, SymFloat and SymBool --------------------------------------------------------------
class SymNode:
    """`expr` with its value in this run (`hint`; None: not known before the run) and `pytype`: int, float or bool."""
    __slots__ = ("shape_env", "_expr", "pytype", "hint")

    def __init__(self, shape_env, expr, pytype, hint):
        self.shape_env, self._expr, self.pytype, self.hint = shape_env, expr, pytype, hint

    @property
    def expr(self):
        return self.shape_env.simplify(self._expr)

    def new(self, expr, pytype, hint):
        return SymNode(self.shape_env, expr, pytype, hint)

    # what kind of number
    def is_int(self): return self.pytype is int
    def is_float(self): return self.pytype is float
    def is_bool(self): return self.pytype is bool
    def is_symbolic(self): return True
    def is_nested_int(self): return False
    def nested_int(self): return None
    def nested_int_coeff(self): return None
    def is_constant(self): return self.constant is not None
    def _value_eq(self, other): return self.expr == other.expr and self.pytype is other.pytype
    def _value_hash(self): return hash((self.expr, self.pytype))
    def has_hint(self): return self.hint is not None
    def clone(self): return self
    def str(self): return python_code(self.expr)
    __str__ = __repr__ = _graph_repr = str

    @property
    def _hint(self): return self.hint

    def require_hint(self, fallback=None):
        return self.hint if self.hint is not None else fallback

    @property
    def constant(self):
        """The number, once the expression depends on no symbol."""
        e = self.expr
        if e in (sympy.true, sympy.false):
            return bool(e)
        return self.pytype(e) if e.is_number else None

    def maybe_as_int(self): return self.constant if self.pytype is int else None
    def maybe_as_float(self): return self.constant if self.pytype is float else None
    def maybe_as_bool(self): return self.constant if self.pytype is bool else None
    def wrap_int(self, n): return self.new(sympy.Integer(n), int, n)
    def wrap_float(self, x): return self.new(sympy.Float(x), float, x)
    def wrap_bool(self, b): return self.new(sympy.true if b else sympy.false, bool, b)

    # decisions
    def guard_bool(self, file="", line=0): return self.shape_env.decide(self.expr)
    def guard_int(self, file="", line=0): return self.shape_env.specialize(self.expr)
    guard_float = guard_int
    bool_, int_ = guard_bool, guard_int
    def expect_size(self, file="", line=0): return True
    def statically_known_true(self, file="", line=0): return self.shape_env.prove(self.expr) is True

    def _or(self, default):
        known = self.shape_env.prove(self.expr)
        return known if known is not None else default if self.size_hint() is None else self.guard_bool()

    def size_hint(self): return self.shape_env.size_hint(self.expr)
    def guard_or_false(self, file="", line=0): return self._or(False)
    def guard_or_true(self, file="", line=0): return self._or(True)
    def guard_size_oblivious(self, file="", line=0): return self._or(False)
    def expect_true(self, file="", line=0): return self.guard_bool()

    # unary
    def pos(self): return self
    def sym_not(self): return self.new(sympy.Not(self.expr), bool, None if self.hint is None else not self.hint)
    def sym_float(self): return self if self.pytype is float else self._call("ToFloat")
    def sym_int(self): return self.trunc()
    def is_integer(self): return self.wrap_bool(True) if self.pytype is int else self.wrap_bool(float(self.guard_float()).is_integer())

    def _call(self, name, *others):
        function, nodes = OPAQUE[name], (self, *others)
        known = all(n.hint is not None for n in nodes)
        return self.new(function(*[n.expr for n in nodes]), function.result, function.compute(*[n.hint for n in nodes]) if known else None)

    def neg(self): return self._call("FloatNeg") if self.pytype is float else self.wrap_int(-1).mul(self)

    def abs(self):
        return self._call("FloatAbs") if self.pytype is float else self.new(sympy.Abs(self.expr), int, None if self.hint is None else abs(self.hint))

    def floor(self): return self if self.pytype is int else self._call("Floor")
    def ceil(self): return self if self.pytype is int else self._call("Ceil")
    def trunc(self): return self if self.pytype is int else self._call("Trunc")

    def round(self, ndigits=None):
        return self if self.pytype is int else self._call("Round") if ndigits is None else self._call("RoundTo", self.wrap_int(ndigits))

    def sym_ite(self, a, b):
        return a if self.guard_bool() else b

    def sym_sum(self, nodes):
        return functools.reduce(SymNode.add, nodes, self.wrap_int(0))

    # int operators whose answer sympy cannot write in general
    def floordiv(self, other): return self._divide("FloatFloorDiv", FloorDiv, operator.floordiv, other)
    def mod(self, other): return self._divide("FloatMod", Mod, operator.mod, other)
    int_floordiv = floordiv

    def _divide(self, opaque, function, compute, other):
        if float in (self.pytype, other.pytype):
            return self._call(opaque, other)
        if other.hint == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        if not self.shape_env.decide(sympy.Gt(other.expr, 0)):      # FloorDiv and Mod are for positive divisors
            self.shape_env.decide(sympy.Lt(other.expr, 0))
            result = self.neg()._divide(opaque, function, compute, other.neg())
            return result if function is FloorDiv else result.neg()
        known = self.hint is not None and other.hint is not None
        return self.new(_cached(function, self.expr, other.expr), int, compute(self.hint, other.hint) if known else None)

    def pow_by_natural(self, other):
        exponent = other.guard_int()
        return self.new(self.expr**exponent, int, None if self.hint is None else self.hint**exponent)

    def lshift(self, other): return self.mul(other.wrap_int(2**other.guard_int()))
    def rshift(self, other): return self.floordiv(other.wrap_int(2**other.guard_int()))

    # layouts: is a tensor of these sizes and strides contiguous in this order of dimensions?
    def _contiguous_in(self, sizes, strides, order):
        expected, answer = self.wrap_int(1), self.wrap_bool(True)
        for d in order:
            answer = answer.sym_and(sizes[d].eq(self.wrap_int(1)).sym_or(strides[d].eq(expected)))
            expected = expected.mul(sizes[d])
        return answer

    def is_contiguous(self, sizes, strides):
        return self._contiguous_in(sizes, strides, range(len(sizes) - 1, -1, -1))

    def is_non_overlapping_and_dense(self, sizes, strides):
        order = sorted(range(len(sizes)), key=lambda d: (strides[d].hint or 0, sizes[d].hint or 0))
        return self._contiguous_in(sizes, strides, order)

    def is_non_overlapping_and_dense_indicator(self, sizes, strides):
        return self.wrap_int(int(self.is_non_overlapping_and_dense(sizes, strides).guard_bool()))

    def _channels_last_strides(self, sizes, strides, order):
        low, answer = self.wrap_int(0), strides[1].ne(self.wrap_int(0))
        for d in order:
            answer = answer.sym_and(sizes[d].ne(self.wrap_int(0))).sym_and(strides[d].ge(low))
            if d == 0:
                answer = answer.sym_and(low.ne(strides[1]))
            low = strides[d].mul(sizes[d].sym_max(self.wrap_int(1)))
        return answer


def _layout(name, rank, order):
    def contiguous(self, sizes, strides):
        return self._contiguous_in(sizes, strides, order) if len(sizes) == rank else self.wrap_bool(False)

    def strided(self, sizes, strides):
        return self._channels_last_strides(sizes, strides, order) if len(sizes) == rank else self.wrap_bool(False)
    setattr(SymNode, f"is_channels_last_contiguous_{name}", contiguous)
    setattr(SymNode, f"is_channels_last_strides_{name}", strided)


_layout("2d", 4, (1, 3, 2, 0))
_layout("3d", 5, (1, 4, 3, 2, 0))

_cached = functools.lru_cache(4096)(lambda function, *args: function(*args))        # tracing asks the same few questions over and over

BINARY = {      # method -> (on numbers, on integer expressions or None, on floats: the opaque function or None, result type or None: int or float)
    "add": (operator.add, operator.add, "FloatAdd", None), "sub": (operator.sub, operator.sub, "FloatSub", None),
    "mul": (operator.mul, operator.mul, "FloatMul", None), "sym_min": (min, sympy.Min, "FloatMin", None),
    "sym_max": (max, sympy.Max, "FloatMax", None), "truediv": (operator.truediv, None, "TrueDiv", float),
    "int_truediv": (operator.truediv, None, "TrueDiv", float), "float_truediv": (operator.truediv, None, "TrueDiv", float),
    "pow": (operator.pow, None, "FloatPow", float), "float_pow": (operator.pow, None, "FloatPow", float),
    "bitwise_and": (operator.and_, None, "BitAnd", int), "bitwise_or": (operator.or_, None, "BitOr", int),
    "bitwise_xor": (operator.xor, None, "BitXor", int),
    "eq": (operator.eq, sympy.Eq, None, bool), "ne": (operator.ne, sympy.Ne, None, bool), "lt": (operator.lt, sympy.Lt, None, bool),
    "le": (operator.le, sympy.Le, None, bool), "gt": (operator.gt, sympy.Gt, None, bool), "ge": (operator.ge, sympy.Ge, None, bool),
    "and_": (operator.and_, sympy.And, None, bool), "or_": (operator.or_, sympy.Or, None, bool),
    "sym_and": (operator.and_, sympy.And, None, bool), "sym_or": (operator.or_, sympy.Or, None, bool),
}


def _install(name, compute, symbolic, opaque, result):
    def method(self, other):
        if opaque is not None and (symbolic is None or float in (self.pytype, other.pytype)):
            return self._call(opaque, other)
        known = self.hint is not None and other.hint is not None
        return self.new(_cached(symbolic, self.expr, other.expr), result or int, compute(self.hint, other.hint) if known else None)
    setattr(SymNode, name, method)


for _name, _row in BINARY.items():
    _install(_name, *_row)
for _name in ("sqrt", "exp", "log2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan"):
    setattr(SymNode, f"sym_{_name}", functools.partialmethod(SymNode._call, f"Math_{_name}"))
    setattr(SymNode, _name, functools.partialmethod(SymNode._call, f"Math_{_name}"))


# ---- fake tensors ----------------------------------------------------------------------------------------------------
def hint_of(n):
    """The number that an int or SymInt has in this run."""
    return n.node.hint if isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool)) else n


def can_be_symbolic(tensor):
    """Are sizes of this tensor ever symbols?  Plain strided ones'; no other kind's."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_nested \
        and not tensor.is_neg() and not tensor.is_conj() and not tensor.is_quantized and tensor.is_inference() == torch.is_inference_mode_enabled() \
        and (tensor.is_leaf or 0 not in tensor.stride())


def symbolic_fake(fake_mode, env, tensor, dims, source=lambda d: None, stride_source=None):
    """A fake of `tensor` whose sizes `dims` are symbols, read from `source(dim)`.

    Strides that are products of inner sizes follow the sizes; others stay numbers, or are symbols where `stride_source(dim)` is not None.
    """
    sizes = [env.create_symbol(n, source(d)) if d in dims else n for d, n in enumerate(tensor.shape)]
    strides, expected = [None] * tensor.dim(), 1
    for d in sorted(range(tensor.dim()), key=lambda d: (tensor.stride(d), tensor.size(d))):     # from the innermost outwards
        stride = tensor.stride(d)
        read_from = stride_source(d) if stride_source is not None else None
        strides[d] = expected if stride == hint_of(expected) else \
            env.create_symbol(stride, read_from, duck=False) if read_from is not None else stride
        expected = strides[d] * sizes[d] if stride else expected
    return fake_like(fake_mode, tensor, sizes, strides)


def fake_like(fake_mode, tensor, sizes, strides):
    """A fake with these sizes and strides; the rest as `tensor` has it."""
    with fake_mode, torch.set_grad_enabled(not tensor.is_leaf):
        fake = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device)
        if tensor.is_leaf:
            return fake.requires_grad_(tensor.requires_grad)
        return fake.copy_(torch.empty((), dtype=tensor.dtype, device=tensor.device, requires_grad=True))    # it follows from something; strides stay
