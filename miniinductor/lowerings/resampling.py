"""Bilinear resampling on a GPU, as a sum of four weighted neighbours.

In:   an image.  Out: the resampled one, each neighbour read once for each pixel.

    row(i) = (1 - u) * x[i, j] + u * x[i, j + 1];  (1 - v) * row(i) + v * row(i + 1)

torch's rule writes a + (b - a) * u, in which a stands twice: such a value would be stored, in
channels-last images in an order that the next kernel skips through.  This is eager's form, too.
Mirrors torch/_decomp/decompositions.py (`_upsample_linear`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size
from torch._prims_common import suggest_memory_format

from ..decompositions import OURS, upcast
from .targets import recomputes

aten = torch.ops.aten
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_op = aten.upsample_bilinear2d.default
_before = OURS.get(_op, decomposition_table[_op])


def bilinear(
    x: Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    scale_high: float | None = None,
    scale_wide: float | None = None,
) -> Any:
    if x.dtype not in FLOATS or not recomputes(x.device):
        others = output_size, align_corners, scale_high, scale_wide
        return _before(x, *others)
    sizes = zip(x.shape[2:], output_size, (scale_high, scale_wide))
    (top, bottom, v), (left, right, u) = (
        neighbours(n, m, align_corners, scale, x.device) for n, m, scale in sizes
    )
    top, bottom, v = (t.unsqueeze(1) for t in (top, bottom, v))

    def weighted(row: Tensor) -> Tensor:
        a, b = (upcast(aten._unsafe_index(x, [None, None, row, at])) for at in (left, right))
        return a * (1 - u) + b * u

    result = weighted(top) * (1 - v) + weighted(bottom) * v
    return result.to(x.dtype).contiguous(memory_format=suggest_memory_format(x))


def with_scales(x: Tensor, output_size: Any, align_corners: bool, scales: Any) -> Any:
    size = upsample_compute_output_size(x.size(), output_size, scales)
    return bilinear(x, size, align_corners, *(scales or (None, None)))


def neighbours(
    size: int, count: int, align_corners: bool, scale: float | None, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Of `count` places along a side: the pixel before each, the one behind it, and its weight."""
    place = torch.arange(count, device=device).to(torch.float32)
    if align_corners:
        place = place * ((size - 1) / (count - 1) if count > 1 else 0.0)
    else:
        step = 1.0 / scale if scale is not None and scale > 0 else size / count
        place = ((place + 0.5) * step - 0.5).clamp(min=0.0)
    before = place.to(torch.int64)
    return before, (before + 1).clamp(max=size - 1), (place - before).clamp(0.0, 1.0)


OURS[aten.upsample_bilinear2d.default] = bilinear
OURS[aten.upsample_bilinear2d.vec] = with_scales
