"""Decompositions: ATen ops in terms of simpler ATen ops, applied while tracing.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    softmax(x) -> m = amax(x); e = exp(x - m); e / sum(e)       two reductions and a division,
                                                                fused into one kernel

    >>> torch.allclose(softmax(x, -1, False), torch.softmax(x, -1))
    True

`OURS` are written by hand because their form decides what can fuse: here softmax, in `lowerings/`
others.  The rest are torch's (`torch._decomp`, a maintained maths library).
`table()` joins both, without the ops that have a better lowering or library kernel.

Mirrors torch/_inductor/decomposition.py (paper section 4.3).
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from . import coverage
from .lowering.extern import EXTERN
from .lowering.registry import LOWERINGS
from .lowering.chunks import maximum_and_sum
from .sizes.symbols import same

aten = torch.ops.aten
Decomposition = Callable[..., Any]  # gives NotImplemented where it has no other form
OURS: dict[Any, Decomposition] = {}
FUSED_RANDOM: dict[Any, Decomposition] = {}  # config.fallback_random=False: kernels of ours draw
# in torch's table, but not in its core set: that set keeps them whole for other back ends
ALSO_FROM_TORCH = """gelu _log_softmax elu leaky_relu hardtanh fmod dist addmv ldexp round
linalg_vector_norm narrow_copy permute_copy view_copy unbind_copy as_strided_copy upsample_nearest2d
""".split()
# Rare ops that are eager kernels: torch's forms of these look at no position, where the kernels
# raise for a wrong one, or differ from them in corners.
KERNELS = """frac multilabel_margin_loss_forward special_xlog1py logspace index_fill take im2col
pixel_unshuffle max_unpool2d max_unpool3d std_mean upsample_trilinear3d
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d""".split()
LOW_PRECISION = (torch.float16, torch.bfloat16)


def decomposition(*targets: Any) -> Callable[[Decomposition], Decomposition]:
    def register(function: Decomposition) -> Decomposition:
        for target in targets:
            OURS[target] = function
        return function

    return register


def upcast(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32) if x.dtype in LOW_PRECISION else x


@decomposition(aten._softmax.default)
def softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    wide, result = upcast(x), torch.float32 if half_to_float else x.dtype
    if same(x.numel(), 0):  # there is no largest element
        return torch.empty_like(x, dtype=result)
    if parts := maximum_and_sum(wide, dim):
        return ((wide - parts[0]).exp() / parts[1]).to(result)
    e = torch.exp(wide - torch.amax(wide, dim, keepdim=True))
    return (e / torch.sum(e, dim, keepdim=True)).to(result)


def table() -> dict[Any, Decomposition]:
    """op -> function, for the tracer.  (Made anew for each compilation: OURS may have grown.)"""
    coverage.load()
    return table_of_torch() | OURS


@functools.cache
def table_of_torch() -> dict[Any, Decomposition]:
    """What is taken from torch: pure ops that have neither a lowering nor a library kernel.  (It
    takes 0.05 s.)"""
    packets = [getattr(aten, name) for name in ALSO_FROM_TORCH]
    also = [getattr(packet, overload) for packet in packets for overload in packet.overloads()]
    found: dict[Any, Any] = dict(core_aten_decompositions().items())
    found |= {op: decomposition_table[op] for op in also if op in decomposition_table}
    kept = {*LOWERINGS, *EXTERN}
    return {op: rule for op, rule in found.items() if op not in kept and is_wanted(op)}


def is_wanted(op: Any) -> bool:
    if not isinstance(op, torch._ops.OpOverload) or op._schema.is_mutable:
        return False
    return op.overloadpacket.__name__ not in KERNELS
