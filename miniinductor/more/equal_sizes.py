"""What an equality of several sizes says: s0 == 2*s1 takes s0 out of all that is asked later.

In:   facts that the prover learns (sizes/facts.py).  Out: a symbol as an expression of the others.

    >>> facts.learn(sympy.Eq(s, 2 * t))
    >>> facts.simplify(s + t) == 3 * t
    True

Without this file each question about such sizes becomes a guard.
"""

import sympy

from ..sizes.facts import LARGEST, Facts


def _replace_a_symbol(self: Facts, gap: sympy.Expr, line: str) -> bool:
    """Of s0 - 2*s1 == 0: s0 is 2*s1 from now on.  Where several symbols could be replaced, it
    is the newest; False if none can be."""
    order = list(self.table)
    pairs = [term.as_coeff_Mul() for term in sympy.Add.make_args(gap)]
    alone = [factor for number, factor in pairs if factor.is_Symbol and abs(number) == 1]
    for symbol in sorted(alone, key=order.index, reverse=True):
        rest = sympy.expand(symbol - gap * gap.coeff(symbol))
        # a symbol with a hint is not replaced by one that only the run knows
        keeps_hint = self.table[symbol].hint is None or self.size_hint(rest) is not None
        if keeps_hint and symbol not in rest.free_symbols:
            self.replacements[symbol] = rest
            keep_bounds(self, symbol, rest, line)
            return True
    return False


def keep_bounds(facts: Facts, symbol: sympy.Symbol, rest: sympy.Expr, line: str) -> None:
    """What was known of `symbol` holds of what it was replaced by."""
    row = facts.table[symbol]
    bounds = [rest - row.low]
    if row.high < LARGEST:
        bounds.append(row.high - rest)
    for bound in bounds:
        if bound.free_symbols:
            facts._learn_nonnegative(sympy.expand(bound), line)


setattr(Facts, "_replace_a_symbol", _replace_a_symbol)
