"""softmax(q @ k^T * scale + mask) @ v by the library's attention kernels, right for every input:
the op `miniinductor::attention`.

In:   q, k, v: (batch, heads, length, size); mask: None, or what broadcasts to the scores, (batch,
      heads, M, N), on a GPU with more columns than N where rows would not be aligned otherwise;
      scale: positive.  Out: (batch, heads, M, size), in the strides that the library's kernel
      chose.

    >>> q = k = v = torch.randn(1, 2, 5, 64)
    >>> torch.ops.miniinductor.attention(q, k, v, None, 0.125).shape
    torch.Size([1, 2, 5, 64])

The kernels are not softmax where scores are NaN or infinite: a row of -inf gives 0, not NaN; scores
above 2e38 overflow (they count in powers of 2); float32 products by three TF32 ones make NaN of
inf.  All of that shows in what they also return, log(sum(exp)): it is 0, infinite or NaN, in
float32 perhaps only in the result.  Such rows are computed again, as they are written: on the CPU
by torch, on a GPU by a small kernel of ours (gpu/attention.py).  Mirrors
aten/src/ATen/native/transformers/sdp_utils (the choice of a kernel, alignment of masks).  Left out:
cuDNN's kernels, gradients.
"""

from collections.abc import Callable

import torch

from ..lowering.extern import EXTERN

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)
# type of a device -> why the kernels cannot run on such a device, or None
REFUSALS: dict[str, Callable[[torch.device], str | None]] = {"cpu": lambda device: None}


def why_not_on(device: torch.device) -> str | None:
    """Why the kernels cannot run there, or None."""
    refusal = REFUSALS.get(device.type)
    return refusal(device) if refusal else f"there are none for {device}"


def library_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log(sum(exp)) of each row)"""
    if not q.is_cuda:
        return aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, False, attn_mask=mask, scale=scale
        )
    if mask is None and q.dtype in HALF:
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, False, scale=scale)[:2]
    return aten._scaled_dot_product_efficient_attention(
        q, k, v, mask, True, 0.0, False, scale=scale
    )[:2]


def attention_on_cpu(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    out, log_sum = library_attention(q, k, v, mask, scale)
    doubt = ~log_sum.reciprocal().add_(log_sum).isfinite()
    if not doubt.any():
        return out
    wide = torch.promote_types(q.dtype, torch.float32)
    for head in map(tuple, doubt.any(-1).nonzero().tolist()):
        rows = doubt[head].nonzero()[:, 0]
        scores = q[head][rows].to(wide) @ k[head].mT.to(wide) * scale
        if mask is not None:
            scores = scores + mask.expand(*q.shape[:-1], k.shape[-2])[head][rows]
        out[head][rows] = (scores.softmax(-1) @ v[head].to(wide)).to(q.dtype)
    return out


LIBRARY = torch.library.Library("miniinductor", "FRAGMENT")
LIBRARY.define("attention(Tensor q, Tensor k, Tensor v, Tensor? mask, float scale) -> Tensor")
LIBRARY.impl("attention", attention_on_cpu, "CPU")
torch.library.register_fake(
    "miniinductor::attention",
    lambda q, k, v, mask, scale: library_attention(q, k, v, mask, scale)[0],
    lib=LIBRARY,
)
EXTERN[torch.ops.miniinductor.attention.default] = None
