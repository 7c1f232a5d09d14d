"""The loop of a running sum: every iteration has a result of its own.

    [1, 2, 3, 4]  ->  [1, 3, 6, 10]

lowerings/scans.py makes such loops.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..ir import Index, Loops
from ..ops import Value, ops
from ..sizes.expressions import Size


@dataclass
class Scan(Loops):
    """value[output_index(index, rindex)] = inner_fn(index, r) for all r up to rindex, combined in
    `src_dtype`: cumsum.  `ranges` has all dimensions but the scanned one."""

    reduction_ranges: list[Size]  # the scanned dimension
    output_index: Callable[[Index, Index], Index]  # (index, rindex) -> list of expressions
    kind: str  # one of ops.SCANS
    src_dtype: torch.dtype
    size: list[Size]

    def get_size(self) -> Sequence[Size]:
        return self.size

    def element(self, index: Index, reduction_index: Index) -> tuple[Value, Index]:
        value = ops.scan(self.src_dtype, self.kind, self.inner_fn(index, reduction_index))
        if self.dtype != self.src_dtype:
            value = ops.to_dtype(value, self.dtype, self.src_dtype)
        return value, self.output_index(index, reduction_index)
