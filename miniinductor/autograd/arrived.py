"""A backward graph without the gradients that do not arrive.

In:   a backward graph, and which tangents are missing in this call.  Out: the graph without what
      depends on those alone.

A model that returns logits and a loss is mostly differentiated by its loss alone; the graph for
that case has nothing of the logits' gradient left.
"""

from collections.abc import Collection

import torch
from torch import fx

from ..sizes.symbols import alike
from .checks import may_raise
from .functionalize import Graph, is_needed, with_graph
from .partition import is_tangent

aten = torch.ops.aten


class WithoutTangents:
    """One pass over a backward graph.

    Every backward op is linear in all that depends on tangents, so an op that only sees missing
    ones is zero; a sum leaves such a term out; elsewhere a zero that is needed is made.

    zero: nodes that are zero now; live: the others that depend on tangents; known: what the forward
    half has checked, and nobody reads any more."""

    def __init__(self, gm: fx.GraphModule, missing: Collection[str]) -> None:
        self.gm, self.missing, self.graph = gm, missing, Graph()
        self.copied: dict[fx.Node, fx.Node] = {}
        self.zero: set[fx.Node] = set()
        self.live: set[fx.Node] = set()
        self.known: set[fx.Node] = set()

    def run(self) -> fx.GraphModule:
        for node in self.gm.graph.nodes:
            linear = [s for s in node.all_input_nodes if s in self.zero or s in self.live]
            if node.op == "output":
                values = [None if n in self.zero else self.copied[n] for n in node.args[0][0]]
                self.graph.output((values, []))
            elif self.is_zero(node, linear):
                self.zero.add(node)
            else:
                self.copy(node, linear)
        self.graph.eliminate_dead_code(lambda n: is_needed(n) and n not in self.known)
        return with_graph(self.gm, self.graph)

    def is_zero(self, node: fx.Node, linear: list[fx.Node]) -> bool:
        if node.op == "placeholder":
            return node.target in self.missing
        return bool(linear) and all(source in self.zero for source in linear)

    def copy(self, node: fx.Node, linear: list[fx.Node]) -> None:
        term = self.last_term(node, linear)
        if term is not None:
            self.copied[node] = self.copied[term]
            self.live.add(node)
            return
        self.copied[node] = self.graph.node_copy(node, self.use)
        if linear or is_tangent(node):
            self.live.add(node)
        elif may_raise(node) and node.users:
            self.known.add(self.copied[node])

    def last_term(self, node: fx.Node, linear: list[fx.Node]) -> fx.Node | None:
        """Of a sum of which one term is zero: the term that is left, if that is the sum."""
        if node.target is not aten.add.Tensor or node.kwargs:
            return None
        if not any(source in self.zero for source in linear):
            return None
        left = [a for a in node.args if isinstance(a, fx.Node) and a not in self.zero]
        value = node.meta["val"]
        return next((term for term in left if alike(term.meta["val"], value)), None)

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
