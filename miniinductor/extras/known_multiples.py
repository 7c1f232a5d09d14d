"""What guards say of divisors of sizes, while a graph is lowered: `x.view(-1, 8)` has found that 8
divides a size.

In:   a functional graph whose first placeholders are sizes.  Out: simpler indices in its kernels.

    with multiples({s: 8}):                         # a guard says that 8 divides the size s
        simplify(FloorDiv(s * i + j, 8), {j: 8})    # i * (s // 8)
"""

import functools
from collections.abc import Sequence
from typing import Any

import sympy
from torch import fx

from ..compile import Compilation
from ..current import Current
from ..hooks import extends
from ..more import divisors  # noqa: F401  (it adds `multiples`)
from ..records import CompileRecord
from ..sizes.expressions import FloorDiv
from ..sizes.ranges import closed, opened
from ..sizes.symbols import symbolic_placeholders

_multiples = Current({})  # symbol -> a number that divides it for all sizes
multiples = _multiples.set


def multiples_of(graph: fx.Graph) -> dict[sympy.Symbol, int]:
    """symbol -> a number that divides it, as far as the symbols' owner has learnt."""
    for node in symbolic_placeholders(graph):
        return dict(node.shape_env.multiples())  # they all have one owner
    return {}


@extends(Compilation)
class KnownMultiples(Compilation):
    def compile_functional(
        self, functional: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]]
    ) -> Any:
        with multiples(multiples_of(functional.graph)):
            return super().compile_functional(functional, record, written)


@opened.replaced
def with_parts(expression: sympy.Expr) -> sympy.Expr:
    return expression.xreplace({s: k * _part(s, k) for s, k in _multiples.value.items()})


@closed.replaced
def without_parts(expression: sympy.Expr) -> sympy.Expr:
    """8 * s_by_8 is s again, and a part s_by_8 that is left alone becomes s // 8."""
    parts = {_part(s, k): (s, k) for s, k in _multiples.value.items()}
    if not parts or not expression.has(*parts):
        return expression

    def close(e: sympy.Expr) -> sympy.Expr:
        if e in parts:
            return FloorDiv(*parts[e])
        if e.is_Mul:
            number, rest = e.as_coeff_Mul()
            for part in parts.keys() & set(sympy.Mul.make_args(rest)):
                symbol, k = parts[part]
                if number % k == 0:
                    return close(number / k * symbol * (rest / part))
        return e.func(*map(close, e.args)) if e.args else e

    return close(expression)


@functools.lru_cache(None)
def _part(symbol: sympy.Symbol, k: int) -> sympy.Symbol:
    return sympy.Symbol(f"{symbol}_by_{k}", integer=True, positive=True)
