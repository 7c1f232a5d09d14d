"""Eager kernels that a wrapper calls by another name, which is cheaper to call.

torch_mm(arg0, arg1, out=buf0)          # torch.mm, not torch.ops.aten.mm.out
"""

from collections.abc import Callable

import torch

from ..hooks import extends
from ..ir import ExternKernel
from ..wrapper import WrapperWriter

aten = torch.ops.aten
# ops whose torch.* form is cheaper to call than the overload, and its out= form, too
FAST_OUT = {
    aten.mm.default: torch.mm,
    aten.bmm.default: torch.bmm,
    aten.addmm.default: torch.addmm,
    aten.baddbmm.default: torch.baddbmm,
}
FAST = {
    **FAST_OUT,
    aten.convolution.default: torch.convolution,
    aten.embedding.default: torch.embedding,
}


@extends(WrapperWriter)
class FastCalls(WrapperWriter):
    def callee(self, buffer: ExternKernel, writes: bool = False) -> Callable:
        plain = super().callee(buffer, writes)
        if writes:
            return FAST_OUT.get(buffer.op, plain)
        return plain if buffer.kwargs else FAST.get(buffer.op, plain)
