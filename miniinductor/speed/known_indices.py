"""Integers of a loop body that are known as index expressions.

In:   what a body computes of `index_expr`s and constants.  Out: ordinary indices where it indexes
      with them, and no condition where the loops' sizes decide a comparison.

    x[arange(n) + 1]                     reads x at x0 + 1: no index is loaded, none is checked
    where(arange(n) < n, a, b)           is a

PyTorch: torch/_inductor/index_propagation.py.
"""

import functools
import operator
from collections.abc import Callable, Mapping

import sympy
import torch

from ..dependencies import Recorder, Ref
from ..hooks import extends
from ..sizes.ranges import bounds
from ..sizes.symbols import Size
from .symbolic_divisors import lies_in

FOLLOWED = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "maximum": sympy.Max,
    "minimum": sympy.Min,
    "abs": sympy.Abs,
}
COMPARED = {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}


@extends(Recorder)
class FollowingRecorder(Recorder):
    """Follows what it writes down."""

    def __init__(self, ranges: Mapping[sympy.Symbol, Size]):
        super().__init__(ranges)
        # Ref -> the expression that it equals, or the truth of a condition
        self.known: dict[object, sympy.Expr | bool] = {}

    def expressions(self, *args: object) -> list[sympy.Expr] | None:
        """What these are, if all of them are known integers."""
        found = [self.known.get(a) for a in args]
        return found if all(isinstance(e, sympy.Expr) for e in found) else None

    def knows(self, result: Ref, expr: object, dtype: torch.dtype) -> Ref:
        """int32 and int64 only: they hold every index without wrapping."""
        if isinstance(expr, sympy.Expr) and dtype in (torch.int32, torch.int64):
            self.known[result] = expr
        return result

    # -- integers
    def index_expr(self, expr: Size, dtype: torch.dtype) -> Ref:
        return self.knows(super().index_expr(expr, dtype), sympy.sympify(expr), dtype)

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Ref:
        number = sympy.Integer(int(value)) if isinstance(value, int) else None
        return self.knows(self.emit("constant", value, dtype), number, dtype)

    def to_dtype(self, x: Ref, dtype: torch.dtype, src_dtype: torch.dtype | None = None) -> Ref:
        return self.knows(self.emit("to_dtype", x, dtype, src_dtype), self.known.get(x), dtype)

    def arithmetic(self, op: str, *args: Ref) -> Ref:
        result, known = self.emit(op, *args), self.expressions(*args)
        if known is not None:
            self.known[result] = sympy.expand(FOLLOWED[op](*known))
        return result

    add, sub, mul, maximum, minimum, abs = map(
        functools.partialmethod, [arithmetic] * len(FOLLOWED), FOLLOWED
    )

    def indirect_indexing(self, value: Ref, size: Size, wrap_neg: bool = True) -> sympy.Expr:
        known = self.expressions(value)
        if known is not None and lies_in(known[0], size, self.ranges):
            return known[0]
        return super().indirect_indexing(value, size, wrap_neg)

    # -- conditions
    def compare(self, op: str, a: Ref, b: Ref) -> Ref:
        known = self.expressions(a, b)
        if known is not None:
            difference = sympy.expand(known[0] - known[1])
            outcome = outcome_of(op, bounds(difference, self.ranges))
            if outcome is not None:
                return self.truth(outcome)
        return self.emit(op, a, b)

    def truth(self, value: bool) -> Ref:
        result = self.emit("constant", value, torch.bool)
        self.known[result] = value
        return result

    lt, le, gt, ge, eq, ne = map(functools.partialmethod, [compare] * 6, COMPARED)

    def connect(self, op: str, a: Ref, b: Ref) -> Ref:
        for one, other in ((a, b), (b, a)):
            if isinstance(self.known.get(one), bool):
                neutral = self.known[one] is (op == "logical_and")
                return other if neutral else one
        return self.emit(op, a, b)

    logical_and = functools.partialmethod(connect, "logical_and")
    logical_or = functools.partialmethod(connect, "logical_or")

    def where(self, condition: Ref, a: Ref, b: Ref) -> Ref:
        known = self.known.get(condition)
        if isinstance(known, bool) and isinstance(a, Ref) and isinstance(b, Ref):
            return a if known else b
        return self.emit("where", condition, a, b)

    def masked(self, mask: Ref, body: Callable[[], Ref], other: object) -> Ref:
        return body() if self.known.get(mask) is True else super().masked(mask, body, other)


def outcome_of(op: str, limits: tuple[int, int] | None) -> bool | None:
    """Does `difference op 0` hold for all differences within these limits (True), for none (False)?
    None: for some, or nobody knows."""
    if limits is None:
        return None
    low, high = limits
    outcomes = {COMPARED[op](n, 0) for n in (low, high, *[0] * (low < 0 < high))}
    is_one_point = low == high or not low <= 0 <= high
    if len(outcomes) > 1 or op in ("eq", "ne") and not is_one_point:
        return None
    return outcomes.pop()
