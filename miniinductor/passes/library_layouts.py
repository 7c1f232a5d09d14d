"""What library kernels want: products by oneDNN and channels-last convolutions on a CPU,
channels-last convolutions and matrices whose rows are aligned on a GPU.

In:   a functional ATen graph.  Out: an equal one, with copies that change layouts where a library
      kernel gains more than they cost; the same graph where nothing is gained, or where an op
      cannot take the new strides, which is recorded.

    On a CPU
    mm(a, t(w)), addmm(bias, a, t(w))
        ->  mkldnn._linear_pointwise(a, w, bias): oneDNN's product, 1.03 to 1.6 times as fast as
            BLAS's on large float32 matrices (LEAST_ONEDNN, LEAST_ROWS), packed weights or not
    convolution(x, w)
        ->  convolution(clone(x, channels_last), w): as it is, each convolution copies its image
            into oneDNN's layout and its result back
    bmm(a, b) of float16 or bfloat16
        ->  bmm(a.float(), b.float()).to(a.dtype), where the processor has no products of this
            dtype: the library's loops for them take many times as long

    On a GPU
    convolution(x, w)
        ->  convolution(clone(x, channels_last), clone(w, channels_last)): without it, the library
            transposes before and after every convolution; convolution_backward in the same way
    convolution(x, w, b)
        ->  convolution(x, w) + b: the library would start a kernel for the sum alone
    mm(a, w), w of 50257 columns
        ->  mm(a, pad(w, 7))[:, :50257]: rows of 50257 half-precision numbers are aligned to 2
            bytes, for which only slow library kernels exist (unless our template serves:
            `suits_template`)

The graph is copied node by node.  Fake tensors flow through the copy, so that every node knows its
strides; outputs keep the strides that eager gives them.

    class ChannelsLast(LayoutPass):
        def convolution(self, node):                # a node of the copy; returns what stands for it
            self.move(node, 1)                      # its first argument
            return self.evaluate(node)

    ChannelsLast(gm, record, {aten.convolution.default: ChannelsLast.convolution}).applied()

In training the half-precision convolutions of the joint graph move, so that what is saved is
channels-last, too; then the products of each half.  Mirrors `decide_layout_opt` and the layout
constraints in torch/_inductor/graph.py, fx_passes/mkldnn_fusion.py and fx_passes/pad_mm.py.  Left
out: on a CPU weights that are reordered once; on a GPU products with a bias (addmm), and padding
where sizes are symbols.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx

from .. import config
from ..autograd.functionalize import Graph, Node, is_needed, with_graph
from ..errors import ours
from ..ir.dependencies import int_or_none
from ..ir.ops import NARROW
from ..records import CompileRecord
from ..sizes.symbols import estimate, hints_of, value_of

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn
Matrix: TypeAlias = tuple[Sequence[int], Sequence[int]]  # size, stride
Rules: TypeAlias = dict[Any, Callable[..., Any]]
TRANSPOSITIONS = (aten.t.default, aten.permute.default, aten.transpose.int)


class LayoutPass:
    """`run()` gives the new graph, or the old one where no rule changed anything.  rules: op ->
    what is done with those of its calls that `has_library`.  copies: (a tensor, its new layout), or
    (a matrix, rows and columns that are added) -> the one copy.  counts: sentence for the record ->
    how often."""

    what = "library layouts"

    def __init__(self, gm: fx.GraphModule, record: CompileRecord, rules: Rules) -> None:
        self.gm, self.record, self.rules, self.graph = gm, record, rules, Graph()
        self.copied: dict[fx.Node, Node] = {}
        self.copies: dict[tuple, Node] = {}
        self.counts: dict[str, int] = {}

    def has_library(self, node: Node) -> bool:
        """Does a rule's library compute this call?"""
        return True

    def visit(self, node: Node) -> Node:
        rule = self.rules.get(node.target)
        return rule(self, node) if rule and self.has_library(node) else self.kept(node)

    def applied(self) -> fx.GraphModule:
        """The new graph; the old one, and a note, where an op cannot take the new strides."""
        try:
            return self.run()
        except ours(RuntimeError, ValueError, NotImplementedError) as reason:
            self.record.notes.append(f"no {self.what}: {str(reason).splitlines()[0]}")
            return self.gm

    def run(self) -> fx.GraphModule:
        for node in self.gm.graph.nodes:
            self.original = node
            if node.op == "output":
                self.graph.output(fx.map_arg(node.args[0], self.as_before_here))
                continue
            new = self.graph.node_copy(node, self.copied.__getitem__)
            new.meta = dict(node.meta)
            self.as_before = all(
                self.copied[n].meta.get("val") is n.meta.get("val") for n in node.all_input_nodes
            )
            if node.target is aten.as_strided.default and not self.as_before:
                with self.graph.inserting_before(new):  # it counts strides of its own
                    new.update_arg(0, self.as_before_here(node.args[0]))
            self.copied[node] = self.visit(new) if node.op == "call_function" else new
        if not self.counts:
            return self.gm
        self.record.notes += [f"{count} {what}" for what, count in self.counts.items()]
        self.graph.eliminate_dead_code(is_impure_node=is_needed)
        return with_graph(self.gm, self.graph)

    def as_before_here(self, node: Any) -> Node:
        """What stands for a node of the old graph, in the strides that it had there."""
        new, wanted = self.copied[node], node.meta.get("val")
        have = new.meta.get("val")
        if not isinstance(have, torch.Tensor) or have is wanted or not have.numel():
            return new
        if have.stride() == wanted.stride():
            return new
        for layout in (torch.contiguous_format, torch.channels_last):
            if wanted.is_contiguous(memory_format=layout):
                return self.call(new, aten.clone.default, new, memory_format=layout)
        raise NotImplementedError("an output of unusual strides")

    def kept(self, node: Node) -> Node:
        """The node as it is; with a new fake value where its arguments' strides are others than
        before."""
        return node if self.as_before else self.evaluate(node)

    def changed(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def evaluate(self, node: Node) -> Node:
        """The node, with the fake value that its arguments give it.  What cannot be viewed in new
        strides is copied first."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        try:
            with self.gm.meta["fake_mode"]:
                node.meta["val"] = node.target(*args, **kwargs)
        except ours(RuntimeError, ValueError):
            if node.target is not aten.view.default or args[0].is_contiguous():
                raise
            with self.graph.inserting_before(node):
                node.update_arg(0, self.in_format(node.args[0], torch.contiguous_format))
            return self.evaluate(node)
        return node

    def call(self, like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A new node, with the origin of node `like`; of a copy of an input, that of the node which
        needs it."""
        node = self.graph.call_function(target, args, kwargs)
        origin = like if like.op == "call_function" else self.original
        node.meta = {key: value for key, value in origin.meta.items() if key != "val"}
        return self.evaluate(node)

    def in_format(self, node: Node, layout: torch.memory_format) -> Node:
        if node.meta["val"].is_contiguous(memory_format=layout):
            return node
        if (node, layout) not in self.copies:
            copy = self.call(node, aten.clone.default, node, memory_format=layout)
            self.copies[node, layout] = copy
        return self.copies[node, layout]

    def move(self, node: Node, count: int) -> None:
        """The first arguments in channels-last memory; each is copied once."""
        with self.graph.inserting_before(node):
            for position, tensor in enumerate(node.args[:count]):
                node.update_arg(position, self.in_format(tensor, torch.channels_last))


# --- on a CPU -------------------------------------------------------------------------------------
# multiplications and rows from which oneDNN's product is the faster one; rows and columns from
# which a product of 16-bit matrices is made in float32
LEAST_ONEDNN, LEAST_ROWS, LEAST_WIDENED = 1 << 23, 4, 8
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)


def for_cpu(gm: fx.GraphModule, record: CompileRecord, is_inference: bool) -> fx.GraphModule:
    """The graph with the CPU's library kernels; `gm` itself where nothing is gained."""
    if not torch._C._get_mkldnn_enabled() or not torch.backends.mkldnn.is_available():
        return gm
    rules: Rules = {}
    if config.onednn_products:
        rules |= {aten.mm.default: CpuLibrary.product, aten.addmm.default: CpuLibrary.product}
    if is_inference and config.channels_last:
        rules[aten.convolution.default] = CpuLibrary.convolution
    if any(n.target in rules and has_dtype(n, torch.float32) or is_slow(n) for n in gm.graph.nodes):
        return CpuLibrary(gm, record, rules).applied()
    return gm


def has_dtype(node: fx.Node, *dtypes: torch.dtype) -> bool:
    """Is the node a tensor of one of these dtypes, on the CPU?"""
    value = value_of(node)
    return value is not None and value.device.type == "cpu" and value.dtype in dtypes


def has_products(dtype: torch.dtype) -> bool:
    """Has the processor, or Triton's interpreter, products of float16, or of bfloat16?"""
    is_half = dtype is torch.float16
    known = mkldnn._is_mkldnn_fp16_supported if is_half else mkldnn._is_mkldnn_bf16_supported
    return config.cpu_backend == "triton" or known()


def is_slow(node: fx.Node) -> bool:
    """Is the node a product of 16-bit elements for which the processor has no instructions?"""
    if not has_dtype(node, *NARROW):
        return False
    value = value_of(node)
    is_product = node.target is aten.convolution.default
    if node.target in PRODUCTS:
        is_product = min(estimate([n]) for n in value.shape[-2:]) >= LEAST_WIDENED
    return is_product and not has_products(value.dtype)


class CpuLibrary(LayoutPass):
    what = "CPU library layouts"

    def has_library(self, node: Node) -> bool:
        return has_dtype(node, torch.float32) and {*map(type, value_of(node).shape)} <= {int}

    def visit(self, node: Node) -> Node:
        return self.widened(node) if is_slow(node) else super().visit(node)

    def widened(self, node: Node) -> Node:
        """The product in float32, rounded once; each of its operands is converted once."""
        dtype = value_of(node).dtype
        with self.graph.inserting_before(node):
            for place, tensor in enumerate(node.args):
                if isinstance(tensor, fx.Node):
                    key = tensor, torch.float32
                    if key not in self.copies:
                        copy = self.call(tensor, aten._to_copy.default, tensor, dtype=torch.float32)
                        self.copies[key] = copy
                    node.update_arg(place, self.copies[key])
        self.changed(f"products of {dtype} in float32: the processor has none of {dtype}")
        product = super().visit(self.evaluate(node))
        return self.call(product, aten._to_copy.default, product, dtype=dtype)

    def convolution(self, node: Node) -> Node:
        image, weights = map(value_of, node.args[:2])
        is_transposed = node.args[6]
        if image.dim() != 4 or is_transposed or 0 in (*image.shape, *weights.shape):
            return self.kept(node)
        self.changed("convolutions in channels-last memory")
        self.move(node, 1)
        return self.evaluate(node)

    def product(self, node: Node) -> Node:
        """mm or addmm by oneDNN, where that is faster."""
        *biases, left, right = node.args
        bias = next(iter(biases), None)
        a, b = value_of(left), value_of(right)
        is_plain_bias = bias is None or value_of(bias).dim() == 1 and value_of(bias).is_contiguous()
        if not gains_by_onednn(a, b) or node.kwargs or not is_plain_bias:
            return self.kept(node)
        self.changed("matrix products by oneDNN")
        self.graph.erase_node(node)
        is_turned = right.target in TRANSPOSITIONS and value_of(right.args[0]).shape == b.t().shape
        weights = right.args[0] if is_turned else self.call(node, aten.t.default, right)
        product = mkldnn._linear_pointwise.default
        return self.call(node, product, left, weights, bias, "none", [], "")


def gains_by_onednn(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Is a @ b, of two float32 matrices, faster by oneDNN than by BLAS?"""
    if any(type(n) is not int for n in (*a.shape, *b.shape)):
        return False
    (m, k), n = a.shape, b.shape[1]
    is_plain = a.is_contiguous() and (b.is_contiguous() or b.t().is_contiguous())
    return is_plain and m >= LEAST_ROWS and m * k * n >= LEAST_ONEDNN


# --- on a GPU -------------------------------------------------------------------------------------
ALIGNED = 8  # numbers of 2 bytes in 16 bytes
ROWS = 128  # of a tile of ours
# multiplications below which a padded copy of the matrix costs more than it saves
LEAST_PADDED = 1 << 30


def for_gpu(
    gm: fx.GraphModule, record: CompileRecord, convolutions: bool = True, products: bool = True
) -> fx.GraphModule:
    """The graph with GPU layouts for these; `gm` itself where nothing is gained."""
    rules: Rules = {}
    if convolutions:
        rules[aten.convolution.default] = GpuLibrary.convolution
        rules[aten.convolution_backward.default] = GpuLibrary.convolution_backward
    if products:
        rules[aten.mm.default] = GpuLibrary.product
    targets = {n.target for n in gm.graph.nodes if n.op == "call_function" and is_on_gpu(n)}
    if aten.as_strided.default in targets or targets.isdisjoint(rules):
        return gm
    if hints_of(gm.graph):
        record.notes.append("no GPU layouts: sizes are symbolic")
        return gm
    return GpuLibrary(gm, record, rules).applied()


def is_on_gpu(node: Node) -> bool:
    return value_of(node) is not None and value_of(node).is_cuda


def suits_template(dtype: torch.dtype, a: Matrix, b: Matrix) -> bool:
    """Is a @ b better written tile by tile by our own kernel (codegen/triton/products.py) than
    padded?  Only its result is unaligned."""
    if dtype not in NARROW or any(int_or_none(n) is None for part in (*a, *b) for n in part):
        return False
    (m, k), n = map(int, a[0]), int(b[0][1])
    is_by_rows = a[1][1] == 1 and b[1][0] == 1
    is_aligned = all(step % ALIGNED == 0 for step in (k, a[1][0], b[1][1]))
    is_large = min(m, n) >= ROWS and m * k * n >= LEAST_PADDED
    return is_by_rows and is_aligned and is_large and n % ALIGNED != 0


def misaligned(a: torch.Tensor, b: torch.Tensor) -> tuple[int, int, int]:
    """How many rows and columns a[m, k] @ b[k, n] lacks: (m, k, n); m only where a is stored by
    columns."""
    (m, k), n = a.shape, b.shape[1]
    is_small = m * k * n < LEAST_PADDED or min(m, k, n) < ALIGNED
    by_template = suits_template(a.dtype, (a.shape, a.stride()), (b.shape, b.stride()))
    if a.dtype not in NARROW or is_small or by_template:
        return 0, 0, 0
    is_by_columns = a.stride(0) == 1 and a.stride(1) != 1
    return -m % ALIGNED if is_by_columns else 0, -k % ALIGNED, -n % ALIGNED


class GpuLibrary(LayoutPass):
    what = "GPU layouts"

    def has_library(self, node: Node) -> bool:
        return is_on_gpu(node.args[0])

    def moves(self, node: Node) -> bool:
        """Images in half precision do.  In training float32's stay: copies for TF32 products that
        take as long cost more memory than eager.  So do float32 images of 3 channels: moved, a
        ViT's error on an H100 was 2e-4 instead of eager's 2e-6 (TF32, presumably)."""
        value = node.args[0].meta["val"]
        is_inference = aten.mm.default in self.rules  # a joint graph's products wait for its halves
        is_wide = is_inference and value.shape[1] % 4 == 0
        return value.dim() == 4 and (value.dtype in NARROW or is_wide)

    def convolution_backward(self, node: Node) -> Node:
        if not self.moves(node):
            return self.kept(node)
        self.move(node, 3)
        return self.evaluate(node)

    def convolution(self, node: Node) -> Node:
        """Its bias is added by the kernel that follows (the library would start one for that
        alone)."""
        bias = node.args[2]
        if self.moves(node):
            self.changed("convolutions in channels-last memory")
            self.move(node, 2)
        elif bias is None:
            return self.kept(node)
        node.update_arg(2, None)
        node = self.evaluate(node)
        if bias is None:
            return node
        self.changed("biases of convolutions added apart")
        column = self.call(node, aten.view.default, bias, [-1] + [1] * (node.meta["val"].dim() - 2))
        return self.call(node, aten.add.Tensor, node, column)

    def product(self, node: Node) -> Node:
        """mm(padded a, padded b)[:m, :n], where rows are not aligned; zeros along k add nothing."""
        a, b = node.args
        m, k, n = misaligned(value_of(a), value_of(b))
        if not (m or k or n):
            return self.kept(node)
        self.changed("matrix products padded")
        rows, columns = node.meta["val"].shape
        self.graph.erase_node(node)
        wide = [self.with_zeros(node, a, m, k), self.with_zeros(node, b, k, n)]
        out = self.call(node, aten.mm.default, *wide)
        if m:
            out = self.call(node, aten.slice.Tensor, out, 0, 0, rows)
        if n:
            out = self.call(node, aten.slice.Tensor, out, 1, 0, columns)
            out = self.in_format(out, torch.contiguous_format)
        return out

    def with_zeros(self, node: Node, matrix: Node, rows: int, columns: int) -> Node:
        """The matrix with more rows and columns; a transposed one is padded before its
        transposition, and each once."""
        if not rows and not columns:
            return matrix
        is_turned = matrix.target in TRANSPOSITIONS and value_of(matrix).stride(0) == 1
        if is_turned:
            matrix, rows, columns = matrix.args[0], columns, rows
        key = matrix, rows, columns
        if key not in self.copies:
            sides = [0, columns, 0, rows]
            self.copies[key] = self.call(node, aten.constant_pad_nd.default, matrix, sides)
        wide = self.copies[key]
        return self.call(node, aten.permute.default, wide, [1, 0]) if is_turned else wide
