"""Ranges of floats: arange(0.5, 3.0, 0.1).

In:   a call of arange.  Out: a `Pointwise`: start + place * step, rounded once to the result's
      dtype, as eager's kernel does it: in integers where start and step are, and else in float64
      (1e38 is none of float32's).

Without this file they are eager kernels.
"""

from typing import Any

import sympy
import torch

from ..ir import Index, TensorBox
from ..lowering.pointwise import arange, steps_of, whole
from ..lowering.registry import Call, aten, cast, lower, made, number
from ..ops import Value, ops

WIDE = torch.float64


def is_whole(n: Any) -> bool:
    return isinstance(n, sympy.Expr) or (abs(n) < 2**31 and float(n).is_integer())


@lower(aten.arange.start_step, aten.arange.start, aten.arange.default)
def arange_of_floats(call: Call, *args: Any, **kwargs: Any) -> TensorBox:
    dtype = call.value.dtype
    if not dtype.is_floating_point:
        return arange(call, *args, **kwargs)
    start, step = steps_of(*args)

    def body(index: Index) -> Value:
        if is_whole(start) and is_whole(step):
            place = ops.index_expr(index[0] * whole(step) + whole(start), torch.int64)
            return cast(place, torch.int64, dtype)
        value = cast(ops.index_expr(index[0], torch.int64), torch.int64, WIDE)
        value = ops.mul(value, number(step, WIDE))
        return cast(ops.add(value, number(start, WIDE)), WIDE, dtype)

    return made(call, body)
