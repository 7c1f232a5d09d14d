"""Values of a graph that are known when it is compiled: numbers that kernels of a GPU read, and
attention masks that hide nothing or exactly the future.

In:   a functional ATen graph, changed in place.  Out: how many numbers were moved, or calls
      changed.

    x[0] = 5; x * torch.tensor(2.)      # the 5 and the 2. are made on x's device

As eager makes it, a number on a GPU is a copy from the host, for which the host waits: in every
call, and in every layer of a model that counts its tokens.

    mask = where(arange(512) <= arange(512)[:, None], 0, -inf); attention(q, k, v, mask)
    ->  attention(q, k, v, is_causal=True)

Where a mask is made of constants alone and is all zeros, or zero on and below the diagonal and
-inf above it, it goes.  Models make such masks by tensor operations when they are compiled
(transformers' ask `is_compiling`); run plainly they leave them out.  With a mask, the kernel reads
it for every head and computes the hidden half too: 2 to 3 times the time on an H200.  Forward and
backward calls take the same mask, so both change or neither.
# PyTorch: keeps the masks.  A NaN in a key that a causal mask hides is no longer seen by earlier
# rows, as in plain `is_causal`.  (Numbers: torch/_inductor/fx_passes/joint_graph.py.)
"""

import math
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx

from ..autograd.fake_mode import is_random
from ..lowering.extern import EXTERN
from ..lowering.registry import LOWERINGS
from ..sizes.symbols import SYMBOLIC
from .library_layouts import aten, value_of

MAKERS = {aten.full.default, aten.scalar_tensor.default}  # of a tensor from one number
STAY = {*EXTERN, aten._to_copy.default}  # these take tensors of several devices as eager does


# --- numbers --------------------------------------------------------------------------------------
def numbers_to_devices(gm: fx.GraphModule) -> int:
    """Tensors of no dimensions on the CPU that kernels on a GPU would read: what the graph makes
    of a Python number is made there, the others are copied there, once."""
    there: dict[tuple[fx.Node, torch.device], fx.Node] = {}
    for node in list(gm.graph.nodes):
        value = value_of(node)
        if node.target not in LOWERINGS or node.target in STAY or is_on_cpu(value):
            continue
        for given in node.all_input_nodes:
            if value_of(given) is None or not is_on_cpu(value_of(given)) or value_of(given).dim():
                continue
            if (given, value.device) not in there:
                there[given, value.device] = on_device(gm, given, value.device)
            node.replace_input_with(given, there[given, value.device])
    return len(there)


def is_on_cpu(value: torch.Tensor | None) -> bool:
    """Or no tensor at all."""
    return value is None or value.device.type == "cpu"


def on_device(gm: fx.GraphModule, node: fx.Node, device: torch.device) -> fx.Node:
    """The number that this node holds, in a tensor on that device."""
    dtype, number = node.meta["val"].dtype, number_in(gm, node)
    options: dict[str, Any] = {"dtype": dtype, "device": device}
    with gm.graph.inserting_after(node):
        if number is None:
            new = gm.graph.call_function(aten._to_copy.default, (node,), options)
        else:
            new = gm.graph.call_function(aten.scalar_tensor.default, (number,), options)
    with gm.meta["fake_mode"]:
        new.meta = {**node.meta, "val": aten.empty.memory_format([], **options)}
    return new


def number_in(gm: fx.GraphModule, node: fx.Node) -> float | None:
    """The Python number of which the graph makes this tensor; None where it is computed."""
    number = node.args[-1] if node.target in MAKERS else None
    if node.target is aten.lift_fresh_copy.default and node.all_input_nodes[0].op == "get_attr":
        # torch.tensor's own memory, which nobody else has
        number = getattr(gm, str(node.all_input_nodes[0].target)).item()
    return number if isinstance(number, (bool, int, float)) else None


# --- attention masks ------------------------------------------------------------------------------
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
    for node in list(gm.graph.nodes):
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
            given |= {place: None, "is_causal": kinds[mask] == "causal"}
            positional = names[: len(node.args)]
            node.args = tuple([given.pop(name) for name in positional])
            node.kwargs = given
            changed += 1
    return changed


def kind_of(mask: fx.Node, values: dict[fx.Node, Any]) -> str | None:
    """ "zeros", "causal", or None for any other mask."""
    shape = mask.meta["val"].shape
    if len(shape) < 2 or not all(isinstance(n, int) for n in shape) or math.prod(shape) > LARGEST:
        return None
    try:
        with torch.no_grad():
            value = evaluate(mask, values)
    except NotConstant:
        return None
    is_open = value == 0
    if is_open.all():
        return "zeros"
    if shape[-1] != shape[-2] or value.dtype == torch.bool:
        return None
    past = torch.ones(shape[-2:], dtype=torch.bool, device=value.device).tril().expand(shape)
    is_causal = torch.equal(is_open, past) and (value[~is_open] == -math.inf).all()
    return "causal" if is_causal else None


def evaluate(node: Any, values: dict[fx.Node, Any]) -> Any:
    """The value of a node that is made of constants alone, by eager kernels."""
    if node not in values:
        is_op = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
        if not is_op or is_random(node.target) or node.target._schema.is_mutable:
            raise NotConstant
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: evaluate(n, values))
        made, leaves = value_of(node), pytree.tree_leaves((args, kwargs))
        is_large = made is not None and made.numel() > LARGEST
        if is_large or any(isinstance(leaf, SYMBOLIC) for leaf in leaves):
            raise NotConstant
        values[node] = node.target(*args, **kwargs)
    return values[node]
