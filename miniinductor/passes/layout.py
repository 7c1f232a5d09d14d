"""A graph copied node by node, with layout changes: what the GPU's and the CPU's passes for library
kernels share.

In:   a functional ATen graph.  Out: an equal one.  Fake tensors flow through the copy, so that
      every node knows its strides;
outputs keep the strides that eager gives them.

    class ChannelsLast(LayoutPass):
        def visit(self, node):                      # a node of the copy; returns what stands for it
            if node.target is aten.convolution.default:
                node.update_arg(0, self.channels_last(node.args[0]))
                return self.evaluate(node)
            return self.kept(node)

Mirrors `decide_layout_opt` and the layout constraints in torch/_inductor/graph.py.
"""

from typing import Any

import torch
from torch import fx

from ..autograd.functionalize import Graph, is_needed, with_graph
from ..foreign import ours
from ..ir import same_layout
from ..records import CompileRecord

aten = torch.ops.aten


FORMATS = (torch.contiguous_format, torch.channels_last)
TRANSPOSITIONS = (aten.t.default, aten.permute.default, aten.transpose.int)


def origin_of(node: fx.Node) -> dict[str, Any]:
    """The node's meta but for its value: what a node that is made in its stead comes from."""
    return {k: v for k, v in node.meta.items() if k != "val"}


def value_of(node: Any) -> Any:
    """The fake tensor of a node; None where there is none."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


class LayoutPass:
    """`run()` gives the new graph, or the old one where `visit` changed nothing.  counts: sentence
    for the record -> how often."""

    def __init__(self, gm, record):
        self.gm, self.record, self.graph, self.copied, self.counts = gm, record, Graph(), {}, {}
        values = (n.meta.get("val") for n in gm.graph.nodes)
        self.fake_mode = next(v.fake_mode for v in values if hasattr(v, "fake_mode"))

    @classmethod
    def applied(cls, gm: fx.GraphModule, record: CompileRecord, *options: Any) -> fx.GraphModule:
        """The new graph; the old one, and a note, where an op cannot take the new strides."""
        try:
            return cls(gm, record, *options).run()
        except ours(RuntimeError, ValueError, NotImplementedError) as reason:
            record.notes.append(f"no {cls.what}: {str(reason).splitlines()[0]}")
            return gm

    def visit(self, node: fx.Node) -> fx.Node:
        raise NotImplementedError

    def run(self) -> fx.GraphModule:
        for node in self.gm.graph.nodes:
            if node.op == "output":
                self.original = node
                self.graph.output(fx.map_arg(node.args[0], self.as_before_here))
                continue
            new = self.graph.node_copy(node, self.copied.__getitem__)
            new.meta, self.original = dict(node.meta), node
            arguments = [
                (self.copied[n].meta.get("val"), n.meta.get("val")) for n in node.all_input_nodes
            ]
            self.as_before = all(now is before for now, before in arguments)
            if node.target is aten.as_strided.default and not self.as_before:
                with self.graph.inserting_before(new):  # it counts strides of its own
                    new.update_arg(0, self.as_before_here(node.args[0]))
            self.copied[node] = self.visit(new) if node.op == "call_function" else new
        if not self.counts:
            return self.gm
        self.record.notes += [f"{count} {what}" for what, count in self.counts.items()]
        self.graph.eliminate_dead_code(is_impure_node=is_needed)
        return with_graph(self.gm, self.graph)

    def as_before_here(self, node: Any) -> fx.Node:
        """What stands for a node of the old graph, in the strides that it had there."""
        return self.in_strides(self.copied[node], node.meta.get("val"))

    def kept(self, node: fx.Node) -> fx.Node:
        """The node as it is; with a new fake value where its arguments' strides are others than
        before."""
        return node if self.as_before else self.evaluate(node)

    def changed(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def evaluate(self, node: Any) -> fx.Node:
        """The node, with the fake value that its arguments give it.  What cannot be viewed in new
        strides is copied first."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        try:
            with self.fake_mode:
                node.meta["val"] = node.target(*args, **kwargs)
        except ours(RuntimeError, ValueError):
            if node.target is not aten.view.default or args[0].is_contiguous():
                raise
            with self.graph.inserting_before(node):
                node.update_arg(0, self.plain(node.args[0]))
            return self.evaluate(node)
        return node

    def call(self, like: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A new node, with the origin of node `like`; of a copy of an input, that of the node which
        needs it."""
        node = self.graph.call_function(target, args, kwargs)
        node.meta = origin_of(like if like.op == "call_function" else self.original)
        return self.evaluate(node)

    def channels_last(self, node: fx.Node) -> fx.Node:
        if node.meta["val"].is_contiguous(memory_format=torch.channels_last):
            return node
        return self.call(node, aten.clone.default, node, memory_format=torch.channels_last)

    def plain(self, node: fx.Node) -> fx.Node:
        if node.meta["val"].is_contiguous():
            return node
        return self.call(node, aten.clone.default, node, memory_format=torch.contiguous_format)

    def in_strides(self, node: fx.Node, wanted: Any) -> fx.Node:
        """An output as eager lays it out."""
        have = node.meta.get("val")
        if not isinstance(have, torch.Tensor) or have is wanted or not have.numel():
            return node
        if have.stride() == wanted.stride():
            return node
        if same_layout(wanted.shape, have.stride(), wanted.stride()):
            # they differ in dimensions of size 1: a view
            flat = self.call(node, aten.view.default, node, [n for n in wanted.shape if n != 1])
            seen = self.call(node, aten.view.default, flat, list(wanted.shape))
            if seen.meta["val"].stride() == wanted.stride():
                return seen
        for layout in FORMATS[: 1 + (wanted.dim() == 4)]:
            if wanted.is_contiguous(memory_format=layout):
                return self.call(node, aten.clone.default, node, memory_format=layout)
        raise NotImplementedError("an output of unusual strides")
