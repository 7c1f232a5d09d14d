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
from torch._decomp import core_aten_decompositions, decomposition_table

from .lowering.extern import EXTERN
from .lowering.registry import LOWERINGS

aten = torch.ops.aten
OURS = {}
# in torch's table, but not in its core set: that set keeps them whole for other back ends
ALSO_FROM_TORCH = """
elu fmod dist addbmm addmv ldexp round narrow_copy permute_copy view_copy unbind_copy split_with_sizes_copy slice_copy
diagonal_scatter unfold_copy linspace logspace upsample_nearest2d upsample_trilinear3d masked_scatter
native_layer_norm_backward native_group_norm_backward native_batch_norm_backward embedding_dense_backward
_softmax_backward_data _log_softmax_backward_data gelu_backward silu_backward
""".split()
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
        y, mean, variance, rstd = _batch_statistics(x, weight, bias, running_mean, eps)
        if running_mean is not None:
            count = x.numel() // x.shape[1]
            running_mean.copy_(momentum * mean + (1 - momentum) * running_mean)
            running_var.copy_(momentum * variance * (count / (count - 1)) + (1 - momentum) * running_var)
        return y, mean, rstd
    return aten._native_batch_norm_legit_no_training(x, weight, bias, running_mean, running_var, momentum, eps)


@decomposition(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(x, weight, bias, training, momentum, eps):
    y, mean, _, rstd = _batch_statistics(x, weight, bias, None, eps)
    return y, mean, rstd


def _batch_statistics(x, weight, bias, running_mean, eps):
    """(normalised x, mean, variance, 1 / deviation).  The statistics have the dtype of the parameters."""
    kept = next((t.dtype for t in (weight, running_mean) if t is not None), x.dtype)
    dims = [0, *range(2, x.dim())]
    shape = [1, -1] + [1] * (x.dim() - 2)
    wide = upcast(x)
    variance, mean = torch.var_mean(wide, dims, correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    out = (wide - mean) * rstd
    if weight is not None:
        out = out * weight.reshape(shape)
    if bias is not None:
        out = out + bias.reshape(shape)
    return out.to(x.dtype), mean.reshape(-1).to(kept), variance.reshape(-1), rstd.reshape(-1).to(kept)


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


def _only_wide_floats(op):
    """Eager resamples integer images and bfloat16 with kernels of its own, which round otherwise than the formula."""
    rule = decomposition_table.get(op) or dict(core_aten_decompositions().items()).get(op)

    @decomposition(op)
    def resample(x, *args, **kwargs):
        return rule(x, *args, **kwargs) if x.dtype in (torch.float32, torch.float64) else NotImplemented


for _op in (aten.upsample_bilinear2d.default, aten.upsample_bilinear2d.vec, aten.upsample_bicubic2d.default,
            aten.upsample_bicubic2d.vec, aten.grid_sampler_2d.default):
    _only_wide_floats(_op)


def _no_whole_numbers(op):
    """Eager computes integer sequences in the integer type."""
    rule = dict(core_aten_decompositions().items())[op]

    @decomposition(op)
    def sequence(*args, dtype=None, **kwargs):
        whole = dtype is not None and not dtype.is_floating_point
        return NotImplemented if whole else rule(*args, dtype=dtype, **kwargs)


for _op in [op for op in dict(core_aten_decompositions().items()) if isinstance(op, torch._ops.OpOverload)
            and op._schema.name in ("aten::linspace", "aten::logspace") and not op._schema.is_mutable]:
    _no_whole_numbers(_op)


@decomposition(aten.linalg_vector_norm.default)
def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    if x.dtype.is_complex or not x.dim() or 0 in x.shape:
        return NotImplemented
    result = dtype or x.dtype
    size = (upcast(x) if dtype is None else x.to(dtype)).abs()
    dims = list(range(x.dim())) if dim is None else dim
    if ord in (math.inf, -math.inf):
        return (torch.amax if ord > 0 else torch.amin)(size, dims, keepdim).to(result)
    if ord == 0:
        return torch.sum(size != 0, dims, keepdim).to(result)
    if ord == 1:
        return torch.sum(size, dims, keepdim).to(result)
    if ord == 2:
        return torch.sqrt(torch.sum(size * size, dims, keepdim)).to(result)
    return torch.pow(torch.sum(torch.pow(size, ord), dims, keepdim), 1.0 / ord).to(result)


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
    for name in ALSO_FROM_TORCH:
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            if op in decomposition_table and op not in LOWERINGS and op not in EXTERN and not op._schema.is_mutable:
                result[op] = decomposition_table[op]
    result.update(OURS)
    return result


def count():
    """(decompositions of our own, torch's) in use."""
    return len(OURS), len(table()) - len(OURS)
