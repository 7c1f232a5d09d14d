"""Views that were made without gradients, of tensors that need them, keep fixed sizes.

In:   a tensor that the program is given.   Out: no size of it becomes a symbol.

    with torch.no_grad():
        v = w.view(2, 2)        # autograd refuses to say anything of v once w or v is written

The fake of a tensor of fixed sizes is such a view, too, and refuses while it is traced; one of
symbolic sizes is no view, and eager's error would be missed.  The price is a compilation for each
size.
Mirrors `meta_tensor` in torch/_subclasses/meta_utils.py, which makes symbolic views.
"""

import torch

from .extending import extends
from ..dynamic import SizePolicy
from ..sources import Source

META = torch._C._autograd.CreationMeta
any_tensor = SizePolicy.of_tensor


def is_forbidden_when_written(tensor: torch.Tensor) -> bool:
    """Is it a view that was made without gradients, of something that needs them?

    (The results of `unbind` are forbidden, too, with symbolic sizes as without.)"""
    if not tensor.requires_grad or not tensor._is_view():
        return False
    made = torch._C._autograd._get_creation_meta(tensor)
    return made not in (META.DEFAULT, META.MULTI_OUTPUT_NODE)


@extends(SizePolicy)
class FixedViews(SizePolicy):
    def of_tensor(self, tensor: torch.Tensor, source: Source) -> set[int] | None:
        if is_forbidden_when_written(tensor):
            return None
        return any_tensor(self, tensor, source)
