"""What a launch of a Triton kernel needs to know: how many programs, which block sizes to try.

>>> launch.grid(launch.configs[0])          # softmax of 16384 rows, a row per program
(16384,)
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..codegen.common import Kernel
from ..sizes.symbols import Size, fill
from .block_sizes import Config

LARGEST_INT32 = 2**31 - 1


@dataclass
class Launch:
    """sizes: axis -> elements; configs: block sizes to try, the best guess first."""

    sizes: dict[str, Size]
    configs: list[Config]
    pointers: dict[str, torch.dtype]  # the parameters before sizes and blocks, in order
    asserts: bool  # the kernel checks indices
    extents: list[Size]  # elements behind each pointer
    batch: int = 1  # a grid's second dimension
    longer: Kernel | None = None  # the kernel for rows that are longer than a tile
    symbols: tuple[str, ...] = ()  # names of the sizes that are arguments, after the pointers
    hints: tuple[int, ...] = ()  # what they are in this run

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "at"}

    @functools.cached_property
    def at(self) -> Callable[..., tuple[dict[str, int], list[int]]]:
        """A function of the symbols' values that gives sizes and extents as numbers."""
        return fill((self.sizes, self.extents), self.symbols)

    def grid(self, config: Config, values: Sequence[int] = ()) -> tuple[int, ...]:
        """Programs; values: of the symbols."""
        sizes, _ = self.at(*values)
        tiles = [-(-n // config.block(axis)) for axis, n in sizes.items() if axis not in "rk"]
        return (math.prod(tiles),) if self.batch == 1 else (math.prod(tiles), self.batch)

    def is_longer(self, config: Config, values: Sequence[int]) -> bool:
        """Is a row longer than the tile, so that the other kernel must run?"""
        return self.longer is not None and self.at(*values)[0]["r"] > config.block("r")

    def is_wide(self, values: Sequence[int]) -> bool:
        """Must indices have 64 bits?  With room for the last tile."""
        sizes, extents = self.at(*values)
        return max(*sizes.values(), *extents) + (1 << 20) > LARGEST_INT32
