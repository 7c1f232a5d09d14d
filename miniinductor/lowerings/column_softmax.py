"""Softmax over an outer dimension on a GPU, with few columns: two readings instead of three.

In:   softmax over a dimension along which memory does not run.  Out: the same from the maximum, and
      the sum of exponentials relative to it, of each of some parts of a column.

    s = sum over parts of s_part * exp(m_part - m),  m = the largest m_part

A part in which all are -inf has the sum 0; where the whole column is, or has inf or NaN, eager's
NaNs come out as well.  PyTorch: the online softmax (`prepare_softmax_online`) for rows.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ..decompositions import OURS, LOW_PRECISION, upcast
from ..devices import recomputes
from .statistics import COLUMNS, PROGRAMS, STEP, divisor_near, in_memory, is_packed

aten = torch.ops.aten
LEAST_LENGTH = 1024
MOST_COLUMNS = PROGRAMS * COLUMNS // 4
_softmax = OURS[aten._softmax.default]


def maximum_and_sum(x: Tensor, dim: int) -> tuple[Tensor, Tensor] | None:
    """Of each column, with the dimension kept; None where a kernel for whole columns is better."""
    if x.dtype not in (torch.float32, *LOW_PRECISION) or not recomputes(x.device):
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
    parts = upcast(x).reshape([*before, cuts, length // cuts, *after])
    tops = parts.amax(dim + 1, keepdim=True)
    base = torch.where(tops == -math.inf, 0.0, tops)
    sums = (parts - base).exp().sum(dim + 1)
    tops = tops.squeeze(dim + 1)
    top = tops.amax(dim, keepdim=True)
    total = (sums * (tops - top).exp()).sum(dim, keepdim=True)
    return top, total


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Any:
    found = maximum_and_sum(x, dim)
    if found is None:
        return _softmax(x, dim, half_to_float)
    result = torch.float32 if half_to_float else x.dtype
    return ((upcast(x) - found[0]).exp() / found[1]).to(result)


OURS[aten._softmax.default] = softmax
