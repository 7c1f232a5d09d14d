"""Which values a GPU stores: its kernels wait for memory and not for arithmetic.

In:   a value with several users, while a graph is lowered (lowering/graph.py).  Out: the reads of
      one element beyond which it is stored, instead of being computed again in each user.

Not in a backward half, where the kernels that share a value run over different loops.
"""

import torch

from ..devices import language_of
from ..hooks import extends
from ..ir import TensorBox
from ..lowering.graph import GraphLowering

FEW_READS = 2


def recomputes(device: torch.device) -> bool:
    """Is a value with several readers rather computed again than stored?"""
    try:
        return language_of(device).name == "triton"
    except NotImplementedError:
        return False


@extends(GraphLowering)
class FewReads(GraphLowering):
    def many_reads(self, box: TensorBox) -> int:
        if self.is_forward and recomputes(box.device):
            return FEW_READS
        return super().many_reads(box)
