"""Tensors whose sizes are not all known.

>>> is_symbolic(torch.ones(4, 8))
False
"""

import torch


def is_symbolic(value: object) -> bool:
    """Has this (fake) tensor, or tuple of tensors, a size or stride that is not constant?"""
    if isinstance(value, torch.Tensor):
        return torch.SymInt in map(type, (*value.shape, *value.stride()))
    return isinstance(value, (tuple, list)) and any(map(is_symbolic, value))
