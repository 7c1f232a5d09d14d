"""Block sizes: which tiles a kernel is cut into, and which are worth trying; what a launch needs.

In:   the kind of loop nest and the sizes of its axes.  Out: a few `Config`s, the first one a good
      guess; a `Launch`.

    >>> block_configs("pointwise", {"x": 1 << 20})[0]
    Config(blocks=(('XBLOCK', 1024),), num_warps=4, num_stages=1)
    >>> launch.programs(launch.configs[0])  # softmax of 16384 rows, a row per program
    16384

A program (a block of threads) computes one tile.  Enough bytes must be in flight: 4 to 16 elements
for each of 32 * num_warps threads, and programs for every processor.  With one tile per row of a
reduction ("persistent") each element is read once, however often it is used.  The lists are short,
because each entry is compiled.

Mirrors the `*_heuristics` of torch/_inductor/runtime/triton_heuristics.py.
"""

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ...sizes.symbols import Size, fill

PERSISTENT = 32768  # longest row that one program holds in registers
PERSISTENT_COLUMNS = 64  # the same where memory runs along x
FEW_COLUMNS = 16  # for each processor: fewer are not enough for tiles of 32 and more
PROCESSORS = 132  # of the GPU we tune for (H100); others only see other tile counts
INTERPRETED_TILE = 65536  # the interpreter pays per program, not per element
LARGEST_INT32 = 2**31 - 1

# (YBLOCK, XBLOCK, warps)
TILES = ((64, 64, 8), (128, 64, 8), (64, 32, 4), (32, 32, 4))
# (XBLOCK, RBLOCK, warps, stages)
COLUMNS = ((32, 32, 4, 1), (64, 8, 4, 1), (64, 32, 4, 1), (128, 16, 4, 3))
# (RBLOCK, warps, stages)
ROWS = ((2048, 8, 1), (4096, 16, 1), (16384, 16, 3))
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


def looped_config(warps: int, stages: int, **blocks: int) -> Config:
    """stages: tiles in flight, see TritonKernelWriter.write_loop."""
    config = config_of(warps, stages, **blocks)
    return Config((*config.blocks, ("STAGES", stages)), warps, stages)


def persistent_limit(columns: bool) -> int:
    return PERSISTENT_COLUMNS if columns else PERSISTENT


def block_configs(kind: str, sizes: Mapping[str, int], columns: bool = False) -> list[Config]:
    """Configs to try.  kind: "pointwise" (axis x), "tile" (y, x), "persistent" and "looped" (x, r).

    columns: memory runs along x, so that neighbouring threads should work on neighbouring
    outputs."""
    x = sizes["x"]
    if is_interpreting():
        found = [interpreted_config(kind, sizes)]
    elif kind == "pointwise":
        found = pointwise_configs(x)
    elif kind == "tile":
        y_most, x_most = power_of_2(sizes["y"]), power_of_2(x)
        found = [config_of(warps, y=min(y, y_most), x=min(x, x_most)) for y, x, warps in TILES]
    elif kind == "persistent":
        found = persistent_columns(x, sizes["r"]) if columns else persistent_rows(x, sizes["r"])
    else:
        found = looped_columns(x) if columns else looped_rows(x, sizes["r"])
    return list(dict.fromkeys(found))


def pointwise_configs(x: int) -> list[Config]:
    """Small ones: more programs than processors before more elements per thread."""
    top = min(1024, max(32, power_of_2(x // (PROCESSORS * 8))))
    first = config_of(max(1, min(4, top // 64)), x=min(top, power_of_2(x)))
    return [first] if top < 1024 else [first, config_of(8, x=4096)]


def persistent_columns(x: int, r: int) -> list[Config]:
    block, most = power_of_2(r), power_of_2(x)
    elements_and_warps = [(2048, 4), (1024, 4), (4096, 8)]
    return [config_of(w, x=min(max(8, n // block), most), r=block) for n, w in elements_and_warps]


def persistent_rows(x: int, r: int) -> list[Config]:
    block, most = power_of_2(r), power_of_2(x)
    rows = min(most, max(1, 1024 // block))
    of_a_warp = 512 if x > rows * 8 else 256  # few programs: more threads each
    warps = max(1, min(16, rows * block // of_a_warp))
    found = [config_of(warps, x=rows, r=block)]
    if block > 1024:
        return found + [config_of(w, x=1, r=block) for w in (warps // 2, min(32, warps * 2))]
    # a warp waits for no other, and has several rows under way (65,536 rows of 256: half the time
    # of all others)
    for elements, warps in ((512, 1), (2048, 1), (4096, 4)):
        found.append(config_of(warps, x=min(most, max(1, elements // block)), r=block))
    return found


def looped_columns(x: int) -> list[Config]:
    most = power_of_2(x)
    found = [looped_config(w, stages, x=min(a, most), r=b) for a, b, w, stages in COLUMNS]
    if x < PROCESSORS * FEW_COLUMNS:  # the last of chunks: more programs, and longer steps
        found.insert(0, looped_config(8, 1, x=min(8, most), r=512))
    return found


def looped_rows(x: int, r: int) -> list[Config]:
    found = [looped_config(warps, stages, x=1, r=b) for b, warps, stages in ROWS]
    if r <= 2048:  # of symbolic length
        found.insert(0, looped_config(4, 1, x=min(8, power_of_2(x)), r=256))
    return found


def interpreted_config(kind: str, sizes: Mapping[str, int]) -> Config:
    """A few large tiles."""
    x = power_of_2(sizes["x"])
    if kind == "tile":
        return config_of(1, y=min(64, power_of_2(sizes["y"])), x=min(256, x))
    if kind == "pointwise":
        return config_of(1, x=min(INTERPRETED_TILE, x))
    r = power_of_2(sizes["r"])
    if kind == "persistent":
        return config_of(1, x=max(1, min(x, INTERPRETED_TILE // r)), r=r)
    r = max(8, min(4096, r))
    return looped_config(1, 1, x=max(1, min(x, INTERPRETED_TILE // r)), r=r)


def foreach_config(counts: Sequence[int]) -> Config:
    """For parts of so many elements in one kernel."""
    if is_interpreting():
        return config_of(1, x=min(INTERPRETED_TILE, power_of_2(max(counts))))
    return config_of(4, x=1024) if sum(counts) < 1024 * PROCESSORS * 16 else config_of(8, x=4096)


def product_configs(sizes: Mapping[str, int]) -> list[Config]:
    """Tiles of a matrix product: sizes of m, n and k.  Large ones reuse what they load most; small
    products need many programs.

    A tile's sides are at least 16, the smallest that the matrix units take."""
    m, n, k = (max(16, power_of_2(sizes[axis])) for axis in "mnk")
    if is_interpreting():
        return [config_of(1, m=min(128, m), n=min(128, n), k=min(64, k))]
    fitting = [t for t in PRODUCT_TILES if t[0] <= m and t[1] <= n]
    programs = {t: -(-sizes["m"] // t[0]) * -(-sizes["n"] // t[1]) for t in fitting}
    many = [t for t in fitting if programs[t] >= PROCESSORS // 2] or fitting[-3:]
    return [config_of(w, s, m=a, n=b, k=min(c, k)) for a, b, c, s, w in many]


@dataclass
class Launch:
    """sizes: axis -> elements; configs: block sizes to try, the best guess first."""

    sizes: dict[str, Size]
    configs: list[Config]
    pointers: dict[str, torch.dtype]  # the parameters before sizes and blocks, in order
    asserts: bool  # the kernel checks indices
    extents: list[Size]  # elements behind each pointer
    symbols: tuple[str, ...] = ()  # names of the sizes that are arguments, after the pointers
    hints: tuple[int, ...] = ()  # what they are in this run

    @functools.cached_property
    def at(self) -> Callable[..., tuple[dict[str, int], list[int]]]:
        """A function of the symbols' values that gives sizes and extents as numbers."""
        return fill((self.sizes, self.extents), self.symbols)

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
