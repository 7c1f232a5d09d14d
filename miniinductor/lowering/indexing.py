"""Lowerings whose index depends on data: embedding.

In:   tensors of positions.  Out: `Pointwise` values that load through `ops.indirect_indexing`
      (checked: an index out of range raises IndexError).

lowerings/positions.py has other reads, lowerings/scatters.py writes.  Mirrors
torch/_inductor/lowering.py (`index_impl`, `embedding`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from ..ir import Index, TensorBox
from ..ops import ops
from ..sizes.expressions import Size
from .registry import Call, NotLowered, aten, broadcast_loader, cast, lower, made


def positions_in(
    index: TensorBox, size: Size, shape: Sequence[Size] = (), wrap_neg: bool = False
) -> Callable[[Index], sympy.Expr]:
    """at -> what the tensor `index`, broadcast to `shape`, holds there, as a position among `size`.
    Negative ones count from the end (wrap_neg), or are out of range."""
    if index.dtype not in (torch.int32, torch.int64):
        raise NotLowered(f"positions of {index.dtype}")
    load = broadcast_loader(index, shape or index.get_size())
    return lambda at: ops.indirect_indexing(
        cast(load(at), index.dtype, torch.int64), size, wrap_neg=wrap_neg
    )


@lower(aten.embedding.default)
def embedding(call: Call, weight: TensorBox, indices: TensorBox, *options: Any) -> TensorBox:
    """The options say how the gradient is computed."""
    load, row = weight.make_loader(), positions_in(indices, weight.get_size()[0])
    rank = len(indices.get_size())
    return made(call, lambda index: load([row(index[:rank]), *index[rank:]]), weight, indices)
