"""The autograd graph of the fake tensors goes when the trace has ended.

In:   a recorded graph, with the fake tensor of each node.  Out: the same, detached from history.

Without this file it stays in memory as long as the recorded graph does.
"""

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx

from ...hooks import extends
from ..joint import ProgramTrace, needs_gradient


@extends(ProgramTrace)
class Forgetting(ProgramTrace):
    def recorded_graph(self, out: Any, name: str) -> fx.GraphModule:
        made = super().recorded_graph(out, name)
        if any(map(needs_gradient, self.objects)):
            forget_history(self.tracer.graph)
        return made


def forget_history(graph: fx.Graph) -> None:
    """Detach every node's fake tensor: the fake autograd graph has done its work."""
    detached: dict[int, torch.Tensor] = {}

    def detach(value: Any) -> Any:
        if needs_gradient(value) and id(value) not in detached:
            detached[id(value)] = value.detach()
        return detached.get(id(value), value)

    values = [(node, node.meta["val"]) for node in graph.nodes if "val" in node.meta]
    for node, value in values:  # a list keeps all of them alive: ids stay unique
        node.meta["val"] = pytree.tree_map(detach, value)
