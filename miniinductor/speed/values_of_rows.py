"""Values of rows that no memory holds lie in the order of the loops, so that more loops merge.

    mean of an image (n, c, h, w) over c, subtracted, where w is the larger step in memory:

    before:  in0[14*x1 + x2 + ...]   buf0[x1 + 14*x2 + ...]     loops x1, x2; 14 lanes
    after:   in0[14*x1 + x2 + ...]   buf0[14*x1 + x2 + ...]     one loop of 196 lanes

In:   a group with reductions.  Out: the same, in which the results of rows that stay in the kernel
      are numbered as its loops run.

PyTorch: gives buffers a layout when they are fused ("flexible layouts"), and asks memory first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import sympy

from ..codegen.cpp import CppKernelWriter
from ..codegen.plan import KernelPlan
from ..dependencies import Instruction, LoopBody
from ..nodes import Group, Node
from ..sizes.expressions import flatten
from ..sizes.symbols import same


def in_order_of_loops(group: Group, kept: Iterable[str]) -> Group:
    """kept: buffers that memory holds when the kernel has run."""
    if not group.is_reduction or group.has_scan or group.targets:
        return group
    places = {}
    for node in group.nodes:
        place = None if node.name in kept else new_place(group, node)
        if place is not None:
            places[node.name] = place
    if not places:
        return group
    nodes = [Node(n.buffer, moved(n.body, places)) for n in group.nodes]
    return Group(nodes, group.outer, group.inner)


def new_place(group: Group, node: Node) -> sympy.Expr | None:
    """The number of an outer iteration, if the node has one element for each, and all others of the
    group read that of their own; None: it lies there already, too."""
    body = node.body
    if body.inner and not node.is_reduction or body.outer != group.outer:
        return None
    accesses = [*body.writes(), *[a for a in group.reads if a.name == node.name]]
    accesses = [access for access in accesses if access.name == node.name]
    indices = {access.index for access in accesses}
    count = sympy.Mul(*map(sympy.sympify, body.outer))
    is_one_each = same(node.buffer.layout.numel, count)
    if len(indices) != 1 or not is_one_each or any(access.mode for access in accesses):
        return None
    [index] = indices
    place = sympy.expand(flatten(body.x, body.outer))
    if index == place or index.free_symbols != place.free_symbols:
        return None
    return place


def moved(body: LoopBody, places: Mapping[str, sympy.Expr]) -> LoopBody:
    """The body with other indices of these buffers."""
    return replace(body, instructions=[moved_access(i, places) for i in body.instructions])


def moved_access(i: Instruction, places: Mapping[str, sympy.Expr]) -> Instruction:
    block = tuple(moved_access(inside, places) for inside in i.block)
    if i.op in ("load", "store") and i.args[0] in places:
        return replace(i, args=(i.args[0], places[i.args[0]], *i.args[2:]), block=block)
    return replace(i, block=block) if block else i


plain_plan_loops = CppKernelWriter.plan_loops


def plan_loops(self: CppKernelWriter) -> KernelPlan:
    kept = {*self.keep, *self.overwritten, *self.overwritten.values()}
    self.group = in_order_of_loops(self.group, kept)
    return plain_plan_loops(self)


setattr(CppKernelWriter, "plan_loops", plan_loops)
