"""A pointwise group whose loops are a reduction's in another order, in one kernel with it.

In:   both.  Out: both over the reduction's loops, or why not.

Batch norm reduces over (n, hw) for each c, and its pointwise part runs over (n, c, hw).  Only where
what one outer iteration touches stays in the cache until it is used again.
"""

import math
from collections.abc import Callable

import sympy

from .. import config
from ..dependencies import loop_variables, stride_of
from ..nodes import Group, Node, Refused
from ..scheduler import MORE_WAYS, Pair, on_inner_loops

CACHED = 1 << 17  # elements that a core keeps between two passes over them


def on_reordered_loops(reduction: Group, pointwise: Group) -> Pair:
    """Both over the loops of the reduction."""
    if not config.loop_reordering or pointwise.nodes[0].buffer.layout.device.type != "cpu":
        raise Refused("")
    inner = math.prod(n for n in reduction.inner if isinstance(n, int))
    if (
        not all(isinstance(n, int) for n in reduction.full)
        or inner > CACHED
        or reduction.full[-1:] < (64,)
    ):
        raise Refused("")
    return in_order_of_reads(reduction, pointwise)


MORE_WAYS.append(on_reordered_loops)


def in_order_of_reads(
    reduction: Group,
    pointwise: Group,
    may: Callable[[Group, sympy.Expr], bool] = lambda pointwise, index: True,
) -> Pair:
    """Both over the reduction's loops, in the order that two reads of one buffer show.

    may: is that order good for the pointwise group, which reads at this index?"""
    for access in reduction.reads:
        for other in pointwise.reads:
            order = access.name == other.name and loop_order(
                access.index, reduction, other.index, pointwise
            )
            if order and order != sorted(order) and may(pointwise, other.index):
                loops = loop_variables("x", len(order))
                x = [loops[number] for number in order]
                nodes = [Node(n.buffer, n.body.with_loops(x)) for n in pointwise.nodes]
                return on_inner_loops(reduction, Group(nodes, nodes[0].body.outer, ()))
    raise Refused("")


def loop_order(
    index: sympy.Expr, reduction: Group, other: sympy.Expr, pointwise: Group
) -> list[int] | None:
    """Which loop of `pointwise` runs like each loop of `reduction`, as two accesses of one buffer
    show; None: not all do."""
    outer, inner = (
        loop_variables("x", len(reduction.outer)),
        loop_variables("r", len(reduction.inner)),
    )
    mine = [(stride_of(index, v), n) for v, n in zip([*outer, *inner], reduction.full)]
    loops = zip(loop_variables("x", len(pointwise.outer)), pointwise.outer)
    theirs = [(stride_of(other, v), n) for v, n in loops]
    if len(set(mine)) < len(mine) or set(mine) != set(theirs) or len(mine) != len(theirs):
        return None
    return [theirs.index(loop) for loop in mine]
