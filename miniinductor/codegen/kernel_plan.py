"""The plan of a kernel, made before a line of it is written: its loops, the order of its nodes,
and its stages.

In:   the nodes of one fused group.  Out: a `KernelPlan`.

    >>> plan = plan_kernel(softmax_group.nodes)
    >>> plan.outer, plan.inner                     # rows, and the elements of a row
    ((4096,), (1024,))
    >>> plan.stage                                 # max | exp, sum | 1/sum, product
    {'buf0': 0, 'buf1': 1, 'buf2': 1, 'buf3': 2}

A kernel consists of outer loops and, in them, a sequence of *stages*.  A stage is one inner loop,
run by the nodes with `is_inner`, and after it the nodes that run once per outer iteration.  A
reduction ends a stage: a node that needs its result goes into the next one.  Stage -1 has no inner
loop; it stands before the first.

C++ (cpp/kernel_writer.py) writes these loops: threads share the loops `x`, vector lanes run along
`r`.  In a pointwise group the last loop becomes the inner one (`with_lanes`).  Elements that one
inner loop makes and a later one reads *cross* stages: they lie in a scratch buffer on the stack, or
in memory.

Triton (triton/tile_plan.py) flattens the same loops into axes: `outer` into axis x, `inner` into
axis r; pointwise groups have no r.  A looped kernel has one loop over r for each of
`plan.stages()`; a persistent one plays `plan.nodes` in order.  Elements that cross stages are
computed again.  A template that brings its own loops builds its plan by `plan_of`.

Mirrors the decisions at the start of codegen in torch/_inductor/codegen/{cpp,simd}.py.
"""

import functools
import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

from ..ir.dependencies import LoopBody, LoopNest, merge_loops, stride_of
from ..schedule.nodes import Node
from ..sizes.symbols import Size, estimate, hint

SHORT = (2, 3, 4)  # iterations of a last loop that may be unrolled
LANES_INSTEAD = 16  # iterations, at least, of the loops around it, which then get the lanes
FEWEST = 8  # iterations, at least, of another loop than the last that may get the lanes
PARALLEL_WORK = 1 << 15  # scalar operations below which starting threads costs more than they save


@dataclass
class KernelPlan(LoopNest):
    nodes: list[Node]  # each after those whose results it reads
    bodies: dict[str, LoopBody]  # name of a node -> its body over the kernel's loops, in that order
    is_pointwise: bool  # no loop is one over a reduction's elements

    @functools.cached_property
    def makers(self) -> dict[str, Node]:
        """Name of a buffer -> the node that makes it."""
        return {node.name: node for node in self.nodes}

    @functools.cached_property
    def is_inner(self) -> dict[str, bool]:
        """Does the node run in an inner loop, or once per outer iteration?"""
        return {name: bool(body.inner) for name, body in self.bodies.items()}

    @functools.cached_property
    def stage(self) -> dict[str, int]:
        """The stage of each node: the latest one of the nodes that it reads.  A node of an inner
        loop goes one stage further if it reads a reduction, or what is computed after the loop."""
        stages: dict[str, int] = {}
        for node in self.nodes:
            inner = self.is_inner[node.name]
            stage = 0 if inner else -1
            for access in node.body.reads():
                producer = self.makers.get(access.name)
                if producer is None or producer is node:
                    continue
                is_element = self.is_inner[producer.name] and not producer.is_reduction
                needs_new_loop = inner and not self.is_pointwise and not is_element
                stage = max(stage, stages[producer.name] + needs_new_loop)
            stages[node.name] = stage
        return stages

    @functools.cached_property
    def outer_count(self) -> int:
        return estimate(self.outer)

    @functools.cached_property
    def inner_count(self) -> int:
        return estimate(self.inner)

    @property
    def work_per_element(self) -> int:
        """In scalar operations.  (Loads, stores, constants and indices are instructions, too: about
        one in four computes.)"""
        return max(1, sum(len(body.instructions) for body in self.bodies.values()) // 4)

    def stages(self) -> range:
        return range(-1, 1 + max(self.stage.values()))

    def nodes_of(self, stage: int, inner: bool) -> list[Node]:
        """What runs in the inner loop of a stage, or right after it, once per outer iteration."""
        place = (stage, inner)
        return [n for n in self.nodes if (self.stage[n.name], self.is_inner[n.name]) == place]

    def crossing(self) -> list[Node]:
        """The nodes whose elements one inner loop makes and a later one reads."""
        found: set[str] = set()
        read_later: set[str] = set()
        for stage in reversed(self.stages()):
            inner = self.nodes_of(stage, inner=True)
            found |= read_later.intersection(n.name for n in inner if not n.is_reduction)
            read_later.update(access.name for n in inner for access in n.body.reads())
        return [n for n in self.nodes if n.name in found]


def plan_kernel(nodes: Sequence[Node]) -> KernelPlan:
    """The plan of a group, over the fewest loops."""
    bodies = merge_loops([n.body for n in nodes])
    inner = max((body.inner for body in bodies), key=len)
    return plan_of(nodes, bodies, bodies[0].outer, inner, is_pointwise=not inner)


def plan_of(
    nodes: Sequence[Node],
    bodies: Sequence[LoopBody],
    outer: tuple[Size, ...],
    inner: tuple[Size, ...],
    is_pointwise: bool,
) -> KernelPlan:
    """The plan of nodes with these bodies: all run over the outer loops, some over the inner ones,
    too."""
    body_of = {node.name: body for node, body in zip(nodes, bodies)}
    ordered = in_data_flow_order(nodes)
    in_order = {node.name: body_of[node.name] for node in ordered}
    return KernelPlan(outer, inner, ordered, in_order, is_pointwise)


def in_data_flow_order(nodes: Sequence[Node]) -> list[Node]:
    """A kernel's nodes so that each stands after those whose results it reads."""
    makers = {n.name: n for n in nodes}

    @functools.cache
    def depth(name: str) -> int:
        """How many nodes must run one after the other until this one has run."""
        needs = {a.name for a in makers[name].body.reads()} & makers.keys() - {name}
        return 1 + max(map(depth, needs), default=0)

    return sorted(nodes, key=lambda node: depth(node.name))


# --- lanes (C++) ----------------------------------------------------------------------------------
def can_unroll(plan: KernelPlan, overwritten: Container[str]) -> bool:
    """Is a pointwise group's last loop too short for lanes (pairs, colours), and does nothing in it
    depend on data?  Then it is unrolled, and the loop around it gets the lanes.

    overwritten: buffers that take the memory of an input; an unrolled loop would have to read all
    of that input before it writes.
    """
    bodies = list(plan.bodies.values())
    *around, count = bodies[0].outer or (0,)
    if count not in SHORT or hint(math.prod(around), 0) < LANES_INSTEAD:
        return False
    # a kernel knows one value of each buffer, and not those of several iterations
    read = {access.name for body in bodies for access in body.reads()}
    if any(name in read or name in overwritten for name in plan.bodies):
        return False
    scatters = any(access.mode for body in bodies for access in body.writes())
    return not scatters and all(map(decides_by_last_loop, bodies))


def decides_by_last_loop(body: LoopBody) -> bool:
    """Does the place in the last loop alone decide whether the body reads?  Do computed positions
    depend on the places in the other loops alone?"""
    fixed = {i.result for i in body.depending_only_on(body.x[-1:])}
    same = {i.result for i in body.depending_only_on(body.x[:-1])}
    return all(
        i.args[0] in fixed if i.op == "masked" else i.op != "indirect_indexing" or i.result in same
        for i in body.walk()
    )


def lanes_along_memory(bodies: Sequence[LoopBody]) -> list[LoopBody]:
    """The bodies with another order of loops: last comes the one along which the fewest accesses
    take steps larger than one.  Short loops stay where they are."""
    *others, last = sizes = bodies[0].ranges()
    indices = [index for body in bodies for index in body.indices]
    lanes = min(
        (last, *(loop for loop in reversed(others) if hint(sizes[loop], 0) >= FEWEST)),
        key=lambda loop: sum(stride_of(index, loop) not in (0, 1) for index in indices),
    )
    return [body.with_loops([*(v for v in sizes if v != lanes), lanes]) for body in bodies]


def with_lanes(plan: KernelPlan, bodies: Sequence[LoopBody]) -> KernelPlan:
    """The plan of a pointwise group over the loops of `bodies`, the last of which becomes the inner
    one, which runs over vector lanes."""
    outer, inner = bodies[0].outer[:-1], bodies[0].outer[-1:]
    if inner:
        bodies = [body.split_to(outer, inner) for body in bodies]
    return plan_of(plan.nodes, bodies, outer, inner, is_pointwise=True)
