"""Lowerings of the place of an extreme.

In:   argmax, argmin, max and min along a dimension.  Out: a `Reduction` that gives an index: the first
      among equals, or that of a NaN.

Mirrors torch/_inductor/lowering.py (`make_reduction`).
"""

import torch

from ..ir import TensorBox
from ..lowering.reductions import extreme, reduce
from ..lowering.registry import Call, aten, lower


@lower(aten.max.dim, aten.min.dim)
def extreme_with_index(
    call: Call, x: TensorBox, dim: int, keepdim: bool = False
) -> list[TensorBox]:
    return [extreme(call, x, [dim], keepdim), place_of_extreme(call, x, dim, keepdim)]


@lower(aten.argmax.default, aten.argmin.default)
def place_of_extreme(
    call: Call, x: TensorBox, dim: int | None = None, keepdim: bool = False
) -> TensorBox:
    return reduce(
        call,
        x,
        dim,
        keepdim,
        "arg" + call.name[-3:],
        torch.uint8 if x.dtype == torch.bool else x.dtype,
        torch.int64,
    )
