"""Decompositions of normalizations: layer norm, group norm, batch norm.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    batch_norm(x)           ->  (x - mean) * rsqrt(variance + eps) * weight + bias, with the
                                statistics of each channel

Mirrors torch/_decomp/decompositions.py (`native_batch_norm`, `native_group_norm`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from ..devices import recomputes
from ..errors import CannotTrace
from ..ir.ops import NARROW
from ..sizes.symbols import same
from .decompositions import decomposition, upcast
from .reductions import moments
from .registry import aten

Maybe = Tensor | None


def normalized(x: Tensor, dims: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Over `dims`: ((x - mean) / deviation, mean, variance, 1 / deviation)."""
    wide = upcast(x)
    mean, variance = moments(wide, dims)
    rstd = torch.rsqrt(variance + eps)
    return (wide - mean) * rstd, mean, variance, rstd


def scaled(out: Tensor, weight: Maybe, bias: Maybe, shape: Sequence[int]) -> Tensor:
    """out * weight + bias, without what is None.  shape: in which both are broadcast to `out`."""
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def statistics_dtype(x: Tensor, weight: Maybe, bias: Maybe, on_gpu: torch.dtype) -> torch.dtype:
    """In which eager keeps mean and deviation: on a CPU as the parameters are, float32 perhaps."""
    if x.device.type != "cpu":
        return on_gpu
    given = (p.dtype for p in (weight, bias) if p is not None and x.dtype in NARROW)
    return next(given, x.dtype)


@decomposition(aten.native_layer_norm.default)
def layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Maybe, bias: Maybe, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    out, mean, _, rstd = normalized(x, list(range(x.dim() - len(normalized_shape), x.dim())), eps)
    kept = statistics_dtype(x, weight, bias, mean.dtype)
    return scaled(out, weight, bias, normalized_shape).to(x.dtype), mean.to(kept), rstd.to(kept)


@decomposition(aten.native_group_norm.default)
def group_norm(
    x: Tensor, weight: Maybe, bias: Maybe, n: int, c: int, hw: int, groups: int, eps: float
) -> Any:
    if not x.is_contiguous(memory_format=suggest_memory_format(x)):
        return NotImplemented  # eager refuses it
    is_last = not recomputes(x.device) and not x.is_contiguous()  # channels in memory
    if is_last and x.dtype is torch.float16:
        return NotImplemented
    form, shape = (n, groups, c // groups, hw), [1, groups, c // groups, 1]
    if is_last and groups > 1:
        out, mean, rstd = by_channels(upcast(x).reshape(form), weight, bias, shape, eps)
    else:
        out, mean, _, rstd = normalized(x.reshape(form), [2, 3], eps)
        out = scaled(out, weight, bias, shape)
    kept = statistics_dtype(x, weight, bias, x.dtype)
    out = out.reshape(x.shape).to(x.dtype)
    return out, mean.reshape(n, groups).to(kept), rstd.reshape(n, groups).to(kept)


def by_channels(
    x: Tensor, weight: Maybe, bias: Maybe, shape: Sequence[int], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A group norm for lanes along channels, which lie side by side in memory: (result, mean,
    1 / deviation).  The moments are those of each channel, then combined (Welford)."""
    means, variances = moments(x, [3])
    mean = means.mean(2, keepdim=True)
    variance = (variances + (means - mean).square()).mean(2, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    scale = stored(scaled(rstd.expand_as(means), weight, None, shape))
    shift = stored(scaled(-mean * scale, None, bias, shape))
    return x * scale + shift, mean, rstd


def stored(x: Tensor) -> Tensor:
    """The same, a reduction of one element each: it is not computed again where it is used."""
    return x.unsqueeze(-1).amax(-1)


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
        mean = rstd = x.new_empty((0,))
    else:
        out, mean, variance, rstd = normalized(x, [0, *range(2, x.dim())], eps)
        kept = next((t.dtype for t in (weight, running_mean) if t is not None), x.dtype)
        mean, rstd = mean.reshape(-1).to(kept), rstd.reshape(-1).to(kept)
        if running_mean is not None:
            if same(x.numel(), x.shape[1]):
                raise CannotTrace("one number a channel has no unbiased variance")
            count = x.numel() // x.shape[1]
            unbiased = variance.reshape(-1) * (count / (count - 1))
            running_mean.copy_(momentum * mean + (1 - momentum) * running_mean)
            running_var.copy_(momentum * unbiased + (1 - momentum) * running_var)
    out = scaled(out, weight, bias, shape).to(x.dtype)
    return out.contiguous(memory_format=suggest_memory_format(x)), mean, rstd


decomposition(aten._native_batch_norm_legit_no_training.default)(
    lambda x, weight, bias, mean, variance, *rest: batch_norm(
        x, weight, bias, mean, variance, False, *rest
    )
)
decomposition(aten._native_batch_norm_legit.no_stats)(
    lambda x, weight, bias, *rest: batch_norm(x, weight, bias, None, None, *rest)
)
