"""Over which common loops two groups may run, so that they can be one kernel.

In:   two groups of loop bodies, the reduction first.  Out: both, over the same loops; or `Refused`.

    same_loops              (64, 32) and (2048,): both over 64 x 32
    on_inner_loops          exp(x - max), over all of the reduction's loops
    on_outer_loops          1/sum, once for each of its results
    on_reordered_loops      batch norm: a reduction over (n, hw) for each c, then work on (n, c, hw)
    in_order_of_result      x.t().sum(0).exp(): the sum's loops are in the order of its input

Loops are only split or sorted: a body's index expressions are rewritten, and its closure never runs
again.  Mirrors `SIMDScheduling.can_fuse` and loop reordering in torch/_inductor/scheduler.py.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import sympy

from .. import config
from ..devices import recomputes
from ..ir.dependencies import Access, stride_of
from ..sizes.symbols import Size, expand, hint, quotient, same
from .nodes import Group, Node, Pair, Refused

Way: TypeAlias = Callable[[Group, Group], Pair]  # the pair over common loops; or raises Refused
CACHED = 1 << 17  # CPU: elements that stay in a core's cache between two passes over them
# GPU: a program may read a row of at most so many elements twice, if there are so many rows
LONGEST_TWICE, LEAST_ROWS = 8192, 1024


def common_loops(first: tuple[Size, ...], second: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """The coarsest loops to which both lists of sizes can be split, or None.

    common_loops((6, 4), (2, 12)) == (2, 3, 4)"""
    if first == second:
        return first
    if not same(math.prod(first), math.prod(second)) or 0 in first + second:
        return None
    boundaries = set()
    for sizes in (first, second):
        steps = itertools.accumulate(reversed(sizes), lambda step, size: expand(step * size))
        boundaries.update(steps)
    result, below = [], 1
    for step in sorted(boundaries - {1}, key=lambda n: hint(n, 0)):
        factor = quotient(step, below)
        if factor is None:
            return None
        result.append(factor)
        below = step
    return tuple(reversed(result))


def same_loops(first: Group, second: Group) -> Pair:
    """Both over the coarsest loops to which both can be split."""
    outer = common_loops(first.outer, second.outer)
    inner = common_loops(first.inner, second.inner)
    if outer is None or inner is None:
        raise Refused(
            f"their loops differ: {list(first.outer)} x {list(first.inner)} and "
            f"{list(second.outer)} x {list(second.inner)}"
        )
    return first.over(outer, inner), second.over(outer, inner)


def on_inner_loops(reduction: Group, pointwise: Group) -> Pair:
    """A pointwise group over all of a reduction's loops."""
    shared = {a.name for a in reduction.reads}
    reads = [
        a.index
        for a in pointwise.reads
        if a.name in shared and a.index.free_symbols.issuperset(pointwise.x)
    ]
    is_gpu = recomputes(reduction.device)
    if not is_gpu and not all(writes_as_it_reads(pointwise, index) for index in reads):
        raise Refused("it turns what it reads in memory: apart, it is copied tile by tile")
    full = common_loops(reduction.full, pointwise.outer)
    if full is None:
        raise Refused(
            f"their loops differ: {list(pointwise.outer)} against {list(reduction.outer)} x "
            f"{list(reduction.inner)}"
        )
    counts = math.prod(reduction.outer), math.prod(reduction.inner)  # one of them alone may be 0
    cuts = [(math.prod(full[:k]), math.prod(full[k:])) for k in range(len(full) + 1)]
    cut = next((k for k, cut in enumerate(cuts) if all(map(same, cut, counts))), None)
    if cut is None:
        raise Refused("their loops differ: it cannot be shown where the reduced loops begin")
    return reduction.over(full[:cut], full[cut:]), pointwise.over(full[:cut], full[cut:])


def on_outer_loops(reduction: Group, pointwise: Group) -> Pair:
    """A pointwise group over a reduction's outer loops alone."""
    outer = common_loops(reduction.outer, pointwise.outer)
    if outer is None:
        raise Refused("")
    return reduction.over(outer, reduction.inner), pointwise.over(outer, ())


# --- loops in another order -----------------------------------------------------------------------
def in_order_of_result(reduction: Group, pointwise: Group) -> Pair:
    """A pointwise group over a reduction's outer loops that are not in the order of the result's
    memory.  (A reduction of a transposed tensor has its loops in the order of its input.)"""
    written = next(iter(reduction.writes.values())).index
    strides = [stride_of(written, x) for x in reduction.x]
    if not all(isinstance(stride, (int, sympy.Integer)) for stride in strides):
        raise Refused("")
    order = sorted(range(len(strides)), key=strides.__getitem__, reverse=True)
    outer = tuple(reduction.outer[k] for k in order)
    if common_loops(outer, pointwise.outer) != outer:
        raise Refused("")
    turned = in_order(pointwise.over(outer, ()), [order.index(k) for k in range(len(order))])
    return reduction, turned


def on_reordered_loops(reduction: Group, pointwise: Group) -> Pair:
    """A pointwise group whose loops are all of the reduction's in another order: batch norm reduces
    over (n, hw) for each c, and its pointwise part runs over (n, c, hw).

    Only where what one outer iteration reads is still in a cache when it is read again."""
    is_gpu = recomputes(reduction.device)
    if not config.loop_reordering or not is_cached(reduction, is_gpu):
        raise Refused("")
    for access, other in itertools.product(reduction.reads, pointwise.reads):
        order = loop_order(access, reduction, other, pointwise)
        if order and order != sorted(order):
            if not is_gpu or writes_as_it_reads(pointwise, other.index):
                return on_inner_loops(reduction, in_order(pointwise, order))
    raise Refused("")


def is_cached(reduction: Group, is_gpu: bool) -> bool:
    """Is what one outer iteration reads still in a cache when it is read again?"""
    if not all(isinstance(n, int) for n in reduction.full):
        return False
    rows, inner = (math.prod(map(int, loops)) for loops in (reduction.outer, reduction.inner))
    if is_gpu:
        return inner <= LONGEST_TWICE and rows >= LEAST_ROWS
    return inner <= CACHED and reduction.full[-1:] >= (8,)


def in_order(group: Group, order: Sequence[int]) -> Group:
    """A pointwise group whose loops run in this order."""
    x = [group.x[number] for number in order]
    nodes = [Node(n.buffer, n.body.with_loops(x)) for n in group.nodes]
    return Group(nodes, nodes[0].body.outer, ())


def writes_as_it_reads(group: Group, index: sympy.Expr) -> bool:
    """Do its results lie in memory along the same loop as what it reads at `index`?"""
    along = [v for v in group.x if stride_of(index, v) == 1]
    writes = [access for node in group.nodes for access in node.body.writes()]
    return all(stride_of(access.index, v) == 1 for access in writes for v in along)


def loop_order(
    access: Access, reduction: Group, other: Access, pointwise: Group
) -> list[int] | None:
    """For each loop of `reduction` the number of the loop of `pointwise` that takes the same steps
    through the buffer; None where not all have one, or the buffers differ."""

    def steps(access: Access, group: Group) -> list[tuple[sympy.Expr | None, Size]]:
        return [(stride_of(access.index, v), n) for v, n in group.ranges().items()]

    if access.name != other.name:
        return None
    mine, theirs = steps(access, reduction), steps(other, pointwise)
    if len(set(mine)) < len(mine) or set(mine) != set(theirs) or len(mine) != len(theirs):
        return None
    return [theirs.index(loop) for loop in mine]


def ways(first: Group, second: Group) -> list[Way]:
    """The ways in which the pair may run over common loops, best first."""
    if first.has_scan:
        return [on_inner_loops]
    if first.is_reduction == second.is_reduction:
        return [same_loops]
    return [on_inner_loops, on_outer_loops, on_reordered_loops, in_order_of_result]
