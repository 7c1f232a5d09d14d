"""Linear, bilinear and trilinear resampling as the weighted sums that eager's kernels compute.

In:   an image (n, channels, *sizes).  Out: the resampled one (n, channels, *output_size).

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
from torch._decomp.decompositions import upsample_compute_output_size
from torch._prims_common import suggest_memory_format

from ..decompositions import LOW_PRECISION, decomposition, upcast
from ..sizes.symbols import same
from ..devices import recomputes

aten = torch.ops.aten
Numbers = Sequence[int]
CHANNELS_LAST_FROM = 16  # channels; with fewer a GPU's result is contiguous


@decomposition(
    aten.upsample_linear1d.default,
    aten.upsample_bilinear2d.default,
    aten.upsample_trilinear3d.default,
)
def linear(
    x: Tensor, output_size: Numbers, align_corners: bool, *scales: float | None, **named: Any
) -> Any:
    """scales: of each dimension how often it becomes as large, or None: what the sizes say."""
    is_wide = x.dtype in (torch.float32, torch.float64)
    if not is_wide and not (x.dtype in LOW_PRECISION and recomputes(x.device)):
        return NotImplemented  # on a CPU, eager rounds the weights of 16 bits, or not
    if any(same(n, 0) for n in output_size):
        return NotImplemented  # (eager refuses a result without pixels)
    rank = len(output_size)
    given = (*scales, *named.values(), *[None] * rank)[:rank]
    sides = [
        neighbours(x, dim, count, align_corners, scale)
        for dim, (count, scale) in enumerate(zip(output_size, given))
    ]
    result = weighted(x, sides, [None, None])
    layout = suggest_memory_format(x)
    if x.is_cuda and x.shape[1] < CHANNELS_LAST_FROM:
        layout = torch.contiguous_format
    return result.to(x.dtype).clone(memory_format=layout)  # (strides of a single channel, too)


@decomposition(
    aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec
)
def with_factors(
    x: Tensor,
    output_size: Numbers | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Any:
    size = upsample_compute_output_size(x.size(), output_size, scale_factors)
    return linear(x, size, align_corners, *(scale_factors or ()))


def weighted(x: Tensor, sides: list, at: list) -> Tensor:
    """The sum over two neighbours in each dimension that is left.  at: indices of the others."""
    if not sides:
        return upcast(aten._unsafe_index(x, at))
    (before, behind, weight), *others = sides
    first = weighted(x, others, [*at, before])
    second = weighted(x, others, [*at, behind])
    return first * (1 - weight) + second * weight


def neighbours(
    x: Tensor, dim: int, count: int, align_corners: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Of `count` places along an image's dimension: the pixel before each, the one behind it, and
    the weight of the latter; each as a column that broadcasts against the
    dimensions that follow.

    Eager takes one pixel twice where nothing is resampled: its neighbour may be infinite."""
    size = x.shape[2 + dim]
    dtype = torch.float32 if x.dtype in LOW_PRECISION else x.dtype
    place = torch.arange(count, device=x.device)
    if same(size, count):
        before = behind = place
        weight = torch.zeros_like(place, dtype=dtype)
    else:
        exact = source_of(place.to(dtype), size, count, align_corners, scale)
        before = exact.to(torch.int64)
        behind = (before + 1).clamp(max=size - 1)
        weight = (exact - before).clamp(0.0, 1.0)
    column = (-1, *[1] * (x.dim() - 3 - dim))
    return before.reshape(column), behind.reshape(column), weight.reshape(column)


def source_of(
    place: Tensor, size: int, count: int, align_corners: bool, scale: float | None
) -> Tensor:
    """Where in the image, in pixels, a place of the result lies; never before the first pixel."""
    if align_corners:
        return place * ((size - 1) / (count - 1) if count > 1 else 0.0)
    step = 1.0 / scale if scale is not None and scale > 0 else size / count
    return ((place + 0.5) * step - 0.5).clamp(min=0.0)
