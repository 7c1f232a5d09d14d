"""How a fused group becomes tiles: its axes, the kind of kernel, its stages, block sizes to try.

In:   the nodes of a group.  Out: a `TilePlan`, which decides everything before a line is written.

    pointwise     [XBLOCK]            every loop flattened into x
    tile          [YBLOCK, XBLOCK]    reads run along y, writes along x: each side in whole cache
                                      lines
    persistent    [XBLOCK, RBLOCK]    a row fits in one tile, so nothing is read twice
    looped        [XBLOCK, RBLOCK]    r in steps of RBLOCK; a loop per *stage*

Mirrors the choice of ranges and of the kind of reduction in torch/_inductor/codegen/simd.py.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import sympy

from ...ir.dependencies import Access, LoopBody, int_or_none, linear_form, loop_variables, stride_of
from ...schedule.nodes import Node
from ...sizes.expressions import Mod, index_text, is_indirect
from ...sizes.symbols import Size, hint
from ...sizes.symbols import size as as_size
from ..kernel_plan import KernelPlan, plan_kernel
from .block_sizes import Config, block_configs, persistent_limit
from .kernel_text import Axes, Line, noted, plain

# a row whose elements are needed once, or for max and sum(exp), is looped over from here on: a
# tile of it would fill a processor, which then waits for memory and computes by turns
LONG_ROW = 8192
# elements that share one running maximum in such a loop: one more exp for all of them
NEIGHBOURS = 8
LEAST_SIDE = 8  # of a tile of two axes
WIDEST = 16  # elements that a thread reads at once, at most
MANY = 1 << 62
Loops: TypeAlias = Sequence[tuple[sympy.Symbol, Size]]  # (variable, how often it runs)
LIKELY = 8192  # a symbol that the captured run did not know, where blocks are chosen


class Axis:
    """One dimension of the tile: the loops that are flattened into it."""

    def __init__(
        self, name: str, variables: Sequence[sympy.Symbol], sizes: Sequence[Size], slice_text: str
    ):
        self.name, self.slice = name, slice_text
        self.block = name.upper() + "BLOCK"
        self.loops = [(v, as_size(n)) for v, n in zip(variables, sizes)]
        self.numel: Size = math.prod(n for _, n in self.loops)
        self.mask: str | None = None  # the name of the mask, where the last tile is not full
        self.flat = str(self.loops[0][0]) if len(self.loops) == 1 else f"{name}index"

    def index_text(self, start: str) -> str:
        index = f"tl.arange(0, {self.block}){self.slice}"
        return f"{start} + {index}" if start else index

    def lines(self, start: str) -> list[Line]:
        """Names of the loop variables, from the flat index that begins at `start`."""
        texts = [noted(f"{self.flat} = {self.index_text(start)}", f"{self.name}: {self.numel}")]
        if self.mask:
            texts.append(f"{self.mask} = {self.flat} < {size_text(self.numel)}")
        if len(self.loops) != 1:
            texts += [self.variable_line(position) for position in range(len(self.loops))]
        return plain(texts, "indices of the loops, and which of them exist")

    def variable_line(self, position: int) -> str:
        """One of several loop variables, from the flat index."""
        variable, size = self.loops[position]
        below = size_text(math.prod(n for _, n in self.loops[position + 1 :]))
        text = self.flat if below == "1" else f"{self.flat} // {below}"
        if position:
            text = text if below == "1" else f"({text})"
            text = f"{text} % {size_text(size)}"
        return noted(f"{variable} = {text}", f"< {size_text(size)}")

    def over_flat(self, expr: sympy.Expr) -> sympy.Expr:
        """`expr` by the flat index, where its last loops follow each other in memory as they do
        here: 129*x1 + x2 is xindex, or xindex % 4773 if x0 stands before them.

        Triton does not see that 129*x1 + x2 goes by steps of one, where x1 and x2 are a quotient
        and a remainder by 129: neighbouring threads would then be given another axis."""
        if len(self.loops) < 2:
            return expr
        coefficients, tangled = linear_form(expr)
        step = coefficients.get(self.loops[-1][0], sympy.Integer(0))
        joined: list[sympy.Symbol] = []
        length: Size = 1
        for variable, size in reversed(self.loops):
            same = coefficients.get(variable) == sympy.expand(step * length)
            if not step or variable in tangled or not same:
                break
            joined.append(variable)
            length = sympy.expand(length * size)
        is_seen = len(joined) < len(self.loops) and self.loops[-1][1] % WIDEST == 0
        if len(joined) < 2 or is_seen:
            return expr
        whole = joined[-1] is self.loops[0][0]
        flat = self.flat if whole else f"{self.flat} % {size_text(length)}"
        others = expr.xreplace(dict.fromkeys(joined, sympy.Integer(0)))
        if not whole and (others or step != 1):
            flat = f"({flat})"
        return others + step * sympy.Symbol(flat, integer=True, nonnegative=True)


def size_text(n: Size) -> str:
    """A number of elements, in brackets where it is an expression."""
    text = index_text(n, "triton")
    return text if text.isalnum() else f"({text})"


@dataclass(kw_only=True)
class TilePlan(KernelPlan):
    """The plan of a kernel's loops, and the tiles that run over them: what the writer follows."""

    kind: str  # "pointwise" | "tile" | "persistent" | "looped" | "product"
    axes: list[Axis]
    sizes: dict[str, Size]  # axis -> elements
    configs: list[Config]
    columns: bool = False  # memory runs along x rather than along r
    streams: bool = False  # what its one loop reads, it reads once

    def __post_init__(self) -> None:
        self.axis_of = {variable: axis.name for axis in self.axes for variable, _ in axis.loops}
        self.makers = {node.name: node for node in self.nodes}

    def shape(self, axes: Axes | None = None) -> str:
        """The shape of a tile that varies along these axes (None: along all), as text."""
        sides = [axis.block if axes is None or axis.name in axes else "1" for axis in self.axes]
        return f"[{', '.join(sides)}]"

    def all_axes(self, inner: bool) -> Axes:
        return frozenset(axis.name for axis in self.axes if inner or axis.name != "r")


def plan_tiles(nodes: Sequence[Node], keep: set[str]) -> TilePlan:
    """keep: buffers that must be in memory afterwards."""
    loops = plan_kernel(nodes)
    bodies = list(loops.bodies.values())
    again = any(loops.nodes_of(stage, inner=True) for stage in range(1, loops.last_stage + 1))
    columns = online = False
    if loops.is_pointwise:
        kind, axes = pointwise_axes(loops.outer, bodies)
    else:
        axes = [Axis("x", loops.x, loops.outer, "[:, None]")]
        axes.append(Axis("r", loops.r, loops.inner, "[None, :]"))
        columns = runs_along_x(bodies, *axes)
        # a row of symbolic length is looped over: in another call it may be longer than a tile
        row = axes[1].numel if isinstance(axes[1].numel, int) else MANY
        online = row > LONG_ROW and not columns and may_be_online(loops, keep)
        scans = any(instruction.op == "scan" for body in bodies for instruction in body.walk())
        longest = persistent_limit(columns)
        if not again and not scans:
            longest = min(LONG_ROW, longest)
        kind = "looped" if online or row > longest else "persistent"
    return tile_plan(
        loops,
        kind=kind,
        axes=axes,
        sizes={axis.name: axis.numel for axis in axes},
        configs=blocks_to_try(kind, axes, columns),
        columns=columns,
        streams=kind == "looped" and (online or not again),
    )


def tile_plan(loops: KernelPlan, **decided: Any) -> TilePlan:
    """The plan of these loops with what was decided about tiles.  An axis that some configuration
    does not cut into whole tiles has a mask."""
    same = {field.name: getattr(loops, field.name) for field in fields(loops)}
    plan = TilePlan(**same, **decided)
    for axis in plan.axes:
        if axis.numel == 0 or not all(divides(c, axis, plan.kind) for c in plan.configs):
            axis.mask = f"{axis.name}mask"
    return plan


# --- axes -----------------------------------------------------------------------------------------
def pointwise_axes(outer: Sequence[Size], bodies: Sequence[LoopBody]) -> tuple[str, list[Axis]]:
    """The kind of tile, and its axes: one of them, or two where reads run along another loop than
    writes."""
    x, cut = loop_variables("x", len(outer)), transposed_at(outer, bodies)
    if cut is None:
        return "pointwise", [Axis("x", x, outer, "")]
    return "tile", [
        Axis("y", x[:cut], outer[:cut], "[:, None]"),
        Axis("x", x[cut:], outer[cut:], "[None, :]"),
    ]


def transposed_at(outer: Sequence[Size], bodies: Sequence[LoopBody]) -> int | None:
    """Number of loops that belong to y, if some read goes by steps of one along an earlier loop and
    not along the last."""
    *earlier, last = loop_variables("x", len(outer)) or [None]
    indices = [access.index for body in bodies for access in body.reads()]
    for number, variable in enumerate(earlier):
        if min(hint(outer[number], 0), hint(outer[-1], 0)) < LEAST_SIDE:
            continue
        for index in indices:
            along_last = step_inside(index, last, outer[-1])
            if stride_of(index, variable) == 1 and along_last not in (-1, 0, 1, None):
                return number + 1
    return None


def step_inside(index: sympy.Expr, variable: sympy.Symbol, length: Size) -> int | None:
    """By how much an index steps along a loop: in the middle, if it turns round at the ends, as
    that of a reflected image does."""
    step = stride_of(index, variable)
    if step is None and isinstance(length, int):
        start = dict.fromkeys(index.free_symbols, sympy.Integer(0))
        at = [start | {variable: sympy.Integer(length // 2 + k)} for k in (0, 1)]
        step = index.xreplace(at[1]) - index.xreplace(at[0])
    return int_or_none(step)


def runs_along_x(bodies: Sequence[LoopBody], x: Axis, r: Axis) -> bool:
    """Do the reduction's reads step through memory by the last outer loop rather than by the
    reduction's?"""
    reads = [access for body in bodies if body.inner for access in body.reads()]
    return bool(x.loops) and reads_along(reads, x.loops, r.loops)


def reads_along(reads: Iterable[Access], x_loops: Loops, r_loops: Loops) -> bool:
    """`runs_along_x` for loops (variable, size).  Only reads that vary along both axes count, and
    gathers of rows."""
    balance = 0
    for index in dict.fromkeys(access.index for access in reads):
        varies = [not index.free_symbols.isdisjoint(v for v, _ in l) for l in (x_loops, r_loops)]
        if all(varies) or is_indirect(index):
            steps = [stride_of(index, loops[-1][0]) for loops in (x_loops, r_loops)]
            balance += (steps[0] == 1) - (steps[1] == 1)
    return balance > 0


# --- block sizes ----------------------------------------------------------------------------------
def blocks_to_try(kind: str, axes: Sequence[Axis], columns: bool) -> list[Config]:
    """Block sizes; only those that divide the sizes, if there are some about as large as the first:
    they need no masks."""
    hints = {axis.name: hint(axis.numel, LIKELY) for axis in axes}
    configs = block_configs(kind, hints, columns)
    large = [c for c in configs if c.elements >= configs[0].elements // 2]
    return [c for c in large if all(divides(c, axis, kind) for axis in axes)] or configs


def divides(config: Config, axis: Axis, kind: str) -> bool:
    """Is the axis cut into whole tiles, whatever its symbols are?  A row in one tile is as long as
    the tile only where it is a number."""
    numel, block = axis.numel, config.block(axis.name)
    if isinstance(numel, int):
        return numel % block == 0
    is_one_tile = axis.name == "r" and kind == "persistent"
    return not is_one_tile and bool(Mod(numel, block) == 0)


# --- maxima and sums of exponentials --------------------------------------------------------------
def may_be_online(loops: KernelPlan, keep: set[str]) -> bool:
    """Does a loop over a row find its maximum and the sum of its exponentials at once (the online
    softmax)?  No element of a row must be stored, and there is a sum of exponentials."""
    stored = [n for n in loops.nodes if n.name in keep and loops.is_inner[n.name]]
    return all(n.is_reduction for n in stored) and bool(sums_of_exp(loops.nodes))


def sums_of_exp(nodes: Sequence[Node]) -> list[str]:
    """Names of nodes that sum up an exp and depend on a maximum over the same loops."""
    kinds = {node.name: node.body.reduction_kinds() for node in nodes}
    reads = {node.name: {access.name for access in node.body.reads()} for node in nodes}
    maxima = {name for name, found in kinds.items() if "max" in found}
    exps = {
        node.name
        for node in nodes
        if reads[node.name] & maxima and any(i.op == "exp" for i in node.body.walk())
    }
    sums = [name for name, found in kinds.items() if "sum" in found]
    return [name for name in sums if name in exps or reads[name] & exps]
