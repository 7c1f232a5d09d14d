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

What library kernels on a CPU want: products by oneDNN, channels-last convolutions.

In:   a functional ATen graph.  Out: an equal one, where a library kernel gains more than the change
      costs.

    mm(a, t(w)), addmm(bias, a, t(w))
        ->  mkldnn._linear_pointwise(a, w, bias): oneDNN's product, 1.03 to 1.6 times as fast as
            BLAS's on large float32 matrices (LEAST_PRODUCT, LEAST_ROWS), packed weights or not
    convolution(x, w)
        ->  convolution(clone(x, channels_last), w): as it is, each convolution copies its image
            into oneDNN's layout and its result back
    convolution(x, w) of 1x1
        ->  a product: in channels-last memory an image is the matrix [pixels, channels]

A convolution whose weights are much larger than its image keeps plain memory: oneDNN reorders the
weights in every call, and does so faster for that.  Mirrors
torch/_inductor/fx_passes/mkldnn_fusion.py and `decide_layout_opt` in graph.py.  Left out: other
dtypes than float32, weights that are reordered once.
"""

from typing import Any

import torch
from torch import fx

from .. import config
from ..autograd.functionalize import Graph, is_needed, with_graph
from ..errors import ours
from ..ir.loops import same_layout
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


mkldnn = torch.ops.mkldnn
# multiplications and rows from which oneDNN's product is the faster one
LEAST_PRODUCT, LEAST_ROWS = 1 << 23, 4
PRODUCTS = (aten.mm.default, aten.addmm.default)
HEAVY_WEIGHTS = 8  # weights this many times as large as the image: plain memory


def for_cpu(gm: fx.GraphModule, record: CompileRecord, is_inference: bool) -> fx.GraphModule:
    """The graph with the CPU's library kernels; `gm` itself where nothing is gained."""
    if not torch._C._get_mkldnn_enabled() or not torch.backends.mkldnn.is_available():
        return gm
    calls = [n for n in gm.graph.nodes if n.op == "call_function" and is_float_on_cpu(n)]
    if is_inference and config.channels_last and any(map(is_image, calls)):
        changed = CpuLibrary.applied(gm, record, True)
        if changed is not gm:
            return changed
    if not config.onednn_products or not any(n.target in PRODUCTS for n in calls):
        return gm
    return CpuLibrary.applied(gm, record, False)


def is_float_on_cpu(node: fx.Node) -> bool:
    value = value_of(node)
    if value is None or (value.device.type, value.dtype) != ("cpu", torch.float32):
        return False
    return all(type(n) is int for n in value.shape)


def is_image(node) -> bool:
    """Is it a convolution that gives images?"""
    return node.target is aten.convolution.default and node.meta["val"].dim() == 4


def gains_by_onednn(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Is a @ b, of two matrices, faster by oneDNN than by BLAS?"""
    if (a.device.type, a.dtype) != ("cpu", torch.float32):
        return False
    if any(type(n) is not int for n in (*a.shape, *b.shape)):
        return False
    (m, k), n = a.shape, b.shape[1]
    is_plain = a.is_contiguous() and (b.is_contiguous() or b.t().is_contiguous())
    return is_plain and m >= LEAST_ROWS and m * k * n >= LEAST_PRODUCT


class CpuLibrary(LayoutPass):
    what = "CPU library layouts"

    def __init__(self, gm: fx.GraphModule, record: CompileRecord, channels_last: bool) -> None:
        super().__init__(gm, record)
        self.moves_convolutions = channels_last

    def visit(self, node: fx.Node) -> fx.Node:
        if not is_float_on_cpu(node):
            return self.kept(node)
        if self.moves_convolutions and is_image(node):
            return self.convolution(node)
        is_product = config.onednn_products and node.target in PRODUCTS
        return self.product(node) if is_product else self.kept(node)

    # -- convolutions ------------------------------------------------------------------------------
    def convolution(self, node: Any) -> fx.Node:
        x, w, bias, stride, padding, dilation, transposed, output_padding, groups = node.args
        image, weights = value_of(x), value_of(w)
        if transposed or 0 in (*image.shape, *weights.shape):
            return self.kept(node)
        if tuple(weights.shape[2:]) == (1, 1) and groups == 1 and not any(padding):
            return self.pixelwise(node, x, w, bias, stride)
        heavy = weights.numel() > HEAVY_WEIGHTS * max(image.numel(), node.meta["val"].numel())
        where = "plain memory, for their weights are large" if heavy else "channels-last memory"
        self.changed(f"convolutions in {where}")
        with self.graph.inserting_before(node):
            node.update_arg(0, self.plain(x) if heavy else self.channels_last(x))
        return self.evaluate(node)

    def pixelwise(self, node: Any, x: Any, w: Any, bias: Any, stride: Any) -> fx.Node:
        """A convolution of 1x1 as the product of [pixels, channels] and the weights."""
        self.changed("convolutions of 1x1 as matrix products")
        n, c, height, width = node.meta["val"].shape
        self.graph.erase_node(node)
        for dim, step in zip((2, 3), stride * (2 // len(stride))):
            if step > 1:
                x = self.call(node, aten.slice.Tensor, x, dim, 0, x.meta["val"].shape[dim], step)
        channels = x.meta["val"].shape[1]
        pixels = self.call(node, aten.permute.default, self.channels_last(x), [0, 2, 3, 1])
        matrix = self.call(node, aten.view.default, pixels, [n * height * width, channels])
        weights = self.call(node, aten.view.default, self.plain(w), [c, channels])
        matrices = matrix, self.call(node, aten.permute.default, weights, [1, 0])
        if bias is None:
            out = self.call(node, aten.mm.default, *matrices)
        else:
            out = self.call(node, aten.addmm.default, bias, *matrices)
        out = self.product(out) if config.onednn_products else out
        out = self.call(node, aten.view.default, out, [n, height, width, c])
        return self.call(node, aten.permute.default, out, [0, 3, 1, 2])

    # -- matrix products ---------------------------------------------------------------------------
    def product(self, node: Any) -> fx.Node:
        """mm or addmm by oneDNN, where that is faster."""
        *biases, a, b = node.args
        bias = next(iter(biases), None)
        n, k = reversed(value_of(b).shape)
        plain_bias = bias is None or value_of(bias).dim() == 1 and value_of(bias).is_contiguous()
        if not gains_by_onednn(value_of(a), value_of(b)) or node.kwargs or not plain_bias:
            return self.kept(node)
        self.changed("matrix products by oneDNN")
        self.graph.erase_node(node)
        transposed = b.target in TRANSPOSITIONS and value_of(b.args[0]).shape == (n, k)
        weights = b.args[0] if transposed else self.call(node, aten.permute.default, b, [1, 0])
        return self.call(node, mkldnn._linear_pointwise.default, a, weights, bias, "none", [], "")
