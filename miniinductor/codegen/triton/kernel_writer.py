"""One fused group in, one Triton function out.

In:   a scheduler `Group` and the names whose values must be in memory afterwards.  Out: a `Kernel`:
      source, the buffers it takes, and a `Launch`: how many programs, which block sizes to try.

    @triton.jit
    def sub_exp_sum_dim_int_list_div_0(in0, out0, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
        # in0: arg0, float32[16384, 4096]
        # out0: buf2, float32[16384, 4096] = div: model.py:12
        x0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]      # x: 16384
        r0 = tl.arange(0, RBLOCK)[None, :]                                  # r: 4096
        # buf0
        tmp0 = tl.load(in0 + (r0 + 4096*x0))                                # amax_default
        tmp1 = tl.reduce(tmp0, 1, larger)[:, None]                          # amax_default
        ...

One program computes one tile (tile_plan.py has the kinds of tiles).  A value is a tile, or
broadcasts to one, and knows the axes along which it varies.  A looped kernel has one loop over r
for each stage (kernel_plan.py), and computes again what a later stage needs of an earlier one's
elements; but it finds max(v) and sum(exp(v - max)) in one pass, as the online softmax does.

Symbolic sizes are arguments after the pointers: blocks are chosen by hints, and masks stay where no
divisibility is known.  Left out: clusters of programs (CTAs) that share memory.

Mirrors torch/_inductor/codegen/triton.py (paper section 4.4).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch

from ...ir.dependencies import int_or_none
from ...ir.loops import Buffer, playing
from ...ir.ops import NARROW
from ...records import Listing, Marked, indent
from ...schedule.after_fusion import SIZE, Foreach
from ...schedule.nodes import Group, Node
from ...sizes.symbols import hint, sizes
from ...sizes.symbols import size as as_size
from ..kernels import Kernel, Order, about_lines, of_all_parts, origin_text, summary
from .accumulators import Accumulator, Deviations, SumOfExp, scan_of, term
from .axes import size_text
from .expressions import TritonExpressions, as_narrow, triton_type
from .kernel_text import (
    NO_AXES,
    Axes,
    Code,
    Line,
    Loop,
    Tile,
    TileScope,
    Memory,
    noted_line,
    plain,
    texts,
    whole_file,
    with_wide_indices,
)
from .tile_plan import ABOUT, Launch, TilePlan, foreach_config, plan_tiles


class TritonKernelWriter(TritonExpressions):
    """Plays the bodies of a group into Triton lines."""

    def __init__(
        self,
        group: Group,
        buffers: Mapping[str, Buffer],
        keep: set[str],
        order: Order,
        overwritten: Mapping[str, str],
    ):
        """keep: names whose values must be in memory afterwards; overwritten: buffer -> the input
        whose memory it takes."""
        super().__init__()
        self.group, self.order = group, order
        self.memory = Memory(buffers, keep, overwritten)
        self.is_coarse = all(self.memory.dtype(name) in NARROW for name in keep)
        self.before: list[Any] = []  # nodes of a template
        self.values: dict[str, Tile] = {}  # of buffers, as far as they are known
        self.last: list[Line] = []  # stores over memory that the kernel reads
        self.node = ""  # whose body is played
        self.replaying = False  # is it played for its value alone, which is not stored again?
        self.row: dict[str, Accumulator] = {}  # of the loop over r that is written, by name
        # stores of their results, for after the loop: (buffer, index, value, mode, instruction)
        self.deferred: list[tuple[str, sympy.Expr, Tile, str | None, Any]] = []

    # -- the kernel --------------------------------------------------------------------------------
    def make_plan(self) -> TilePlan:
        return plan_tiles(self.group.nodes)

    def write(self) -> Kernel:
        self.plan = self.make_plan()
        return self.kernel(self.body() if self.plan.kind != "either" else self.branches())

    def branches(self) -> list[Code]:
        """Both forms of a kernel of rows: for those that fit into a tile, and for longer ones."""
        row, code = size_text(self.plan.axes[1].numel), list[Code]()
        for kind, header in (("persistent", f"if {row} <= RBLOCK:"), ("looped", "else:")):
            self.plan, counter = replace(self.plan, kind=kind), self.outside.counter
            self.outside = self.scope = TileScope()
            self.outside.counter, self.values, self.last = counter, {}, []
            code.append(Loop(header, self.body()))
        return code

    def body(self) -> list[Code]:
        if self.plan.kind == "looped":
            for stage in self.plan.stages():
                self.write_stage(stage)
        else:
            for node in self.plan.nodes:
                self.play(node)
        code = [*self.grid_lines(), *self.outside.code]
        if self.last:
            text = "tl.debug_barrier()" + " " * 50 + "# every thread has read"
            code.append(Line(text, origin="nothing is written before all is read"))
        return [*code, *self.last]

    def places(self) -> list[tuple[str, str]]:
        """(parameter, buffer) of each pointer, in order."""
        return [(pointer, name) for name, pointer in self.memory.pointers.items()]

    def launch(self) -> Launch:
        plan, memory, places = self.plan, self.memory, self.places()
        extents = [as_size(memory.buffers[name].layout.reach) for _, name in places]
        numbers = map(sympy.sympify, [*plan.sizes.values(), *extents])
        symbols = sorted(self.symbols.union(*[n.free_symbols for n in numbers]), key=str)
        return Launch(
            sizes=plan.sizes,
            configs=plan.configs,
            pointers={parameter: memory.dtype(name) for parameter, name in places},
            asserts=self.asserts,
            extents=extents,
            symbols=symbols,
            hints=[hint(symbol, 1) for symbol in symbols],
        )

    def kernel(self, code: Sequence[Code]) -> Kernel:
        """The finished text: signature, comments, body."""
        launch, memory, nodes = self.launch(), self.memory, [*self.before, *self.plan.nodes]
        symbols = launch.symbols
        blocks = [block for block, _ in launch.configs[0].blocks]
        constants = [f"{block}: tl.constexpr" for block in blocks]
        parameters = ", ".join([*launch.pointers, *map(str, symbols), *constants])
        names = [node.buffer.name for node in nodes]
        listing = Listing.of(
            [
                Marked.of("@triton.jit", reason="begins the kernel"),
                Marked.of(f"def NAME({parameters}):", marks=names),
                *indent(self.comments(nodes)),
                *indent(texts(code)),
            ]
        )
        source = whole_file(listing + "\n")
        before = source[: -len(listing) - 1].count("\n")
        if not symbols and launch.is_wide(()):
            source = with_wide_indices(source, blocks)
        return Kernel(
            source,
            [*[name for _, name in self.places()], *symbols],
            list(memory.stored),
            list(memory.read),
            summary(nodes, self.order),
            reads_again=self.reads_again(),
            launch=launch,
            about=[("", (), "what kernels import and call", "")] * before + listing.about,
        )

    def comments(self, nodes: Sequence[Any]) -> list[Marked]:
        """What the kernel computes, and what its pointers are."""
        lines = [f"# {line}" for line in about_lines(nodes, self.order)]
        for name, pointer in self.memory.pointers.items():
            buffer = self.memory.buffers[name]
            about = str(buffer.layout.dtype).removeprefix("torch.")
            made_of = origin_text(buffer, self.order)
            lines.append(f"# {pointer}: {name}, {about}{list(sizes(buffer.layout.size))}{made_of}")
        return [Marked.of(line, reason="a comment") for line in lines]

    def reads_again(self) -> bool:
        """May a kernel of these read something after it has written a result?  A loop may read a
        value again, and for a second result other threads may load it again."""
        return self.group.is_reduction or len(self.memory.stored) > 1

    def grid_lines(self) -> list[Line]:
        """Index lines of the axes that the grid runs over, and of r where a row is one tile."""
        first, *others = self.plan.axes
        if self.plan.kind == "tile":  # x first: programs that run together write whole rows
            tiles = f"tl.cdiv({size_text(others[0].numel)}, XBLOCK)"
            lines = first.lines(f"tl.program_id(0) // {tiles} * YBLOCK")
            return lines + others[0].lines(f"tl.program_id(0) % {tiles} * XBLOCK")
        lines = first.lines("tl.program_id(0) * XBLOCK")
        if self.plan.kind == "persistent":
            lines += others[0].lines("")
        return lines

    # -- nodes -------------------------------------------------------------------------------------
    def play(self, node: Node) -> None:
        self.node = node.name
        if len(self.plan.nodes) > 1:
            self.scope.code.append(Line(f"# {node.name}", origin="a comment"))
        self.plan.bodies[node.name].play(self)

    def replay(self, name: str) -> Tile:
        """The value of an element of an earlier loop, computed again rather than stored: all of
        the tile, since what stands after a masked block may use it, too."""
        before = self.node, self.replaying, self.mask
        self.node, self.replaying, self.mask = name, True, None
        self.plan.bodies[name].play(self)
        self.node, self.replaying, self.mask = before
        return self.values[name]

    def write_stage(self, stage: int) -> None:
        """A loop over r for the inner nodes of a stage, then what follows per row."""
        plan = self.plan
        inner = plan.nodes_of(stage, inner=True)
        # other elements are computed where a needed one reads them
        needed = [n for n in inner if n.is_reduction or n.name in self.memory.keep]
        if needed:
            self.write_loop(needed)
        for node in plan.nodes_of(stage, inner=False):
            self.play(node)

    def write_loop(self, nodes: Sequence[Node]) -> None:
        """A loop over the tiles of a row, and after it the columns of the nodes that reduce."""
        plan, outside = self.plan, self.outside
        self.scope = TileScope(outside)
        for node in nodes:
            self.play(node)
        inside: list[Any] = self.scope.code
        self.scope = outside
        outside.code += [accumulator.declaration() for accumulator in self.row.values()]
        # STAGES - 1 tiles ahead are on their way to shared memory while one is worked on
        end = size_text(plan.axes[1].numel)
        header = f"for r_start in tl.range(0, {end}, RBLOCK, num_stages=STAGES):"
        updates = [line for accumulator in self.row.values() for line in accumulator.update()]
        outside.code.append(Loop(header, [*plan.axes[1].lines("r_start"), *inside, *updates]))
        self.values = {name: v for name, v in self.values.items() if "r" not in v.axes}
        row, deferred, self.row, self.deferred = self.row, self.deferred, {}, []
        for name, index, value, mode, instruction in deferred:
            with playing.set(instruction):
                self.store(name, index, row[value.text].finish(), mode)

    # -- tiles of memory ---------------------------------------------------------------------------
    def element(self, name: str, index: sympy.Expr, axes: Axes, written: bool) -> tuple[str, Axes]:
        """(the pointers to elements: a tile that varies along `axes` at least; the axes along which
        the index does)"""
        pointer, (text, own) = self.memory.pointer(name, written), self.index(index)
        if not own and axes:
            text = f"tl.full({self.plan.shape(axes)}, {text}, tl.int64)"
        elif not axes <= own:
            text = f"tl.broadcast_to({text}, {self.plan.shape(axes | own)})"
        elif not text.isalnum():
            text = f"({text})"
        return f"{pointer} + {text}", own

    def load(self, name: str, index: sympy.Expr) -> Tile:
        if name in self.values:
            return self.values[name]
        dtype = self.memory.dtype(name)
        if name in self.plan.makers and name != self.node:
            return self.replay(name)
        if int_or_none(self.memory.buffers[name].layout.numel) == 0:
            return self.constant(0, dtype)
        if name not in self.memory.stored and name not in self.memory.read:
            self.memory.read.append(name)
        pointed = NO_AXES if self.mask is None else self.mask.axes
        target, own = self.element(name, index, pointed, False)
        mask = self.mask_text(own | pointed)
        other = f", {mask}, other=0" if mask else ""
        text = f"tl.load({target}{other})"
        if dtype in NARROW:
            text += ".to(tl.float32)"
        loaded = self.named(text, dtype, own | pointed)
        if self.mask is not None:
            self.zero_outside[loaded.text] = self.mask.text
        return loaded

    def store(self, name: str, index: sympy.Expr, value: Tile, mode: str | None = None) -> None:
        if value.text in self.row:
            self.deferred.append((name, index, value, mode, playing.value))
            return
        dtype = self.memory.dtype(name)
        if mode is None:
            self.values[name] = replace(value, dtype=dtype)
        if name not in self.memory.keep or self.replaying:
            return
        if mode not in (None, "sum"):
            raise NotImplementedError(f"a Triton kernel that stores with {mode}")
        if name not in self.memory.stored:
            self.memory.stored.append(name)
        is_element = self.plan.is_inner.get(name, False) and not self.plan.makers[name].is_reduction
        axes = self.plan.all_axes if is_element else self.plan.all_axes - {"r"}
        target, own = self.element(name, index, axes, True)
        mask = self.mask_text(own | axes)
        condition = f", {mask}" if mask else ""
        if mode is None:
            new = str(value)
            if dtype in NARROW:
                new = f"{self.solid(value)}.to({triton_type(dtype)})"
            text = f"tl.store({target}, {new}{condition})"
        else:
            text = f'tl.atomic_add({target}, {self.solid(value)}{condition}, sem="relaxed")'
        is_last = mode is None and name in self.memory.overwritten
        lines = self.last if is_last else self.scope.code
        lines.append(noted_line(text))

    # -- reductions --------------------------------------------------------------------------------
    def scan(self, dtype: torch.dtype, kind: str, value: Tile) -> Tile:
        if not self.plan.is_inner[self.node]:  # one element
            return value
        rule, value, axes = scan_of(kind, dtype), self.solid(value), self.plan.all_axes
        whole = as_narrow(rule.whole.format(self.spread(value)), dtype)
        if self.plan.kind == "persistent":
            return self.named(whole, dtype, axes)
        carry = self.outside.fresh("carry")  # the last element of the tile before
        start = f"{carry} = tl.full([XBLOCK, 1], {rule.start}, {triton_type(dtype)})"
        self.outside.code.append(noted_line(start))
        result = self.named(rule.combine.format(carry, whole), dtype, axes)
        last = "tl.arange(0, RBLOCK)[None, :] == RBLOCK - 1"
        text = f"{carry} = tl.sum(tl.where({last}, {result}, 0), 1)[:, None]"
        self.scope.code.append(noted_line(text))
        return result

    def reduction(  # type: ignore[override]  # bodies give the index, too
        self,
        dtype: torch.dtype,
        src_dtype: torch.dtype,
        kind: str,
        value: Tile,
        flat_index: sympy.Expr,
    ) -> Tile:
        if not self.plan.is_inner[self.node]:  # one element: nothing to reduce
            if kind.startswith("arg"):
                return self.constant(0, dtype)
            return self.to_dtype(value, torch.bool if kind == "any" else dtype)
        if kind in ABOUT and self.plan.kind == "persistent":
            about = self.reduction(dtype, src_dtype, ABOUT[kind], value, flat_index)
            count = self.index_expr(self.plan.axes[1].numel, dtype)
            each = term(self, kind, value, about, count)
            return self.reduction(dtype, src_dtype, "sum", each, flat_index)
        element = src_dtype if kind.endswith(("max", "min")) else dtype
        if kind == "any":
            element = torch.int32
            if value.dtype not in (element, torch.bool):
                value = self.to_dtype(value, torch.bool)
        value = self.to_dtype(value, element)
        make = {"m2": Deviations, "sumexp": SumOfExp}.get(kind, Accumulator)
        accumulator = make(self, kind, element, dtype, value, flat_index)
        if self.plan.kind == "persistent":
            return accumulator.column(accumulator.inside())
        self.row[accumulator.name] = accumulator
        return accumulator.running()


# --- horizontal fusion ----------------------------------------------------------------------------
PARTS = "which of the alike parts a program computes"


class TritonForeachWriter(TritonKernelWriter):
    """Several groups of the same body as one function: that of the first part, in which each
    program finds out which part its block belongs to.

        def foreach_exp_0(in0_0, out0_0, in0_1, out0_1, XBLOCK: tl.constexpr):
            block = tl.program_id(0)
            first, size, in0, out0 = 0, 65536, in0_0, out0_0
            here = block >= 64                                          # 65536 / 1024
            first = tl.where(here, 64, first); size = tl.where(here, 256, size); ...

    The pointers are chosen by scalar selects: a few hundred, beside 1024 elements and more for each
    of them.  The idea is torch's multi_tensor_apply."""

    def __init__(self, group: Foreach, *context: Any):
        super().__init__(group.parts[0].group, *context)
        self.parts = group.parts

    def make_plan(self) -> TilePlan:
        """The first part's, over the programs of all parts."""
        plan = super().make_plan()
        self.counts = [int(math.prod(part.group.outer)) for part in self.parts]
        config = foreach_config(self.counts)
        block = config.block("x")
        programs = [-(-n // block) for n in self.counts]
        *self.firsts, blocks = itertools.accumulate(programs, initial=0)
        [axis] = plan.axes
        axis.loops = [(axis.loops[0][0], SIZE)]
        axis.numel, axis.mask = SIZE, "xmask"
        return replace(plan, configs=[config], sizes={"x": blocks * block})

    def places(self) -> list[tuple[str, str]]:
        """(parameter, buffer) of every part, part by part."""
        memory = self.memory
        first = [memory.place(name) for name in self.parts[0].names]
        return [
            (f"{pointer}_{k}", memory.place(part.names[first.index(name)]))
            for k, part in enumerate(self.parts)
            for name, pointer in memory.pointers.items()
        ]

    def grid_lines(self) -> list[Line]:
        [axis], own = self.plan.axes, list(self.memory.pointers.values())
        names, firsts = ", ".join(own), ", ".join([f"{pointer}_0" for pointer in own])
        lines = [
            "block = tl.program_id(0)",
            f"first, size, {names} = {self.firsts[0]}, {self.counts[0]}, {firsts}",
        ]
        for k in range(1, len(self.parts)):
            chosen = {"first": f"{self.firsts[k]}", "size": f"{self.counts[k]}"}
            chosen |= {pointer: f"{pointer}_{k}" for pointer in own}
            lines += [
                f"here = block >= {self.firsts[k]}",
                "; ".join(f"{p} = tl.where(here, {v}, {p})" for p, v in chosen.items()),
            ]
        return plain(lines, PARTS) + axis.lines("(block - first) * XBLOCK")

    def body(self) -> list[Code]:
        about = f"# {len(self.parts)} times the same, with other buffers; the first:"
        return [Line(about, origin="a comment"), *super().body()]

    def reads_again(self) -> bool:
        """Each part stores a result."""
        return True

    def kernel(self, code: Sequence[Code]) -> Kernel:
        return of_all_parts(super().kernel(code), self.parts)
