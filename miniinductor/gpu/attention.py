"""Attention by the library's kernels on a GPU: rows that they get wrong are computed again there.

In:   the op `miniinductor::attention` (passes/attention.py) on CUDA tensors.  Out: its result,
      right for every input.

A small kernel of ours finds the rows in doubt itself, by their log(sum(exp)), and computes them as
they are written.  Nothing waits for the device, so the op can be recorded as a CUDA graph.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..codegen.common import Kernel
from ..passes.attention import HALF, LIBRARY, REFUSALS, library_attention
from .block_sizes import Config, Launch, power_of_2
from .build import build_triton_kernels, why_not


def refusal(device: torch.device) -> str | None:
    """Why the kernels cannot run there, or None."""
    reason = why_not(device)
    if reason is None and torch.cuda.get_device_capability(device) < (8, 0):
        return "they need compute capability 8.0"
    return reason


def attention_on_gpu(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    q, k, v = map(aligned, (q, k, v))
    if mask is not None:
        mask = aligned(mask)[..., : k.shape[-2]].expand(*q.shape[:-1], k.shape[-2])
    out, log_sum = library_attention(q, k, v, mask, scale)
    mend(out, log_sum, q, k, v, mask, scale)
    return out


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy whose rows begin at multiples of 16 bytes: the kernels move that much
    at once."""
    step = 16 // tensor.element_size()
    if tensor.data_ptr() % 16 or any(s % step for s in tensor.stride()[:-1]):
        return tensor.clone()
    return tensor


def mend(
    out: torch.Tensor,
    log_sum: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
) -> None:
    """Compute the rows of `out` that are in doubt again, in place."""
    tensors = out, q, k, v, q if mask is None else mask
    problem = Problem(
        q.device,
        q.dtype,
        shape=tuple(q.shape),
        keys=k.shape[-2],
        logs=log_sum.shape[-1],
        masked=mask is not None,
        scale=scale,
        strides=tuple(tensor.stride()[:3] for tensor in tensors),
    )
    stream = [torch._C._cuda_getCurrentRawStream(q.device.index)] if q.is_cuda else []
    mending_kernel(problem)(out, log_sum, *tensors[1:], *stream)


class Problem(NamedTuple):
    """All that the kernel must know when it is compiled."""

    device: torch.device
    dtype: torch.dtype
    shape: tuple[int, ...]  # of the queries: batch, heads, rows, size
    keys: int
    logs: int  # rows of a head in log(sum(exp)), which is padded
    masked: bool
    scale: float
    strides: tuple[tuple[int, ...], ...]  # of out, q, k, v, mask: along batch, heads and rows

    def constants(self) -> dict[str, Any]:
        """Of the kernel, by name."""
        _, heads, rows, size = self.shape
        named = {
            "XBLOCK": ROWS,
            "NBLOCK": KEYS,
            "DBLOCK": max(16, power_of_2(size)),
            "TILES": -(-rows // ROWS),
            "H": heads,
            "M": rows,
            "N": self.keys,
            "D": size,
            "LOGS": self.logs,
            "MASKED": int(self.masked),
            "CHECKED": int(self.dtype not in HALF),
            "SCALE": float(self.scale),
        }
        for name, stride in zip("OQKVB", self.strides):
            named |= {name + dim: n for dim, n in zip("BHM", stride)}
        return named


@functools.cache
def mending_kernel(problem: Problem) -> Callable:
    constants = problem.constants()
    batch, heads, *_ = problem.shape
    pointers = dict.fromkeys(("out", "log_sum", "q", "k", "v", "mask"), problem.dtype)
    pointers["log_sum"] = torch.float32
    programs = batch * heads * constants["TILES"]
    configs = [Config(tuple(constants.items()), 4)]
    launch = Launch({"x": programs * ROWS}, configs, pointers, False, [1] * len(pointers))
    parameters = ", ".join(f"{name}: tl.constexpr" for name in constants)
    source = SOURCE.replace("CONSTANTS", parameters)
    kernel = Kernel(source, [], [], [], "mend_attention", launch=launch)
    [function] = build_triton_kernels(problem.device, [kernel])
    return function


ROWS, KEYS = 32, 16
SOURCE = """import triton
import triton.language as tl


@triton.jit
def NAME(out, log_sum, q, k, v, mask, CONSTANTS):
    number = tl.program_id(0).to(tl.int64)
    head, row = number // TILES, number % TILES * XBLOCK + tl.arange(0, XBLOCK)
    batch, head_of_it, d = head // H, head % H, tl.arange(0, DBLOCK)
    inside = (row < M)[:, None] & (d < D)[None, :]
    target = out + batch * OB + head_of_it * OH + row[:, None] * OM + d[None, :]
    logs = tl.load(log_sum + head * LOGS + row, row < M, other=1.0)
    doubt = (logs == 0) | (logs - logs != 0)                # 0, infinite or NaN
    if CHECKED:
        known = tl.load(target, inside, other=0.0)
        doubt = doubt | (tl.max((known != known).to(tl.int32), 1) > 0)
    if tl.max(doubt.to(tl.int32), 0) > 0:                   # rare: the rest is for these rows alone
        at_queries = q + batch * QB + head_of_it * QH + row[:, None] * QM + d[None, :]
        queries = tl.load(at_queries, inside, other=0.0)
        top = tl.full([XBLOCK], float("-inf"), tl.float32)
        total, mixed = tl.zeros([XBLOCK], tl.float32), tl.zeros([XBLOCK, DBLOCK], tl.float32)
        # Twice over the keys: the largest score, then the sums.  (Pointers have names of their own:
        # Triton takes no variable that changes its shape in a loop.)
        for step in range(0, 2 * tl.cdiv(N, NBLOCK)):
            key = step % tl.cdiv(N, NBLOCK) * NBLOCK + tl.arange(0, NBLOCK).to(tl.int64)
            present = (key < N)[:, None] & (d < D)[None, :]
            at_keys = k + batch * KB + head_of_it * KH + key[:, None] * KM + d[None, :]
            keys = tl.load(at_keys, present, other=0.0)
            scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * SCALE
            if MASKED:
                at_mask = mask + batch * BB + head_of_it * BH + row[:, None] * BM + key[None, :]
                here = (row < M)[:, None] & (key < N)[None, :]
                scores = scores + tl.load(at_mask, here, other=0.0).to(tl.float32)
            scores = tl.where((key < N)[None, :], scores, float("-inf"))
            if step < tl.cdiv(N, NBLOCK):
                top = tl.maximum(top, tl.max(scores, 1))
            else:                                           # NaN where all scores are -inf, or one
                weights = tl.exp(scores - top[:, None])     # is inf or NaN
                total = total + tl.sum(weights, 1)
                at_values = v + batch * VB + head_of_it * VH + key[:, None] * VM + d[None, :]
                values = tl.load(at_values, present, other=0.0)
                mixed = mixed + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        result = (mixed / total[:, None]).to(out.dtype.element_ty)
        tl.store(target, result, inside & doubt[:, None])
"""


LIBRARY.impl("attention", attention_on_gpu, "CUDA")
REFUSALS["cuda"] = refusal
