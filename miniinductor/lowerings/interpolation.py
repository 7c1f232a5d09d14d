"""Linear, bilinear and trilinear resampling as the weighted sums that eager's kernels compute.

In:   an image (n, channels, *sizes).  Out: the resampled one (n, channels, *output_size).

    a * (1 - w) + b * w         # here: an infinity with a weight above zero gives an infinity
    a + (b - a) * w             # torch's rule: the same for finite values, NaN where b - a is

In torch's rule a stands twice, too: a GPU would store such a value before it goes on.
Mirrors torch/_decomp/decompositions.py (`_upsample_linear`) and, in the values of infinities,
aten/src/ATen/native/cpu/UpSampleKernel.cpp.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size
from torch._prims_common import suggest_memory_format

from ..decompositions import LOW_PRECISION, OURS, decomposition, upcast
from ..sizes.symbols import same
from ..devices import recomputes

aten = torch.ops.aten
Numbers = Sequence[int]
CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}  # by a result's dimensions
SMALL_RESULT = 128  # height and width together, up to which eager takes all channels at once
CHANNELS_LAST_FROM = 16  # channels; with fewer a GPU's result is contiguous


def weights_type(x: Tensor, output_size: Numbers) -> torch.dtype | None:
    """The type in which eager's kernel keeps its weights; None: it differs from ours by more than
    that, or sizes that are symbols decide which of its two kernels runs.

    One works for all channels of a pixel at once, with weights in float.  The other stores them in
    the image's own type, and what is left of 1 is rounded once more."""
    if x.dtype in (torch.float32, torch.float64):
        return x.dtype
    if x.dtype not in LOW_PRECISION:
        return None
    if recomputes(x.device):
        return torch.float32
    if len(output_size) == 1:
        return x.dtype
    if x.device.type != "cpu" or not all(type(n) is int for n in (*x.shape, *output_size)):
        return None
    is_last = x.is_contiguous(memory_format=CHANNELS_LAST[len(output_size)])
    is_small = len(output_size) == 2 and sum(output_size) <= SMALL_RESULT
    is_single = len(output_size) == 2 and x.shape[1] == 3 and torch.get_num_threads() == 1
    is_whole = is_small or is_single or is_last and x.shape[1] > 3
    return torch.float32 if is_whole else x.dtype


@decomposition(
    aten.upsample_linear1d.default,
    aten.upsample_bilinear2d.default,
    aten.upsample_trilinear3d.default,
)
def linear(
    x: Tensor, output_size: Numbers, align_corners: bool, *scales: float | None, **named: Any
) -> Any:
    """scales: of each dimension how often it becomes as large, or None: what the sizes say."""
    kept = weights_type(x, output_size)
    if kept is None or any(same(n, 0) for n in output_size):
        return NotImplemented  # (eager refuses a result without pixels)
    rank = len(output_size)
    given = (*scales, *named.values(), *[None] * rank)[:rank]
    sides = [
        neighbours(x, dim, count, align_corners, scale, kept)
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
    return first * upcast(1 - weight) + second * upcast(weight)


def neighbours(
    x: Tensor, dim: int, count: int, align_corners: bool, scale: float | None, kept: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Of `count` places along an image's dimension: the pixel before each, the one behind it, and
    the weight of the latter (of type `kept`); each as a column that broadcasts against the
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
    return before.reshape(column), behind.reshape(column), weight.to(kept).reshape(column)


def source_of(
    place: Tensor, size: int, count: int, align_corners: bool, scale: float | None
) -> Tensor:
    """Where in the image, in pixels, a place of the result lies; never before the first pixel."""
    if align_corners:
        return place * ((size - 1) / (count - 1) if count > 1 else 0.0)
    step = 1.0 / scale if scale is not None and scale > 0 else size / count
    return ((place + 0.5) * step - 0.5).clamp(min=0.0)


# --- the nearest pixel ----------------------------------------------------------------------------
def of_floats(torchs: Callable) -> Callable:
    """torch's rule, which finds pixels in float32.  Eager's kernel for float64 on a CPU does so in
    float64, and takes the other of two pixels that are equally far."""

    def nearest_exact(x: Tensor, *args: Any, **named: Any) -> Any:
        if x.dtype == torch.float64 and not recomputes(x.device):
            return NotImplemented
        return torchs(x, *args, **named)

    return nearest_exact


for _rank in (1, 2, 3):
    _op = getattr(aten, f"_upsample_nearest_exact{_rank}d")
    for _target in (_op.default, _op.vec):
        if _target in decomposition_table:
            OURS[_target] = of_floats(decomposition_table[_target])
