"""What the scheduler orders and fuses: eager kernels and groups of loop bodies.

In:   `Graph.operations`.  Out: `ExternNode` and `Group`, and a `Schedule` that says which of them
      must run before which, and in the end which run.

    >>> schedule = Schedule(graph)
    >>> nodes = [node_of(buffer) for buffer in graph.operations]     # softmax: four loop nests
    >>> [[earlier.names for earlier in schedule.makers(nodes)[node]] for node in nodes[:3]]
    [[], [['buf0']], [['buf1']]]

The vocabulary that scheduler.py, memory.py and the code generators share.  Mirrors
`SchedulerNode`, `ExternKernelSchedulerNode` and `FusedSchedulerNode` in
torch/_inductor/scheduler.py.
"""

import functools
import graphlib
import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

from ..autograd.fake_mode import is_random
from ..ir.dependencies import LoopBody, LoopNest
from ..ir.loops import Buffer, ComputedBuffer, ExternKernel, Graph, MultiOutput, buffer_views
from ..ir.handlers import trace
from ..records import Marked, indent, lines_of, listing_of
from ..sizes.expressions import is_indirect
from ..sizes.symbols import Size, hint


class Refused(Exception):
    """Why two nodes do not become one kernel."""


class ScheduledNode(Protocol):
    """One step of the schedule: an eager kernel or a kernel of ours."""

    names: list[str]  # buffers that it makes
    read_names: set[str]  # buffers that others have made and it reads


Makers: TypeAlias = dict[ScheduledNode, set[ScheduledNode]]
Pair: TypeAlias = tuple["Group", "Group"]


@dataclass
class Node:
    """One computed buffer and its loop body."""

    buffer: ComputedBuffer
    body: LoopBody

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def is_reduction(self) -> bool:
        return bool(self.body.reduction_kinds())


class ExternNode:
    """An eager kernel, or the selection of one of its outputs."""

    def __init__(self, buffer: ExternKernel | MultiOutput):
        self.buffer = buffer
        self.names = [buffer.name]
        if isinstance(buffer, MultiOutput):
            self.read_names = {buffer.source}
        else:
            self.read_names = {v.name for v in buffer_views((buffer.args, buffer.kwargs))}

    def __str__(self) -> str:
        return listing_of(self)

    # As a step of the program (kernels.py, memory.py): the buffers that it makes, and all it uses.
    def made(self) -> list[str]:
        return self.names

    def touched(self) -> list[str]:
        return [*self.names, *sorted(self.read_names)]


class Group(LoopNest):
    """Bodies that run in one kernel, over the same outer (and, for reductions, inner) loops."""

    def __init__(self, nodes: list[Node], outer: Sequence[Size], inner: Sequence[Size]):
        super().__init__(tuple(outer), tuple(inner))
        self.nodes = nodes
        self.names = [n.name for n in nodes]
        self.is_reduction = any(n.is_reduction for n in nodes)
        self.has_scan = any(n.body.has_scan() for n in nodes)
        self.reads = [a for n in nodes for a in n.body.reads()]
        self.writes = {a.name: a for n in nodes for a in n.body.writes()}
        # buffers into which scatters write (ir.Scatter), and what they are called then
        scatters = [n for n in nodes if hasattr(n.buffer.data, "target")]
        self.targets = {n.buffer.data.target for n in scatters}
        self.scattered = self.targets.union(n.name for n in scatters)
        self.read_names = ({a.name for a in self.reads} | self.targets) - set(self.names)

    def __str__(self) -> str:
        return listing_of(self)

    def touched(self) -> set[str]:
        return self.read_names.union(self.names)

    @functools.cached_property
    def work(self) -> int:
        """What one element costs, in simple operations."""
        return sum(n.body.work() for n in self.nodes)

    @property
    def full(self) -> tuple[Size, ...]:
        return self.outer + self.inner

    @property
    def device(self) -> torch.device:
        return self.nodes[0].buffer.layout.device

    def over(self, outer: Sequence[Size], inner: Sequence[Size]) -> "Group":
        """The same group over finer loops; a pointwise one perhaps over those of a reduction, whose
        last are the inner ones."""
        nodes = []
        for node in self.nodes:
            # in a group with inner loops, a node without them runs over the outer ones alone
            is_inside = node.body.inner or not self.inner
            nodes.append(Node(node.buffer, node.body.split_to(outer, inner if is_inside else ())))
        return Group(nodes, outer, inner)


def node_of(buffer: Any) -> ExternNode | Group:
    """A node of its own for an operation of the graph; a loop nest has its fewest loops."""
    if isinstance(buffer, (ExternKernel, MultiOutput)):
        return ExternNode(buffer)
    body = trace(buffer).simplify_loops()
    return Group([Node(buffer, body)], body.outer, body.inner)


def buffer_bytes(buffer: Buffer) -> int:
    """Size in bytes, in the run that the graph was captured in (1 MiB where that is not known): for
    heuristics and records."""
    numel = hint(math.prod(buffer.layout.size))
    return (1 << 20) if numel is None else numel * buffer.layout.dtype.itemsize


def bytes_touched(name: str, nodes: Iterable[Any], buffer: Buffer) -> int:
    """How many bytes of the buffer `name` these nodes read at most: each element once, and of an
    indirect read one element for each iteration of its loops.  A library's kernel reads all."""
    places = set()
    for body in (node.body for node in nodes if isinstance(node, Node)):
        for index in [access.index for access in body.reads() if access.name == name]:
            every, met = is_indirect(index), index.free_symbols
            loops = [size for loop, size in body.ranges().items() if every or loop in met]
            places.add((every and id(body), index, hint(math.prod(loops), 0)))
    whole = buffer_bytes(buffer)
    elements = sum(count for *_, count in places)
    return min(whole, elements * buffer.layout.dtype.itemsize) if places else whole


def has_effect(buffer: Buffer) -> bool:
    """Does the eager kernel do more than compute?  A random one advances the generator, and an
    assertion may raise: they all run, in their order."""
    op = getattr(buffer, "op", None)
    schema = getattr(op, "_schema", None)
    if schema is None:
        return False
    return schema.is_mutable or not schema.returns or is_random(op)


class Schedule:
    """What goes from the scheduler to the code generators: the nodes in execution order, and what
    both ask of the lowered graph: its buffers, which of them escape, which nodes come before which.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: list[ScheduledNode] = []
        self.overwritten: dict[str, str] = {}  # buffer -> the graph input whose memory it takes
        # every buffer by its name; inputs that are numbers, too
        self.buffers: dict[str, Buffer] = {**graph.inputs, **graph.buffers}
        self.place = {b.name: i for i, b in enumerate(graph.operations)}  # in the graph's order
        self.escaping = {v.name for v in graph.results}
        effects = [b.name for b in graph.operations if has_effect(b)]
        # name -> names that come before: of eager kernels with an effect the one before it;
        # after_fusion.py adds the readers of the old value of an input that is overwritten
        self.before = {later: {earlier} for earlier, later in zip(effects, effects[1:])}

    def __str__(self) -> str:
        return listing_of(self)

    def in_memory(self) -> set[str]:
        """What must be in memory after its kernel: what escapes, and what another node reads."""
        return self.escaping.union(*[node.read_names for node in self.nodes])

    def makers(self, nodes: Sequence[ScheduledNode]) -> Makers:
        """{node: those of the nodes that must run before it}"""
        maker = {name: node for node in nodes for name in node.names}
        return {
            node: {maker[name] for name in self.must_follow(node, nodes) if name in maker} - {node}
            for node in nodes
        }

    def must_follow(self, node: ScheduledNode, nodes: Iterable[ScheduledNode]) -> set[str]:
        """Names whose makers run before `node`: what it reads, what `before` says of it, and before
        a scatter whoever reads what its target held until then."""
        names = node.read_names.union(*[self.before.get(name, ()) for name in node.names])
        for target in getattr(node, "targets", ()):
            names.update(
                other.names[0]
                for other in nodes
                if other is not node
                and target in other.read_names
                and other.read_names.isdisjoint(node.names)
            )
        return names

    def topological(
        self, nodes: Sequence[ScheduledNode], makers: Makers | None = None
    ) -> list[ScheduledNode]:
        """Data-flow order; among the ready ones, the original order."""
        sorter = graphlib.TopologicalSorter(makers or self.makers(nodes))
        sorter.prepare()  # raises CycleError for nodes that wait for each other
        ready: list = []
        order: list = []
        while sorter.is_active():
            for node in sorter.get_ready():  # (no two have a name in common: none are compared)
                heapq.heappush(ready, (max(map(self.place.__getitem__, node.names)), node))
            order.append(heapq.heappop(ready)[1])
            sorter.done(order[-1])
        return order


# --- as text --------------------------------------------------------------------------------------
@lines_of.register
def extern_lines(node: ExternNode) -> list[str]:
    op = str(getattr(node.buffer, "op", "output of an eager kernel"))
    text = f"extern {node.names[0]}: {op} {sorted(node.read_names)}"
    return [Marked.of(text, node.names[0], sorted(map(str, node.buffer.origins)), op=op)]


@lines_of.register
def group_lines(group: Group) -> list[str]:
    """A head, and of each node its head and its statements."""
    kind = "reduction" if group.is_reduction else "pointwise"
    reduced = f" x reduce {list(group.inner)}" if group.inner else ""
    head = f"{kind} kernel over {list(group.outer)}{reduced}"
    lines: list[str] = [Marked.of(head, f"group:{'+'.join(group.names)}", group.names, op="group")]
    for node in group.nodes:
        layout, origins = node.buffer.layout, sorted(map(str, node.buffer.origins))
        head = f"  {node.name}: {layout.dtype} {list(layout.size)}  # {', '.join(origins)}"
        lines.append(Marked.of(head, node.name, origins, op="buffer"))
        loop, *statements = lines_of(node.body)
        lines += indent([loop]) + indent(statements, 2)
    return lines


@lines_of.register
def schedule_lines(schedule: Schedule) -> list[str]:
    return [line for node in schedule.nodes for line in ("", *lines_of(node))][1:]
