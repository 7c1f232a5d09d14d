"""Which ATen ops are split into simpler ones while tracing, and how.

In:   nothing.  Out: `decompositions()`: {OpOverload: function}, what the tracer applies.

    >>> decompositions()[torch.ops.aten._softmax.default](x, -1, False)

Two sources.  `OURS`: written here, where the form decides what fuses.  `FROM_TORCH`: names of ops whose rule is taken
from torch's own table (`torch._decomp`, a maintained maths library).  An op in neither reaches the lowerings as it is;
matrix products, convolutions and attention do so on purpose (they become eager kernels).

Mirrors torch/_inductor/decomposition.py.  Left out: rules that choose by device capability.
"""
import functools

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

aten = torch.ops.aten

FROM_TORCH = """
_softmax _log_softmax _safe_softmax logsumexp gelu silu mish elu celu selu hardswish hardsigmoid hardtanh leaky_relu
relu6 prelu _prelu_kernel rrelu softplus softshrink hardshrink threshold log_sigmoid_forward glu tanhshrink logit
native_layer_norm native_group_norm _native_batch_norm_legit _native_batch_norm_legit_no_training
_native_batch_norm_legit_functional _batch_norm_with_update native_batch_norm cudnn_batch_norm _fused_rms_norm
std std_mean aminmax count_nonzero nansum linalg_vector_norm norm frobenius_norm all dist
addcdiv addcmul addr lerp rsub xlogy frac heaviside hypot logaddexp logaddexp2 mvlgamma nan_to_num sinc deg2rad rad2deg
isneginf isposinf special_entr special_log_ndtr special_xlog1py floor_divide float_power
binary_cross_entropy binary_cross_entropy_with_logits mse_loss huber_loss smooth_l1_loss soft_margin_loss l1_loss
nll_loss_forward nll_loss2d_forward kl_div
masked_fill masked_fill_ index_add index_copy index_fill take select_scatter
reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle im2col col2im
upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d grid_sampler_2d affine_grid_generator
_adaptive_avg_pool2d
tril triu eye linspace logspace diag_embed block_diag trace rot90 roll renorm stack unsafe_chunk unsafe_split
unsafe_split_with_sizes narrow_copy expand_copy permute_copy view_copy t_copy unsqueeze_copy squeeze_copy
unbind_copy split_with_sizes_copy transpose_copy diagonal_copy alias_copy as_strided_copy unfold_copy slice_copy
ones zeros ones_like zeros_like full_like new_full new_ones new_zeros new_empty empty_like
_unsafe_masked_index _unsafe_masked_index_put_accumulate
elu_backward gelu_backward silu_backward hardswish_backward hardsigmoid_backward hardtanh_backward leaky_relu_backward
mish_backward sigmoid_backward tanh_backward threshold_backward softplus_backward log_sigmoid_backward glu_backward
logit_backward _softmax_backward_data _log_softmax_backward_data native_layer_norm_backward native_group_norm_backward
native_batch_norm_backward native_dropout_backward nll_loss_backward nll_loss2d_backward mse_loss_backward
smooth_l1_loss_backward huber_loss_backward embedding_dense_backward slice_backward select_backward diagonal_backward
unfold_backward upsample_nearest2d_backward upsample_bilinear2d_backward masked_select_backward
""".split()

OURS = {}


def decomposition(*ops):
    def register(function):
        OURS.update(dict.fromkeys(ops, function))
        return function
    return register


@decomposition(aten.var_mean.correction)
def var_mean(x, dim=None, *, correction=None, keepdim=False):
    """Mean first, then the centred squares: two passes, no cancellation."""
    return aten.var.correction(x, dim, correction=correction, keepdim=keepdim), aten.mean.dim(
        x, list(range(x.dim())) if not dim else dim, keepdim)


@decomposition(aten.native_dropout.default)
def native_dropout(x, p, train):
    if not train or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    return NotImplemented


@decomposition(aten.max_pool2d.default)
def max_pool2d(x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    return aten.max_pool2d_with_indices.default(x, kernel_size, stride, padding, dilation, ceil_mode)[0]


@decomposition(aten.mv.default)
def mv(matrix, vector):
    return aten.sum.dim_IntList(matrix * vector, [1]) if matrix.dtype.is_floating_point else NotImplemented


@functools.cache
def decompositions():
    """The whole table.  A name that this torch does not know is skipped: it is then lowered or falls back."""
    core = dict(core_aten_decompositions().items())
    table = {}
    for name in FROM_TORCH:
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            rule = decomposition_table.get(op) or core.get(op)
            if rule is not None and not any(a.is_out for a in op._schema.arguments):
                table[op] = rule
    table.update(OURS)
    return table


def table_sizes():
    """{"ours": n, "from torch": m}: what a compile record notes."""
    return {"ours": len(OURS), "from torch": len(decompositions()) - len(OURS)}
