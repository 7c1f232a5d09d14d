"""Integers that a loop computes in floats: what resampling by neighbours reads.

    (int64_t)((float)x0 * 0.25f)            reads at x0//4, for all x0 below 448: no float is
                                            computed, no index is checked, and loops are split
                                            by it (loop_order.py)

In:   what a body computes of one loop's number and constants.  Out: an index expression, where all
      values of that loop, computed here as the kernel would, are a quotient or lie in equal steps.

On a GPU the index is computed once for a line of elements (gpu/tile_plan.py), which was measured
there; this was not.
PyTorch: no counterpart; its kernels compute such an index for each element.
"""

import functools
import operator
from collections.abc import Mapping

import sympy
import torch

from ..dependencies import Recorder, Ref
from ..extras.interpreter import evaluate
from ..hooks import extends
from ..devices import recomputes
from ..sizes.expressions import FloorDiv
from ..sizes.symbols import Size
from .known_indices import FollowingRecorder

LONGEST = 1 << 14  # iterations of a loop of which all are looked at
FOLLOWED = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
}


@extends(Recorder)
class FloatRecorder(FollowingRecorder):
    """Follows floats, too, for as long as they vary with one loop."""

    def __init__(self, ranges: Mapping[sympy.Symbol, Size]):
        super().__init__(ranges)
        self.floats: dict[Ref, float] = {}  # constants
        # Ref -> (the loop's variable, the value in each of its iterations)
        self.varying: dict[Ref, tuple[sympy.Symbol, torch.Tensor]] = {}

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Ref:
        result = super().constant(value, dtype)
        if isinstance(value, (int, float)):
            self.floats[result] = float(value)
        return result

    def to_dtype(self, x: Ref, dtype: torch.dtype, src_dtype: torch.dtype | None = None) -> Ref:
        result = super().to_dtype(x, dtype, src_dtype)
        if recomputes(self.device):
            return result
        if dtype in (torch.float32, torch.float64):
            values = self.varying.get(x) or self.of_loop(self.known.get(x))
            if values is not None:
                self.varying[result] = values[0], values[1].to(dtype)
        elif dtype is torch.int64 and x in self.varying:
            place = place_of(*self.varying[x])
            if place is not None:
                self.known[result] = place
        return result

    def of_loop(self, known: object) -> tuple[sympy.Symbol, torch.Tensor] | None:
        """(variable, values) of an integer that varies with one loop of a known size."""
        variables = known.free_symbols if isinstance(known, sympy.Expr) else set()
        if len(variables) != 1:
            return None
        [variable] = variables
        size = self.ranges.get(variable)
        if not isinstance(size, (int, sympy.Integer)) or not 1 < size <= LONGEST:
            return None
        numbers = torch.arange(int(size), device="cpu")
        return variable, evaluate(known, {variable: numbers})

    def calculated(self, op: str, a: Ref, b: Ref) -> Ref:
        plain = getattr(super(), op)
        result = plain(a, b)
        varying = self.varying.get(a) or self.varying.get(b)
        if varying is not None:
            variable, values = varying
            both = [self.operand(one, variable, values) for one in (a, b)]
            if all(one is not None for one in both):
                self.varying[result] = variable, FOLLOWED[op](*both)
        return result

    def operand(self, x: Ref, variable: sympy.Symbol, like: torch.Tensor) -> torch.Tensor | None:
        """An operand's values, as many as there are iterations."""
        if x in self.floats:
            return torch.full_like(like, self.floats[x])
        own, values = self.varying.get(x, (None, like))
        return values if own == variable and values.dtype == like.dtype else None

    add, sub, mul, truediv = map(functools.partialmethod, [calculated] * len(FOLLOWED), FOLLOWED)


def place_of(variable: sympy.Symbol, values: torch.Tensor) -> sympy.Expr | None:
    """The index whose value in each iteration is this float, cut to an integer; None: no simple
    one is."""
    if not values.isfinite().all():
        return None
    places = values.to(torch.int64)
    numbers = torch.arange(len(places), device="cpu")
    first, step = int(places[0]), int(places[1] - places[0])
    if step and torch.equal(places, first + step * numbers):
        return first + step * variable
    count = int((places == first).sum())
    if 1 < count < len(places) and torch.equal(places, numbers // count):
        return FloorDiv(variable, count)
    return None
