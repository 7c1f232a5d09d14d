"""Matrix products as Triton kernels, from a template, together with the pointwise work that
follows.

In:   the schedule.  Out: the same with `FusedProduct`s in place of a library call and the one
      kernel that reads its result; and for each its kernel: `TEMPLATE`, filled in.

    gelu(a @ b + c)     apart:  torch.mm(a, b, out=buf0); add_gelu_0(buf0, c, buf1)
                                buf0 is written and read
                        fused:  mm_add_gelu_0(a, b, c, buf1)
                                the tile is still in registers

A library's product is usually faster than ours, so the template is used where the library is known
to be slow: results with unaligned rows, such as the logits of GPT-2.  For study,
`config.matmul_templates = "always"` uses it for every product.

Mirrors torch/_inductor/kernel/mm.py and the scheduler's template fusion (paper sections 4.4, 4.7).
Left out: the choice between template and library by measuring, batches of products, fused
prologues, split-K, TMA descriptors.
"""

import graphlib
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import sympy
import torch

from ... import config
from ...devices import recomputes
from ...ir.dependencies import int_or_none, loop_variables
from ...ir.loops import Buffer, BufferView, ExternKernel, Layout, playing
from ...ir.ops import NARROW
from ...passes import library_layouts
from ...records import CompileRecord, FusionDecision, lines_of
from ...schedule.common_loops import common_loops
from ...schedule.nodes import ExternNode, Group, Refused, Schedule, ScheduledNode
from ...sizes.expressions import flatten
from ..kernel_plan import plan_of
from .axes import Axis
from .kernel_text import Code, Tile, plain
from .kernel_writer import TritonKernelWriter
from .tile_plan import TilePlan, product_configs, tile_plan

aten = torch.ops.aten
# their operands: perhaps a bias, then a and b
PRODUCTS = (aten.mm.default, aten.addmm.default)
# Programs with neighbouring numbers run side by side.  They walk over the tiles in bands of 8 rows
# of tiles, so that together they read few rows of a and few columns of b, which then stay in the
# cache.  What follows uses `product` and stores.
TEMPLATE = """\
# product[m, n] = sum over k of a[m, k] * b[k, n];  a: {about_a};  b: {about_b}
number = tl.program_id(0)
tiles_down, tiles_across = tl.cdiv({m}, MBLOCK), tl.cdiv({n}, NBLOCK)
top = number // (8 * tiles_across) * 8
height = tl.minimum(tiles_down - top, 8)
within = number % (8 * tiles_across)
{indices}
product = tl.zeros([MBLOCK, NBLOCK], tl.float32)
for start in range(0, {k}, KBLOCK):
    k = start + tl.arange(0, KBLOCK)
    a = tl.load({a})
    b = tl.load({b})
    product = tl.dot(a, b, product{precision})"""


class FusedProduct:
    """A library product and the pointwise group that reads it, if there is one, as one kernel."""

    def __init__(self, product: ExternNode, group: Group | None = None):
        assert isinstance(product.buffer, ExternKernel)
        self.product, self.buffer = product, product.buffer
        self.group = group or Group([], sizes_of(self.buffer), ())
        self.replaced: list[ExternNode | Group] = [product, group] if group else [product]
        self.nodes = [product, *self.group.nodes]
        self.names = [name for node in self.replaced for name in node.names]
        read = set().union(*[node.read_names for node in self.replaced])
        self.read_names = read - set(self.names)

    @property
    def device(self) -> torch.device:
        return self.buffer.layout.device

    def within(self, nodes: Sequence[ScheduledNode]) -> list[ScheduledNode]:
        """The nodes, in which this one stands for those that it replaces."""
        last = self.replaced[-1]
        return [self if n is last else n for n in nodes if n is last or n not in self.replaced]


@lines_of.register
def product_lines(fused: FusedProduct) -> list[str]:
    return [line for part in fused.replaced for line in lines_of(part)]


def with_products(schedule: Schedule, record: CompileRecord) -> list[ScheduledNode]:
    """The schedule's nodes, in which a `FusedProduct` stands for a matrix product that no library
    kernel does well, and for what follows it.

    What was decided stands in `record.fusions`."""
    nodes = list(schedule.nodes)
    for node in schedule.nodes:
        if isinstance(node, ExternNode) and isinstance(node.buffer, ExternKernel):
            is_wanted = config.matmul_templates == "always" or has_unaligned_rows(node.buffer)
            if is_wanted and is_computable(node.buffer, schedule.buffers):
                nodes = with_follower(FusedProduct(node), nodes, schedule, record).within(nodes)
    return nodes


def with_follower(
    alone: FusedProduct, nodes: list[ScheduledNode], schedule: Schedule, record: CompileRecord
) -> FusedProduct:
    """The product with the first kernel that reads it, if the template can continue with that."""
    name = alone.buffer.name
    follower = next((n for n in nodes if name in n.read_names), None)
    if not isinstance(follower, Group):
        return alone
    fused, reason = FusedProduct(alone.product, follower), ""
    try:
        check_epilogue(fused, nodes, schedule)
    except Refused as refused:
        reason = str(refused)
    record.fusions.append(
        FusionDecision(
            first=name,
            second="+".join(follower.names),
            fused=not reason,
            category="template",
            reason=reason or "the kernel continues from the product's tiles",
        )
    )
    return alone if reason else fused


def has_unaligned_rows(product: ExternKernel) -> bool:
    """Is the result one whose rows begin at odd addresses, made of operands whose rows do not?  A
    library kernel would need a padded result and a copy of it (logits of GPT-2 on an H200: 0.62 ms
    from the template, 0.91 ms padded, 3.3 ms as they are)."""
    if product.op is not aten.mm.default:
        return False
    a, b = [(v.size, v.stride) for v in product.args[:2]]
    return library_layouts.suits_template(product.layout.dtype, a, b)


def is_computable(buffer: ExternKernel, buffers: Mapping[str, Buffer]) -> bool:
    """Is it a product that the template can compute?  (Library calls remain: scaled products,
    symbolic sizes, and a CPU's products beside a GPU's.)"""
    if buffer.op not in PRODUCTS or buffer.kwargs:
        return False
    *_, a, b = buffer.args
    kinds = {buffers[v.name].layout.dtype for v in (a, b)} | {buffer.layout.dtype}
    numbers = [int_or_none(n) for v in (a, b) for n in (*v.size, *v.stride, v.offset)]
    is_known = None not in numbers and 0 not in (*a.size, *b.size)
    is_kind = len(kinds) == 1 and kinds <= {*NARROW, torch.float32}
    return is_known and is_kind and recomputes(buffer.layout.device)


def check_epilogue(fused: FusedProduct, nodes: Sequence[ScheduledNode], schedule: Schedule) -> None:
    """Raise Refused unless the group uses the product's elements one by one, in the product's own
    loops, and may run when the product does."""
    group, sizes = fused.group, sizes_of(fused.buffer)
    if not schedule.overwritten.keys().isdisjoint(group.names):
        raise Refused("what follows overwrites an input, which other tiles may still read")
    if group.is_reduction or group.has_scan or group.targets:
        raise Refused("what follows reduces, scans or scatters")
    if common_loops(group.outer, sizes) is None:
        raise Refused(f"their loops differ: {sizes} and {group.outer}")
    element = flatten(group.x, group.outer)
    if any(access.index != element for access in group.reads if access.name == fused.buffer.name):
        raise Refused("the product is read at other elements than the loops'")
    try:
        schedule.topological(fused.within(nodes))
    except graphlib.CycleError:
        raise Refused("what follows needs a kernel that writes over an operand") from None


def sizes_of(product: ExternKernel) -> tuple[int, ...]:
    """Loops over a product's result: (rows, columns)."""
    return tuple(int(n) for n in product.layout.size)


class MatmulWriter(TritonKernelWriter):
    """Fills in the template, and writes what follows the product."""

    def __init__(self, fused: FusedProduct, *context: Any):
        super().__init__(fused.group, *context)
        self.product = fused.buffer
        self.before = [fused.product]

    def make_plan(self) -> TilePlan:
        """Tiles of the result: m rows and n columns; k runs in the template's loop."""
        rows, columns = sizes_of(self.product)
        outer = common_loops(self.group.outer, sizes_of(self.product))
        assert outer is not None  # see check_epilogue
        bodies = [node.body.split_to(outer, ()) for node in self.group.nodes]
        variables, cut = loop_variables("x", len(outer)), cut_at(outer, rows)
        sizes = {"m": rows, "n": columns, "k": int(self.product.args[-1].size[-2])}
        return tile_plan(
            plan_of(self.group.nodes, bodies, outer, (), is_pointwise=True),
            kind="product",
            axes=[
                Axis("m", variables[:cut], outer[:cut], "[:, None]"),
                Axis("n", variables[cut:], outer[cut:], "[None, :]"),
            ],
            sizes=sizes,
            configs=product_configs(sizes),
        )

    def reads_again(self) -> bool:
        return True

    def body(self) -> list[Code]:
        *bias, a, b = self.product.args
        operands = {"a": self.tile(a, "mk"), "b": self.tile(b, "kn")}
        about = {f"about_{name}": f"{v.name}{list(v.size)}" for name, v in (("a", a), ("b", b))}
        self.write_epilogue(bias)
        rows, columns = self.plan.axes
        indices = [*rows.lines("(top + within % height) * MBLOCK")]
        indices += columns.lines("within // height * NBLOCK")
        is_exact = self.product.layout.dtype in NARROW
        precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
        text = TEMPLATE.format(
            **self.plan.sizes,
            **operands,
            **about,
            precision="" if is_exact else f', input_precision="{precision}"',
            indices="\n".join(line.text for line in indices),
        )
        return [*plain(text.splitlines(), self.whole_product()), *self.outside.code]

    def whole_product(self) -> SimpleNamespace:
        """What stands for the Instruction that the product's own lines compute."""
        return SimpleNamespace(about=(self.product.name, ""))

    def write_epilogue(self, biases: Sequence[BufferView]) -> None:
        """What follows the template: the bias, the store of the product, the group."""
        self.node = self.product.name
        value = Tile("product", torch.float32, frozenset("mn"))
        with playing.set(self.whole_product()):
            for bias in biases:
                loaded = self.load(bias.name, self.linear(bias))
                value = self.binary("add", value, self.to_dtype(loaded, torch.float32))
            self.store(self.node, self.linear(self.product.layout), value)
        for node in self.plan.nodes:
            self.play(node)

    def linear(self, place: Layout | BufferView) -> sympy.Expr:
        """The offset of the loops' element, in the product's layout or in a view (a bias) that
        broadcasts to its shape."""
        axes = self.plan.axes[2 - len(place.size) :]
        offset = sympy.sympify(place.offset)
        for axis, stride, size in zip(axes, place.stride, place.size):
            if size != 1:
                offset += stride * flatten([v for v, _ in axis.loops], [n for _, n in axis.loops])
        return sympy.expand(offset)

    def tile(self, view: BufferView, axes: str) -> str:
        """How the tile of an operand is read: pointers and mask."""
        depth, configs = self.plan.sizes["k"], self.plan.configs
        # k runs down a tile of b and across one of a
        k = "k[:, None]" if axes[0] == "k" else "k[None, :]"
        names = {axis.name: axis.flat for axis in self.plan.axes} | {"k": k}
        inside = {axis.name: axis.mask for axis in self.plan.axes}
        inside["k"] = f"({k} < {depth})" if any(depth % c.block("k") for c in configs) else None
        terms = [self.memory.pointer(view.name, False), str(int(view.offset))]
        terms += [f"{names[axis]} * {int(n)}" for axis, n in zip(axes, view.stride[-2:])]
        masks = [mask for mask in map(inside.get, axes) if mask]
        self.memory.read.append(view.name)
        return " + ".join(terms) + (f", {' & '.join(masks)}, other=0" if masks else "")


def cut_at(outer: Sequence[int], rows: int) -> int:
    """How many of the outer loops run over the product's rows."""
    cut = next(k for k in range(len(outer) + 1) if math.prod(outer[:k]) == rows)
    return cut or int(len(outer) > 1 and outer[0] == 1)  # one row may have a loop of its own
