"""Attention by the library's kernels on a GPU: rows that they get wrong are computed again there.

In:   the op `miniinductor::attention` (passes/attention.py) on CUDA tensors.  Out: its result,
      right for every input.

A small kernel of ours finds the rows in doubt itself, by their log(sum(exp)), and computes them as
they are written.  Nothing waits for the device, so the op can be recorded as a CUDA graph.
"""

import functools

import torch

from ..codegen.common import Kernel
from ..passes.attention import HALF, LIBRARY, REFUSALS, library_attention
from .block_sizes import Config, power_of_2
from .build import build_triton_kernels, why_not
from .launch import Launch


def refusal(device):
    """Why the kernels cannot run there, or None."""
    return why_not(device) or (
        "they need compute capability 8.0"
        if torch.cuda.get_device_capability(device) < (8, 0)
        else None
    )


def attention_on_gpu(q, k, v, mask, scale):
    q, k, v = map(aligned, (q, k, v))
    if mask is not None:
        mask = aligned(mask)[..., : k.shape[-2]].expand(*q.shape[:-1], k.shape[-2])
    out, log_sum = library_attention(q, k, v, mask, scale)
    mend(out, log_sum, q, k, v, mask, scale)
    return out


def aligned(tensor):
    """The tensor, or a copy whose rows begin at multiples of 16 bytes: the kernels move that much
    at once."""
    step = 16 // tensor.element_size()
    return (
        tensor.clone()
        if tensor.data_ptr() % 16 or any(s % step for s in tensor.stride()[:-1])
        else tensor
    )


def mend(out, log_sum, q, k, v, mask, scale):
    """Compute the rows of `out` that are in doubt again, in place."""
    tensors = out, log_sum, q, k, v, q if mask is None else mask
    kernel = mending_kernel(
        q.device,
        q.dtype,
        tuple(q.shape),
        k.shape[-2],
        log_sum.shape[-1],
        mask is not None,
        scale,
        tuple(t.stride()[:3] for t in tensors if t is not log_sum),
    )
    kernel(*tensors, *([torch._C._cuda_getCurrentRawStream(q.device.index)] if q.is_cuda else []))


@functools.cache
def mending_kernel(device, dtype, shape, keys, logs, masked, scale, strides):
    batch, heads, rows, size = shape
    tiles = -(-rows // ROWS)
    constants = {
        "XBLOCK": ROWS,
        "NBLOCK": KEYS,
        "DBLOCK": max(16, power_of_2(size)),
        "TILES": tiles,
        "H": heads,
        "M": rows,
        "N": keys,
        "D": size,
        "LOGS": logs,
        "MASKED": int(masked),
        "CHECKED": int(dtype not in HALF),
        "SCALE": float(scale),
    }
    constants |= {
        f"{name}{dim}": n for name, stride in zip("OQKVB", strides) for dim, n in zip("BHM", stride)
    }
    dtypes = [dtype, torch.float32, *[dtype] * 4]
    launch = Launch(
        "attention",
        {"x": batch * heads * tiles * ROWS},
        [Config(tuple(constants.items()), 4)],
        dtypes,
        False,
        [1] * len(dtypes),
    )
    [kernel] = build_triton_kernels(
        [
            Kernel(
                SOURCE.replace(
                    "CONSTANTS", ", ".join(f"{name}: tl.constexpr" for name in constants)
                ),
                [],
                [],
                [],
                "mend_attention",
                launch=launch,
            )
        ],
        device,
    )
    return kernel


ROWS, KEYS = 32, 16
SOURCE = """import triton
import triton.language as tl


@triton.jit
def NAME(out, log_sum, q, k, v, mask, CONSTANTS):
    number = tl.program_id(0).to(tl.int64)
    head, row, d = number // TILES, number % TILES * XBLOCK + tl.arange(0, XBLOCK), tl.arange(0, DBLOCK)
    batch, head_of_it, inside = head // H, head % H, (row < M)[:, None] & (d < D)[None, :]
    target = out + batch * OB + head_of_it * OH + row[:, None] * OM + d[None, :]
    logs = tl.load(log_sum + head * LOGS + row, row < M, other=1.0)
    doubt = (logs == 0) | (logs - logs != 0)                        # 0, infinite or NaN
    if CHECKED:
        known = tl.load(target, inside, other=0.0)
        doubt = doubt | (tl.max((known != known).to(tl.int32), 1) > 0)
    if tl.max(doubt.to(tl.int32), 0) > 0:                           # rare: all that follows is for these rows alone
        queries = tl.load(q + batch * QB + head_of_it * QH + row[:, None] * QM + d[None, :], inside, other=0.0)
        top = tl.full([XBLOCK], float("-inf"), tl.float32)
        total, mixed = tl.zeros([XBLOCK], tl.float32), tl.zeros([XBLOCK, DBLOCK], tl.float32)
        for step in range(0, 2 * tl.cdiv(N, NBLOCK)):               # twice over the keys: the largest score, then the sums
            key = step % tl.cdiv(N, NBLOCK) * NBLOCK + tl.arange(0, NBLOCK).to(tl.int64)
            present = (key < N)[:, None] & (d < D)[None, :]
            keys = tl.load(k + batch * KB + head_of_it * KH + key[:, None] * KM + d[None, :], present, other=0.0)
            scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * SCALE
            if MASKED:
                places = mask + batch * BB + head_of_it * BH + row[:, None] * BM + key[None, :]
                scores = scores + tl.load(places, (row < M)[:, None] & (key < N)[None, :], other=0.0).to(tl.float32)
            scores = tl.where((key < N)[None, :], scores, float("-inf"))
            if step < tl.cdiv(N, NBLOCK):
                top = tl.maximum(top, tl.max(scores, 1))
            else:
                weights = tl.exp(scores - top[:, None])             # NaN where all scores are -inf, or one is inf or NaN
                total = total + tl.sum(weights, 1)
                values = tl.load(v + batch * VB + head_of_it * VH + key[:, None] * VM + d[None, :], present, other=0.0)
                mixed = mixed + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        tl.store(target, (mixed / total[:, None]).to(out.dtype.element_ty), inside & doubt[:, None])
"""


LIBRARY.impl("attention", attention_on_gpu, "CUDA")
REFUSALS["cuda"] = refusal
