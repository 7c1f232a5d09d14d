"""What library kernels on a GPU want: channels-last convolutions, patches as matrices, matrices
whose rows are aligned.

In:   a functional ATen graph.  Out: an equal one, with copies that change layouts where a library
      kernel gains
more than they cost.

    convolution(x, w)             ->  convolution(clone(x, channels_last), clone(w, channels_last)): without it, the library
                                      transposes before and after every convolution;
                                      convolution_backward in the same way
    convolution(x, w, b)          ->  convolution(x, w) + b: the library would start a kernel for the sum alone
    addmm(b, x, w), float32       ->  mm(x, w) + b where pointwise work follows: the library has faster kernels for the bare product
    convolution(x, w) whose windows do not overlap (a vision transformer's patches)  ->  addmm(bias,
    patches of x, w as a matrix) convolution(x, w) of 1x1, mode="max-autotune"  ->  mm(x as a row
    per pixel, w): our template may continue with what follows mm(a, w), w of 50257 columns  ->
    mm(a, pad(w, 7))[:, :50257]: rows of 50257 half-precision numbers are aligned to 2 bytes, for
                                      which only slow library kernels exist (unless our template
                                      serves: `suits_template`)

Where an op cannot take the new strides, the graph stays as it was.  In training the half-precision
convolutions of the joint graph move, so that what is saved is channels-last, too; then the products
of each half. Mirrors `decide_layout_opt` in torch/_inductor/graph.py and fx_passes/pad_mm.py.
"""

import torch

from .. import config
from ..autograd.functionalize import is_view
from ..dependencies import int_or_none
from ..sizes.symbols import hints_of
from ..passes.layout import TRANSPOSITIONS, LayoutPass, aten

HALF = (torch.float16, torch.bfloat16)
ALIGNED = 8  # numbers of 2 bytes in 16 bytes
ROWS = 128  # of a tile of ours
LEAST_PRODUCT = (
    1 << 30
)  # multiplications below which a padded copy of the matrix costs more than it saves


def optimize_for_gpu(gm, record, convolutions=True, products=True):
    """The graph with GPU layouts for these; `gm` itself where nothing is gained."""
    targets = {n.target for n in gm.graph.nodes if n.op == "call_function" and _on_gpu(n)}
    if aten.as_strided.default in targets or not targets & {
        *[aten.convolution.default] * convolutions,
        *[aten.mm.default, aten.addmm.default] * products,
    }:
        return gm
    if hints_of(gm.graph):
        record.notes.append("no GPU layouts: sizes are symbolic")
        return gm
    return Relayout.applied(gm, record, convolutions, products)


def _on_gpu(node):
    return isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].is_cuda


def is_continued(node):
    """Is all that reads its value, perhaps through views, pointwise?"""
    return all(
        user.op == "call_function"
        and (
            is_continued(user)
            if is_view(user.target)
            else torch.Tag.pointwise in getattr(user.target, "tags", ())
        )
        for user in node.users
    )


def suits_template(dtype, a, b):
    """Is a @ b better written tile by tile by our own kernel (gpu/products.py) than padded?  Only
    its result is unaligned.

    a, b: (size, stride)."""
    sizes = [*a[0], *a[1], *b[0], *b[1]]
    if (
        dtype not in HALF
        or config.matmul_templates == "never"
        or any(int_or_none(n) is None for n in sizes)
    ):
        return False
    (m, k), n = map(int, a[0]), int(b[0][1])
    return (
        a[1][1] == 1
        and b[1][0] == 1
        and k % ALIGNED == 0
        and a[1][0] % ALIGNED == 0
        and b[1][1] % ALIGNED == 0
        and n % ALIGNED != 0
        and min(m, n) >= ROWS
        and m * k * n >= LEAST_PRODUCT
    )


class Relayout(LayoutPass):
    what = "GPU layouts"

    def __init__(self, gm, record, convolutions, products):
        super().__init__(gm, record)
        self.convolutions, self.products = convolutions, products
        self.padded, self.with_zeros_of, self.moved = 0, {}, {}

    def visit(self, node):
        target = node.target
        if self.convolutions and target is aten.convolution.default and _on_gpu(node):
            half = node.args[0].meta["val"].dtype in HALF
            return (
                self.patches(node)
                if half and self.has_patches(node)
                else self.pixels(node)
                if self.is_product(node)
                else self.convolution(node)
            )
        if (
            self.convolutions
            and target is aten.convolution_backward.default
            and _on_gpu(node.args[0])
            and self.moves(node)
        ):
            self.move(node, 3)
            return self.evaluate(node)
        if (
            self.products
            and target is aten.mm.default
            and _on_gpu(node)
            and (lacking := self.misaligned(node))
        ):
            return self.pad(node, lacking)
        if (
            self.products
            and target is aten.addmm.default
            and _on_gpu(node)
            and is_continued(self.original)
            and self.is_biased(node)
        ):
            return self.bias_apart(node)
        return self.kept(node)

    def moves(self, node):
        """In training float32's stay: copies for TF32 products that take as long cost more memory
        than eager.  So do float32 images of 3 channels that are cut in patches: moved, a ViT's
        error on an H100 was 2e-4 instead of eager's 2e-6 (TF32, presumably)."""
        value = node.args[0].meta["val"]
        return value.dim() == 4 and (
            value.dtype in HALF
            or self.products
            and not (
                value.shape[1] % 4
                and node.target is aten.convolution.default
                and self.has_patches(node)
            )
        )

    def move(self, node, count):
        """The first arguments in channels-last memory; each is copied once."""
        with self.graph.inserting_before(node):
            for position, tensor in enumerate(node.args[:count]):
                if tensor not in self.moved:
                    self.moved[tensor] = self.channels_last(tensor)
                node.update_arg(position, self.moved[tensor])

    def convolution(self, node):
        """In channels-last memory; its bias is added by the kernel that follows (the library would
        start one for that alone)."""
        if self.moves(node):
            self.changed("convolutions in channels-last memory")
            self.move(node, 2)
        elif node.args[2] is None:
            return self.kept(node)
        bias = node.args[2]
        node.update_arg(2, None)
        node = self.evaluate(node)
        if bias is None:
            return node
        self.changed("biases of convolutions added apart")
        column = self.call(node, aten.view.default, bias, [-1] + [1] * (node.meta["val"].dim() - 2))
        return self.call(node, aten.add.Tensor, node, column)

    # -- convolutions whose windows lie side by side -----------------------------------------------
    def has_patches(self, node):
        x, weight, _, stride, padding, dilation, transposed, _, groups = node.args
        value, (height, width) = (
            x.meta["val"],
            weight.meta["val"].shape[2:] if weight.meta["val"].dim() == 4 else (1, 1),
        )
        return (
            height * width > 1
            and list(stride) == [height, width]
            and not any(padding)
            and set(dilation) == {1}
            and not transposed
            and groups == 1
            and value.shape[2] % height == 0
            and value.shape[3] % width == 0
        )

    def patches(self, node):
        """One row per window: its channels and pixels, in the order in which x lies in memory."""
        self.changed("convolutions of separate patches as matrix products")
        x, weight, bias = node.args[:3]
        (count, channels, height, width), (out, _, high, wide) = (
            x.meta["val"].shape,
            weight.meta["val"].shape,
        )
        down, across, size = height // high, width // wide, channels * high * wide
        by_pixel = x.meta["val"].stride(1) == 1
        self.graph.erase_node(node)

        def matrix(tensor, *order_and_shape):
            order, shape = order_and_shape
            moved = self.call(node, aten.permute.default, tensor, order)
            copied = self.call(
                node, aten.clone.default, moved, memory_format=torch.contiguous_format
            )
            return self.call(node, aten.view.default, copied, shape)

        cut = self.call(node, aten.view.default, x, [count, channels, down, high, across, wide])
        rows = matrix(
            cut,
            [0, 2, 4, 3, 5, 1] if by_pixel else [0, 2, 4, 1, 3, 5],
            [count * down * across, size],
        )
        columns = matrix(weight, [0, 2, 3, 1] if by_pixel else [0, 1, 2, 3], [out, size])
        columns = self.call(node, aten.permute.default, columns, [1, 0])
        return self.image(node, bias, rows, columns, [count, down, across, out])

    def image(self, like, bias, rows, columns, shape):
        """The product of a row per pixel, seen as channels of images."""
        product = (
            self.call(like, aten.mm.default, rows, columns)
            if bias is None
            else self.call(like, aten.addmm.default, bias, rows, columns)
        )
        return self.call(
            like,
            aten.permute.default,
            self.call(like, aten.view.default, product, shape),
            [0, 3, 1, 2],
        )

    def is_product(self, node):
        x, weight, _, stride, padding, _, transposed, _, groups = node.args
        return (
            config.max_autotune
            and x.meta["val"].dtype in HALF
            and list(weight.meta["val"].shape[2:]) == [1, 1]
            and set(stride) == {1}
            and not any(padding)
            and not transposed
            and groups == 1
        )

    def pixels(self, node):
        """A convolution of 1x1: each pixel is a row."""
        self.changed("convolutions of 1x1 as matrix products")
        (_, weight, bias), (count, channels, height, width) = (
            node.args[:3],
            node.args[0].meta["val"].shape,
        )
        self.move(node, 1)
        rows = self.call(node, aten.permute.default, node.args[0], [0, 2, 3, 1])
        self.graph.erase_node(node)
        rows = self.call(rows, aten.view.default, rows, [count * height * width, channels])
        columns = self.call(
            rows,
            aten.permute.default,
            self.call(rows, aten.view.default, weight, [-1, channels]),
            [1, 0],
        )
        return self.image(rows, bias, rows, columns, [count, height, width, -1])

    # -- matrix products ---------------------------------------------------------------------------
    def is_biased(self, node):
        bias, a, _ = (x.meta["val"] for x in node.args)
        return not node.kwargs and bias.dim() == 1 and a.dtype == bias.dtype == torch.float32

    def bias_apart(self, node):
        """ConvNeXt-T's second products on an H100: 185 us bare, 217 us with a bias."""
        self.changed("biases of products added apart")
        bias, a, b = node.args
        self.graph.erase_node(node)
        return self.call(node, aten.add.Tensor, self.call(node, aten.mm.default, a, b), bias)

    def misaligned(self, node):
        """How many rows and columns mm(a[m, k], b[k, n]) lacks: (m, k, n); m only where a is stored
        by columns."""
        a, b = (x.meta["val"] for x in node.args)
        (m, k), n = a.shape, b.shape[1]
        by_columns = a.stride(0) == 1 and a.stride(1) != 1
        if (
            node.meta["val"].dtype not in HALF
            or m * k * n < LEAST_PRODUCT
            or min(m, k, n) < ALIGNED
        ):
            return None
        if suits_template(a.dtype, (a.shape, a.stride()), (b.shape, b.stride())):
            return None
        lacking = -m % ALIGNED if by_columns else 0, -k % ALIGNED, -n % ALIGNED
        return lacking if any(lacking) else None

    def pad(self, node, lacking):
        """mm(padded a, padded b)[:m, :n]; zeros along k add nothing."""
        self.padded += 1
        self.changed("matrix products padded")
        (a, b), (m, k, n) = node.args, lacking
        rows, columns = a.meta["val"].shape[0], b.meta["val"].shape[1]
        self.graph.erase_node(node)
        out = self.call(
            node, aten.mm.default, self.with_zeros(node, a, m, k), self.with_zeros(node, b, k, n)
        )
        if m:
            out = self.call(node, aten.slice.Tensor, out, 0, 0, rows)
        if n:
            out = self.call(node, aten.slice.Tensor, out, 1, 0, columns)
            out = self.call(node, aten.clone.default, out, memory_format=torch.contiguous_format)
        return out

    def with_zeros(self, node, matrix, rows, columns):
        """The matrix with more rows and columns; a transposed one is padded before its
        transposition, and each once."""
        if not rows and not columns:
            return matrix
        transposed = matrix.target in TRANSPOSITIONS and matrix.meta["val"].stride(0) == 1
        if transposed:
            matrix, rows, columns = matrix.args[0], columns, rows
        key = matrix, rows, columns
        if key not in self.with_zeros_of:
            self.with_zeros_of[key] = self.call(
                node, aten.constant_pad_nd.default, matrix, [0, columns, 0, rows]
            )
        wide = self.with_zeros_of[key]
        return self.call(node, aten.permute.default, wide, [1, 0]) if transposed else wide
