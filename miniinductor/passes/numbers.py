"""Numbers that lie on the CPU and are read by kernels of a GPU.

In:   a functional ATen graph, changed in place.  Out: how many numbers were moved.

    x[0] = 5; x * torch.tensor(2.)      # the 5 and the 2. are made on x's device
"""

import torch
from torch import fx

from ..graph_passes.registry import CLEANING, graph_pass
from ..lowering.extern import EXTERN
from ..lowering.registry import LOWERINGS
from .layout import aten, value_of

STAY = {*EXTERN, aten._to_copy.default}  # these take tensors of several devices as eager does


@graph_pass(CLEANING, "numbers", order=10)
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
    value, source = node.meta["val"], next(iter(node.all_input_nodes), node)
    is_made = node.target is aten.lift_fresh_copy.default and source.op == "get_attr"
    with gm.graph.inserting_after(node):
        if is_made and not value.is_complex():
            number = getattr(gm, str(source.target)).item()
            options = {"dtype": value.dtype, "device": device}
            copy = gm.graph.call_function(aten.scalar_tensor.default, (number,), options)
        else:
            copy = gm.graph.call_function(aten._to_copy.default, (node,), {"device": device})
    with gm.meta["fake_mode"]:
        made = aten.empty.memory_format([], dtype=value.dtype, device=device)
    copy.meta = {**node.meta, "val": made}
    return copy
