"""How a fused group becomes tiles: the kind of kernel, the block sizes that are worth trying, and
what a launch needs.

In:   the nodes of a group.  Out: a `TilePlan`, which decides everything before a line is written.
      (axes.py has the axes of a tile.)

    pointwise     [XBLOCK]            every loop flattened into x
    tile          [YBLOCK, XBLOCK]    reads run along y, writes along x: each side in whole cache
                                      lines; or an outer product
    persistent    [XBLOCK, RBLOCK]    a row fits in one tile, so each element is read once
    looped        [XBLOCK, RBLOCK]    r in steps of RBLOCK; a loop per stage (kernel_plan.py)
    either        [XBLOCK, RBLOCK]    a row of symbolic length: persistent if it fits, else looped
    product       [MBLOCK, NBLOCK]    a matrix product, and what follows it (products.py)

A program (a block of threads) computes one tile.  Enough bytes must be in flight: 2 to 128 elements
for each of 32 * num_warps threads, and programs for every processor.  The lists of block sizes are
short, because each entry is compiled; docs/measuring.md says of which times they were made.

    >>> block_configs("pointwise", {"x": 1 << 20})[0]
    Config(blocks=(('XBLOCK', 2048),), num_warps=4, num_stages=1)
    >>> launch.programs(launch.configs[0])  # softmax of 16384 rows, a row per program
    16384

Mirrors the choice of ranges and of the kind of reduction in torch/_inductor/codegen/simd.py, and
the `*_heuristics` of torch/_inductor/runtime/triton_heuristics.py.
"""

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import sympy
import torch

from ...ir.dependencies import LoopBody
from ...schedule.nodes import Node
from ...sizes.expressions import Mod, is_indirect
from ...sizes.symbols import Size, fill, hint
from ..kernel_plan import KernelPlan, plan_kernel
from .axes import Axis, has_strided_reads, pointwise_axes, reads_along_outputs
from .kernel_text import Axes

# --- block sizes ----------------------------------------------------------------------------------
PERSISTENT = 32768  # longest row that one program holds in registers
PERSISTENT_COLUMNS = 64  # the same where memory runs along x
PERSISTENT_FEW_COLUMNS = 1024  # and there are few columns
FEW_COLUMNS = 16  # for each processor: fewer are not enough for tiles of 32 and more
PROCESSORS = 132  # of the GPU we tune for (H100); others only see other tile counts
INTERPRETED_TILE = 65536  # the interpreter pays per program, not per element
SHORT_ROW = 2048  # the longest that several threads need not share
LARGEST_INT32 = 2**31 - 1

# (YBLOCK, XBLOCK, warps)
TILES = ((64, 64, 4), (64, 64, 8), (32, 32, 4))
# (XBLOCK, RBLOCK, warps, stages)
COLUMNS = ((32, 32, 4, 1), (64, 32, 2, 3), (64, 4, 2, 1), (32, 128, 16, 1))
# (RBLOCK, warps, stages)
ROWS = ((2048, 8, 1), (4096, 16, 1), (16384, 16, 3))
# (RBLOCK, warps): few threads for each of 64 gathered rows, since each computes its row's place
FEW_THREADS = ((16, 1), (32, 4))
# (MBLOCK, NBLOCK, KBLOCK, stages, warps)
PRODUCT_TILES = (
    (128, 256, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 4),
    (32, 64, 128, 4, 4),
    (16, 64, 128, 5, 4),
    (16, 16, 64, 4, 2),
)


@dataclass(frozen=True)
class Config:
    blocks: tuple[tuple[str, int], ...]  # ((name, size), ...)
    num_warps: int
    num_stages: int = 1

    @property
    def elements(self) -> int:
        """How many elements a tile has."""
        return math.prod(n for name, n in self.blocks if name.endswith("BLOCK"))

    def block(self, axis: str) -> int:
        return dict(self.blocks)[axis.upper() + "BLOCK"]

    def __str__(self) -> str:
        return ", ".join(f"{name}={n}" for name, n in [*self.blocks, ("num_warps", self.num_warps)])


def power_of_2(n: int) -> int:
    """The smallest power of 2 that is at least n."""
    return 1 << max(0, int(n) - 1).bit_length()


def is_interpreting() -> bool:
    """Do kernels run in Triton's interpreter, on the CPU?"""
    return os.environ.get("TRITON_INTERPRET") == "1"


def config_of(warps: int, stages: int = 1, **blocks: int) -> Config:
    named = tuple((axis.upper() + "BLOCK", size) for axis, size in blocks.items())
    return Config(named, warps, stages)


def block_configs(kind: str, sizes: Mapping[str, int], strided: bool = False) -> list[Config]:
    """Configs to try, the best guess first.  sizes: axis -> elements.

    kind: "pointwise" (axis x), "tile" (y, x), "persistent", "looped" or "either" (x, r).
    strided: reads step through memory by more than one element along the last axis.  Of rows, those
    are columns: memory runs along x, and neighbouring threads should make neighbouring outputs."""
    x = sizes["x"]
    if kind == "pointwise":
        found = pointwise_configs(x, strided)
    elif kind == "tile":
        y_most, x_most = power_of_2(sizes["y"]), power_of_2(x)
        found = [config_of(warps, y=min(y, y_most), x=min(x, x_most)) for y, x, warps in TILES]
    elif kind == "persistent":
        found = persistent_columns(x, sizes["r"]) if strided else persistent_rows(x, sizes["r"])
    else:
        found = looped_columns(x) if strided else looped_rows(x, sizes["r"])
        # tiles in flight, see TritonKernelWriter.write_loop
        found = [replace(c, blocks=(*c.blocks, ("STAGES", c.num_stages))) for c in found]
    return [interpreted(found[0], x)] if is_interpreting() else list(dict.fromkeys(found))


def pointwise_configs(x: int, strided: bool) -> list[Config]:
    """Small blocks: more programs than processors come before more elements per thread."""
    top = min(1024, max(32, power_of_2(x // (PROCESSORS * 8))))
    if top == 1024:
        # two elements per thread: neighbouring threads read beside each other, also in steps of two
        return [config_of(4, x=2048), config_of(8, x=512 if strided else 1024)]
    if strided:  # neighbours in a thread are not read at once
        top = min(256, top)
    return [config_of(max(1, min(4, top // 64)), x=min(top, power_of_2(x)))]


def persistent_columns(x: int, r: int) -> list[Config]:
    block, most = power_of_2(r), power_of_2(x)
    if block > PERSISTENT_COLUMNS:
        few = min(max(8, 2048 // block), most)
        return [config_of(max(4, min(16, few * block // 512)), x=few, r=block)]
    # One warp, which waits for no other.  64 columns of 16 bits are a cache line; 16 come first
    # where 64 would make fewer than four programs for each processor
    widths = [max(64, 1024 // block), 16]
    if x < 64 * 4 * PROCESSORS:
        widths.reverse()
    return [config_of(1, x=min(n, most), r=block) for n in widths]


def persistent_rows(x: int, r: int) -> list[Config]:
    block, most = power_of_2(r), power_of_2(x)
    if block > 1024:
        warps = min(16, block // 512)
        other = warps // 2 if block < PERSISTENT else 32
        return [config_of(w, x=1, r=block) for w in (warps, other)]
    # A warp alone waits for no other, and has several rows under way.  Where rows are short, the
    # first tile gives each thread few elements
    first = min(most * block, 1024)
    warps = max(1, first // 256) if block <= 256 else 1
    tiles = [(first, warps), (2048, 1), (4096, 4)]  # elements, warps
    return [config_of(w, x=min(most, n // block), r=block) for n, w in tiles]


def looped_columns(x: int) -> list[Config]:
    most = power_of_2(x)
    return [config_of(w, stages, x=min(a, most), r=b) for a, b, w, stages in COLUMNS]


def looped_rows(x: int, r: int) -> list[Config]:
    # of symbolic length: about as many elements as now, in one step; or gathered
    if r <= SHORT_ROW:
        few = [config_of(w, x=min(64, power_of_2(x)), r=b) for b, w in FEW_THREADS]
        return persistent_rows(x, max(NEIGHBOURS, r)) + few
    return [config_of(warps, stages, x=1, r=b) for b, warps, stages in ROWS]


def interpreted(config: Config, x: int) -> Config:
    """The same in large tiles."""
    blocks = dict(config.blocks)
    most = INTERPRETED_TILE * blocks["XBLOCK"] // config.elements
    blocks["XBLOCK"] = min(power_of_2(x), most)
    return Config(tuple(blocks.items()), 1)


def foreach_config(counts: Sequence[int]) -> Config:
    """The blocks of one kernel for parts of so many elements."""
    # (a warp that has found its part should do much: 1,024 elements each took half of 256)
    return config_of(4, x=1024 if sum(counts) < 1024 * PROCESSORS * 16 else 4096)


def product_configs(sizes: Mapping[str, int]) -> list[Config]:
    """Tiles of a matrix product: sizes of m, n and k.  Large ones reuse what they load most; small
    products need many programs.

    A tile's sides are at least 16, the smallest that the matrix units take."""
    m, n, k = (max(16, power_of_2(sizes[axis])) for axis in "mnk")
    fitting = [t for t in PRODUCT_TILES if t[0] <= m and t[1] <= n]
    programs = {t: -(-sizes["m"] // t[0]) * -(-sizes["n"] // t[1]) for t in fitting}
    many = [t for t in fitting if programs[t] >= PROCESSORS // 2] or fitting[-3:]
    return [config_of(w, s, m=a, n=b, k=min(c, k)) for a, b, c, s, w in many]


@dataclass
class Launch:
    """What a launch of a kernel needs, for any values of the symbols in its sizes."""

    sizes: dict[str, Size]  # axis -> elements
    configs: list[Config]  # block sizes to try, the best guess first
    pointers: dict[str, torch.dtype]  # the parameters before sizes and blocks, in order
    asserts: bool  # the kernel checks indices
    extents: list[Size]  # elements behind each pointer
    symbols: Sequence[sympy.Symbol] = ()  # sizes that are arguments, after the pointers
    hints: Sequence[int] = ()  # what the symbols are in this run

    @functools.cached_property
    def at(self) -> Callable[..., tuple[dict[str, int], list[int]]]:
        """A function of the symbols' values that gives sizes and extents as numbers."""
        return fill((self.sizes, self.extents), list(map(str, self.symbols)))

    def programs(self, config: Config, values: Sequence[int] = ()) -> int:
        """How many programs are launched; values: the numbers of the symbols."""
        sizes, _ = self.at(*values)
        return math.prod(
            -(-n // config.block(axis)) for axis, n in sizes.items() if axis not in "rk"
        )

    def is_wide(self, values: Sequence[int]) -> bool:
        """Must indices have 64 bits?  With room for the last tile."""
        sizes, extents = self.at(*values)
        return max(*sizes.values(), *extents) + (1 << 20) > LARGEST_INT32


# --- plans ----------------------------------------------------------------------------------------
# a row whose elements are needed once, or for max and sum(exp), is looped over from here on: a
# tile of it would fill a processor, which then waits for memory and computes by turns
LONG_ROW = 8192
ABOUT = {"m2": "sum", "sumexp": "max"}  # sums of what depends on another reduction of the row
# elements that share one running maximum in such a loop: one more exp for all of them
NEIGHBOURS = 8
# what counts as the value of a symbol that the captured run did not know: where the kind of kernel
# is chosen, and where its blocks are
MANY, LIKELY = 1 << 62, 8192


@dataclass(kw_only=True)
class TilePlan(KernelPlan):
    """The plan of a kernel's loops, and the tiles that run over them: what the writer follows."""

    kind: str  # "pointwise" | "tile" | "persistent" | "looped" | "either" | "product"
    axes: list[Axis]
    sizes: dict[str, Size]  # axis -> elements
    configs: list[Config]
    strided: bool = False  # as in block_configs

    @functools.cached_property
    def axis_of(self) -> dict[sympy.Symbol, str]:
        """Loop variable -> the name of its axis."""
        return {variable: axis.name for axis in self.axes for variable, _ in axis.loops}

    def shape(self, axes: Axes | None = None) -> str:
        """The shape of a tile that varies along these axes (None: along all), as text."""
        sides = [axis.block if axes is None or axis.name in axes else "1" for axis in self.axes]
        return f"[{', '.join(sides)}]"

    @functools.cached_property
    def all_axes(self) -> Axes:
        return frozenset(axis.name for axis in self.axes)


def plan_tiles(nodes: Sequence[Node]) -> TilePlan:
    """The plan of a fused group."""
    loops = plan_kernel(nodes)
    bodies = list(loops.bodies.values())
    if loops.is_pointwise:
        kind, axes = pointwise_axes(loops.outer, bodies)
        strided = has_strided_reads(bodies)
    else:
        axes = [
            Axis("x", loops.x, loops.outer, "[:, None]"),
            Axis("r", loops.r, loops.inner, "[None, :]"),
        ]
        strided = reads_along_outputs(bodies, loops.x, loops.r)
        kind = kind_of_rows(loops, axes, columns=strided)
    return tile_plan(
        loops,
        kind=kind,
        axes=axes,
        sizes={axis.name: axis.numel for axis in axes},
        configs=blocks_to_try(kind, axes, strided),
        strided=strided,
    )


def kind_of_rows(loops: KernelPlan, axes: Sequence[Axis], columns: bool) -> str:
    """Is a row one tile, or looped over?  columns: memory runs along x rather than along r."""
    rows, row = (axis.numel for axis in axes)
    again = any(loops.nodes_of(stage, inner=True) for stage in loops.stages()[2:])  # 1, 2, ...
    bodies = loops.bodies.values()
    ops = {i.args[2] if i.op == "reduction" else i.op for body in bodies for i in body.walk()}
    longest = PERSISTENT_COLUMNS if columns else PERSISTENT
    if columns and hint(rows, LIKELY) < PROCESSORS * FEW_COLUMNS:
        longest = PERSISTENT_FEW_COLUMNS  # the last of chunks
    if not again and "scan" not in ops:
        longest = min(LONG_ROW, longest)
        is_short = not columns and hint(row, MANY) <= SHORT_ROW
        if is_short and ops.isdisjoint(ABOUT) and any(map(gathers, bodies)):
            return "looped"  # few threads for each row
    if hint(row, MANY) > longest:
        return "looped"
    if isinstance(row, int):
        return "persistent"
    return "either" if again and not columns else "looped"  # it may be longer in another call


def gathers(body: LoopBody) -> bool:
    """Do positions that are data say where its rows lie?"""
    return bool(body.inner) and any(is_indirect(access.index) for access in body.reads())


def tile_plan(loops: KernelPlan, **decided: Any) -> TilePlan:
    """The plan of these loops with what was decided about tiles.  An axis that some configuration
    does not cut into whole tiles has a mask."""
    same = {field.name: getattr(loops, field.name) for field in fields(loops)}
    plan = TilePlan(**same, **decided)
    for axis in plan.axes:
        if axis.numel == 0 or not all(divides(c, axis, plan.kind) for c in plan.configs):
            axis.mask = f"{axis.name}mask"
    return plan


# --- block sizes ----------------------------------------------------------------------------------
def blocks_to_try(kind: str, axes: Sequence[Axis], strided: bool) -> list[Config]:
    """Block sizes; only those that divide the sizes, if there are some about as large as the first:
    they need no masks."""
    hints = {axis.name: hint(axis.numel, LIKELY) for axis in axes}
    configs = block_configs(kind, hints, strided)
    whole = [c for c in configs if all(divides(c, axis, kind) for axis in axes)]
    is_large = any(c.elements >= configs[0].elements // 2 for c in whole)
    return whole if is_large else configs


def divides(config: Config, axis: Axis, kind: str) -> bool:
    """Is the axis cut into whole tiles, whatever its symbols are?  (A row of symbolic length in one
    tile may be shorter than the tile.)"""
    numel, block = axis.numel, config.block(axis.name)
    if isinstance(numel, int):
        return numel % block == 0
    is_one_tile = axis.name == "r" and kind != "looped"
    return not is_one_tile and bool(Mod(numel, block) == 0)
