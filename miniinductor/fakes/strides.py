"""Strides that eager's kernels give, where torch's shape functions say others.

In:   a call of one of the ops below, and the fake result that torch made of it.
Out:  that result, lying in memory as the kernel lays it out.

    >>> x = torch.randn(2, 3).t()
    >>> torch.nn.functional.logsigmoid(x).stride()        # a fake one says (1, 3)
    (2, 1)

A program can ask for strides, and what it returns must have eager's.  The list was made by running
the samples of every OpInfo in all layouts of `tests/soundness/layouts.py`, and comparing each ATen
op's fake strides with the real ones, with torch 2.11 and 2.13; the test of this file does so for
the ops in the list.  Left out: devices other than the CPU.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from ..fake_mode import corrects
from ..sizes.symbols import hint, same

aten = torch.ops.aten
Rule = Callable[..., torch.Tensor]  # (the fake result, the op's arguments) -> the result


def laid_out(out: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Like `out`, without gaps, the dimensions of `order` from the outermost to the innermost."""
    inverse = [order.index(dim) for dim in range(out.dim())]
    return out.new_empty([out.shape[dim] for dim in order]).permute(inverse)


@corrects(
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten.reflection_pad2d.default,
    aten.reflection_pad3d.default,
    aten.replication_pad2d.default,
    aten.replication_pad3d.default,
    aten.max_unpool2d.default,
    aten.channel_shuffle.default,
)
def contiguous_or_channels_last(out: torch.Tensor, x: torch.Tensor, *_: Any) -> torch.Tensor:
    return out.contiguous(memory_format=suggest_memory_format(x))


@corrects(aten.log_sigmoid_forward.default, aten.normal.Tensor_Tensor)
def contiguous(out: torch.Tensor, *_: Any) -> torch.Tensor:
    return out.contiguous()


@corrects(aten.angle.default)
def contiguous_if_complex(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return out.contiguous() if x.is_complex() else out


@corrects(aten.native_dropout_backward.default)
def like_the_first(out: torch.Tensor, x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x, dtype=out.dtype)


def written_into(
    view: Callable[..., torch.Tensor],
    out: torch.Tensor,
    x: torch.Tensor,
    source: torch.Tensor,
    *where: Any,
    **options: Any,
) -> torch.Tensor:
    """`source` in place of view(x, *where, **options) in a copy of x.  An expanded x cannot be
    written: the kernel writes a copy of it without overlaps.

    Raises what eager raises where there is no such view, or where `source` has another shape."""
    part = view(x, *where, **options)
    if [hint(n) for n in part.shape] != [hint(n) for n in source.shape]:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. "
            f"src size = {list(source.shape)}, slice size = {list(part.shape)}"
        )
    expanded = [same(step, 0) and not same(n, 1) for n, step in zip(x.shape, x.stride())]
    return torch.empty_like(x) if any(expanded) else out


def selected(x: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    """x.select(dim, index); the fake one of torch 2.11 takes any index."""
    count, place = hint(x.shape[dim]), hint(index)
    if None not in (count, place) and not -count <= place < count:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(x.shape)} "
            f"at dimension {dim}"
        )
    return x.select(dim, index)


for scatter, place in (
    (aten.diagonal_scatter.default, aten.diagonal.default),
    (aten.select_scatter.default, selected),
    (aten.slice_scatter.default, aten.slice.Tensor),
):
    corrects(scatter)(functools.partial(written_into, place))


@corrects(aten._fft_r2c.default, aten._fft_c2c.default, aten._fft_c2r.default)
def transformed(out: torch.Tensor, x: torch.Tensor, dims: Sequence[int], *_: Any) -> torch.Tensor:
    """MKL transforms rows of memory: the transformed dimensions come to lie innermost, the others
    stay in the order in which they lay.  Where numbers are real on one side, the last of `dims` is
    transformed by a step of its own."""
    if not torch.backends.mkl.is_available():
        return out
    last = [] if x.is_complex() and out.is_complex() else [dims[-1] % x.dim()]
    first = [dim % x.dim() for dim in dims if dim % x.dim() not in last]
    outer = [dim for dim in range(x.dim()) if dim not in first]
    order = [dim for dim in by_stride(x, outer) + by_stride(x, first) if dim not in last]
    return laid_out(out, order + last)


def by_stride(x: torch.Tensor, dims: Sequence[int]) -> list[int]:
    """`dims` from the one with the largest steps in memory to the one with the smallest."""
    return sorted(dims, key=lambda dim: hint(x.stride(dim), 0), reverse=True)
