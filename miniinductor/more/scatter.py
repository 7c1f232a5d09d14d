"""The loop of a write at positions that are computed: x[i] = v.

    [0, 0, 0] at [2, 0] of [5, 7]  ->  [7, 0, 5]

lowering/indexing.py makes such loops.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir import Index, Loops, Reindex
from ..ops import Value
from ..sizes.expressions import Size


@dataclass
class Scatter(Loops):
    """output[output_index(index)] = (or +=) inner_fn(index).  It writes into the memory of
    `target`, a stored buffer; elements that it does not write keep the target's values.  mode:
    that of `ops.store`."""

    output_index: Reindex  # index -> list of expressions (may use ops.indirect_indexing)
    target: str
    mode: str | None = None
    reduction_ranges: Sequence[Size] = ()

    def element(self, index: Index, reduction_index: Index) -> tuple[Value, Index]:
        return self.inner_fn(index), self.output_index(index)
