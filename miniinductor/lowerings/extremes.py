"""Lowerings of extremes' places, and of truth values together.

In:   argmax, argmin, max and min along a dimension; any, all.  Out: a `Reduction`, of places one
      that gives an index: the first among equals, or that of a NaN.

Mirrors torch/_inductor/lowering.py (`make_reduction`).
"""

from pathlib import Path
from typing import Any

import torch

from ..ir import TensorBox
from ..lowering.pointwise import truth
from ..lowering.reductions import extreme, reduce
from ..lowering.registry import Call, NotLowered, aten, lower, mapped
from ..ops import ops
from ..runtime.build import PRELUDES

PRELUDES.append(Path(__file__).with_name("extremes.h"))


@lower(aten.max.dim, aten.min.dim)
def extreme_with_index(
    call: Call, x: TensorBox, dim: int, keepdim: bool = False
) -> list[TensorBox]:
    return [extreme(call, x, [dim], keepdim), place_of_extreme(call, x, dim, keepdim)]


@lower(aten.argmax.default, aten.argmin.default)
def place_of_extreme(
    call: Call, x: TensorBox, dim: int | None = None, keepdim: bool = False
) -> TensorBox:
    compute = torch.uint8 if x.dtype == torch.bool else x.dtype
    return reduce(call, x, dim, keepdim, "arg" + call.name[-3:], compute, torch.int64)


@lower(aten.any, aten.all)
def any_or_all(call: Call, x: TensorBox, dims: Any = None, keepdim: bool = False) -> TensorBox:
    """all(x) is not any(not x)."""
    if call.value.dtype != torch.bool:
        raise NotLowered("uint8 result")
    box = x
    if x.dtype != torch.bool:
        box = mapped(call, x, lambda v: truth(v, x.dtype), torch.bool)
    if call.name == "any":
        return reduce(call, box, dims, keepdim, "any", torch.bool, torch.bool)
    box = mapped(call, box, ops.logical_not, torch.bool)
    some_false = reduce(call, box, dims, keepdim, "any", torch.bool, torch.bool)
    return mapped(call, some_false, ops.logical_not, torch.bool, x)
