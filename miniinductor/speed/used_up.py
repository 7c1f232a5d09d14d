"""Scatters write into values that nobody else reads, rather than into copies of them.

    zeros.index_add(0, i, x).index_add(0, j, y)         # one copy of zeros, into which both write

In:   a scatter and the value into whose elements it writes (lowerings/scatters.py).  Out: is the
      value the fresh, whole result of an eager kernel or a scatter, and read by this call alone?

Without this file each scatter copies first.
"""

from typing import Any

from ..autograd.functionalize import is_view
from ..ir import ExternKernel, TensorBox
from ..more.scatter import Scatter
from ..lowering.extern import EXTERN
from ..lowering.registry import Call
from ..lowerings.scatters import is_used_up


@is_used_up.replaced
def is_read_here_alone(call: Call, x: TensorBox) -> bool:
    call.node.meta["scatters"] = True  # asked below: a view of a scatter's result is no scatter
    node: Any = call.node.args[0]
    alone = len(node.users) == 1
    fresh = isinstance(x.data, ExternKernel) and node.target in EXTERN
    if not isinstance(getattr(x.data, "data", None), Scatter):
        return fresh and alone
    while alone and is_view(node.target):  # others may read what this is a view of
        node = node.args[0]
        alone = len(node.users) == 1
    return alone and "scatters" in node.meta
