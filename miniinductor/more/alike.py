"""Are two tensors laid out alike, is one contiguous, for all sizes?

In:   (fake) tensors, perhaps with symbolic sizes.  Out: True where it is so whatever the symbols
      are; False: it is not, or it is not known.

    >>> alike(torch.ones(2, 3), torch.ones(3, 2).t())       # the same shape, other strides
    False
"""

from typing import Any

import torch

from ..sizes.symbols import same_sizes


def alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Do two (fake) tensors have the same dtype, device, shape and strides, whatever the symbols
    are?"""
    return (
        a.dtype == b.dtype
        and a.device == b.device
        and same_sizes(a.shape, b.shape)
        and same_sizes(a.stride(), b.stride())
    )


def is_contiguous(tensor: torch.Tensor) -> bool:
    """Are its strides those of a contiguous tensor of its sizes, for all sizes?  False: not, or not
    known."""
    expected: list[Any] = [1]
    for n in tensor.shape[:0:-1]:
        expected.append(expected[-1] * n)
    return same_sizes(tensor.stride()[::-1], expected[: tensor.dim()])
