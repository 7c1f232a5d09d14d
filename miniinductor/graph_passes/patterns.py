"""What is rewritten in inference graphs: pairs of Python functions for the pattern matcher.

In:   nothing.  Out: `REWRITES`, in the order in which they are tried.

    softmax(q @ k^T * scale + mask) @ v     ->  one attention kernel, which never stores the scores
    x @ w + bias                            ->  a product that adds its bias itself

A rewrite must hold for every input, NaN and infinities too.  Rows all of whose scores are -inf, by a mask or by overflow, are NaN in
softmax(...) and 0 in the attention kernel: `attention_kernel` puts the NaN back.  scores.masked_fill(mask, -inf) hides an inf or NaN among
the scores, which an added mask does not, and float16 scores overflow where the kernel's float ones do not: both stay as they are.  Products that apply an activation themselves are left out for that reason (oneDNN's
relu gives 0 for NaN, its erf-gelu NaN for inf), and for another: our fused kernel behind the product costs as little.
Mirrors torch/_inductor/fx_passes/fuse_attention.py and mkldnn_fusion.py.
"""
import math

import torch

from .. import config
from ..lowering.extern import EXTERN
from .cpu_library import gains_by_onednn
from .pattern_matcher import Rewrite, aten

SCALE = 0.113377        # a number that stands for any
LEAST_SCORES = 1 << 14  # scores of one head from which not storing them pays


# ---- attention -------------------------------------------------------------------------------------------------------
def flash(q, kt, v, mask, scale):
    """softmax(q @ kt * scale + mask) @ v of 3 or 4 dimensions."""
    rank = q.dim()
    q, k, v = (x[None] if rank == 3 else x for x in (q, kt.transpose(-1, -2), v))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    if mask is not None and mask.dim() == 3:
        mask = mask[None]
    out = torch.ops.miniinductor.attention(q, k, v, mask, scale)
    return out[0] if rank == 3 else out


def attention_kernel(q, k, v, mask, scale):
    """PyTorch's kernel, and NaN for rows without a score above -inf.  Their log(sum(exp)) is 0 there: where it is that, or no number, such rows
    are computed again, by softmax's own scores."""
    out, log_sum = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, False, attn_mask=mask, scale=scale)
    doubt = ~log_sum.reciprocal().add_(log_sum).isfinite()
    for head in doubt.any(-1).nonzero().tolist() if doubt.any() else ():
        head, rows = tuple(head), doubt[tuple(head)].nonzero()[:, 0]
        scores = q[head][rows] @ k[head].mT * scale
        if mask is not None:
            scores = scores + mask.expand(*q.shape[:-1], k.shape[-2])[head][rows]
        out[head][rows[(scores == -math.inf).all(-1)]] = math.nan
    return out


LIBRARY = torch.library.Library("miniinductor", "FRAGMENT")
LIBRARY.define("attention(Tensor q, Tensor k, Tensor v, Tensor? mask, float scale) -> Tensor")
LIBRARY.impl("attention", attention_kernel, "CPU")
LIBRARY.impl("attention", lambda q, k, v, mask, scale: aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, False, attn_mask=mask)[0], "Meta")
EXTERN[torch.ops.miniinductor.attention.default] = None


def may_be_flash(q, kt, v, mask=None):
    tensors = [q, kt, v]
    if (any(t.dim() != q.dim() or t.dtype != q.dtype or t.device.type != "cpu" for t in tensors)
            or q.dtype not in (torch.float32, torch.float64, torch.bfloat16) or 0 in (*q.shape, *kt.shape)):
        return False
    scores = (*q.shape[:-1], kt.shape[-1])
    if not q.shape[:-2] == kt.shape[:-2] == v.shape[:-2] or v.shape[-1] != q.shape[-1] or scores[-1] * scores[-2] < LEAST_SCORES:
        return False
    if mask is None:
        return True
    fits = all(m in (1, s) for m, s in zip(mask.shape[::-1], scores[::-1]))
    return fits and mask.dtype == q.dtype and mask.dim() <= q.dim() and (mask.dim() in (2, 4) or q.dim() == 3)


SCALINGS = {"": lambda scores, scale: scores, "scaled": torch.mul, "divided": torch.div}
MASKS = {"": lambda scores, mask: scores, "mask added": torch.add}


def attention(scaling, masking):
    """The rewrite for one way of writing it."""
    def take(values):
        values = list(values)
        q, kt, v = values[:3]
        return q, kt, v, values[3] if masking else None, values[-1] if scaling else 1.0

    def search(*values):
        q, kt, v, mask, scale = take(values)
        scores = MASKS[masking](SCALINGS[scaling](torch.matmul(q, kt), scale), mask)
        return torch.matmul(torch.softmax(scores, -1), v)

    def replace(*values):
        q, kt, v, mask, scale = take(values)
        return flash(q, kt, v, mask, 1 / scale if scaling == "divided" else scale)

    def when(*values):
        q, kt, v, mask, scale = take(values)
        return scale > 0 and may_be_flash(q, kt, v, mask)

    examples = [[(*batch, 5, 8), (*batch, 8, 7), (*batch, 7, 8), *[(5, 7)] * bool(masking), *[SCALE] * bool(scaling)]
                for batch in ((2, 3), (6,))]
    return Rewrite("attention", search, replace, examples, [aten.bmm.default, aten.exp.default, aten.amax.default], when)


# ---- products --------------------------------------------------------------------------------------------------------
def product_and_bias(x, w, bias):
    return torch.mm(x, w) + bias


def addmm(x, w, bias):
    return torch.addmm(bias, x, w)


def may_be_addmm(x, w, bias):
    return gains_by_onednn(x, w) and bias.shape == (w.shape[1],) and x.dtype == w.dtype == bias.dtype


REWRITES = [*[attention(s, m) for m in MASKS for s in SCALINGS],
            Rewrite("product + bias", product_and_bias, addmm, [[(4, 8), (8, 16), (16,)]], [aten.mm.default, aten.add.Tensor], may_be_addmm)]


def rewrites():
    """Those that are switched on."""
    return [r for r in REWRITES if r.name not in config.without_patterns] if config.pattern_rewrites else []
