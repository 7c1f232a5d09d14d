"""Into how many parts long reductions of a GPU are cut, and softmax along columns in parts.

In:   a tensor, and the dimensions that are reduced.  Out: divisors, and dimensions as they lie in
      memory; of a softmax over an outer dimension, with few columns, the maximum and the sum of
      exponentials in two readings instead of three:

    s = sum over parts of s_part * exp(m_part - m),  m = the largest m_part

A part in which all are -inf has the sum 0; where the whole column is, or has inf or NaN, eager's
NaNs come out as well.  PyTorch: the online softmax (`prepare_softmax_online`) for rows.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..devices import recomputes

PROGRAMS = 132 * 8
COLUMNS = 64  # that one program works on
STEP = 32  # rows that a program reads at once there
LEAST_LENGTH = 1024
MOST_COLUMNS = PROGRAMS * COLUMNS // 4


def nearest_divisor(count: int, wanted: int) -> int:
    """The divisor of `count` nearest to `wanted`, between its half and its double, so that `count`
    elements come in whole chunks; where there is none, `wanted` itself."""
    near = [d for d in range(max(2, wanted // 2), 2 * wanted + 1) if count % d == 0]
    return min(near, key=lambda d: abs(d - wanted), default=wanted)


def divisor_near(count: int, wanted: int) -> int:
    """A divisor of `count` that is not far from `wanted`; 1 where there is none."""
    found = nearest_divisor(count, wanted) if wanted > 1 else 1
    return found if count % found == 0 else 1


def in_memory(x: Tensor) -> list[int]:
    """The dimensions of more than one element, from the slowest to the fastest."""
    return sorted((d for d in range(x.dim()) if x.shape[d] != 1), key=lambda d: -x.stride()[d])


def is_packed(x: Tensor, order: Sequence[int]) -> bool:
    """Do the elements lie without gaps, these dimensions from the slowest to the fastest?"""
    step = 1
    for d in reversed(order):
        if x.stride(d) != step:
            return False
        step *= x.shape[d]
    return True


def trailing(order: Sequence[int], holds: Any) -> list[int]:
    """The last dimensions of which that holds, in their order."""
    found: list[int] = []
    for d in reversed(order):
        if not holds(d):
            break
        found.insert(0, d)
    return found


# --- softmax along columns ------------------------------------------------------------------------
def maximum_and_sum(x: Tensor, dim: int) -> tuple[Tensor, Tensor] | None:
    """Of each column, with the dimension kept; None where a kernel for whole columns is better."""
    if x.dtype is not torch.float32 or not recomputes(x.device):
        return None
    if any(type(n) is not int for n in (*x.shape, *x.stride())) or not x.numel():
        return None
    order, dim = in_memory(x), dim % x.dim()
    if dim not in order or order[-1] == dim or not is_packed(x, order) or not x.is_contiguous():
        return None
    length, outputs = x.shape[dim], x.numel() // x.shape[dim]
    if length < LEAST_LENGTH or outputs > MOST_COLUMNS or length % STEP:
        return None
    cuts = divisor_near(length // STEP, PROGRAMS * COLUMNS // outputs)
    if cuts == 1:
        return None
    before, after = x.shape[:dim], x.shape[dim + 1 :]
    parts = x.reshape([*before, cuts, length // cuts, *after])
    tops = parts.amax(dim + 1, keepdim=True)
    base = torch.where(tops == -math.inf, 0.0, tops)
    sums = (parts - base).exp().sum(dim + 1)
    tops = tops.squeeze(dim + 1)
    top = tops.amax(dim, keepdim=True)
    total = (sums * (tops - top).exp()).sum(dim, keepdim=True)
    return top, total
