"""Strides that are symbols of their own, because they follow from no sizes.

In:   a tensor of the program: a slice of a wider one, say.
Out:  a symbol for each stride that has changed between calls; with dynamic=True for each that is no
      product of inner sizes.

    x = whole[:, :n]        # x.stride(0) is the width of `whole`

Without this file such a stride is a number, guarded: another one takes another compilation.
"""

from typing import Any

import torch

from ..dynamic import SizePolicy
from ..graph_capture import OutputGraph
from ..sources import KINDS, Source
from ..symbolic_shapes import can_be_symbolic
from .extending import extends

KINDS["stride"] = "{p}.stride({k})"
sizes_of_tensor = SizePolicy.of_tensor


@extends(SizePolicy)
def of_tensor(policy: SizePolicy, tensor: torch.Tensor, source: Source) -> set[int] | None:
    dims = sizes_of_tensor(policy, tensor, source)
    strides = symbolic_strides(policy, tensor, source.name())
    vars(policy).setdefault("strides", {})[source] = strides
    return set() if dims is None and strides else dims


def symbolic_strides(policy: SizePolicy, tensor: torch.Tensor, name: str) -> set[int]:
    """The dimensions whose strides are symbols."""
    if policy.dynamic is False or not can_be_symbolic(tensor):
        return set()
    rank, wanted = tensor.dim(), bool(policy.dynamic)
    return {
        d
        for d, stride in enumerate(tensor.stride())
        if stride > 1 and policy.is_symbol(f"{name}.stride({d})", rank, stride, wanted)
    }


@extends(OutputGraph)
def own_stride(output: OutputGraph, source: Source, d: int, stride: int) -> Any:
    if d not in vars(output.policy).get("strides", {}).get(source, ()):
        return stride
    return output.shape_env.create_symbol(stride, source.child("stride", d), duck=False)
