"""softmax(q @ k^T * scale + mask) @ v by the library's attention kernels, right for every input:
the op `miniinductor::attention`.

In:   q, k, v: (batch, heads, length, size); mask: None, or what broadcasts to the scores, (batch,
      heads, M, N), on a GPU with more columns than N
where rows would not be aligned otherwise; scale: positive.  Out: (batch, heads, M, size), in the
strides that the library's kernel chose.

    >>> q = k = v = torch.randn(1, 2, 5, 64)
    >>> torch.ops.miniinductor.attention(q, k, v, None, 0.125).shape
    torch.Size([1, 2, 5, 64])

The kernels are not softmax where scores are NaN or infinite: a row of -inf gives 0, not NaN; scores
above 2e38 overflow (they count in powers of 2); float32 products by three TF32 ones make NaN of
inf.  All of that shows in what they also return, log(sum(exp)): it is 0, infinite or NaN, in
float32 perhaps only in the result.  Such rows are computed again, as they are written: on the CPU
by torch, on a GPU by a small kernel of ours, which finds them itself: nothing waits for the device,
so the op can be recorded as a CUDA graph. Mirrors aten/src/ATen/native/transformers/sdp_utils (the
choice of a kernel, alignment of masks).  Left out: cuDNN's kernels, gradients.
"""

import functools

import torch

from ..lowering.extern import EXTERN

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)


def library_attention(q, k, v, mask, scale):
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


def attention_on_cpu(q, k, v, mask, scale):
    out, log_sum = library_attention(q, k, v, mask, scale)
    doubt, wide = (
        ~log_sum.reciprocal().add_(log_sum).isfinite(),
        torch.promote_types(q.dtype, torch.float32),
    )
    for head in map(tuple, doubt.any(-1).nonzero().tolist() if doubt.any() else ()):
        rows = doubt[head].nonzero()[:, 0]
        scores = q[head][rows].to(wide) @ k[head].mT.to(wide) * scale
        if mask is not None:
            scores = scores + mask.expand(*q.shape[:-1], k.shape[-2])[head][rows]
        out[head][rows] = (scores.softmax(-1) @ v[head].to(wide)).to(q.dtype)
    return out


# --- on a GPU -------------------------------------------------------------------------------------
def why_not_on(device):
    """Why the kernels cannot run there, or None."""
    from .triton_build import why_not

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
    from ..codegen.common import Kernel
    from ..codegen.triton import Launch
    from ..codegen.triton_configs import Config, power_of_2
    from .triton_build import build_triton_kernels

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


LIBRARY = torch.library.Library("miniinductor", "FRAGMENT")
LIBRARY.define("attention(Tensor q, Tensor k, Tensor v, Tensor? mask, float scale) -> Tensor")
LIBRARY.impl("attention", attention_on_cpu, "CPU")
LIBRARY.impl("attention", attention_on_gpu, "CUDA")
torch.library.register_fake(
    "miniinductor::attention",
    lambda q, k, v, mask, scale: library_attention(q, k, v, mask, scale)[0],
    lib=LIBRARY,
)
EXTERN[torch.ops.miniinductor.attention.default] = None
