"""A backward half for each set of gradients that arrives; halves that lie on disk.

In:   a backward graph, and which tangents are missing in this call.  Out: the graph without what
      depends on those alone.

A model that returns logits and a loss is mostly differentiated by its loss alone; the graph for
that case has nothing of the logits' gradient left.
"""

import copy
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx

from ...checks import may_raise
from ...hooks import extends
from ...sizes.symbols import alike
from ..functionalize import Graph, is_needed, with_graph
from ..partition import is_tangent
from ..runtime import Backward, Halves
from .histories import HistoryHalves

aten = torch.ops.aten


@extends(Halves)
class ArrivedHalves(HistoryHalves):
    def forward(self, ctx: Any, *primals: Any) -> tuple:
        ctx.set_materialize_grads(False)  # `Variants` are told which arrived
        return super().forward(ctx, *primals)

    def backward(self, ctx: Any, *given: Any) -> tuple:
        if all(tangent is None for tangent in given):  # nothing of this call reached the loss
            return (None,) * len(self.cut.gradients)
        return super().backward(ctx, *given)


@extends(Backward)
class Variants(Backward):
    """missing: names of the tangents that do not arrive at this half.  halves: the same half for
    other sets of them."""

    missing: tuple[str, ...] = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.halves: dict[tuple[str, ...], Variants] = {}

    def __call__(
        self, sizes: Sequence[int], saved: list[torch.Tensor], given: list[torch.Tensor | None]
    ) -> Any:
        pairs = zip(self.names(), given)
        missing = tuple([name for name, tangent in pairs if tangent is None])
        half = self.halves.get(missing)
        if half is None:
            half = self.halves[missing] = copy.copy(self)
            half.missing, half.halves = missing, {}
        there: list = [tangent for tangent in given if tangent is not None]
        given.clear()
        return super(Variants, half).__call__(sizes, saved, there)

    def names(self) -> list[str]:
        return [f"tangent{place}" for place, _ in self.cut.tangents]

    def graph(self) -> fx.GraphModule:
        graph = super().graph()
        return WithoutTangents(graph, self.missing).run() if self.missing else graph


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
