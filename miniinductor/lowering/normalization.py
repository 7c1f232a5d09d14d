"""Decompositions of normalizations: layer norm, group norm, batch norm.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    batch_norm(x) -> (x - mean) * rsqrt(variance + eps) * weight + bias    over all but the channels

Mirrors torch/_decomp/decompositions.py (`native_batch_norm`, `native_group_norm`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from ..devices import recomputes
from ..sizes.symbols import same
from .decompositions import LOW_PRECISION, OURS, decomposition, upcast

aten = torch.ops.aten
Maybe = Tensor | None


def var_mean(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    """Two passes, accurate where one pass cancels; on a GPU perhaps of parts (statistics.py)."""
    if recomputes(x.device):
        return torch.var_mean(x, dims, correction=0, keepdim=True)
    mean = x.mean(dims, keepdim=True)
    return (x - mean).square().mean(dims, keepdim=True), mean


def normalized(
    x: Tensor, dims: list[int], eps: float, by_channel: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Over `dims`: ((x - mean) / deviation, mean, variance, 1 / deviation)."""
    wide = upcast(x)
    variance, mean = var_mean_by_channel(wide) if by_channel else var_mean(wide, dims)
    rstd = torch.rsqrt(variance + eps)
    return (wide - mean) * rstd, mean, variance, rstd


def scaled(out: Tensor, weight: Maybe, bias: Maybe) -> Tensor:
    """out * weight + bias, without what is None."""
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def statistics_dtype(x: Tensor, *parameters: Maybe) -> torch.dtype:
    """In which a CPU's kernels keep mean and deviation: as the parameters, float32 perhaps."""
    given = (p.dtype for p in parameters if p is not None and x.dtype in LOW_PRECISION)
    return next(given, x.dtype)


@decomposition(aten.native_layer_norm.default)
def layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Maybe, bias: Maybe, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    out, mean, _, rstd = normalized(x, list(range(x.dim() - len(normalized_shape), x.dim())), eps)
    on_cpu = x.device.type == "cpu"
    statistics = statistics_dtype(x, weight, bias) if on_cpu else mean.dtype
    return scaled(out, weight, bias).to(x.dtype), mean.to(statistics), rstd.to(statistics)


def var_mean_by_channel(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of [n, groups, channels, pixels] over the last two, from those of each channel: in
    channels-last memory the sums run along rows."""
    variance, mean = var_mean(x, [3])
    between, center = var_mean(mean, [2])
    return torch.mean(variance, [2], keepdim=True) + between, center


def scaled_as(
    out: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, shape: Sequence[int]
) -> torch.Tensor:
    """out * weight + bias, without what is None.  shape: in which both are broadcast to `out`."""
    if weight is not None:
        weight = weight.reshape(shape)
    if bias is not None:
        bias = bias.reshape(shape)
    return scaled(out, weight, bias)


@decomposition(aten.native_group_norm.default)
def group_norm(
    x: Tensor, weight: Maybe, bias: Maybe, n: int, c: int, hw: int, groups: int, eps: float
) -> Any:
    if not x.is_contiguous(memory_format=suggest_memory_format(x)):
        return NotImplemented  # eager refuses it
    by_channel = x.dim() > 2 and c > groups and same(x.stride(1), 1) and not x.is_contiguous()
    out, mean, _, rstd = normalized(x.reshape(n, groups, c // groups, hw), [2, 3], eps, by_channel)
    out = scaled_as(out.reshape(x.shape), weight, bias, [1, c] + [1] * (x.dim() - 2))
    kept = statistics_dtype(x, weight, bias) if x.device.type == "cpu" else x.dtype
    return out.to(x.dtype), mean.reshape(n, groups).to(kept), rstd.reshape(n, groups).to(kept)


@decomposition(aten.native_batch_norm.default, aten._native_batch_norm_legit.default)
def batch_norm(
    x: Tensor,
    weight: Maybe,
    bias: Maybe,
    running_mean: Maybe,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Training updates the running statistics in place; functionalization turns that into outputs.
    Results: normalised x, mean and 1 / deviation of the batch, which have the dtype of the
    parameters."""
    if x.dim() < 2:
        return NotImplemented  # eager refuses it
    shape = [1, -1] + [1] * (x.dim() - 2)
    if not training and running_mean is not None:
        deviation = torch.rsqrt(running_var + eps).reshape(shape)
        out = (upcast(x) - running_mean.reshape(shape)) * deviation
        out = scaled_as(out, weight, bias, shape).to(x.dtype)
        out = out.contiguous(memory_format=suggest_memory_format(x))
        return out, x.new_empty((0,)), x.new_empty((0,))
    kept = next((t.dtype for t in (weight, running_mean) if t is not None), x.dtype)
    out, mean, variance, rstd = normalized(x, [0, *range(2, x.dim())], eps)
    out = scaled_as(out, weight, bias, shape).to(x.dtype)
    out = out.contiguous(memory_format=suggest_memory_format(x))
    mean, variance, rstd = (
        mean.reshape(-1).to(kept),
        variance.reshape(-1),
        rstd.reshape(-1).to(kept),
    )
    if running_mean is not None:
        count = x.numel() // x.shape[1]
        running_mean.copy_(momentum * mean + (1 - momentum) * running_mean)
        running_var.copy_(
            momentum * variance * (count / (count - 1)) + (1 - momentum) * running_var
        )
    return out, mean, rstd


OURS.update(
    {
        aten._native_batch_norm_legit_no_training.default: lambda x, w, b, mean, var, *how: (
            batch_norm(x, w, b, mean, var, False, *how)
        ),
        aten._native_batch_norm_legit.no_stats: lambda x, weight, bias, *how: batch_norm(
            x, weight, bias, None, None, *how
        ),
        aten._batch_norm_with_update.default: lambda x, weight, bias, mean, var, momentum, eps: (
            *batch_norm(x, weight, bias, mean, var, True, momentum, eps),
            x.new_empty((0,), dtype=torch.uint8),
        ),
    }
)
