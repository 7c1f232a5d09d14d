"""Linear and bilinear resampling as the weighted sum that eager's kernels compute.

In:   an image (n, channels, height, width).  Out: the resampled one.

    a * (1 - w) + b * w         # here: an infinity with a weight above zero gives an infinity
    a + (b - a) * w             # torch's rule: the same for finite values, NaN where b - a is

In torch's rule a stands twice, too: a GPU would store such a value before it goes on.
Mirrors torch/_decomp/decompositions.py (`_upsample_linear`) and, in the values of infinities,
aten/src/ATen/native/cpu/UpSampleKernel.cpp.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from ..devices import recomputes
from ..sizes.symbols import same
from .decompositions import LOW_PRECISION, decomposition, upcast

aten = torch.ops.aten
CHANNELS_LAST_FROM = 16  # channels; with fewer a GPU's result is contiguous


@decomposition(aten.upsample_bilinear2d.default)
def bilinear(
    x: Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Any:
    """scales: how often a dimension becomes as large, or None: what the sizes say."""
    is_wide = x.dtype in (torch.float32, torch.float64)
    if not is_wide and not (x.dtype in LOW_PRECISION and recomputes(x.device)):
        return NotImplemented  # on a CPU, eager rounds the weights of 16 bits, or not
    if any(same(n, 0) for n in output_size):
        return NotImplemented  # (eager refuses a result without pixels)
    rows = neighbours(x, 2, output_size[0], align_corners, scales_h)
    above, below, down = [t.unsqueeze(-1) for t in rows]
    left, right, along = neighbours(x, 3, output_size[1], align_corners, scales_w)

    def row(at: Tensor) -> Tensor:
        first, second = [upcast(aten._unsafe_index(x, [None, None, at, k])) for k in (left, right)]
        return first * (1 - along) + second * along

    result = row(above) * (1 - down) + row(below) * down
    layout = suggest_memory_format(x)
    if x.is_cuda and x.shape[1] < CHANNELS_LAST_FROM:
        layout = torch.contiguous_format
    return result.to(x.dtype).clone(memory_format=layout)  # (strides of a single channel, too)


@decomposition(aten.upsample_linear1d.default)
def linear(
    x: Tensor, output_size: Sequence[int], align_corners: bool, scales: float | None = None
) -> Any:
    if x.dtype not in (torch.float32, torch.float64) or any(same(n, 0) for n in output_size):
        return NotImplemented
    left, right, along = neighbours(x, 2, output_size[0], align_corners, scales)
    first, second = [aten._unsafe_index(x, [None, None, k]) for k in (left, right)]
    return first * (1 - along) + second * along


def neighbours(
    x: Tensor, dim: int, count: int, align_corners: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Of `count` places along an image's dimension: the pixel before each, the one behind it, and
    the weight of the latter.

    Eager takes one pixel twice where nothing is resampled: its neighbour may be infinite."""
    size, dtype = x.shape[dim], torch.float32 if x.dtype in LOW_PRECISION else x.dtype
    place = torch.arange(count, device=x.device)
    if same(size, count):
        return place, place, torch.zeros_like(place, dtype=dtype)
    exact = source_of(place.to(dtype), size, count, align_corners, scale)
    before = exact.to(torch.int64)
    return before, (before + 1).clamp(max=size - 1), (exact - before).clamp(0.0, 1.0)


def source_of(
    place: Tensor, size: int, count: int, align_corners: bool, scale: float | None
) -> Tensor:
    """Where in the image, in pixels, a place of the result lies; never before the first pixel."""
    if align_corners:
        return place * ((size - 1) / (count - 1) if count > 1 else 0.0)
    step = 1.0 / scale if scale is not None and scale > 0 else size / count
    return ((place + 0.5) * step - 0.5).clamp(min=0.0)
