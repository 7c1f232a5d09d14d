"""Numbers: values of the graph, and not memory to be read; computed now where they depend on
Python's alone, made on the GPU where its kernels read them.

In:   calls of `torch.tensor` with one number; a functional ATen graph, changed in place.  Out:
      `torch.full((), 2.5)` on the same device; how many numbers were computed, or moved.

    x / torch.sqrt(torch.tensor(64.))   # x / 8, by eager's own square root
    x[0] = 5; x * torch.tensor(2.)      # the 5 and the 2. are made on x's device

As eager makes it, a number on a GPU is a copy from the host, for which the host waits: in every
call, and in every layer of a model that counts its tokens.  The number that is filled in is the one
that the tensor would hold, rounded to its dtype.  Complex numbers, lists and what has a gradient
are left to torch.  Mirrors constant folding in torch/_inductor/fx_passes/joint_graph.py.
"""

from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from ..autograd.rules import call_rule
from ..errors import ours
from ..lowering.extern import EXTERN
from ..lowering.registry import LOWERINGS
from .library_layouts import aten, value_of

MAKERS = {aten.full.default, aten.scalar_tensor.default}  # of a tensor from one number
EXACT = {  # dtypes whose numbers Python has
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
}
STAY = {*EXTERN, aten._to_copy.default}  # these take tensors of several devices as eager does


# --- torch.tensor(2.5) ----------------------------------------------------------------------------
KNOWN = {"dtype", "device"}  # options that `torch.full` reads in the same way


@call_rule(torch.tensor)
def number(run: Any, target: Any, args: tuple, options: dict[str, Any]) -> Any:
    given = [*args, *(options[key] for key in ("data",) if key in options)]
    others = {key: value for key, value in options.items() if key != "data"}
    if len(given) != 1 or type(given[0]) not in (bool, int, float) or not others.keys() <= KNOWN:
        return run.plain_call(target, args, options)
    held = as_held(given[0], others.get("dtype"))
    if held is None:
        return run.plain_call(target, args, options)
    value, dtype = held
    return run.plain_call(torch.full, ((), value), {**others, "dtype": dtype})


def as_held(value: float, dtype: torch.dtype | None) -> tuple[float, torch.dtype] | None:
    """The number that the tensor holds, and the dtype; None where torch has to say something."""
    try:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            tensor = torch.tensor(value, dtype=dtype, device="cpu")
            return (tensor.item(), tensor.dtype) if tensor.dtype in EXACT else None
    except ours(RuntimeError, OverflowError, TypeError, ValueError):
        return None


# --- passes ---------------------------------------------------------------------------------------
def compute_numbers(gm: fx.GraphModule) -> int:
    """What the graph computes on the CPU from Python's numbers alone, by eager's kernels, now."""
    known: dict[fx.Node, torch.Tensor] = {}
    count = 0
    for node in list(gm.graph.nodes):
        value = value_of(node)
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.dim():
            continue
        found = made(node, value) if node.target in MAKERS else computed(gm, node, known)
        if found is None or found.dtype != value.dtype or found.dtype not in EXACT:
            continue
        if node.target not in MAKERS:
            replacement = number_after(gm, node, found.item(), value.device)
            node.replace_all_uses_with(replacement)
            node, count = replacement, count + 1
        if value.device.type == "cpu":
            known[node] = found
    return count


def made(node: fx.Node, value: torch.Tensor) -> torch.Tensor | None:
    """The tensor that `full((), number)` makes; None where eager's has something to say."""
    number = node.args[-1]
    if not isinstance(number, (bool, int, float)):
        return None
    try:
        with _disable_current_modes():
            return torch.full((), number, dtype=value.dtype)
    except ours(RuntimeError, OverflowError):
        return None


def computed(
    gm: fx.GraphModule, node: fx.Node, known: dict[fx.Node, torch.Tensor]
) -> torch.Tensor | None:
    """What eager's kernel makes of known numbers; None where there is another operand, or where
    the kernel has something to say."""
    op = node.target
    if op is aten.lift_fresh_copy.default:  # torch.tensor's own memory, which nobody else has
        source = node.all_input_nodes[0]
        return getattr(gm, str(source.target)) if source.op == "get_attr" else None
    if not isinstance(op, torch._ops.OpOverload) or not node.all_input_nodes:
        return None
    is_pure = op is aten._to_copy.default or torch.Tag.pointwise in op.tags
    if not is_pure or torch.Tag.nondeterministic_seeded in op.tags:
        return None
    if any(argument.alias_info for argument in op._schema.arguments):
        return None
    if not all(given in known for given in node.all_input_nodes):
        return None
    args, given = fx.map_arg((node.args, node.kwargs), known.__getitem__)
    options = {key: value for key, value in given.items() if key != "device"}
    try:
        with _disable_current_modes():
            return op(*args, **options)
    except ours(Exception):
        return None


def numbers_to_devices(gm: fx.GraphModule) -> int:
    """Tensors of no dimensions on the CPU that our kernels on a GPU would read (x[0] = 5, x *
    torch.tensor(2.)).

    What the graph itself makes of a Python number becomes one again; the others are copied to the
    GPU, once."""
    there: dict[tuple[fx.Node, torch.device], fx.Node] = {}
    for node in list(gm.graph.nodes):
        value = value_of(node)
        if node.target not in LOWERINGS or node.target in STAY or is_on_cpu(value):
            continue
        for given in filter(is_number_on_cpu, node.all_input_nodes):
            if (given, value.device) not in there:
                there[given, value.device] = on_device(gm, given, value.device)
            node.replace_input_with(given, there[given, value.device])
    return len(there)


def is_number_on_cpu(node: fx.Node) -> bool:
    value = value_of(node)
    return value is not None and is_on_cpu(value) and not value.dim()


def is_on_cpu(value: torch.Tensor | None) -> bool:
    """Or no tensor at all."""
    return value is None or value.device.type == "cpu"


def on_device(gm: fx.GraphModule, node: fx.Node, device: torch.device) -> fx.Node:
    """A copy of this number there; made anew where the graph itself made it."""
    number = node.args[-1] if node.target in MAKERS else None
    if isinstance(number, (bool, int, float)):
        return number_after(gm, node, number, device)
    with gm.graph.inserting_after(node):
        copy = gm.graph.call_function(aten._to_copy.default, (node,), {"device": device})
    copy.meta = {**node.meta, "val": fake_number(gm, node.meta["val"].dtype, device)}
    return copy


def number_after(gm: fx.GraphModule, node: fx.Node, number: float, device: torch.device) -> fx.Node:
    """A tensor on this device that holds the number, in the node's dtype."""
    dtype = node.meta["val"].dtype
    options: dict[str, fx.node.Argument] = {"dtype": dtype, "device": device}
    with gm.graph.inserting_after(node):
        new = gm.graph.call_function(aten.scalar_tensor.default, (number,), options)
    new.meta = {**node.meta, "val": fake_number(gm, dtype, device)}
    return new


def fake_number(gm: fx.GraphModule, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    with gm.meta["fake_mode"]:
        return aten.empty.memory_format([], dtype=dtype, device=device)
