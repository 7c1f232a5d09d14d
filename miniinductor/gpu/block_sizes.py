"""Block sizes: which tiles a kernel is cut into, and which ones are worth trying.

In:   the kind of loop nest and the sizes of its axes.  Out: a few `Config`s, the first one a good
      guess.

    >>> block_configs("pointwise", {"x": 1 << 20})[0]
    Config(blocks=(('XBLOCK', 1024),), num_warps=4, num_stages=1)

A program (a block of threads) computes one tile.  Enough bytes must be in flight: 4 to 16 elements
for each of 32 * num_warps threads, and programs for every processor.  With one tile per row of a
reduction ("persistent") each element is read once, however often it is used.  The lists are short,
because each entry is compiled: for 160 kernels of seven training steps on an H100 their best took
0.2 % longer than the best of two to three times as many.

Mirrors the `*_heuristics` of torch/_inductor/runtime/triton_heuristics.py.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PERSISTENT = 32768  # longest row that one program holds in registers
PERSISTENT_COLUMNS = 64  # the same where memory runs along x
REGISTERS = (
    256  # of a thread: more numbers read at once go to slow memory, and take seconds to compile
)
PROCESSORS = 132  # of the GPU we tune for (H100); others only see other tile counts
INTERPRETED_TILE = 65536  # the interpreter pays per program, not per element


@dataclass(frozen=True)
class Config:
    blocks: tuple[tuple[str, int], ...]  # ((name, size), ...)
    num_warps: int
    num_stages: int = 1

    def block(self, axis: str) -> int:
        return dict(self.blocks)[axis.upper() + "BLOCK"]

    def __str__(self) -> str:
        return (
            ", ".join(f"{name}={size}" for name, size in self.blocks)
            + f", num_warps={self.num_warps}"
        )


def power_of_2(n: int) -> int:
    """The smallest power of 2 that is at least n."""
    return 1 << max(0, int(n) - 1).bit_length()


def _config(warps: int, stages: int = 1, **blocks: int) -> Config:
    return Config(
        tuple((axis.upper() + "BLOCK", size) for axis, size in blocks.items()), warps, stages
    )


def _looped(warps, stages, **blocks):
    """stages: tiles in flight, see TritonKernelWriter.write_stage."""
    config = _config(warps, stages, **blocks)
    return Config((*config.blocks, ("STAGES", stages)), warps, stages)


def persistent_limit(columns: bool) -> int:
    return PERSISTENT_COLUMNS if columns else PERSISTENT


def block_configs(
    kind: str, sizes: Mapping[str, int], columns: bool = False, tiles: int = 1
) -> list[Config]:
    """Configs to try.  kind: "pointwise" (axis x), "tile" (y, x), "persistent" or "looped" (x, r).

    columns: memory runs along x, so that neighbouring threads should work on neighbouring outputs;
    tiles: how many tiles a step reads there."""
    x, r = sizes["x"], sizes.get("r", 1)
    if os.environ.get("TRITON_INTERPRET") == "1":
        found = _interpreted(kind, sizes)
    elif kind == "pointwise":
        # small ones: more programs than processors before more elements per thread
        top = min(1024, max(32, power_of_2(x // (PROCESSORS * 8))))
        found = [_config(max(1, min(4, top // 64)), x=min(top, power_of_2(x)))]
        if top == 1024:
            found += [_config(8, x=512), _config(8, x=4096)]
    elif kind == "tile":
        y_small, x_small = power_of_2(sizes["y"]), power_of_2(x)
        found = [
            _config(w, y=min(a, y_small), x=min(b, x_small))
            for a, b, w in (
                (64, 64, 8),
                (128, 128, 16),
                (128, 64, 16),
                (64, 128, 16),
                (128, 64, 8),
                (32, 64, 4),
                (64, 32, 4),
                (32, 32, 4),
            )
        ]
    elif columns:
        wide = [
            (64, 32, 4, 1),
            (32, 32, 4, 1),
            (128, 4, 4, 1),
            (64, 32, 4, 3),
            (128, 16, 4, 3),
            (128, 32, 4, 1),
        ]
        wide += [(1024, 8, 8, 1), (512, 16, 8, 1)] if tiles == 1 else []
        if kind == "persistent":
            found = [
                _config(w, x=min(a, power_of_2(x)), r=power_of_2(r))
                for a, w in (
                    (max(8, 2048 // power_of_2(r)), 4),
                    (max(8, 1024 // power_of_2(r)), 4),
                    (max(8, 4096 // power_of_2(r)), 8),
                )
            ]
        else:
            found = [
                _looped(w, s, x=min(a, power_of_2(x)), r=min(b, power_of_2(r)))
                for a, b, w, s in wide
                if a * b // (32 * w) * tiles <= REGISTERS or (a, b) == (32, 32)
            ]
    elif kind == "persistent":
        block = power_of_2(r)
        rows = min(power_of_2(x), max(1, 1024 // block))
        elements = rows * block
        warps = (
            max(1, min(16, elements // 512)) if x > rows * 8 else max(1, min(32, elements // 256))
        )  # few programs: more threads each
        found = [_config(warps, x=rows, r=block)]
        if elements >= 2048:
            found += [
                _config(w, x=rows, r=block)
                for w in (warps // 2, warps * 2, warps * 4)
                if 1 <= w <= 32 and elements <= w * 32 * 64
            ]
            found += (
                [_config(max(4, warps), x=2 * rows, r=block)] if x > rows and block <= 4096 else []
            )
        elif rows > 1:
            found += [
                _config(warps, x=rows // 2, r=block),
                _config(min(8, warps * 2), x=rows * 2, r=block),
            ]
    else:
        found = [
            _looped(w, s, x=1, r=min(b, power_of_2(r)))
            for b, w, s in ((2048, 4, 1), (4096, 8, 1), (8192, 8, 1), (16384, 16, 3))
        ]
        if r <= 2048:
            found.insert(0, _looped(4, 1, x=min(8, power_of_2(x)), r=min(256, power_of_2(r))))
    return list(dict.fromkeys(found))


def foreach_config(counts: Sequence[int]) -> Config:
    """For parts of so many elements in one kernel."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return _config(1, x=min(INTERPRETED_TILE, power_of_2(max(counts))))
    return _config(4, x=1024) if sum(counts) < 1024 * PROCESSORS * 16 else _config(8, x=4096)


def product_configs(sizes: Mapping[str, int]) -> list[Config]:
    """Tiles of a matrix product: sizes of m, n and k.  Large ones reuse what they load most; small
    products need many programs.

    A tile's sides are at least 16, the smallest that the matrix units take."""
    m, n, k = (max(16, power_of_2(sizes[axis])) for axis in "mnk")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return [_config(1, m=min(128, m), n=min(128, n), k=min(64, k))]
    tiles = (
        (128, 256, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (128, 128, 64, 3, 4),
        (64, 256, 64, 4, 4),
        (256, 128, 64, 3, 8),
        (64, 128, 64, 4, 4),
        (128, 64, 64, 4, 4),
        (64, 64, 64, 4, 4),
        (32, 64, 128, 4, 4),
        (16, 64, 128, 5, 4),
        (16, 128, 128, 4, 4),
        (32, 32, 128, 4, 2),
    )
    fitting = [t for t in tiles if t[0] <= m and t[1] <= n] or [(16, 16, 64, 4, 2)]
    wanted = [
        t for t in fitting if -(-sizes["m"] // t[0]) * -(-sizes["n"] // t[1]) >= PROCESSORS // 2
    ] or fitting[-3:]
    return list(dict.fromkeys(_config(w, s, m=a, n=b, k=min(c, k)) for a, b, c, s, w in wanted[:8]))


def _interpreted(kind, sizes):
    if kind == "tile":
        return [_config(1, y=min(64, power_of_2(sizes["y"])), x=min(256, power_of_2(sizes["x"])))]
    block = power_of_2(sizes["x"])
    if kind == "pointwise":
        return [_config(1, x=min(INTERPRETED_TILE, block))]
    r = power_of_2(sizes["r"]) if kind == "persistent" else min(4096, power_of_2(sizes["r"]))
    return [
        (_looped if kind == "looped" else _config)(
            1, 1, x=max(1, min(block, INTERPRETED_TILE // r)), r=r
        )
    ]
