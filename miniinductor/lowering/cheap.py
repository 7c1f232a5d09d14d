"""Which ops cost little to compute again, because they are part of fused kernels.

In:   an ATen overload.  Out: what the min-cut of training asks of each.

    >>> is_cheap(aten.relu.default), is_cheap(aten.mm.default)
    (True, False)

Mirrors `get_default_op_list` in torch/_functorch/partitioners.py.
"""

import torch

from .extern import EXTERN
from .registry import LOWERINGS

aten = torch.ops.aten
SCATTERS = {
    op
    for packet in (
        aten.index_put,
        aten.scatter,
        aten.scatter_add,
        aten.scatter_reduce,
        aten.index_add,
        aten.index_copy,
    )
    for op in (getattr(packet, name) for name in packet.overloads())
}


def is_cheap(op: object) -> bool:
    """Is `op` part of fused kernels, so that computing it again costs little?"""
    return op in LOWERINGS and op not in EXTERN and op not in SCATTERS
