"""Decompositions: ATen ops in terms of simpler ATen ops, applied while tracing.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    softmax(x) -> m = amax(x); e = exp(x - m); e / sum(e)       two reductions and a division, fused into one kernel

`OURS` are written here because their form decides what can fuse; the rest are torch's (`torch._decomp`, a maintained
maths library).  `table()` joins both, without the ops that have a better lowering or library kernel.
Mirrors torch/_inductor/decomposition.py (paper section 4.3).
"""
import functools
import math

import torch
from torch._decomp import core_aten_decompositions

from .lowering.extern import EXTERN
from .lowering.registry import LOWERINGS

aten = torch.ops.aten
OURS = {}
LOW_PRECISION = (torch.float16, torch.bfloat16)


def decomposition(*targets):
    def register(function):
        for target in targets:
            OURS[target] = function
        return function
    return register


def upcast(x):
    return x.to(torch.float32) if x.dtype in LOW_PRECISION else x


@decomposition(aten._softmax.default)
def softmax(x, dim, half_to_float):
    wide = upcast(x)
    if x.numel() == 0 or x.dim() == 0:
        return NotImplemented
    e = torch.exp(wide - torch.amax(wide, dim, keepdim=True))
    return (e / torch.sum(e, dim, keepdim=True)).to(torch.float32 if half_to_float else x.dtype)


@decomposition(aten._log_softmax.default)
def log_softmax(x, dim, half_to_float):
    wide = upcast(x)
    if x.numel() == 0 or x.dim() == 0:
        return NotImplemented
    shifted = wide - torch.amax(wide, dim, keepdim=True)
    return (shifted - torch.log(torch.sum(torch.exp(shifted), dim, keepdim=True))).to(
        torch.float32 if half_to_float else x.dtype)


@decomposition(aten.native_layer_norm.default)
def layer_norm(x, normalized_shape, weight, bias, eps):
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    wide = upcast(x)
    variance, mean = torch.var_mean(wide, dims, correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    out = (wide - mean) * rstd
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    statistics = x.dtype if x.device.type == "cpu" else wide.dtype
    return out.to(x.dtype), mean.to(statistics), rstd.to(statistics)


@decomposition(aten.native_group_norm.default)
def group_norm(x, weight, bias, n, c, hw, groups, eps):
    wide = upcast(x).reshape(n, groups, c // groups * hw)
    variance, mean = torch.var_mean(wide, [2], correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    out = ((wide - mean) * rstd).reshape(x.shape)
    shape = [1, c] + [1] * (x.dim() - 2)
    if weight is not None:
        out = out * weight.reshape(shape)
    if bias is not None:
        out = out + bias.reshape(shape)
    return out.to(x.dtype), mean.reshape(n, groups).to(x.dtype), rstd.reshape(n, groups).to(x.dtype)


@decomposition(aten.native_batch_norm.default, aten._native_batch_norm_legit.default)
def batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
    """Training updates the running statistics in place; functionalization turns that into outputs."""
    if training or running_mean is None:
        y, mean, rstd, new_mean, new_var = aten._native_batch_norm_legit_functional(
            x, weight, bias, running_mean, running_var, training, momentum, eps) if running_mean is not None else (
            *aten._native_batch_norm_legit.no_stats(x, weight, bias, training, momentum, eps), None, None)
        if new_mean is not None:
            running_mean.copy_(new_mean)
            running_var.copy_(new_var)
        return y, mean, rstd
    return aten._native_batch_norm_legit_no_training(x, weight, bias, running_mean, running_var, momentum, eps)


@decomposition(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(x, weight, bias, running_mean, running_var, momentum, eps):
    shape = [1, -1] + [1] * (x.dim() - 2)
    scale = torch.rsqrt(running_var + eps)
    out = (upcast(x) - running_mean.reshape(shape)) * scale.reshape(shape)
    if weight is not None:
        out = out * weight.reshape(shape)
    if bias is not None:
        out = out + bias.reshape(shape)
    empty = x.new_empty((0,))
    return out.to(x.dtype), empty, empty.clone()


@decomposition(aten.gelu.default)
def gelu(x, approximate="none"):
    wide = upcast(x)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
        return (0.5 * wide * (1 + torch.tanh(inner))).to(x.dtype)
    return (wide * 0.5 * (1 + torch.erf(wide * math.sqrt(0.5)))).to(x.dtype)


@decomposition(aten.silu.default)
def silu(x):
    wide = upcast(x)
    return (wide * torch.sigmoid(wide)).to(x.dtype)


@decomposition(aten.hardswish.default)
def hardswish(x):
    wide = upcast(x)
    return (wide * torch.clamp(wide + 3, 0, 6) / 6).to(x.dtype)


@decomposition(aten.hardsigmoid.default)
def hardsigmoid(x):
    return (torch.clamp(upcast(x) + 3, 0, 6) / 6).to(x.dtype)


@decomposition(aten.addcmul.default)
def addcmul(x, a, b, *, value=1):
    product = a * b
    return x + (product if value == 1 else value * product)


@decomposition(aten.var.dim)
def var_dim(x, dim, unbiased=True, keepdim=False):
    return torch.var(x, dim, correction=int(unbiased), keepdim=keepdim)


@decomposition(aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(x, output_size):
    height, width = x.shape[-2:]
    if tuple(output_size) == (1, 1):
        return torch.mean(x, [-2, -1], keepdim=True)
    if output_size[0] and output_size[1] and height % output_size[0] == 0 and width % output_size[1] == 0:
        return aten.avg_pool2d(x, [height // output_size[0], width // output_size[1]])
    return NotImplemented


@functools.cache
def table():
    """op -> function, for the tracer."""
    result = {op: function for op, function in dict(core_aten_decompositions().items()).items()
              if isinstance(op, torch._ops.OpOverload) and op not in LOWERINGS and op not in EXTERN
              and not op._schema.is_mutable}
    result.update(OURS)
    return result


def count():
    """(decompositions of our own, torch's) in use."""
    return len(OURS), len(table()) - len(OURS)
