"""Attention masks that hide nothing, or exactly the future: the attention kernel does both without
reading a mask.

In:   a functional ATen graph.  Out: the number of calls changed: where the mask of an attention is
      made of constants alone and is all zeros, or zero on and below the diagonal and -inf above it,
      the mask is gone (and `is_causal` set).

    mask = where(arange(512) <= arange(512)[:, None], 0, -inf); attention(q, k, v, mask)
    ->  attention(q, k, v, is_causal=True)

Models make such masks by tensor operations when they are compiled (transformers' ask
`is_compiling`); run plainly they leave them out.  With a mask, the kernel reads it for every head
and computes the hidden half too: 2 to 3 times the time on an H200. Forward and backward calls take
the same mask, so both change or neither.
# PyTorch: keeps the masks.  A NaN in a key that a causal mask hides is no longer seen by earlier
# rows, as in plain `is_causal`.

On a GPU, a mask that is expanded along its rows is copied when the call is traced: no fused kernel
of the library reads such a mask, and eager's other kernel would be taken.  A call that drops
elements stays as it is: the other kernel draws in another order.  (A front end may know that plain
Python never makes the call, and copy its mask, as minidynamo does.)
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from ..autograd.rules import call_rule
from ..sizes.symbols import SYMBOLIC

aten = torch.ops.aten
RANDOM = torch.Tag.nondeterministic_seeded
LARGEST = 1 << 26  # elements of a mask that are worth computing once, now
ATTENTION = {
    getattr(aten, name + kind).default
    for kind in ("", "_backward")
    for name in (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
    )
}


class NotConstant(Exception):
    """The value depends on the graph's inputs, on chance or on symbolic sizes."""


def drop_attention_masks(gm: fx.GraphModule) -> int:
    kinds: dict[fx.Node, str | None] = {}
    values: dict[fx.Node, Any] = {}
    changed = 0
    calls: list[Any] = list(gm.graph.nodes)
    for node in calls:
        if node.target not in ATTENTION:
            continue
        names = [argument.name for argument in node.target._schema.arguments]
        given = dict(zip(names, node.args)) | node.kwargs
        place = "attn_mask" if "attn_mask" in names else "attn_bias"
        mask = given.get(place)
        if not isinstance(mask, fx.Node) or given.get("is_causal"):
            continue
        if mask not in kinds:
            kinds[mask] = kind_of(mask, values)
        if kinds[mask]:
            for name, value in ((place, None), ("is_causal", kinds[mask] == "causal")):
                write(node, names, name, value)
            changed += 1
    return changed


def write(node: fx.Node, names: list[str], name: str, value: Any) -> None:
    place = names.index(name)
    if place < len(node.args):
        node.update_arg(place, value)
    else:
        node.update_kwarg(name, value)


def kind_of(mask: fx.Node, values: dict[fx.Node, Any]) -> str | None:
    """ "zeros", "causal", or None for any other mask."""
    shape = mask.meta["val"].shape
    if len(shape) < 2 or not all(isinstance(n, int) for n in shape) or math.prod(shape) > LARGEST:
        return None
    try:
        with torch.no_grad():
            value = evaluate(mask, values)
            open_ = value == 0
            if open_.all():
                return "zeros"
            if shape[-1] != shape[-2] or value.dtype == torch.bool:
                return None
            past = torch.ones(shape[-2:], dtype=torch.bool, device=value.device).tril()
            is_causal = (
                torch.equal(open_, past.expand(shape)) and (value[~open_] == -math.inf).all()
            )
            return "causal" if is_causal else None
    except NotConstant:
        return None


def evaluate(node: Any, values: dict[fx.Node, Any]) -> Any:
    """The value of a node that is made of constants alone, by eager kernels."""
    if node not in values:
        is_op = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
        if not is_op or RANDOM in node.target.tags or node.target._schema.is_mutable:
            raise NotConstant
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: evaluate(n, values))
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        if any(isinstance(leaf, SYMBOLIC) for leaf in leaves) or size_of(node) > LARGEST:
            raise NotConstant
        values[node] = node.target(*args, **kwargs)
        node.meta["in_range"] = True  # or it would have raised
    return values[node]


def size_of(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) else 0


# --- masks that are expanded along their rows -----------------------------------------------------
@call_rule(F.scaled_dot_product_attention)
def with_dense_mask(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    mask = kwargs.get("attn_mask")
    if mask is not None and mask.is_cuda and mask.dim() and mask.stride(-1) != 1:
        if not kwargs.get("dropout_p"):
            kwargs = {**kwargs, "attn_mask": mask.contiguous()}
    return interpreter.plain_call(target, args, kwargs)
