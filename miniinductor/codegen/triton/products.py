"""Matrix products as Triton kernels, from a template, together with the pointwise work that
follows.

In:   the schedule.  Out: the same with `FusedProduct`s in place of a library call and the one
      kernel that reads its result; and for each its kernel: `templates/matmul.jinja`, filled in.

    gelu(a @ b + c)     apart:  torch.mm(a, b, out=buf0); add_gelu_0(buf0, c, buf1)
                                buf0 is written and read
                        fused:  mm_add_gelu_0(a, b, c, buf1)
                                the tile is still in registers

A library's product is usually faster than ours, so fusing pays only if the saved pass over the
result is worth more.  Nobody knows before measuring: mode="max-autotune" times both (and several
tiles), and remembers the winner on disk.  Only where the library is known to be slow, the template
is always used: results with unaligned rows.

Mirrors torch/_inductor/kernel/mm.py, select_algorithm.py and the scheduler's template fusion (paper
sections 4.4, 4.7).  Left out: batches of products, fused prologues, split-K, TMA descriptors.
"""

import functools
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import jinja2
import sympy
import torch

from ... import config
from ...ir.dependencies import common_loops, int_or_none, loop_variables
from ...ir.loops import Buffer, BufferView, ExternKernel, Layout, playing
from ...passes import library_layouts
from ...records import CompileRecord, FusionDecision, lines_of
from ...schedule.nodes import ExternNode, Group, Refused, Schedule, ScheduledNode
from ...sizes.expressions import flatten
from ..kernels import KernelStep, KernelWriting, Step
from ..plan import plan_of
from .block_sizes import Config, product_configs
from .expressions import NARROW
from .kernel_writer import TritonKernelWriter
from .tile_plan import Axis, TilePlan, tile_plan
from .tiles import Code, Tile, plain
from .timing import race

aten = torch.ops.aten
# their operands: perhaps a bias, then a and b
PRODUCTS = (aten.mm.default, aten.addmm.default)
BAND = 8  # rows of tiles that are walked over together


class FusedProduct:
    """A library product and the pointwise group that reads it, as one kernel."""

    def __init__(self, product: ExternNode, group: Group | None, certain: bool):
        """certain: it is not asked whether the library would be faster."""
        self.product, self.buffer, self.certain = product, kernel_of(product), certain
        self.group = group or Group([], sizes_of(self.buffer), ())
        # the same in several steps
        self.apart: list[ExternNode | Group] = [product, group] if group else [product]
        self.nodes = [product, *self.group.nodes]
        self.names = [name for node in self.apart for name in node.names]
        self.read_names = set().union(*[node.read_names for node in self.apart]) - set(self.names)

    @property
    def device(self) -> torch.device:
        return self.buffer.layout.device

    def written(self, writing: KernelWriting) -> "KernelStep | Alternatives":
        """The fused kernel, and beside it, where that might be faster, its parts."""
        fused = writing.kernel(self)
        if config.matmul_templates == "always" or self.certain:
            return fused
        within = replace(writing, used=writing.used | self.group.read_names)
        apart: list[Any] = [within.step(part) for part in self.apart]  # no choices again
        return Alternatives(fused, apart)


@lines_of.register
def product_lines(fused: FusedProduct) -> list[str]:
    return [line for part in fused.apart for line in lines_of(part)]


@dataclass
class Alternatives:
    """A product and what follows it, in one kernel or apart; the faster one is chosen."""

    fused: KernelStep
    apart: list[Step]

    def parts(self) -> list[Step]:
        return [self.fused, *self.apart]

    def chosen(self, schedule: Schedule, device: torch.device, record: CompileRecord) -> list[Step]:
        """The steps of the faster way, by measuring both; the answer is kept on disk."""
        ways: dict[str, list[Step]] = {"fused": [self.fused], "apart": self.apart}
        names = dict.fromkeys(name for step in self.parts() for name in step.touched())
        times = race(
            {what: functools.partial(run_steps, steps) for what, steps in ways.items()},
            self.fused.kernel.source,
            {name: schedule.buffers[name].layout for name in names},
            device,
        )
        measured = ", ".join(f"{what} {ms * 1e3:.1f} us" for what, ms in times.items())
        record.notes.append(f"{self.fused.name}: {measured}")
        return ways[min(times, key=times.__getitem__)]


def run_steps(steps: Sequence[Step], tensors: dict[str, torch.Tensor], stream: int) -> None:
    """The steps on these tensors, to be measured."""
    for step in steps:
        if isinstance(step, KernelStep):
            assert step.function is not None  # built
            step.function(*[tensors[a] for a in step.kernel.arguments], stream)
        else:
            product = kernel_of(step)
            views = [as_view(tensors[view.name], view) for view in product.args]
            product.out_op(*views, out=tensors[product.name])


def as_view(tensor: torch.Tensor, view: BufferView) -> torch.Tensor:
    size, stride = [int(n) for n in view.size], [int(n) for n in view.stride]
    return tensor.as_strided(size, stride, int(view.offset))


def with_products(
    schedule: Schedule, device: torch.device, record: CompileRecord
) -> list[ScheduledNode]:
    """The schedule's nodes: matrix products and what follows them as one, where that may pay.

    What was decided stands in `record.fusions`."""
    if config.matmul_templates == "never":
        return schedule.nodes
    is_timed = config.matmul_templates == "timed" and config.max_autotune and device.type == "cuda"
    every = is_timed or config.matmul_templates == "always"
    nodes = list(schedule.nodes)
    for extern in products_of(nodes):
        certain = has_unaligned_rows(kernel_of(extern))
        if every or certain:
            nodes = with_product(extern, certain, nodes, schedule, record)
    return nodes


def with_product(
    extern: ExternNode,
    certain: bool,
    nodes: list[ScheduledNode],
    schedule: Schedule,
    record: CompileRecord,
) -> list[ScheduledNode]:
    """The nodes with this product fused, if that can be.  certain: no library kernel does it well,
    so it is ours even where nothing follows."""
    readers = [n for n in nodes if extern.names[0] in n.read_names]
    group = next((n for n in readers if isinstance(n, Group)), None)
    reason = ""
    try:
        check_product(kernel_of(extern), schedule.buffers)
        if group is None or readers[0] is not group:
            raise Refused("no kernel continues from the product")
        check_epilogue(extern, group, nodes, schedule.overwritten)
    except Refused as refused:
        reason = str(refused)
    if group is not None or certain:
        names = "+".join(group.names) if group else "(nothing)"
        why = reason or "the kernel continues from the product's tiles"
        decision = FusionDecision(extern.names[0], names, not reason, "template", why)
        record.fusions.append(decision)
    if reason and not certain:
        return nodes
    follower = None if reason else group
    fused, place = FusedProduct(extern, follower, certain), follower or extern
    return [fused if n is place else n for n in nodes if n is place or n not in fused.apart]


def products_of(nodes: Sequence[ScheduledNode]) -> list[ExternNode]:
    externs = [node for node in nodes if isinstance(node, ExternNode)]
    return [node for node in externs if getattr(node.buffer, "op", None) in PRODUCTS]


def kernel_of(node: ExternNode) -> ExternKernel:
    """The eager kernel that a product is."""
    assert isinstance(node.buffer, ExternKernel)
    return node.buffer


def has_unaligned_rows(product: ExternKernel) -> bool:
    """A result whose rows begin at odd addresses, made of operands whose rows do not: a library
    kernel would need a padded result and a copy of it (logits of GPT-2 on an H200: 0.62 ms from the
    template, 0.91 ms padded, 3.3 ms as they are)."""
    is_ours = product.layout.device.type == "cuda" or config.cpu_backend == "triton"
    if product.op is not aten.mm.default or not is_ours:
        return False
    a, b = [(v.size, v.stride) for v in product.args[:2]]
    return library_layouts.suits_template(product.layout.dtype, a, b)


def check_product(buffer: ExternKernel, buffers: Mapping[str, Buffer]) -> None:
    """Can the template compute this product?"""
    *_, a, b = buffer.args
    kinds = {buffers[v.name].layout.dtype for v in (a, b)} | {buffer.layout.dtype}
    numbers = [n for v in (a, b) for n in (*v.size, *v.stride, v.offset)]
    if buffer.kwargs or any(int_or_none(n) is None for n in numbers):
        raise Refused("scaled products and symbolic sizes stay library calls")
    if len(kinds) > 1 or not kinds <= {*NARROW, torch.float32} or 0 in (*a.size, *b.size):
        raise Refused(f"a product of {', '.join(sorted(map(str, kinds)))} stays a library call")


def check_epilogue(
    extern: ExternNode, group: Group, nodes: Sequence[ScheduledNode], overwritten: Collection[str]
) -> None:
    """Does the group use the product's elements one by one, in the product's own loops?"""
    if any(name in overwritten for name in group.names):
        raise Refused("what follows overwrites an input, which other tiles may still read")
    if group.is_reduction or group.has_scan or group.targets:
        raise Refused("what follows reduces, scans or scatters")
    if not all(n is group or not (extern.read_names & getattr(n, "targets", set())) for n in nodes):
        raise Refused("an operand is written later")
    sizes = sizes_of(kernel_of(extern))
    if common_loops(group.outer, sizes) is None:
        raise Refused(f"their loops differ: {sizes} and {group.outer}")
    element = flatten(loop_variables("x", len(group.outer)), group.outer)
    if any(access.index != element for access in group.reads if access.name == extern.names[0]):
        raise Refused("the product is read at other elements than the loops'")


def sizes_of(product: ExternKernel) -> tuple[int, ...]:
    """Loops over a product's result: (rows, columns)."""
    return tuple(int(n) for n in product.layout.size)


class MatmulWriter(TritonKernelWriter):
    """Fills in the template.  fused: a FusedProduct."""

    def __init__(self, fused: FusedProduct, *context: Any):
        super().__init__(fused.group, *context)
        self.product = fused.buffer
        self.group, self.before = fused.group, [fused.product]

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
            configs=configs_of(sizes),
        )

    def reads_again(self) -> bool:
        return True

    def body(self) -> list[Code]:
        *bias, a, b = self.product.args
        tiles = {"a": self.tile(a, "mk"), "b": self.tile(b, "kn")}
        self.write_epilogue(bias)
        rows, columns = self.plan.axes
        is_exact = self.product.layout.dtype in NARROW
        indices = [*rows.lines("(top + within % height) * MBLOCK")]
        indices += columns.lines("within // height * NBLOCK")
        text = template().render(
            rows=self.plan.sizes["m"],
            columns=self.plan.sizes["n"],
            depth=self.plan.sizes["k"],
            band=BAND,
            **tiles,
            precision="" if is_exact else f', input_precision="{float32_precision()}"',
            indices=[line.text for line in indices],
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
        """Offset of the loops' element, in the product's layout or in a view that broadcasts to its
        shape."""
        axes = self.plan.axes[2 - len(place.size) :]
        offset = sympy.sympify(place.offset)
        for axis, stride, size in zip(axes, place.stride, place.size):
            if size != 1:
                offset += stride * flatten([v for v, _ in axis.loops], [n for _, n in axis.loops])
        return sympy.expand(offset)

    def tile(self, view: BufferView, axes: str) -> dict[str, str]:
        """How the tile of an operand is read: pointers and mask."""
        depth, configs = self.plan.sizes["k"], self.plan.configs
        # k runs down a tile of b and across one of a
        k = "k[:, None]" if axes[0] == "k" else "k[None, :]"
        names = {axis.name: axis.flat for axis in self.plan.axes} | {"k": k}
        inside = {axis.name: axis.mask for axis in self.plan.axes}
        inside["k"] = f"({k} < {depth})" if any(depth % c.block("k") for c in configs) else None
        terms = [
            names[axis] if stride == 1 else f"{names[axis]} * {int(stride)}"
            for axis, stride in zip(axes, view.stride[-2:])
        ]
        if int(view.offset):
            terms.append(str(int(view.offset)))
        masks = [mask for mask in map(inside.get, axes) if mask]
        self.memory.read.append(view.name)
        return {
            "about": f"{view.name}{[int(n) for n in view.size]}",
            "pointer": f"{self.memory.pointer(view.name, False)} + {' + '.join(terms)}",
            "mask": f", {' & '.join(masks)}, other=0" if masks else "",
        }


def cut_at(outer: Sequence[int], rows: int) -> int:
    """How many of the loops run over rows."""
    cut = next(k for k in range(len(outer) + 1) if math.prod(outer[:k]) == rows)
    return cut or int(len(outer) > 1 and outer[0] == 1)  # one row may have a loop of its own


def configs_of(sizes: Mapping[str, int]) -> list[Config]:
    """Tiles to try; without max-autotune the largest, and small ones for GPUs with less shared
    memory.  Only those that divide the sizes, if there are some: they need no masks."""
    configs = product_configs(sizes)
    if not config.max_autotune:
        configs = list(dict.fromkeys([configs[0], configs[-1]]))
    free = [c for c in configs if all(n % c.block(axis) == 0 for axis, n in sizes.items())]
    return free or configs


def float32_precision() -> str:
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


@functools.cache
def template() -> jinja2.Template:
    path = os.path.join(os.path.dirname(__file__), "matmul.jinja")
    with open(path) as file:
        return jinja2.Environment(
            trim_blocks=False, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
        ).from_string(file.read())
