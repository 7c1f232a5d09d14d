"""What is rewritten in inference graphs: pairs of Python functions for the pattern matcher.

In:   nothing.  Out: `REWRITES`, in the order in which they are tried.

    softmax(q @ k^T * scale + mask) @ v  ->  one attention kernel, which never stores the scores

A rewrite must hold for every input, NaN and infinities too.  scores.masked_fill(mask, -inf) hides
an inf or NaN among the scores, which an added mask does not, and float16 scores overflow where the
kernel's float ones do not: both stay as they are.  Products that apply an activation themselves are
left out for that reason (oneDNN's relu gives 0 for NaN, its erf-gelu NaN for inf), and for another:
our fused kernel behind the product costs as little. Mirrors
torch/_inductor/fx_passes/fuse_attention.py.
"""

import functools
import itertools
import math

import torch
import torch.nn.functional as F
from torch import fx

from .. import config
from ..graph_passes import REWRITING, Context, graph_pass
from . import attention as kernels
from .pattern_matcher import Rewrite, apply, aten, without_copies

SCALE = 0.113377  # a number that stands for any
LEAST_SCORES = 1 << 14  # CPU: scores of one head from which not storing them pays
LEAST_LENGTH = 64  # GPU: queries and keys from which it does,
# and scores of all heads (H100: 3 million lose up to a third, 25 million gain up to a quarter;
# H200: 8 million gain a fifth)
LEAST_ON_GPU = 1 << 23
ALIGNED = 8  # GPU: numbers at multiples of which the rows of a mask begin


# ---- attention -----------------------------------------------------------------------------------
def flash(q, kt, v, mask, scale) -> torch.Tensor:
    """softmax(q @ kt * scale + mask) @ v of 3 or 4 dimensions."""
    rank = q.dim()
    q, k, v = (x.unsqueeze(0) if rank == 3 else x for x in (q, kt.transpose(-1, -2), v))
    q, k, v = (x if x.stride(-1) == 1 else copied_plain(x) for x in (q, k, v))
    if mask is not None and mask.dim() == 3:
        mask = mask.unsqueeze(0)
    if mask is not None and q.is_cuda:
        mask = with_aligned_rows(mask.expand(*mask.shape[:-1], k.shape[-2]))
    out = torch.ops.miniinductor.attention(q, k, v, mask, scale)
    return out.squeeze(0) if rank == 3 else out


def copied_plain(x) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def with_aligned_rows(mask) -> torch.Tensor:
    """Here and not in the kernel's call: layers that share a mask share the copy."""
    mask = F.pad(mask, (0, -mask.shape[-1] % ALIGNED)) if mask.shape[-1] % ALIGNED else mask
    fits = mask.stride(-1) == 1 and not any(s % ALIGNED for s in mask.stride()[:-1])
    return mask if fits else copied_plain(mask)


def may_be_flash(q, kt, v, *masks) -> bool:
    kinds = {(t.dim(), t.dtype, t.device, t.shape[:-2]) for t in (q, kt, v)}
    if len(kinds) > 1 or 0 in (*q.shape, *kt.shape) or v.shape[-1] != q.shape[-1]:
        return False
    scores = (*q.shape[:-1], kt.shape[-1])
    for mask in masks:
        broadcasts = all(m in (1, s) for m, s in zip(mask.shape[::-1], scores[::-1]))
        is_like_q = (mask.dtype, mask.device) == (q.dtype, q.device)
        if not (broadcasts and is_like_q and mask.dim() in (2, q.dim())):
            return False
    return pays(q, *scores[-2:])


def is_worth_it(q, queries, keys) -> bool:
    """Are there so many scores that not storing them is faster?"""
    if q.device.type == "cpu":
        return queries * keys >= LEAST_SCORES
    return min(queries, keys) >= LEAST_LENGTH and math.prod(q.shape[:-1]) * keys >= LEAST_ON_GPU


def pays(q, queries, keys) -> bool:
    """Is there a kernel for such heads, and is it faster?"""
    size, dtype = q.shape[-1], q.dtype
    if not is_worth_it(q, queries, keys):
        return False
    if q.device.type == "cpu":
        return dtype in (torch.float32, torch.float64, torch.bfloat16)
    known = dtype in (torch.float32, torch.bfloat16) and q.device.type == "cuda"
    fits = size <= 256 and size * dtype.itemsize % 16 == 0 and max(q.shape[:-2]) < 1 << 16
    return known and fits and not kernels.why_not_on(q.device)


SCALINGS = {"": lambda scores, scale: scores, "scaled": torch.mul, "divided": torch.div}
SOFTMAX = {
    "": lambda scores: torch.softmax(scores, -1),
    "in float32": lambda scores: torch.softmax(scores.float(), -1).to(scores.dtype),
}


def attention(scaling: str, count: int, precision: str) -> Rewrite:
    """The rewrite for one way of writing it; count: masks that are added (T5 adds a bias and a
    mask)."""

    def take(values):
        return *values[:3], values[3 : 3 + count], values[-1] if scaling else 1.0

    def search(*values):
        q, kt, v, masks, scale = take(values)
        scores = functools.reduce(torch.add, masks, SCALINGS[scaling](torch.matmul(q, kt), scale))
        return torch.matmul(SOFTMAX[precision](scores), v)

    def replace(*values):
        q, kt, v, masks, scale = take(values)
        mask = functools.reduce(torch.add, masks) if masks else None
        return flash(q, kt, v, mask, 1 / scale if scaling == "divided" else scale)

    def when(*values) -> bool:
        q, kt, v, masks, scale = take(values)
        is_wide = precision and q.dtype.itemsize > 2
        return scale > 0 and not is_wide and may_be_flash(q, kt, v, *masks)

    def at(node) -> bool:
        product = without_copies(node)
        if product.target is not aten.bmm.default:
            return False
        weights, result = product.args[0].meta["val"], product.meta["val"]
        if precision and result.dtype.itemsize > 2:
            return False
        return is_worth_it(result, *weights.shape[-2:])  # the result is as large as q

    examples = []
    for batch in ((2, 3), (6,)):
        shapes = (*batch, 5, 8), (*batch, 8, 7), (*batch, 7, 8)
        examples.append([*shapes, *[(5, 7)] * count, *([SCALE] if scaling else [])])
    needs = [aten.bmm.default, aten.exp.default, aten.amax.default]
    return Rewrite("attention", search, replace, examples, needs, when, at)


REWRITES = [*[attention(*spelling) for spelling in itertools.product(SCALINGS, range(3), SOFTMAX)]]


def rewrites() -> list[Rewrite]:
    """Those that are not left out."""
    return [rewrite for rewrite in REWRITES if rewrite.name not in config.without_patterns]


@graph_pass(REWRITING, "patterns", order=10, switch="pattern_rewrites")
def rewrite_patterns(gm: fx.GraphModule, context: Context) -> fx.GraphModule:
    apply(rewrites(), gm, context.record, context.decompositions)
    return gm
