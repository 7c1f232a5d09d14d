"""Decompositions: ATen ops in terms of simpler ATen ops, applied while tracing.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    softmax(x) -> m = amax(x); e = exp(x - m); e / sum(e)       two reductions and a division,
                                                                fused into one kernel

    >>> torch.allclose(softmax(x, -1, False), torch.softmax(x, -1))
    True

`OURS` are written by hand because their form decides what can fuse: here those of a transformer, in
`lowerings/` others.  The rest are torch's (`torch._decomp`, a maintained maths library).  `table()`
joins both, without the ops that have a better lowering or library kernel.

Mirrors torch/_inductor/decomposition.py (paper section 4.3).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from . import coverage
from .lowering.extern import EXTERN
from .lowering.registry import LOWERINGS
from .sizes.symbols import same

aten = torch.ops.aten
Decomposition = Callable[..., Any]  # gives NotImplemented where it has no other form
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
OURS: dict[Any, Decomposition] = {}
# functions that give further decompositions, depending on how the switches of `config` stand
SWITCHED: list[Callable[[], dict[Any, Decomposition]]] = []
# in torch's table, but not in its core set: that set keeps them whole for other back ends
ALSO_FROM_TORCH = """
elu gelu leaky_relu hardtanh fmod dist addmv ldexp round linalg_vector_norm _log_softmax narrow_copy
permute_copy view_copy unbind_copy as_strided_copy upsample_nearest2d upsample_trilinear3d
""".split()
# torch's forms of these look at no position, where eager's kernels raise for a wrong one
UNCHECKED = (aten.max_unpool2d.default, aten.max_unpool3d.default)
LOW_PRECISION = (torch.float16, torch.bfloat16)


@functools.cache
def core_aten() -> dict[Any, Decomposition]:
    """torch's table of core ATen decompositions; making it takes 0.05 s."""
    return dict(core_aten_decompositions().items())


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
    e = torch.exp(wide - torch.amax(wide, dim, keepdim=True))
    return (e / torch.sum(e, dim, keepdim=True)).to(result)


def normalized(
    x: torch.Tensor, dims: Sequence[int], eps: float, statistics: Callable[..., Any] | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Over `dims`: ((x - mean) / deviation, mean, variance, 1 / deviation)."""
    wide = upcast(x)
    var_mean: Callable[..., Any] = statistics or torch.var_mean
    variance, mean = var_mean(wide, dims, correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    return (wide - mean) * rstd, mean, variance, rstd


def scaled(
    out: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> torch.Tensor:
    """out * weight + bias, without what is None."""
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def statistics_dtype(x: torch.Tensor, *parameters: torch.Tensor | None) -> torch.dtype:
    """In which a CPU's kernels keep mean and deviation: as the parameters, float32 perhaps."""
    given = (p.dtype for p in parameters if p is not None and x.dtype in LOW_PRECISION)
    return next(given, x.dtype)


@decomposition(aten.native_layer_norm.default)
def layer_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> Tensors:
    out, mean, _, rstd = normalized(x, list(range(x.dim() - len(normalized_shape), x.dim())), eps)
    on_cpu = x.device.type == "cpu"
    statistics = statistics_dtype(x, weight, bias) if on_cpu else mean.dtype
    return scaled(out, weight, bias).to(x.dtype), mean.to(statistics), rstd.to(statistics)


def table() -> dict[Any, Decomposition]:
    """op -> function, for the tracer.  (Made anew for each compilation: OURS may have grown.)"""
    coverage.load()
    found = table_of_torch() | OURS
    for more in SWITCHED:
        found |= more()
    return found


@functools.cache
def table_of_torch() -> dict[Any, Decomposition]:
    """What is taken from torch: pure ops that have neither a lowering nor a library kernel."""
    packets = [getattr(aten, name) for name in ALSO_FROM_TORCH]
    also = [getattr(packet, overload) for packet in packets for overload in packet.overloads()]
    found = core_aten() | {op: decomposition_table[op] for op in also if op in decomposition_table}
    ops = [
        op for op in found if isinstance(op, torch._ops.OpOverload) and not op._schema.is_mutable
    ]
    kept = {*LOWERINGS, *EXTERN, *UNCHECKED}
    return {op: found[op] for op in ops if op not in kept}
