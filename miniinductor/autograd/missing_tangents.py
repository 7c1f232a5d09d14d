"""Gradients that do not arrive in a call: the backward graph without what follows from them.

In:   a backward graph, and the names of the tangents that are missing.
Out:  an equal graph for calls in which those are zero.  It does not take them, and computes nothing
      of them; the gradient of a primal that only they reach is None.

A model that returns logits and a loss is mostly differentiated by its loss alone:

    logits = x @ w; loss = logits.sum()

    def backward(x, d_logits, d_loss):          def backward(x, d_loss):
        a = d_loss.expand(4, 8)                     a = d_loss.expand(4, 8)
        b = a + d_logits                    ->      b = a + full([4, 8], 0)
        return x.T @ b                              return x.T @ b

Every backward op is linear in all that depends on tangents.  So

  * an op all of whose tangents are missing is zero, and goes: `d_logits.t()` would;
  * where a zero meets another value, zeros are made, as above;
  * what depends on no tangent (`x.T`) is copied, and goes if nobody reads it any more.

`Backward` of runtime.py compiles each such graph when a call first needs it.
# PyTorch: tangents that are missing are tensors of zeros, with which the graph computes.
"""

from collections.abc import Collection

import torch
from torch import fx

from .functionalize import Graph, is_needed, with_graph
from .partition import is_tangent

aten = torch.ops.aten


class WithoutTangents:
    """One pass over a backward graph.

    zero: nodes that are zero now; live: the others that depend on tangents; copied: a node of the
    old graph -> its copy in the new one."""

    def __init__(self, gm: fx.GraphModule, missing: Collection[str]) -> None:
        """missing: names of tangents."""
        self.gm, self.missing, self.graph = gm, missing, Graph()
        self.copied: dict[fx.Node, fx.Node] = {}
        self.zero: set[fx.Node] = set()
        self.live: set[fx.Node] = set()

    def run(self) -> fx.GraphModule:
        for node in self.gm.graph.nodes:
            linear = [s for s in node.all_input_nodes if s in self.zero or s in self.live]
            if node.op == "output":
                values = [None if n in self.zero else self.copied[n] for n in node.args[0][0]]
                self.graph.output((values, []))
            elif self.is_zero(node, linear):
                self.zero.add(node)
            else:
                self.copied[node] = self.graph.node_copy(node, self.use)
                if linear or is_tangent(node):
                    self.live.add(node)
        self.graph.eliminate_dead_code(is_needed)
        return with_graph(self.gm, self.graph)

    def is_zero(self, node: fx.Node, linear: list[fx.Node]) -> bool:
        """linear: the arguments that depend on tangents."""
        if node.op == "placeholder":
            return node.target in self.missing
        return bool(linear) and all(source in self.zero for source in linear)

    def use(self, node: fx.Node) -> fx.Node:
        """The node's copy; zeros of its shape where it is zero."""
        if node not in self.copied:
            value = node.meta["val"]
            place = {"dtype": value.dtype, "device": value.device}
            self.copied[node] = self.graph.call_function(
                aten.full.default, (list(value.shape), 0), place
            )
            self.copied[node].meta.update(node.meta)
        return self.copied[node]
