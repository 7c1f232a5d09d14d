"""Decisions about sizes: in shorter words; and where they cost too much, numbers instead.

In:   a question that the program asks about its sizes (`ShapeEnv.decide`, `.specialize`).
Out:  the same answer, with fewer and shorter guards: And and Or are asked part by part, and a
      relation is guarded without what stands on both sides.  Where the questions of a frame have
      cost more than `config.size_steps`, the sizes in them are numbers of this run from then on,
      which is told once, with the user's line.

    >>> env.decide(sympy.And(s0 > 2, s1 > 3))       # two guards, s0 >= 3 and s1 >= 4
    >>> canonical(2 * s0 + s1 > s1 + 4)             # s0 > 2

Without this file the whole question is guarded as the program has asked it, and a frame is compiled
for as long as its questions take.
"""

from dataclasses import replace
from typing import Any

import sympy

from miniinductor.more.divisors import divisibility
from miniinductor.sizes.expressions import Mod
from miniinductor.sizes.facts import Facts, reduced
from miniinductor.sizes.printing import python_code

from .extending import extends
from .. import config, records
from ..symbolic_shapes import Decision, ShapeEnv

from .once import tell

specialize_whole = ShapeEnv.specialize
note_plainly = ShapeEnv.note


@extends(ShapeEnv)
class Shorter(ShapeEnv):
    def give_up(self, expr: sympy.Expr) -> None:
        give_up(self, expr)

    def decide_parts(self, expr: sympy.Expr, line: str | None) -> bool | None:
        """And, Or: decided part by part, which makes short guards.  A part that settles the whole
        in this run is asked first, and then no other."""
        if isinstance(expr, sympy.Not):
            return not self.decide(expr.args[0], line)
        if not isinstance(expr, (sympy.And, sympy.Or)):
            return None
        decisive = isinstance(expr, sympy.Or)  # the value of a part that settles the whole
        parts = sorted(expr.args, key=lambda part: self.size_hint(part) is not decisive)
        is_settled = any(self.decide(part, line) is decisive for part in parts)
        return decisive if is_settled else not decisive

    def specialize(self, expr: sympy.Expr, line: str | None = None) -> Any:
        """Of a float, what it is computed from is pinned.  (A symbol that is a float itself:
        variables/more/floats.py, which may be imported before or after this file.)"""
        expr = self.simplify(sympy.sympify(expr))
        value = self.size_hint(expr)
        if expr.is_integer or expr.is_Symbol or value is None:
            return specialize_whole(self, expr, line)
        for symbol in expr.free_symbols:
            self.specialize(symbol, line)
        return value

    def note(self, fact: sympy.Expr, proved: bool, line: str | None) -> None:
        note_plainly(self, canonical(fact), proved, line)

    def guarded(self) -> list[Decision]:
        """A decision that follows from the final bounds, and from guards written so far, needs
        none."""
        final, found = Facts({s: replace(row) for s, row in self.table.items()}), []
        for decision in self.decisions:
            if not decision.proved and not final.prove(decision.fact):
                final.learn(decision.fact)
                found.append(decision)
        return found

    def line_that_pinned(self, replacement: sympy.Expr) -> str:
        """Where a symbol is a number because it was replaced by others: the line that needed the
        number of one of those."""
        for symbol in replacement.free_symbols:
            if self.table[symbol].pinned_at:
                return self.table[symbol].pinned_at
        return ""


def canonical(fact: sympy.Expr) -> sympy.Expr:
    """An integer relation without common terms and factors: 2*s0 + s1 > s1 + 4 becomes s0 > 2."""
    if not fact.is_Relational or not (fact.lhs.is_integer and fact.rhs.is_integer):
        return fact
    gap = reduced(fact.lhs - fact.rhs)
    divided = divisibility(gap)
    if divided is not None and isinstance(fact, (sympy.Eq, sympy.Ne)):
        return fact.func(Mod(*divided), 0, evaluate=False)
    number, rest = gap.as_coeff_Add()
    added = [term for term in sympy.Add.make_args(rest) if term.as_coeff_Mul()[0] > 0]
    if not added:  # 4 - s0 > 0 is s0 < 4
        return fact.reversed.func(-rest, number, evaluate=False)
    left = sympy.Add(*added)
    return fact.func(left, left - rest - number, evaluate=False)


# --- frames that ask too much ---------------------------------------------------------------------
def give_up(env: ShapeEnv, expr: sympy.Expr) -> None:
    """The sizes in `expr` are numbers from now on."""
    for symbol in sorted(env.simplify(expr).free_symbols, key=str):
        row = env.table[symbol]
        if row.hint is None or symbol in env.replacements:
            continue
        text = (
            f"{row.sources[0]} is taken as a number, and not as a symbol, at {env.where()}: what "
            f"the program asks about sizes is too long to be answered for all of them (more than "
            f"config.size_steps = {config.size_steps} steps)"
        )
        env.specialize(symbol)
        tell(text, text)
        records.counters["sizes"][text] += 1


@extends(Decision, "__str__")
def text_of_decision(decision: Decision) -> str:
    """`x.shape[0] > 4    # model.py:12`, as explanations and notebooks print it."""
    text = python_code(decision.fact)
    if decision.proved:
        text += "    (always)"
    return f"{text}    # {decision.line}" if decision.line else text
