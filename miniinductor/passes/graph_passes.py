"""Which passes change a functional graph, in which order; those that remove nodes; and values of a
graph that are known when it is compiled.

In:   a functional ATen graph (an `fx.GraphModule`).  Out: of `CLEANING` the same graph, changed in
      place, and how many nodes each pass removed or changed; of the layouts of library kernels an
      equal graph in its place.

    >>> optimize(gm)            # of x.clone().exp() + x.exp(), and x.sin(), which nobody uses
    {'numbers': 0, 'copies over whole tensors': 0, 'no-ops': 1, 'common subexpressions': 1,
    'attention masks': 0, 'dead code': 1}

No-ops are copies, casts and reshapes whose result is what they were given:

    x.to(torch.float32).exp()       ->      x.exp()         # of a float32 tensor

A copy over the whole of a tensor does not depend on what was there:

    e = empty_like(x)                       e = empty_like(x)       # nobody reads it: dead code
    m = copy(e, mask)               ->      m = _to_copy(mask, dtype=float32)

Dropout copies its mask so, and x is then needed neither for that nor in the backward half.  Equal
calls become one:

    x.exp() + x.exp().sin()         ->      one exp, read twice

Numbers that kernels of a GPU read are made there.  As eager makes it, a number on a GPU is a copy
from the host, for which the host waits: in every call, and in every layer of a model that counts
its tokens.

    x[0] = 5; x * torch.tensor(2.)      # the 5 and the 2. are made on x's device

An attention mask goes where it is made of constants alone and is all zeros, or zero on and below
the diagonal and -inf above it:

    mask = where(arange(512) <= arange(512)[:, None], 0, -inf); attention(q, k, v, mask)
    ->  attention(q, k, v, is_causal=True)

Models make such masks by tensor operations when they are compiled (transformers' ask
`is_compiling`); run plainly they leave them out.  With a mask, the kernel reads it for every head
and computes the hidden half too: 2 to 3 times the time on an H200.  Forward and backward calls take
the same mask, so both change or neither.
# PyTorch: keeps the masks.  A NaN in a key that a causal mask hides is no longer seen by earlier
# rows, as in plain `is_causal`.  (Numbers: torch/_inductor/fx_passes/joint_graph.py.)

A node may stand in for another only if nobody can see whose memory it is: not where both reach the
outputs, since eager gives fresh memory.  The driver (compile.py) runs the lists of this file.
Mirrors torch/_inductor/fx_passes/post_grad.py and torch/_functorch/compile_utils.py (fx_graph_cse).
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx

from ..autograd.fake_mode import is_random
from ..autograd.functionalize import COUNTS_PLACES, aten, is_needed, is_view
from ..ir.ops import exact_key
from ..lowering.extern import ATTENTION, EXTERN
from ..lowering.registry import LOWERINGS
from ..records import CompileRecord
from ..sizes.symbols import SYMBOLIC, alike, same, size, value_of

PRODUCTS = (aten.mm.default, aten.addmm.default)
LIBRARIES = {*PRODUCTS, aten.bmm.default, aten.baddbmm.default, aten.convolution.default}
NO_OPS = {
    aten.clone.default,
    aten._to_copy.default,
    aten.view.default,
    aten.expand.default,
    aten.lift_fresh_copy.default,
}
MAKERS = {aten.full.default, aten.scalar_tensor.default}  # of a tensor from one number
STAY = {*EXTERN, aten._to_copy.default}  # these take tensors of several devices as eager does


def remove_no_ops(gm: fx.GraphModule) -> int:
    """Copies, casts and reshapes whose result is what they were given.

    A clone may be a result of its own (eager gives fresh memory): those that reach the results
    stay.
    """
    removed = 0
    # as_strided counts from the start of the memory.  So where one is in the graph, what stands in
    # for a copy must begin at the same place in its memory as the copy does in its own.
    counts_offsets = any(node.target in COUNTS_PLACES for node in gm.graph.nodes)
    for node in list(gm.graph.nodes):
        if node.target not in NO_OPS:
            continue
        source: Any = node.args[0]
        if not isinstance(source, fx.Node):
            continue
        copy, given = node.meta["val"], source.meta["val"]
        at_start = same(copy.storage_offset(), given.storage_offset())
        if alike(copy, given) and (at_start or not counts_offsets):
            removed += stand_in(node, source)
    return removed


def forget_overwritten(gm: fx.GraphModule) -> int:
    """A copy over a whole tensor becomes a conversion."""
    changed = 0
    for node in gm.graph.find_nodes(op="call_function", target=aten.copy.default):
        over, source = node.args[:2]
        if not isinstance(over, fx.Node) or not isinstance(source, fx.Node):
            continue
        wanted = over.meta["val"]
        if alike(wanted, source.meta["val"].to(wanted.dtype)):
            node.target, node.args = aten._to_copy.default, (source,)
            node.kwargs = {"dtype": wanted.dtype}
            changed += 1
    return changed


def merge_common(gm: fx.GraphModule) -> int:
    """One node for equal calls.  Random ops are never merged."""
    seen: dict[Any, fx.Node] = {}
    removed = 0
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or is_random(node.target):
            continue
        known = seen.setdefault((node.target, frozen((node.args, node.kwargs))), node)
        if known is not node and stand_in(node, known):
            traced = [*known.meta.get("traced", ()), *node.meta.get("traced", ())]
            known.meta["traced"] = tuple(dict.fromkeys(traced))  # it computes both of them
            removed += 1
    return removed


def frozen(value: Any) -> Any:
    """A hashable key of a node's arguments.  Sizes in it are expressions, and 1 is not 1.0."""

    def exact(leaf: Any) -> Any:
        return leaf if isinstance(leaf, fx.Node) else (type(leaf), size(leaf))

    return exact_key(fx.node.map_aggregate(value, exact))


def remove_dead_code(gm: fx.GraphModule) -> int:
    before = len(gm.graph.nodes)
    gm.graph.eliminate_dead_code(is_impure_node=is_needed)
    return before - len(gm.graph.nodes)


# --- may one node stand in for another? -----------------------------------------------------------
def stand_in(node: fx.Node, source: fx.Node) -> bool:
    """Put `source` in place of `node`, which has the same value, if nobody can see whose memory it
    is.  Says whether that was done."""
    if reaches_output_by_views(node, writes=False):
        return False
    if reaches_output_by_views(node, SHARING) and not is_private(source, node):
        return False
    node.replace_all_uses_with(source)
    node.graph.erase_node(node)
    return True


# What shares memory with its argument beside the views.  (An _unsafe_view is a view of a copy, and
# that copy may be gone already.)
SHARING = (operator.getitem, aten._unsafe_view.default)


def reaches_output_by_views(
    node: fx.Node,
    sharing: tuple = (operator.getitem,),
    without: fx.Node | None = None,
    writes: bool = True,
) -> bool:
    """Does an output share the memory of `node`?  Ways through the node `without` do not count.
    writes: do new values of inputs?"""
    work = [node]
    while work:
        one: Any = work.pop()
        for user in one.users:
            if user.op == "output" and (writes or one in pytree.tree_leaves(user.args[0][0])):
                return True
            if user is not without and (is_view(user.target) or user.target in sharing):
                work.append(user)
    return False


def is_private(source: Any, copy: fx.Node) -> bool:
    """Is the memory of `source` made in this graph, and shared by no output, unless by way of
    `copy`?"""
    while is_view(source.target) or source.target in SHARING:
        source = source.args[0]
    is_made = source.op == "call_function"
    return is_made and not reaches_output_by_views(source, SHARING, without=copy)


# --- numbers that kernels of a GPU read -----------------------------------------------------------
def numbers_to_devices(gm: fx.GraphModule) -> int:
    """Tensors of no dimensions on the CPU that kernels on a GPU would read: what the graph makes
    of a Python number is made there, the others are copied there, once."""
    there: dict[tuple[fx.Node, torch.device], fx.Node] = {}
    for node in list(gm.graph.nodes):
        value = value_of(node)
        if node.target not in LOWERINGS or node.target in STAY or is_on_cpu(value):
            continue
        for given in node.all_input_nodes:
            number, key = value_of(given), (given, value.device)
            if number is None or not is_on_cpu(number) or number.dim():
                continue
            if key not in there:
                there[key] = on_device(gm, *key)
            node.replace_input_with(given, there[key])
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


# --- the lists ------------------------------------------------------------------------------------
# for every graph: a pass changes it in place, and says how many nodes it removed or changed
CLEANING: dict[str, Callable[[fx.GraphModule], int]] = {
    "numbers": numbers_to_devices,
    "copies over whole tensors": forget_overwritten,
    "no-ops": remove_no_ops,
    "common subexpressions": merge_common,
    "attention masks": drop_attention_masks,
    "dead code": remove_dead_code,
}


def optimize(
    gm: fx.GraphModule, keep_step: Callable[[str, fx.GraphModule], None] | None = None
) -> dict[str, int]:
    """Run the cleaning passes; name -> how many nodes each removed or changed.  keep_step(name, gm)
    is called after each that did."""
    counts = {}
    for name, run in CLEANING.items():
        counts[name] = run(gm)
        if counts[name] and keep_step is not None:
            keep_step(name, gm)
    gm.recompile()
    return counts


def calls_library(gm: fx.GraphModule) -> bool:
    """Are there products or convolutions, whose library kernels like other layouts?"""
    return any(node.target in LIBRARIES for node in gm.graph.nodes)


def laid_out_joint(gm: fx.GraphModule, record: CompileRecord) -> fx.GraphModule:
    """A joint graph in the layouts of library kernels, before it is cut in two: what is saved for
    the backward half is in channels-last memory, too."""
    if not calls_library(gm):
        return gm
    from .library_layouts import for_gpu

    gm = for_gpu(gm, record, products=False)
    record.keep_step("convolutions of a GPU", gm)
    return gm


def laid_out(gm: fx.GraphModule, record: CompileRecord) -> fx.GraphModule:
    """A graph that is lowered in the layouts of library kernels.  (Half of a joint graph has those
    of its convolutions already.)"""
    if not calls_library(gm):
        return gm
    from .library_layouts import for_cpu, for_gpu

    is_inference = record.joint_graph is None
    gm = for_gpu(gm, record, convolutions=is_inference)
    record.keep_step("library kernels of a GPU", gm)
    gm = for_cpu(gm, record, is_inference)
    record.keep_step("library kernels of the CPU", gm)
    return gm
