"""Sizes that are symbols: the ShapeEnv hands them out and remembers what the program assumed of
them.

In:   sizes (and ints) of this run, each with the source it can be read from again.
Out:  `torch.SymInt`s that torch's fake tensors, the program and the backends compute with; guards:
      what must hold of other sizes.

    >>> env = ShapeEnv()
    >>> x = symbolic_fake(FakeTensorMode(static_shapes=True), env, torch.randn(5, 3), {0: source})
    >>> torch.cat([x, x]).shape                     # torch.Size([2*s0, 3])
    >>> bool(x.shape[0] > 4)                    # a decision: answered for this run and written down
    True
    >>> print(*env.guards())                        # RANGE        x.shape[0] >= 5

A symbolic size is an expression and a hint (symbolic_numbers.py); what is known of sizes stands in
miniinductor/sizes/prover.py.  Where Python or torch needs a bool or an int, the hint answers; the
answer becomes a guard unless `prove` finds that it holds for all sizes the guards so far allow.

* 0 and 1 are never symbols (broadcasting depends on them): a symbol is at least 2, which is its
  first guard.
* Equal sizes share a symbol ("duck shaping"); every further source is guarded to be equal.

What a backend may use: `sym.node.expr` (sympy over the symbols, `FloorDiv`, `Mod` and opaque
functions), `.hint`, and `.shape_env`: `prove`, `simplify`, `bounds`, `size_hint`,
`wrap`. Mirrors torch/fx/experimental/symbolic_shapes.py (paper section 5).  Left out: constraints
of torch.export, translation validation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from miniinductor.sizes.expressions import (
    Mod,
    as_number,
    divisibility,
    is_of_integers,
    python_code,
    reduced,
)
from miniinductor.sizes.prover import LARGEST, SizeProver, Symbol

from .. import config
from ..errors import Break, SkipFrame
from ..guards.guards import Guard
from .symbolic_numbers import SymNode, hint_of


@dataclass
class Decision:
    """A question that was answered: `fact` is what holds in this run; proved: it holds for all
    sizes that the guards let through."""

    fact: sympy.Expr
    proved: bool
    line: str

    def __str__(self) -> str:
        """`x.shape[0] > 4    # model.py:12`, as explanations and notebooks print it."""
        text = python_code(self.fact) + ("    (always)" if self.proved else "")
        return f"{text}    # {self.line}" if self.line else text


def canonical(fact: sympy.Expr) -> sympy.Expr:
    """An integer relation without common terms and factors: 2*s0 + s1 > s1 + 4 becomes s0 > 2."""
    if not is_of_integers(fact):
        return fact
    gap = reduced(fact.lhs - fact.rhs)
    division = divisibility(gap)
    if division is not None and isinstance(fact, (sympy.Eq, sympy.Ne)):
        return fact.func(Mod(*division), 0, evaluate=False)
    number, rest = gap.as_coeff_Add()
    added = [term for term in sympy.Add.make_args(rest) if term.as_coeff_Mul()[0] > 0]
    if not added:  # 4 - s0 > 0 is s0 < 4
        return fact.reversed.func(-rest, number, evaluate=False)
    left = sympy.Add(*added)
    return fact.func(left, left - rest - number, evaluate=False)


class ShapeEnv(SizeProver):
    """The symbols of one captured frame and what was assumed of them.  `where()` tells the line
    that is being compiled."""

    def __init__(self, where: Callable[[], str] = lambda: "") -> None:
        super().__init__()
        self.where = where
        self.decisions: list[Decision] = []  # every question once
        self._asked: set[sympy.Expr] = set()
        self._by_hint: dict[int, sympy.Symbol] = {}  # for duck shaping

    # ---- making symbols
    def create_symbol(self, hint: int, source: Any = None) -> int | torch.SymInt:
        """A SymInt for a size that is `hint` in this run, perhaps that of another size that is
        equal; `hint` itself if it is below 2."""
        if hint < 2:
            return hint
        symbol = self._by_hint.get(hint)
        if symbol is None:
            symbol = self._by_hint[hint] = self.new_symbol(hint, 2)
        if source not in self.table[symbol].sources:
            self.table[symbol].sources.append(source)
        return self.wrap(symbol)

    def create_number(self, hint: int, source: Any) -> int | torch.SymInt:
        """A SymInt for an int that is no size: a natural number, `hint` in this run."""
        symbol = self.new_symbol(hint, 0)
        self.table[symbol].sources.append(source)
        return self.wrap(symbol)

    def new_symbol(self, hint: int, low: int) -> sympy.Symbol:
        """A symbol for numbers from `low` on."""
        number = sum(row.hint is not None for row in self.table.values())
        sign = {"positive": True} if low else {"nonnegative": True}
        symbol = sympy.Symbol(f"s{number}", integer=True, **sign)
        self.table[symbol] = Symbol(symbol, hint, [], low, LARGEST, self.where())
        return symbol

    def wrap(self, expr: sympy.Expr) -> int | torch.SymInt:
        """torch.SymInt of an integer expression over the symbols; a plain int if it is a number."""
        expr = sympy.sympify(expr)
        if expr.is_Integer:
            return int(expr)
        return torch.SymInt(SymNode(self, expr, int, self.size_hint(expr)))

    # ---- decisions
    def decide(self, expr: sympy.Expr) -> bool:
        """Does `expr` hold in this run?  Becomes a guard unless it is proved for all sizes."""
        if self.steps > config.size_steps:
            raise SkipFrame("it asks too much about its sizes (config.size_steps)")
        expr = self.simplify(expr)
        value: Any = self.prove(expr)
        is_proved = value is not None
        if is_proved and expr in self._asked:  # it is written down already
            return value
        if not is_proved:
            value = self.decide_parts(expr)
            if value is not None:
                return value
            value = self.value_now(expr)
        self._asked.update((expr, sympy.Not(expr)))
        fact = expr if value else sympy.Not(expr)
        self.note(fact, is_proved)
        if not is_proved:
            self.learn(fact, self.where())
        return value

    def decide_parts(self, expr: sympy.Expr) -> bool | None:
        """And, Or: decided part by part, which makes short guards.  A part that settles the whole
        in this run is asked first, and then no other.  None: `expr` has no parts."""
        if isinstance(expr, sympy.Not):
            return not self.decide(expr.args[0])
        if not isinstance(expr, (sympy.And, sympy.Or)):
            return None
        decisive = isinstance(expr, sympy.Or)  # the value of a part that settles the whole
        parts = sorted(expr.args, key=lambda part: self.size_hint(part) is not decisive)
        is_settled = any(self.decide(part) is decisive for part in parts)
        return decisive if is_settled else not decisive

    def specialize(self, expr: sympy.Expr) -> Any:
        """The number that `expr` has in this run, guarded: the program needs it (range(n), int(n),
        a list's length).  Of a float, what it is computed from is pinned."""
        expr = self.simplify(sympy.sympify(expr))
        value = self.value_now(expr)
        if expr.is_number:
            return value
        if expr.is_integer:
            fact = sympy.Eq(expr, value)
            self.note(fact, False)
            self.learn(fact, self.where())
        elif expr.is_Symbol:
            row = self.table[expr]
            row.pinned_at = self.where()
            self.replacements[expr] = sympy.Float(row.hint)
            self.note(sympy.Eq(expr, row.hint), False)
            self.answers.clear()
        else:
            for symbol in expr.free_symbols:
                self.specialize(symbol)
        return value

    def value_now(self, expr: sympy.Expr) -> Any:
        """What `expr` is in this run; Break where it depends on a number that the graph draws."""
        value = self.size_hint(expr)
        if value is None:
            rows = [self.table[symbol] for symbol in sorted(expr.free_symbols, key=str)]
            drawn = ", ".join(row.created_by for row in rows if row.hint is None)
            text = f"{python_code(expr)} depends on {drawn}, which is drawn when the graph runs"
            raise Break("data-dependent", text, "keep the decision outside the compiled function")
        return value

    def note(self, fact: sympy.Expr, proved: bool) -> None:
        """Write down what holds in this run."""
        fact = canonical(fact)
        if fact not in (sympy.true, sympy.false):
            self.decisions.append(Decision(fact, proved, self.where()))

    # ---- the guards
    def guards(self) -> list[Guard]:
        """What other sizes must satisfy, as guards: EQUAL (a duck-shaped source), RANGE (bounds),
        SIZES (decisions)."""
        found = []
        for symbol, row in self.table.items():
            found += self._guards_of_symbol(symbol, row)
        for decision in self.guarded():
            fact = decision.fact
            symbols = sorted(fact.free_symbols, key=str)
            text = python_code(fact, {s: f"{{{n}}}" for n, s in enumerate(symbols)})
            sources = tuple(self.table[s].sources[0] for s in symbols)
            found.append(Guard("SIZES", sources, text, line=decision.line))
        return found

    def guarded(self) -> list[Decision]:
        """The decisions that take a guard: one that follows from the final bounds, and from guards
        written so far, needs none."""
        final, found = SizeProver({s: replace(row) for s, row in self.table.items()}), []
        for decision in self.decisions:
            if not decision.proved and not final.prove(decision.fact):
                final.learn(decision.fact)
                found.append(decision)
        return found

    def _guards_of_symbol(self, symbol: sympy.Symbol, row: Symbol) -> list[Guard]:
        found = [
            Guard("EQUAL", (row.sources[0], source), "{0} == {1}", line=row.line)
            for source in row.sources[1:]
        ]
        pinned = self.replacements.get(symbol)
        is_number = pinned is not None and pinned.is_number
        if row.hint is not None and symbol.is_integer and not is_number:
            text = f"{{0}} >= {row.low}"
            if row.high != LARGEST:
                text = f"{row.low} <= {{0}} <= {row.high}"
            line = row.bounded_at or row.line
            found.append(Guard("RANGE", (row.sources[0],), text, line=line))
        return found

    def pinned(self) -> list[tuple[Any, float, str]]:
        """[(source, value, line)] of the symbols that became numbers."""
        found = []
        for symbol, row in self.table.items():
            value = self.simplify(symbol)
            if value.is_number:
                found += [(source, as_number(value), row.pinned_at) for source in row.sources]
        return found

    # ---- what torch's fake tensors ask of `node.shape_env`
    def evaluate_sym_node(
        self, node: SymNode, size_oblivious: bool = False, fallback_value: Any = None
    ) -> Any:
        return self.decide(node.expr) if node.pytype is bool else self.specialize(node.expr)


# ---- fake tensors --------------------------------------------------------------------------------
def can_be_symbolic(tensor: torch.Tensor) -> bool:
    """May sizes of this tensor be symbols?  Only those of plain strided tensors may."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_neg()
        and not tensor.is_conj()
        and not tensor.is_quantized
        and (tensor.is_leaf or 0 not in tensor.stride())
    )


def symbolic_fake(
    fake_mode: Any, env: ShapeEnv, tensor: torch.Tensor, sources: Mapping[int, Any]
) -> torch.Tensor:
    """A fake of `tensor` whose sizes are symbols in the dimensions of `sources`, which says where
    each is read.

    Strides that are products of inner sizes follow the sizes; others are numbers.
    """
    sizes = [
        env.create_symbol(n, sources[d]) if d in sources else n for d, n in enumerate(tensor.shape)
    ]
    strides: dict[int, int | torch.SymInt] = {}
    expected: int | torch.SymInt = 1
    from_the_innermost = sorted(
        range(tensor.dim()), key=lambda d: (tensor.stride(d), tensor.size(d))
    )
    for d in from_the_innermost:
        stride = tensor.stride(d)
        strides[d] = expected if stride == hint_of(expected) else stride
        if stride:  # 0 in a dimension that is expanded
            expected = strides[d] * sizes[d]
    return fake_like(fake_mode, tensor, sizes, [strides[d] for d in range(tensor.dim())])


def fake_like(
    fake_mode: Any, tensor: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any]
) -> torch.Tensor:
    """A fake with these sizes and strides; the rest as `tensor` has it."""
    with (
        fake_mode,
        torch.inference_mode(tensor.is_inference()),
        torch.set_grad_enabled(not tensor.is_leaf),
    ):
        fake = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device)
        if tensor.is_leaf:
            return fake.requires_grad_(tensor.requires_grad)
        # the tensor has a history: the fake gets one by a copy, which leaves its strides alone
        origin = torch.empty((), dtype=tensor.dtype, device=tensor.device, requires_grad=True)
        return fake.copy_(origin)
