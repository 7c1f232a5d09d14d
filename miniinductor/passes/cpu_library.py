"""What library kernels on a CPU want: products by oneDNN, channels-last convolutions.

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
from ..records import CompileRecord
from .layout import TRANSPOSITIONS, LayoutPass, aten, value_of

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
