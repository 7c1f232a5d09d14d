"""What library kernels on a GPU want: channels-last convolutions, matrices whose rows are aligned.

In:   a functional ATen graph.  Out: an equal one, with copies that change layouts where a
      library kernel gains more than they cost.

    convolution(x, w)             ->  convolution(clone(x, channels_last), clone(w, channels_last)):
                                      without it, the library transposes before and after every
                                      convolution; convolution_backward in the same way
    convolution(x, w, b)          ->  convolution(x, w) + b: the library would start a kernel for
                                      the sum alone
    mm(a, w), w of 50257 columns  ->  mm(a, pad(w, 7))[:, :50257]: rows of 50257 half-precision
                                      numbers are aligned to 2 bytes, for which only slow library
                                      kernels exist (unless our template serves: `suits_template`)

Where an op cannot take the new strides, the graph stays as it was.  In training the half-precision
convolutions of the joint graph move, so that what is saved is channels-last, too; then the products
of each half. Mirrors `decide_layout_opt` in torch/_inductor/graph.py and fx_passes/pad_mm.py.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx

from ..ir.dependencies import int_or_none
from ..records import CompileRecord
from ..sizes.symbols import hints_of
from .library_layouts import TRANSPOSITIONS, LayoutPass, aten

Node: TypeAlias = Any  # an fx.Node, whose own arguments have no useful types
Matrix: TypeAlias = tuple[Sequence[int], Sequence[int]]  # size, stride
HALF = (torch.float16, torch.bfloat16)
ALIGNED = 8  # numbers of 2 bytes in 16 bytes
ROWS = 128  # of a tile of ours
# multiplications below which a padded copy of the matrix costs more than it saves
LEAST_PRODUCT = 1 << 30


def optimize_for_gpu(
    gm: fx.GraphModule, record: CompileRecord, convolutions: bool = True, products: bool = True
) -> fx.GraphModule:
    """The graph with GPU layouts for these; `gm` itself where nothing is gained."""
    targets = {n.target for n in gm.graph.nodes if n.op == "call_function" and _on_gpu(n)}
    has_convolutions = convolutions and aten.convolution.default in targets
    has_products = products and aten.mm.default in targets
    if aten.as_strided.default in targets or not (has_convolutions or has_products):
        return gm
    if hints_of(gm.graph):
        record.notes.append("no GPU layouts: sizes are symbolic")
        return gm
    return Relayout.applied(gm, record, convolutions, products)


def _on_gpu(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].is_cuda


def suits_template(dtype: torch.dtype, a: Matrix, b: Matrix) -> bool:
    """Is a @ b better written tile by tile by our own kernel (codegen/triton/products.py) than
    padded? Only its result is unaligned."""
    if dtype not in HALF:
        return False
    if any(int_or_none(n) is None for part in (*a, *b) for n in part):
        return False
    (m, k), n = map(int, a[0]), int(b[0][1])
    aligned = all(step % ALIGNED == 0 for step in (k, a[1][0], b[1][1]))
    return (
        a[1][1] == 1
        and b[1][0] == 1
        and aligned
        and n % ALIGNED != 0
        and min(m, n) >= ROWS
        and m * k * n >= LEAST_PRODUCT
    )


class Relayout(LayoutPass):
    what = "GPU layouts"

    def __init__(
        self, gm: fx.GraphModule, record: CompileRecord, convolutions: bool, products: bool
    ):
        super().__init__(gm, record)
        self.products = products
        # (matrix, rows, columns) -> the matrix with so many more of them
        self.with_zeros_of: dict[tuple[Node, int, int], Node] = {}
        self.moved: dict[Node, Node] = {}
        self.rules: dict[object, Callable[[Node], Node]] = {}
        if convolutions:
            self.rules[aten.convolution.default] = self.convolution
            self.rules[aten.convolution_backward.default] = self.gradients
        if products:
            self.rules[aten.mm.default] = self.product

    def visit(self, node: Node) -> Node:
        # (the backward half of a convolution gives a tuple)
        about = node.args[0] if node.target is aten.convolution_backward.default else node
        rule = self.rules.get(node.target)
        return rule(node) if rule is not None and _on_gpu(about) else self.kept(node)

    # -- convolutions ------------------------------------------------------------------------------
    def gradients(self, node: Node) -> Node:
        if not self.moves(node):
            return self.kept(node)
        self.move(node, 3)
        return self.evaluate(node)

    def moves(self, node: Node) -> bool:
        """In training float32's stay: copies for TF32 products that take as long cost more memory
        than eager.  So do float32 images of 3 channels that are cut in patches: moved, a ViT's
        error on an H100 was 2e-4 instead of eager's 2e-6 (TF32, presumably)."""
        value = node.args[0].meta["val"]
        if value.dim() != 4 or value.dtype in HALF:
            return value.dim() == 4
        if not self.products:
            return False
        window, step = list(node.args[1].meta["val"].shape[2:]), list(node.args[3])
        return not (value.shape[1] % 4 and window == step != [1, 1])

    def move(self, node: Node, count: int) -> None:
        """The first arguments in channels-last memory; each is copied once."""
        with self.graph.inserting_before(node):
            for position, tensor in enumerate(node.args[:count]):
                if tensor not in self.moved:
                    self.moved[tensor] = self.channels_last(tensor)
                node.update_arg(position, self.moved[tensor])

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

    # -- matrix products ---------------------------------------------------------------------------
    def product(self, node: Node) -> Node:
        lacking = self.misaligned(node)
        return self.pad(node, lacking) if any(lacking) else self.kept(node)

    def misaligned(self, node: Node) -> tuple[int, int, int]:
        """How many rows and columns mm(a[m, k], b[k, n]) lacks: (m, k, n); m only where a is stored
        by columns."""
        a, b = (x.meta["val"] for x in node.args)
        (m, k), n = a.shape, b.shape[1]
        is_small = m * k * n < LEAST_PRODUCT or min(m, k, n) < ALIGNED
        if node.meta["val"].dtype not in HALF or is_small:
            return 0, 0, 0
        if suits_template(a.dtype, (a.shape, a.stride()), (b.shape, b.stride())):
            return 0, 0, 0
        by_columns = a.stride(0) == 1 and a.stride(1) != 1
        return -m % ALIGNED if by_columns else 0, -k % ALIGNED, -n % ALIGNED

    def pad(self, node: Node, lacking: tuple[int, int, int]) -> Node:
        """mm(padded a, padded b)[:m, :n]; zeros along k add nothing."""
        self.changed("matrix products padded")
        (a, b), (m, k, n) = node.args, lacking
        rows, columns = a.meta["val"].shape[0], b.meta["val"].shape[1]
        self.graph.erase_node(node)
        wide = [self.with_zeros(node, a, m, k), self.with_zeros(node, b, k, n)]
        out = self.call(node, aten.mm.default, *wide)
        if m:
            out = self.call(node, aten.slice.Tensor, out, 0, 0, rows)
        if n:
            out = self.copied_plain(self.call(node, aten.slice.Tensor, out, 1, 0, columns))
        return out

    def with_zeros(self, node: Node, matrix: Node, rows: int, columns: int) -> Node:
        """The matrix with more rows and columns; a transposed one is padded before its
        transposition, and each once."""
        if not rows and not columns:
            return matrix
        transposed = matrix.target in TRANSPOSITIONS and matrix.meta["val"].stride(0) == 1
        if transposed:
            matrix, rows, columns = matrix.args[0], columns, rows
        key = matrix, rows, columns
        if key not in self.with_zeros_of:
            sides = [0, columns, 0, rows]
            self.with_zeros_of[key] = self.call(node, aten.constant_pad_nd.default, matrix, sides)
        wide = self.with_zeros_of[key]
        return self.call(node, aten.permute.default, wide, [1, 0]) if transposed else wide

    def copied_plain(self, node: Node) -> Node:
        """A contiguous copy."""
        return self.call(node, aten.clone.default, node, memory_format=torch.contiguous_format)
