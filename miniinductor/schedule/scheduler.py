"""Which loop nests become one kernel.

In:   `Graph.operations`.  Out: a list of `ExternNode` and `Group`; every pair that was considered
      is a `FusionDecision` with a reason in `record.fusions`.

    >>> scheduler = Scheduler(graph, record)
    >>> [node.names for node in scheduler.fuse(scheduler.live_nodes())]     # softmax: one group
    [['buf0', 'buf1', 'buf2', 'buf3']]

Steps: trace each buffer's body and simplify its loops; drop dead buffers; then, greedily, fuse the
pair with the best score until no pair is left (paper section 4.3).  A pair is fused when

  * both run over the same loops, after splitting them to common ones (common_loops.py).  A group
    has outer loops (one kernel iteration each) and inner loops (the reduction's).  A pointwise body
    joins a reduction either on the outer loops (an epilogue, such as `1/sum`) or on outer and inner
    loops together (such as `exp(x - max)`);
  * each element one side reads of the other's result is the element written in the same iteration;
  * no path leads from one to the other through a third node (a cycle).

After fusion, after_fusion.py decides what is written over existing memory, and joins kernels that
are alike (`make_schedule` in compile.py calls both).  Mirrors torch/_inductor/scheduler.py.  Left
out: templates (codegen/triton/products.py fuses around them afterwards), reordering for
communication or peak memory.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ..ir.loops import ExternKernel, Graph
from ..ir.handlers import MAY_RAISE
from ..records import CompileRecord, FusionDecision
from .after_fusion import runs_once
from .nodes import (
    Group,
    Makers,
    Pair,
    Refused,
    Schedule,
    ScheduledNode,
    buffer_bytes,
    has_effect,
    node_of,
)

MAX_NODES = 64  # bodies in one kernel: beyond that registers spill and compile time grows
MAX_BUFFERS = 96  # pointers one kernel takes
MAX_WORK = 1024  # simple operations in one kernel (64 sines): a C++ compiler's time grows faster
AFTER_SCAN = 4  # simple operations on a scan's result that its own loop may do
REACH = 16  # a node is tried with so many next users of the same buffer
REASONS = {  # category -> why such a pair is fused
    "vertical": "the second reads what the first writes, in the same iteration",
    "epilogue": "the second continues from the reduction's result",
    "prologue": "the reduction reads the first's elements as they are made",
    "reductions": "both reduce over the same loops",
    "horizontal": "independent, same loops, and they share reads",
}


Decisions: TypeAlias = dict[Pair, FusionDecision]


class OtherElement(Refused):
    """Over common loops, one of the two reads another element than the other has written."""


class Scheduler:
    """Fuses the nodes of one lowered graph."""

    def __init__(self, graph: Graph, record: CompileRecord):
        self.graph, self.record = graph, record
        self.schedule = Schedule(graph)
        self.buffers = self.schedule.buffers
        self.rank: dict[ScheduledNode, int] = {}  # each node's place in this round's order

    def live_nodes(self) -> list[ScheduledNode]:
        """A node for each operation whose result somebody uses, or that does more than compute."""
        wanted, kept = set(self.schedule.escaping), []
        for node in reversed([node_of(buffer) for buffer in self.graph.operations]):
            if self.must_stay(node) or not wanted.isdisjoint(node.names):
                wanted |= node.read_names
                kept.append(node)
            else:
                self.record.notes.append(f"{node.names[0]} is computed for nobody: dropped")
        return kept[::-1]

    def must_stay(self, node: ScheduledNode) -> bool:
        """Does the node do more than compute, or may it raise an error that eager raises, too?"""
        raises = not self.graph.checks.isdisjoint(node.names)
        if isinstance(node, Group):
            # positions that are known to be in range leave no instruction
            return raises and any(i.op in MAY_RAISE for n in node.nodes for i in n.body.walk())
        return has_effect(node.buffer) or raises and isinstance(node.buffer, ExternKernel)

    def reaches(self, start: ScheduledNode, goal: ScheduledNode, makers: Makers) -> bool:
        """Does a path lead from `start` through other nodes to `goal`?  Walks back from `goal`."""
        stack, seen = [goal], {start}
        while stack:
            node = stack.pop()
            if node is not goal and start in makers[node]:
                return True
            further = {
                maker for maker in makers[node] - seen if self.rank[maker] > self.rank[start]
            }
            seen |= further
            stack.extend(further)
        return False

    # -- fusion
    def fuse(self, nodes: list[ScheduledNode]) -> list[ScheduledNode]:
        """Rounds of fusing, the best pairs first, until a round fuses nothing."""
        decided: Decisions = {}
        while fused := self.fuse_round(nodes, decided):
            nodes = list(dict.fromkeys(fused.get(node, node) for node in self.rank))
        self.record.fusions.extend(decided.values())
        return list(self.rank)

    def fuse_round(
        self, nodes: list[ScheduledNode], decided: Decisions
    ) -> dict[ScheduledNode, Group]:
        """{node: the group that it became part of}.  Sets `rank` to the nodes' places in order.

        A fusion changes the graph.  A pair that lies between or around the nodes that were fused in
        this round is left to the next round, which looks at the new graph."""
        makers = self.schedule.makers(nodes)
        nodes = self.schedule.topological(nodes, makers)
        self.rank = {node: i for i, node in enumerate(nodes)}
        fused: dict[ScheduledNode, Group] = {}
        intervals: list[tuple[int, int]] = []  # (first, last) ranks of the pairs that were fused
        for first, second, category, saved in self.candidates(nodes, decided):
            low, high = self.rank[first], self.rank[second]
            if any(low <= b and a <= high for a, b in intervals):
                continue
            try:
                if self.reaches(first, second, makers):
                    raise Refused(
                        "another node between them needs one and feeds the other (a cycle)"
                    )
                fused[first] = fused[second] = self.combine(first, second)
                intervals.append((low, high))
                reason = REASONS[category]
            except Refused as refused:
                reason = str(refused)
            decided[first, second] = FusionDecision(
                first="+".join(first.names),
                second="+".join(second.names),
                fused=first in fused,
                category=category,
                reason=reason,
                bytes_saved=saved,
            )
        return fused

    def users_of_buffers(self, nodes: Sequence[ScheduledNode]) -> Iterator[list[Group]]:
        """The groups that make or read a buffer, in the order of `nodes`, for each buffer."""
        touching: dict[str, list[Group]] = {}
        for node in nodes:
            if isinstance(node, Group):
                for name in node.touched():
                    touching.setdefault(name, []).append(node)
        for name, groups in touching.items():
            # a number, such as a learning rate, is no reason to fuse the kernels that read it
            is_given = name not in self.schedule.place
            if is_given and self.buffers[name].layout.numel == 1:
                groups = [group for group in groups if not group.full]
            yield groups

    def candidates(
        self, nodes: Sequence[ScheduledNode], decided: Decisions
    ) -> list[tuple[Group, Group, str, int]]:
        """(first, second, category, bytes saved) of pairs, in the order of `nodes`, that touch a
        common buffer and were not `decided` in an earlier round.

        Best score first: category, bytes saved, nearness."""
        pairs = {
            (first, second)
            for users in self.users_of_buffers(nodes)
            for i, first in enumerate(users)
            for second in users[i + 1 : i + 1 + REACH]
        } - decided.keys()
        found = [(first, second, *self.category(first, second)) for first, second in pairs]

        def score(pair: tuple[Group, Group, str, int]) -> tuple:
            first, second, category, saved = pair
            a, b = self.rank[first], self.rank[second]
            return category != "horizontal", saved, a - b, -a

        return sorted(found, reverse=True, key=score)

    def category(self, first: Group, second: Group) -> tuple[str, int]:
        """What kind of pair it is, and how many bytes fusing it saves."""
        flows = set(first.names) & second.read_names
        shared = flows or first.read_names & second.read_names
        saved = sum(buffer_bytes(self.buffers[name]) for name in shared)
        if not flows:
            return "horizontal", saved
        if first.is_reduction:
            return ("reductions" if second.is_reduction else "epilogue"), saved
        return ("prologue" if second.is_reduction else "vertical"), saved

    def combine(self, first: Group, second: Group) -> Group:
        """The fused group, or Refused."""
        from .common_loops import ways  # (a graph of one kernel does without)

        self.check_kernel(first, second)
        reasons = []  # (is it about elements?, text)
        for way in ways(first, second):
            try:
                if second.is_reduction and not first.is_reduction:  # ways take the reduction first
                    b, a = way(second, first)
                else:
                    a, b = way(first, second)
                self.check_accesses(a, b)
                return Group(a.nodes + b.nodes, a.outer, a.inner or b.inner)
            except Refused as refused:
                reasons.append((isinstance(refused, OtherElement), str(refused)))
        # one that names two elements says more than one about loops
        _, reason = max(reasons, key=lambda r: (r[0], bool(r[1])))
        raise Refused(reason or "their loops differ")

    def check_kernel(self, first: Group, second: Group) -> None:
        """Raise Refused where the pair cannot be one kernel, whatever its loops are."""
        if first.device != second.device:
            raise Refused(f"they run on different devices: {first.device}, {second.device}")
        if len(first.nodes) + len(second.nodes) > MAX_NODES:
            raise Refused(f"the kernel would hold more than {MAX_NODES} buffers")
        if first.work + second.work > MAX_WORK:
            raise Refused(f"the kernel would hold more than {MAX_WORK} simple operations")
        self.check_scatters(first, second)
        if len(first.touched() | second.touched()) > MAX_BUFFERS:
            raise Refused(f"the kernel would take more than {MAX_BUFFERS} pointers")
        # a scan goes through its loop in order; a little pointwise work may follow each step
        if second.has_scan or (first.has_scan and second.is_reduction):
            raise Refused(
                "a scan goes through its loop in order, and its results are read at other places"
            )
        if first.has_scan and second.device.type == "cpu" and second.work > AFTER_SCAN:
            raise Refused("a scan goes element by element: so much work is faster in vectors")

    def check_scatters(self, first: Group, second: Group) -> None:
        """Raise Refused where one of them scatters: in C++ always, since the other would lose its
        vectors; in Triton where there are inner loops, or the other touches what is scattered."""
        clashes = first.scattered & second.touched() or second.scattered & first.touched()
        is_plain = not (first.inner or second.inner or runs_once(first.device))
        if clashes or first.targets | second.targets and not is_plain:
            raise Refused("a scatter writes to elements that no loop variable names")

    def check_accesses(self, first: Group, second: Group) -> None:
        """Raise Refused unless each read of the other's buffer is of the element that the same
        iteration writes."""
        for writer, reader in ((first, second), (second, first)):
            for access in reader.reads:
                written = writer.writes.get(access.name)
                if written is not None and written.index != access.index:
                    raise OtherElement(
                        f"{access.name} is read at element {access.index} where {written.index} is "
                        "written"
                    )
        # a body outside of the inner loop cannot read the many elements that one inside makes
        inside = {n.name for n in first.nodes if n.body.inner and not n.is_reduction}
        outside = {a.name for n in second.nodes if not n.body.inner for a in n.body.reads()}
        for name in sorted(inside & outside):
            raise OtherElement(f"{name} has many elements per outer iteration: element mismatch")
