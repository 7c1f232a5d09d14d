"""Ops that stay library calls, because nothing that we would write is faster.

In:   nothing.  Out: they stand in `EXTERN`: no rule and no decomposition is asked for them.

Mirrors torch/_inductor/kernel/*.py.
"""

import torch

from ..lowering.extern import EXTERN
from ..lowering.registry import aten

ATTENTION = "flash_attention_for_cpu flash_attention efficient_attention cudnn_attention".split()
EXTERN |= dict.fromkeys(
    [
        aten.bernoulli.default,  # draws the numbers that eager draws
        aten.bernoulli.p,
        aten.binary_cross_entropy.default,  # it looks at each probability, and raises
        aten.dot.default,
        aten.convolution.default,
        aten.convolution_backward.default,
        aten.grid_sampler_2d.default,  # twice to ten times as fast as its formula in fused kernels
        aten.max_pool2d_with_indices_backward.default,
        aten.sort.default,
        aten.sort.stable,
        aten.topk.default,
    ]
)
for _kind in ATTENTION:
    for _half in ("", "_backward"):
        EXTERN[getattr(aten, f"_scaled_dot_product_{_kind}{_half}").default] = None
if torch._C._has_mkldnn:
    EXTERN[torch.ops.mkldnn._linear_pointwise.default] = None
