"""Sizes that are symbols: the ShapeEnv hands them out and remembers what the program assumed of
them.

In:   sizes (and ints) of this run, each with the source it can be read from again.
Out:  `torch.SymInt`s that torch's fake tensors, the program and the backends compute with; guards:
      what must hold of other sizes.

    >>> env = ShapeEnv()
    >>> x = symbolic_fake(FakeTensorMode(static_shapes=True), env, torch.randn(5, 3), dims={0}, source=lambda d: f"x.shape[{d}]")
    >>> torch.cat([x, x]).shape                     # torch.Size([2*s0, 3])
    >>> bool(x.shape[0] > 4)                        # a decision: answered for this run and written down
    True
    >>> print(*env.guards())                        # RANGE        x.shape[0] >= 5

A symbolic size is an expression and a hint (symbolic_numbers.py); what is known of sizes stands in
miniinductor/sizes/facts.py.  Where Python or torch needs a bool or an int, the hint answers; the
answer becomes a guard unless `prove` finds that it holds for all sizes the guards so far allow.

* 0 and 1 are never symbols (broadcasting depends on them): a symbol is at least 2, which is its
  first guard.
* Equal sizes share a symbol ("duck shaping"); every further source is guarded to be equal.
* An unbacked symbol (`x.nonzero()`, `.item()`) has no hint: it may be computed with, but a decision
  raises `DataDependentDecision`.

What a backend may use: `sym.node.expr` (sympy over the symbols, `FloorDiv`, `Mod` and opaque
functions), `.hint`, and `.shape_env`: `prove`, `simplify`, `bounds`, `multiples`, `size_hint`,
`wrap`. Mirrors torch/fx/experimental/symbolic_shapes.py (paper section 5).  Left out: constraints
of torch.export, translation validation.
"""

from dataclasses import dataclass

import sympy
import torch

from miniinductor.sizes.expressions import Mod
from miniinductor.sizes.facts import LARGEST, Facts, Symbol, divisibility, reduced
from miniinductor.sizes.printing import python_code

from .guards import Guard
from .sources import name_of
from .symbolic_numbers import SymNode, hint_of


class DataDependentDecision(RuntimeError):
    """A decision needs a value that only the run knows."""

    needs_data = True  # for a backend, which imports nothing of ours


@dataclass
class Decision:
    """A question that was answered: `fact` is what holds in this run; proved: it holds for all
    sizes that the guards let through."""

    fact: object
    proved: bool
    line: str

    def __str__(self):
        return (
            python_code(self.fact)
            + ("    (always)" if self.proved else "")
            + (f"    # {self.line}" if self.line else "")
        )


class ShapeEnv(Facts):
    """The symbols of one captured frame and what was assumed of them.  `where()` tells the line
    that is being compiled."""

    def __init__(self, where=lambda: ""):
        super().__init__()
        self.decisions, self.where = [], where  # every question once
        self._asked, self._by_hint, self._unbacked = set(), {}, 0
        self.running = ""  # the operation that fake tensors are run with
        self.allow_scalar_outputs = self.allow_dynamic_output_shape_ops = (
            True  # what fake tensors ask (unbacked sizes)
        )
        self.var_to_range = {}

    # ---- making symbols
    def create_symbol(self, hint, source=None, duck=True):
        """A SymInt for a size or int of this run; `hint` itself below 2.  duck: one that has the
        same size already may stand for it."""
        if hint < 2:
            return hint
        symbol = self._by_hint.get(hint) if duck else None
        if symbol is None:
            symbol = sympy.Symbol(
                f"s{len(self.table) - self._unbacked}", integer=True, positive=True
            )
            self.table[symbol] = Symbol(symbol, hint, [], 2, LARGEST, self.where())
            if duck:
                self._by_hint[hint] = symbol
        if source not in self.table[symbol].sources:
            self.table[symbol].sources.append(source)
        return self.wrap(symbol)

    def create_unbacked(self, created_by="", low=-LARGEST, high=LARGEST, kind=int):
        """A SymInt (kind=float: a SymFloat) whose value only the run knows."""
        symbol = sympy.Symbol(
            f"u{self._unbacked}",
            **({"integer": True} if kind is int else {"real": True}),
            **({"nonnegative": True} if low >= 0 else {}),
        )
        self._unbacked += 1
        self.table[symbol] = Symbol(
            symbol, None, [], low, high, self.where(), created_by=created_by or self.running
        )
        return (
            self.wrap(symbol) if kind is int else torch.SymFloat(SymNode(self, symbol, float, None))
        )

    def wrap(self, expr):
        """torch.SymInt of an integer expression over the symbols; a plain int if it is a number."""
        expr = sympy.sympify(expr)
        return (
            int(expr)
            if expr.is_Integer
            else torch.SymInt(SymNode(self, expr, int, self.size_hint(expr)))
        )

    # ---- decisions
    def decide(self, expr, line=None):
        """The truth of `expr` in this run; a guard on it unless it is proved."""
        expr = self.simplify(expr)
        known = self.prove(expr)
        if known is None and isinstance(expr, sympy.Not):
            return not self.decide(expr.args[0], line)
        if known is None and isinstance(expr, (sympy.And, sympy.Or)):  # part by part: short guards
            stop = isinstance(expr, sympy.Or)
            first = [a for a in expr.args if self.prove(a) is None and self.size_hint(a) is stop]
            return (
                stop
                if first and self.decide(first[0], line) is stop
                else stop
                if any(self.decide(a, line) is stop for a in expr.args)
                else not stop
            )
        if known is not None and expr in self._asked:
            return known
        value = known if known is not None else self.size_hint(expr)
        fact = expr if value else sympy.Not(expr)
        line = line or self.where()
        if value is None:
            raise DataDependentDecision(
                f"whether {python_code(expr)} holds depends on {self._origin(expr)}"
            )
        self._asked.update((expr, sympy.Not(expr)))
        if fact not in (sympy.true, sympy.false):
            self.decisions.append(Decision(_canonical(fact), known is not None, line))
        if known is None:
            self.learn(fact, line)
        return value

    def specialize(self, expr, line=None):
        """The number that `expr` has in this run, guarded: the program needs it (range(n), int(n),
        a list's length)."""
        expr = self.simplify(sympy.sympify(expr))
        value = self.size_hint(expr)
        if value is None:
            raise DataDependentDecision(
                f"the number {python_code(expr)} is needed, which depends on {self._origin(expr)}"
            )
        if not expr.is_integer:  # a float: pin what it is computed from
            for symbol in expr.free_symbols:
                self.specialize(symbol, line)
        elif not expr.is_number:
            line = line or self.where()
            fact = sympy.Eq(expr, value)
            self.decisions.append(Decision(_canonical(fact), False, line))
            self.learn(fact, line)
        return value

    def _origin(self, expr):
        rows = [
            self.table[s] for s in sorted(expr.free_symbols, key=str) if self.table[s].hint is None
        ]
        return ", ".join(
            f"{row.name} ({row.created_by}{' at ' + row.line if row.line else ''})" for row in rows
        )

    # ---- the guards
    def guards(self):
        """What other sizes must satisfy, as guards: EQUAL (a duck-shaped source), RANGE (bounds),
        SIZES (decisions).

        Facts that follow from the others are left out; `decisions` has them all.
        """
        final, found = (
            Facts(
                {
                    s: Symbol(s, row.hint, row.sources, row.low, row.high)
                    for s, row in self.table.items()
                }
            ),
            [],
        )
        for symbol, row in self.table.items():
            found += [
                Guard("EQUAL", (row.sources[0], source), "{0} == {1}", line=row.line)
                for source in row.sources[1:]
            ]
            pinned = self.replacements.get(symbol)
            if row.hint is not None and not (pinned is not None and pinned.is_number):
                low, high = f"{{0}} >= {row.low}", f"{row.low} <= {{0}} <= {row.high}"
                found.append(
                    Guard(
                        "RANGE",
                        (row.sources[0],),
                        low if row.high == LARGEST else high,
                        line=row.bounded_at or row.line,
                    )
                )
        for decision in self.decisions:
            fact = decision.fact
            if (
                decision.proved
                or any(self.table[s].hint is None for s in fact.free_symbols)
                or final.prove(fact)
            ):
                continue
            final.learn(fact)
            symbols = sorted(fact.free_symbols, key=str)
            text = python_code(fact, {s: f"{{{n}}}" for n, s in enumerate(symbols)})
            found.append(
                Guard(
                    "SIZES",
                    tuple(self.table[s].sources[0] for s in symbols),
                    text,
                    line=decision.line,
                )
            )
        return found

    def pinned(self):
        """[(source, value, line)] of the symbols that became numbers."""
        found = []
        for symbol, row in self.table.items():
            value = self.simplify(symbol)
            if value.is_number and row.sources:
                line = row.pinned_at or next(
                    (
                        self.table[s].pinned_at
                        for s in self.replacements[symbol].free_symbols
                        if self.table[s].pinned_at
                    ),
                    "",
                )
                found += [(source, int(value), line) for source in row.sources]
        return found

    def names(self):
        """symbol -> how its first source is written."""
        return {
            s: name_of(row.sources[0]) if row.sources else s.name for s, row in self.table.items()
        }

    # ---- what torch's fake tensors ask of `node.shape_env`
    def evaluate_sym_node(self, node, size_oblivious=False, fallback_value=None):
        if fallback_value is not None and node.hint is None and self.prove(node.expr) is None:
            return fallback_value
        return self.decide(node.expr) if node.pytype is bool else self.specialize(node.expr)

    def create_unbacked_symint(self, source=None):
        return self.create_unbacked()

    def create_unbacked_symfloat(self):
        return self.create_unbacked(kind=float)

    def _constrain_range_for_size(
        self, symbol, min=None, max=None
    ):  # torch's names hide the builtins
        row = self.table[symbol]
        row.low, row.high = (
            sorted((row.low, min or 0))[1],
            sorted((row.high, LARGEST if max is None else max))[0],
        )
        self.forget_answers()


def _canonical(fact):
    """An integer relation without common terms and factors: 2*s0 + s1 > s1 + 4 becomes s0 > 2."""
    if not fact.is_Relational or not (fact.lhs.is_integer and fact.rhs.is_integer):
        return fact
    gap = reduced(fact.lhs - fact.rhs)
    divided = divisibility(gap)
    if divided is not None and isinstance(fact, (sympy.Eq, sympy.Ne)):
        return fact.func(Mod(*divided), 0, evaluate=False)
    terms = sympy.Add.make_args(gap)
    left, right = (
        [t for t in terms if t.as_coeff_Mul()[0] > 0],
        [-t for t in terms if t.as_coeff_Mul()[0] < 0],
    )
    relation, numbers = fact.func, [t for t in left if t.is_number]
    if all(t.is_number for t in left) or not left:  # symbols stand on the left
        left, right, relation = right, left, fact.reversed.func
    elif numbers and not any(t.is_number for t in right):
        left, right = [t for t in left if not t.is_number], right + [-t for t in numbers]
    return relation(sympy.Add(*left), sympy.Add(*right), evaluate=False)


# ---- fake tensors --------------------------------------------------------------------------------
def can_be_symbolic(tensor):
    """Are sizes of this tensor ever symbols?  Plain strided ones'; no other kind's."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_neg()
        and not tensor.is_conj()
        and not tensor.is_quantized
        and (tensor.is_leaf or 0 not in tensor.stride())
    )


def symbolic_fake(fake_mode, env, tensor, dims, source=lambda d: None, stride_source=None):
    """A fake of `tensor` whose sizes `dims` are symbols, read from `source(dim)`.

    Strides that are products of inner sizes follow the sizes; others stay numbers, or are symbols
    where `stride_source(dim)` is not None.
    """
    sizes = [
        env.create_symbol(n, source(d)) if d in dims else n for d, n in enumerate(tensor.shape)
    ]
    strides, expected = [None] * tensor.dim(), 1
    for d in sorted(
        range(tensor.dim()), key=lambda d: (tensor.stride(d), tensor.size(d))
    ):  # from the innermost outwards
        stride = tensor.stride(d)
        read_from = stride_source(d) if stride_source is not None else None
        strides[d] = (
            expected
            if stride == hint_of(expected)
            else env.create_symbol(stride, read_from, duck=False)
            if read_from is not None
            else stride
        )
        expected = strides[d] * sizes[d] if stride else expected
    return fake_like(fake_mode, tensor, sizes, strides)


def fake_like(fake_mode, tensor, sizes, strides):
    """A fake with these sizes and strides; the rest as `tensor` has it."""
    with (
        fake_mode,
        torch.inference_mode(tensor.is_inference()),
        torch.set_grad_enabled(not tensor.is_leaf),
    ):
        fake = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device)
        if tensor.is_leaf:
            return fake.requires_grad_(tensor.requires_grad)
        return fake.copy_(
            torch.empty((), dtype=tensor.dtype, device=tensor.device, requires_grad=True)
        )  # it follows from something; strides stay
