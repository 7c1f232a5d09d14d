"""Which values a GPU stores: its kernels wait for memory and not for arithmetic.

In:   a value with several users, while a graph is lowered (lowering/graph.py).  Out: the reads of
      one element beyond which it is stored, instead of being computed again in each user.

Not in a backward half, where the kernels that share a value run over different loops.
"""

from ..hooks import extends
from ..ir import TensorBox
from ..lowering.graph import GraphLowering
from ..lowerings.targets import is_forward, recomputes

FEW_READS = 2


@extends(GraphLowering)
class FewReads(GraphLowering):
    def many_reads(self, box: TensorBox) -> int:
        if is_forward(self) and recomputes(box.device):
            return FEW_READS
        return super().many_reads(box)
