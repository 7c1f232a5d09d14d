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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import sympy

from ...ir.dependencies import Access, LoopBody, int_or_none, linear_form, loop_variables, stride_of
from ...ir.loops import Buffer
from ...schedule.nodes import Node
from ...sizes.expressions import Mod, index_text, is_indirect
from ...sizes.symbols import Size, hint
from ...sizes.symbols import size as as_size
from ..plan import KernelPlan, plan_kernel
from .block_sizes import PROCESSORS, Config, block_configs, is_few_columns, persistent_limit
from .helpers import helpers_of
from .tiles import Axes, Line, noted

# a row whose elements are needed once, or for max and sum(exp), is looped over from here on: a
# tile of it would fill a processor, which then waits for memory and computes by turns
LONG_ROW = 8192
# elements that share one running maximum in such a loop: one more exp for all of them
NEIGHBOURS = 8
LEAST_SIDE = 8  # of a tile of two axes
WIDEST = 16  # elements that a thread reads at once, at most
LONGEST_STEP = 4  # elements: neighbours so far apart still share a cache line
MANY = 1 << 62
Loops: TypeAlias = Sequence[tuple[sympy.Symbol, Size]]  # (variable, how often it runs)
LIKELY = 8192  # a symbol that the captured run did not know, where blocks are chosen
SYMBOLIC_ROW = 1024  # steps are cut for rows of so many at least: other calls may have longer ones
UNKNOWN = 512  # what a symbolic size is taken for where nothing is known of it


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
        helpers = helpers_of(self.numel, *[n for _, n in self.loops])
        return [Line(text, reads=helpers, origin=INDICES) for text in texts]

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


INDICES = "indices of the loops, and which of them exist"


@dataclass(kw_only=True)
class TilePlan(KernelPlan):
    """The plan of a kernel's loops, and the tiles that run over them: what the writer follows."""

    kind: str  # "pointwise" | "tile" | "persistent" | "looped" | "product"
    axes: list[Axis]
    sizes: dict[str, Size]  # axis -> elements
    configs: list[Config]
    columns: bool = False  # memory runs along x rather than along r
    streams: bool = False  # what its one loop reads, it reads once
    # buffers of which a maximum is taken: their values are the lowest number beyond a row's end
    maxima: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.axis_of = {variable: axis.name for axis in self.axes for variable, _ in axis.loops}
        self.makers = {node.name: node for node in self.nodes}

    def shape(self, axes: Axes | None = None) -> str:
        """Of a tile that varies along these axes, or along all."""
        sides = [axis.block if axes is None or axis.name in axes else "1" for axis in self.axes]
        return f"[{', '.join(sides)}]"

    def all_axes(self, inner: bool) -> Axes:
        return frozenset(axis.name for axis in self.axes if inner or axis.name != "r")


def plan_tiles(nodes: Sequence[Node], buffers: Mapping[str, Buffer], keep: set[str]) -> TilePlan:
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
        if not again and not scans and hint(axes[0].numel, MANY) >= PROCESSORS:
            longest = min(LONG_ROW, longest)
        kind = "looped" if online or row > longest else "persistent"
    return tile_plan(
        loops,
        kind=kind,
        axes=axes,
        sizes={axis.name: axis.numel for axis in axes},
        configs=blocks_to_try(kind, axes, bodies, columns),
        columns=columns,
        streams=kind == "looped" and (online or not again),
        maxima=frozenset().union(*[floats_of_maximum(body, buffers) for body in bodies]),
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
    """Number of loops that belong to y, if some read goes by steps of one (or of few, where the
    loop that goes by one is too short) along an earlier loop and not along the last."""
    *earlier, last = loop_variables("x", len(outer)) or [None]
    reads = [access for body in bodies for access in body.reads()]
    for longest_step in (1, LONGEST_STEP):
        for number, variable in enumerate(earlier):
            if min(hint(outer[number], 0), hint(outer[-1], 0)) < LEAST_SIDE:
                continue
            for access in reads:
                along_last = usual_step(access.index, last, hint(outer[-1], 0))
                step = int_or_none(stride_of(access.index, variable))
                if along_last in (-1, 0, 1, None) or step is None:
                    continue
                if 0 < step <= longest_step and (step == 1 or abs(along_last) > 8 * step):
                    return number + 1
    return None


def usual_step(index: sympy.Expr, variable: sympy.Symbol, count: int) -> int | None:
    """Step of an index along a loop; where it changes its direction there, as at the ends of a
    reflected image, the step in the middle."""
    step = stride_of(index, variable)
    if step is None and index.has(sympy.Max, sympy.Min, sympy.Abs) and not is_indirect(index):
        here, there = (index.subs(variable, count // 2 + n) for n in (0, 1))
        step = sympy.expand(there - here)
    return int_or_none(step)


def runs_along_x(bodies: Sequence[LoopBody], x: Axis, r: Axis) -> bool:
    """Do the reduction's reads step through memory by the last outer loop rather than by the
    reduction's?"""
    reads = [access for body in bodies if body.inner for access in body.reads()]
    return bool(x.loops) and reads_along(reads, x.loops, r.loops)


def reads_along(reads: Iterable[Access], x_loops: Loops, r_loops: Loops) -> bool:
    """The same of loops (variable, size).  Each read counts for the elements that it touches: the
    rows that a gather reads outweigh their indices, a tile outweighs what is broadcast along it."""
    last_x, last_r = x_loops[-1][0], r_loops[-1][0]
    sizes = {variable: hint(n, UNKNOWN) for variable, n in (*x_loops, *r_loops)}
    balance = 0
    for index in dict.fromkeys(access.index for access in reads):
        along_x, along_r = (int_or_none(stride_of(index, v)) == 1 for v in (last_x, last_r))
        balance += (along_x - along_r) * touched(index, sizes)
    return balance > 0


def touched(index: sympy.Expr, sizes: Mapping[sympy.Symbol, int]) -> int:
    """How many elements an index reaches, at most.  One that was read itself may be any."""
    symbols = index.free_symbols
    gathers = is_indirect(index)
    return math.prod(n for variable, n in sizes.items() if gathers or variable in symbols)


# --- block sizes ----------------------------------------------------------------------------------
def blocks_to_try(
    kind: str, axes: Sequence[Axis], bodies: Sequence[LoopBody], columns: bool
) -> list[Config]:
    """Block sizes; only those that divide the sizes, if there are some about as large as the first:
    they need no masks."""
    along_row = {v for axis in axes if axis.name == "r" for v, _ in axis.loops}
    reads = {(a.name, a.index) for body in bodies for a in body.reads()}
    tiles = [index for _, index in reads if not along_row.isdisjoint(index.free_symbols)]
    hints = {axis.name: likely(axis.numel) for axis in axes}
    if kind == "looped" and not isinstance(axes[-1].numel, int):
        hints["r"] = max(hints["r"], SYMBOLIC_ROW)
    skips = kind == "pointwise" and any(map(skips_elements, bodies))
    configs = block_configs(kind, hints, columns, len(tiles), skips)
    if kind == "looped" and columns and is_few_columns(hints["x"]):
        return configs  # masks cost less than a few programs that take many steps
    least = configs[0].elements // 2
    large = [c for c in configs if c.elements >= least]
    return [c for c in large if all(divides(c, axis, kind) for axis in axes)] or configs


def likely(numel: Size) -> int:
    """A size in the run in which the graph was captured.  What that run did not know (`x[mask]`)
    counts as large: small blocks would cost a large tensor more than large ones a small tensor."""
    known = hint(numel)
    if known is not None or isinstance(numel, int):
        return known
    numbers = {symbol: sympy.Integer(hint(symbol, LIKELY)) for symbol in numel.free_symbols}
    return int(numel.xreplace(numbers))


def skips_elements(body: LoopBody) -> bool:
    """Does a read go by other steps than one, or by steps that Triton does not see through?"""
    if not body.outer:
        return False
    last = loop_variables("x", len(body.outer))[-1]
    for access in body.reads():
        step = int_or_none(stride_of(access.index, last))
        if is_indirect(access.index) or access.index.has(sympy.Max, sympy.Min, sympy.Abs):
            return True
        if step is not None and abs(step) > 1:
            return True
    return False


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


def floats_of_maximum(body: LoopBody, buffers: Mapping[str, Buffer]) -> set[str]:
    """The float buffers that a body reads which finds their maximum, and does nothing else."""
    ops = {instruction.op for instruction in body.walk()}
    if body.reduction_kinds() != ["max"] or not ops <= {"load", "to_dtype", "reduction", "store"}:
        return set()
    names = {access.name for access in body.reads()}
    return {name for name in names if buffers[name].layout.dtype.is_floating_point}
