"""Matrix products of float16 numbers on a CPU that has no instructions for them, in float32.

In:   a functional ATen graph.  Out: an equal one, where float32 is the faster way.

    bmm(a, b)        ->  wide_bmm(a.float(), b.float()).half()
    mm(a, b)         ->  wide_mm(a.float(), b.float()).half()
    addmm(c, a, b)   ->  wide_addmm(c.float(), a.float(), b.float()).half()

Eager multiplies such halves one by one, adds them in float32 and rounds the sum once.  BLAS does
the same in vectors, and several times as fast.  What overflows in float16 becomes infinite here
too, for the result is rounded to float16; no sum of products of halves overflows in float32.  The
casts are pointwise: they become part of the kernels around the product.

A program may allow float32 products to be computed in less than float32 (for instance
`torch.set_float32_matmul_precision("medium")`) at any time.  That must not reach what is float16
in the program, so the ops look in each call.
# PyTorch: keeps the products in float16, or takes attention's kernel.  Left out: symbolic sizes,
# convolutions, processors other than x86 (nothing was measured there).
"""

import math
import platform
from collections.abc import Callable

import torch
from torch import fx

from .. import config
from ..graph_passes import LAYOUTS, Context, graph_pass
from ..lowering.extern import EXTERN
from ..records import CompileRecord
from .layout import LayoutPass, aten, value_of

# multiplications from which, and multiplications for each number that is cast from which, float32
# is faster (measured with one thread; a matrix times a vector has one for each number)
LEAST_PRODUCT, LEAST_REUSE = 1 << 18, 8
LIBRARY = torch.library.Library("miniinductor", "FRAGMENT")
WIDE: dict[Callable, Callable] = {}  # ATen's product -> ours
LOWER_PRECISIONS = ("tf32", "bf16")


def products_are_exact() -> bool:
    """Are float32 products on a CPU computed in float32?  What is set for all backends, or by the
    older function, shows here too."""
    return torch.backends.mkldnn.matmul.fp32_precision not in LOWER_PRECISIONS


def define(name: str, signature: str) -> None:
    """The op miniinductor::wide_<name>: `name` of float32 tensors that hold float16 numbers."""
    product = getattr(aten, name).default

    def compute(*tensors: torch.Tensor) -> torch.Tensor:
        if products_are_exact():
            return product(*tensors)
        return product(*[tensor.half() for tensor in tensors]).float()

    LIBRARY.define(f"wide_{name}({signature}) -> Tensor")
    LIBRARY.impl(f"wide_{name}", compute, "CPU")
    torch.library.register_fake(f"miniinductor::wide_{name}", product, lib=LIBRARY)
    WIDE[product] = getattr(torch.ops.miniinductor, f"wide_{name}").default
    EXTERN[WIDE[product]] = None  # by choice, no fallback


define("mm", "Tensor a, Tensor b")
define("bmm", "Tensor a, Tensor b")
define("addmm", "Tensor c, Tensor a, Tensor b")


def lacks_half_instructions() -> bool:
    """Does eager multiply halves one by one?"""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    if not is_x86 or not torch.backends.mkldnn.is_available():
        return False  # nothing is known of it
    return not torch.ops.mkldnn._is_mkldnn_fp16_supported()


@graph_pass(LAYOUTS, "products of halves", order=5)
def widen_products(gm: fx.GraphModule, context: Context) -> fx.GraphModule:
    """Before weights are frozen: casts of frozen weights are computed once."""
    is_triton = config.cpu_backend != "cpp"  # whose templates multiply halves themselves
    if is_triton or not any(map(gains_in_float32, gm.graph.nodes)) or not lacks_half_instructions():
        return gm
    return WideProducts.applied(gm, context.record)


def gains_in_float32(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target not in WIDE or node.kwargs:
        return False
    result, *given = [value_of(n) for n in (node, *node.args)]
    if any(t is None or t.dtype != torch.float16 or t.device.type != "cpu" for t in given):
        return False
    a, b = given[-2:]
    if any(type(n) is not int for n in (*a.shape, *b.shape)):
        return False
    products = math.prod(result.shape) * a.shape[-1]
    numbers = a.numel() + b.numel() + result.numel()
    return products >= max(LEAST_PRODUCT, LEAST_REUSE * numbers)


class WideProducts(LayoutPass):
    what = "products of halves in float32"

    def __init__(self, gm: fx.GraphModule, record: CompileRecord) -> None:
        super().__init__(gm, record)
        self.casts: dict[fx.Node, fx.Node] = {}

    def visit(self, node: fx.Node) -> fx.Node:
        if not gains_in_float32(node):
            return self.kept(node)
        self.changed("products of halves in float32")
        given = node.args
        self.graph.erase_node(node)
        wide = self.call(node, WIDE[node.target], *[self.cast(n) for n in given])
        return self.call(node, aten._to_copy.default, wide, dtype=torch.float16)

    def cast(self, node: fx.Node) -> fx.Node:
        """The node in float32; one cast for all products that read it."""
        if node not in self.casts:
            self.casts[node] = self.call(node, aten._to_copy.default, node, dtype=torch.float32)
        return self.casts[node]
