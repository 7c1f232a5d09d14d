"""Decompositions of ops that few programs use, in terms of scatters, products and choices.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    put(x, i, y)            -> index_put(x.reshape(-1), [i], y)      of one dimension
    index_add(x, 0, i, y)   of a tensor without dimensions: of one with a single element
    max_unpool2d(x, i)      -> scatter(zeros, -1, i, x)              of flat images
    dot(x, y)               -> sum(x * y)                            so that it fuses

Mirrors torch/_inductor/decomposition.py.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._prims_common import suggest_memory_format

from ..decompositions import OURS, decomposition, upcast
from ..sizes.symbols import is_symbolic
from ..sizes.symbols import hint, same

aten = torch.ops.aten
SHORT = 4096  # elements of a matrix whose product with a vector is written out

# torch's own forms of these are exact
for _op in (aten.tril_indices.default, aten.triu_indices.default):
    OURS[_op] = decomposition_table[_op]


# --- tensors without dimensions -------------------------------------------------------------------
def _with_one_dimension(op: Any) -> None:
    """Register: of a tensor without dimensions, `op` is that of a tensor with one element."""
    before = OURS.get(op)

    @decomposition(op)
    def rule(x: Tensor, dim: int, index: Tensor, *args: Any, **kwargs: Any) -> Any:
        flat = [a.reshape(-1) if isinstance(a, Tensor) and not a.dim() else a for a in args]
        is_same = x.dim() and all(a is b for a, b in zip(flat, args))
        if is_same or not -1 <= dim <= 0:
            return before(x, dim, index, *args, **kwargs) if before else NotImplemented
        if x.dim() > 1:
            return NotImplemented
        result = op(x.reshape(-1), dim, index.reshape(-1), *flat, **kwargs)
        return result.reshape(x.shape)

    rule.__name__ = str(op)


for _op in (aten.index_add.default, aten.index_copy.default, aten.index_reduce.default):
    _with_one_dimension(_op)


# --- one dimension instead of several -------------------------------------------------------------
@decomposition(aten.put.default)
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    if same(index.numel(), 0) and same(source.numel(), 0):
        return x.clone()
    if not x.is_contiguous() or x.dtype != source.dtype:
        return NotImplemented
    if index.shape != source.shape and not same(index.numel(), source.numel()):
        return NotImplemented
    flat, where = x.reshape(-1), index.reshape(-1)
    return aten.index_put(flat, [where], source.reshape(-1), accumulate).reshape(x.shape)


@decomposition(aten.max_unpool2d.default, aten.max_unpool3d.default)
def max_unpool(x: Tensor, index: Tensor, output_size: Sequence[int], *how: Any) -> Any:
    """A scatter looks at each position, as eager's kernel does."""
    rank = len(output_size)
    if is_symbolic(x) or not x.numel() or not math.prod(output_size):
        return NotImplemented
    if x.shape != index.shape or x.dim() not in (rank + 1, rank + 2) or index.dtype != torch.int64:
        return NotImplemented
    front = x.shape[:-rank]
    zeros = x.new_zeros([*front, math.prod(output_size)])
    filled = torch.scatter(zeros, -1, index.reshape(*front, -1), x.reshape(*front, -1))
    format = suggest_memory_format(x)
    return filled.reshape([*front, *output_size]).contiguous(memory_format=format)


@decomposition(aten.im2col.default)
def im2col(
    x: Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    """torch's form looks up positions, of which there are none in a batch of no images."""
    if is_symbolic(x) or x.numel():
        return decomposition_table[aten.im2col.default](x, kernel_size, dilation, padding, stride)
    if x.dim() != 4 or x.shape[0] != 0 or 0 in x.shape[1:]:
        return NotImplemented
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel_size)]
    sizes = zip(x.shape[2:], padding, reach, stride)
    places = [(n + 2 * pad - r) // step + 1 for n, pad, r, step in sizes]
    return x.new_empty([0, x.shape[1] * math.prod(kernel_size), math.prod(places)])


# --- products -------------------------------------------------------------------------------------
@decomposition(aten.dot.default)
def dot(x: Tensor, y: Tensor) -> Any:
    if x.is_cuda or x.is_complex() or x.dtype != y.dtype:
        return NotImplemented
    return torch.sum(upcast(x) * upcast(y)).to(x.dtype)


@decomposition(aten.mv.default)
def mv(x: Tensor, y: Tensor) -> Any:
    """Of a small matrix: a library call costs more than its arithmetic."""
    if x.is_cuda or x.dtype not in (torch.float32, torch.float64) or x.dtype != y.dtype:
        return NotImplemented
    if is_symbolic(x) or not 0 < (hint(x.numel(), 0) or 0) <= SHORT:
        return NotImplemented
    return torch.sum(x * y, 1)


# --- choices --------------------------------------------------------------------------------------
@decomposition(aten.angle.default)
def angle(x: Tensor) -> Any:
    """Of real numbers: pi below 0."""
    if x.is_complex() or not x.dtype.is_floating_point:
        return NotImplemented
    return torch.where(x < 0, math.pi, torch.where(x != x, x, 0.0)).to(x.dtype)


@decomposition(aten.rrelu_with_noise.default)
def rrelu(
    x: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Any:
    """While training: eager's kernel draws; what it says of its draws is written to `noise`."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2)
    if generator is not None:
        return NotImplemented
    out, drawn = aten.rrelu_with_noise_functional(x, noise, lower, upper, True)
    noise.copy_(drawn)
    return out
