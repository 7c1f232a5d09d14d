"""Which bits of a tensor are guarded: those that can matter.

In:   an input.
Out:  the check that it is negated or conjugated lazily, stands for zeros without memory and was
      made in inference mode as that of now, as far as this can differ; where torch still has names
      of dimensions, that it has none.

Without this file all of the bits are guarded of each tensor.
"""

from collections.abc import Iterable

import torch


from .extending import extends
from ..variables.builder import Builder

KNOWS_NAMES = hasattr(torch.Tensor, "has_names")  # named dimensions went with torch 2.13
plain_check = Builder.view_bits_check


@extends(Builder)
def view_bits_check(builder: Builder, value: torch.Tensor, bits: Iterable[str]) -> str:
    wanted = set(bits)
    if not value.is_complex():
        wanted.discard("is_conj")
    recorded = torch.is_grad_enabled()  # what was made there cannot be saved for backward
    if torch.is_inference_mode_enabled() or not (value.is_inference() or recorded):
        wanted.discard("is_inference")  # views of such tensors were made there, too
    check = plain_check(builder, value, [bit for bit in bits if bit in wanted])
    return f"{check} and not {{0}}.has_names()" if KNOWS_NAMES else check
