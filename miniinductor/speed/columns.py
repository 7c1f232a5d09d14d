"""The order of loops where columns are reduced: the loads decide it, not the store.

In:   a loop body (dependencies.py).  Out: its outer loops, sorted so that the loads run along
      memory.

    sum over r0 of x[64*r0 + x0]            # only an outer loop steps through memory one by one

Without this file the store decides, and such a kernel may read memory in large steps.
"""

import sympy

from ..dependencies import LoopBody, stride_of
from .loop_order import compare_strides, loops_by_stride, stride_order

plain_stride_order = stride_order.answer


@stride_order.replaced
def order_of_columns(body: LoopBody, prefix: str) -> list[sympy.Symbol]:
    if prefix == "x" and len(body.outer) > 1 and reads_lie_along_outer(body):
        return loops_by_stride(body, prefix, body.reads() + body.writes(), far_first)
    return plain_stride_order(body, prefix)


def reads_lie_along_outer(body: LoopBody) -> bool:
    """Is it a reduction of columns: only outer loops step through memory one by one?"""
    if not body.inner:
        return False
    along_inner = any(stride_of(a.index, r) == 1 for a in body.reads() for r in body.r)
    along_outer = any(stride_of(a.index, x) == 1 for a in body.reads() for x in body.x)
    return along_outer and not along_inner


def far_first(a: int | None, b: int | None) -> int:
    """As `compare_strides`; a stride that is no constant counts as larger than 1."""
    if None in (a, b) and 1 in (a, b):
        return -1 if a is None else 1
    return compare_strides(a, b)
