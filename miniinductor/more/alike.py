"""Are two tensors laid out alike, for all sizes?

In:   (fake) tensors, perhaps with symbolic sizes.  Out: True where it is so whatever the symbols
      are; False: it is not, or it is not known.

    >>> alike(torch.ones(2, 3), torch.ones(3, 2).t())       # the same shape, other strides
    False
"""

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
