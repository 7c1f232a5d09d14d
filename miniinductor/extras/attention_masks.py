"""Masks of attention on a GPU, in memory that its fused kernels can read.

In:   a call of `scaled_dot_product_attention` in a captured graph.  Out: the same call, with a mask
      that is expanded along its rows copied first: no fused kernel of the library reads such a
      mask, and eager's other kernel would be taken.

A call that drops elements stays as it is: the other kernel draws in another order.  (A front end
may know that plain Python never makes the call, and copy its mask, as minidynamo does.)
"""

from collections.abc import Callable
from typing import Any

from torch.nn import functional as F

from ..autograd.more.rules import call_rule


@call_rule(F.scaled_dot_product_attention)
def with_dense_mask(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    mask = kwargs.get("attn_mask")
    if mask is not None and mask.is_cuda and mask.dim() and mask.stride(-1) != 1:
        if not kwargs.get("dropout_p"):
            kwargs = {**kwargs, "attn_mask": mask.contiguous()}
    return interpreter.plain_call(target, args, kwargs)
