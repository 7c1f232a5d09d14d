"""Which loop nests become one kernel, and in which order everything runs.

In:   `Graph.operations`.  Out: a list of `ExternNode` and `Group` in execution order; every pair
      that was considered is
a `FusionDecision` with a reason in `record.fusions`; `record.fused_ir` shows the groups.

    >>> schedule = Scheduler(graph, record).run()
    >>> [node.names for node in schedule]         # softmax: one group of four buffers
    [['buf0', 'buf1', 'buf2', 'buf3']]

Steps: trace each buffer's body and simplify its loops; drop dead buffers; then, greedily, fuse the
pair with the best score until no pair is left (paper section 4.3).  A pair is fused when

  * both run over the same loops, after splitting them to common ones.  A group has outer loops (one
    kernel iteration each) and inner loops (the reduction's).  A pointwise body joins a reduction
    either on the outer loops (an epilogue, such as `1/sum`) or on outer and inner loops together
    (such as `exp(x - max)`), its own loops reordered where that is needed (batch norm);
  * each element one side reads of the other's result is the element written in the same iteration;
  * no path leads from one to the other through a third node (a cycle).

After fusion, in_place.py and foreach.py decide what is written over existing memory and join alike
kernels. Mirrors torch/_inductor/scheduler.py.  Left out: templates (codegen/matmul.py fuses around
them afterwards), reordering for communication, peak-memory reordering, fusing two pointwise nodes
over loops of different order.
"""

import graphlib
import heapq
import math
from dataclasses import dataclass

import torch

from . import config
from .dependencies import common_loops, loop_variables, stride_of, trace
from .in_place import overwritten_inputs
from .ir import ComputedBuffer, ExternKernel, MultiOutput, Scatter, buffer_views
from .records import FusionDecision, Later
from .sizes.symbols import hint, same

MAX_NODES = 64  # bodies in one kernel: beyond that registers spill and compile time grows
MAX_BUFFERS = 96  # pointers one kernel takes
REACH = 16  # users of a buffer apart that two nodes may be to be asked at all
CACHED = 1 << 17  # elements that a core keeps between two passes over them
REASONS = {  # category -> why such a pair is fused
    "vertical": "the second reads what the first writes, in the same iteration",
    "epilogue": "the second continues from the reduction's result",
    "prologue": "the reduction reads the first's elements as they are made",
    "reductions": "both reduce over the same loops",
    "horizontal": "independent, same loops, and they share reads",
}


@dataclass
class Node:
    """One computed buffer and its loop body."""

    buffer: ComputedBuffer
    body: object

    @property
    def name(self):
        return self.buffer.name

    @property
    def is_reduction(self):
        return bool(self.body.reduction_kinds())


class ExternNode:
    """An eager kernel, or the selection of one of its outputs."""

    def __init__(self, buffer):
        self.buffer = buffer
        self.names = [buffer.name]
        if isinstance(buffer, MultiOutput):
            self.read_names = {buffer.source}
        else:
            self.read_names = {v.name for v in buffer_views((buffer.args, buffer.kwargs))}

    def made(self):
        return self.names

    def touched(self):
        return [*self.names, *sorted(self.read_names)]


class Group:
    """Bodies that run in one kernel, over the same outer (and, for reductions, inner) loops."""

    def __init__(self, nodes, outer, inner):
        self.nodes, self.outer, self.inner = nodes, tuple(outer), tuple(inner)
        self.names = [n.name for n in nodes]
        self.is_reduction = any(n.is_reduction for n in nodes)
        self.has_scan = any(n.body.has_scan() for n in nodes)
        self.reads = [a for n in nodes for a in n.body.reads()]
        self.writes = {a.name: a for n in nodes for a in n.body.writes()}
        self.targets = {n.buffer.data.target for n in nodes if isinstance(n.buffer.data, Scatter)}
        self.read_names = ({a.name for a in self.reads} | self.targets) - set(self.names)

    @property
    def full(self):
        return self.outer + self.inner

    def over(self, outer, inner):
        """The same group over finer loops."""
        nodes = [
            Node(n.buffer, n.body.split_to(outer, inner if n.body.inner else ()))
            for n in self.nodes
        ]
        return Group(nodes, outer, inner)

    def as_full(self, outer, inner):
        return Group(
            [Node(n.buffer, n.body.as_full(outer, inner)) for n in self.nodes], outer, inner
        )

    def __str__(self):
        kind = "reduction" if self.is_reduction else "pointwise"
        lines = [
            f"{kind} kernel over {list(self.outer)}"
            + (f" x reduce {list(self.inner)}" if self.inner else "")
        ]
        for node in self.nodes:
            origins = ", ".join(sorted(str(o) for o in node.buffer.origins))
            lines.append(
                f"  {node.name}: {node.buffer.layout.dtype} {list(node.buffer.layout.size)}  # {origins}"
            )
            lines += [f"    {line}" for line in str(node.body).splitlines()]
        return "\n".join(lines)


def buffer_bytes(buffer):
    """Size in bytes, in the run the graph was captured in (1 MiB where that is not known): it only
    serves the scores."""
    numel = hint(math.prod(buffer.layout.size))
    return (1 << 20) if numel is None else numel * buffer.layout.dtype.itemsize


class Refused(Exception):
    """Why two nodes do not become one kernel."""


class Scheduler:
    def __init__(self, graph, record):
        self.graph, self.record = graph, record
        self.buffers = {**graph.buffers, **graph.inputs, **{b.name: b for b in graph.operations}}
        effects = [b.name for b in graph.operations if _has_effect(b)]
        self.before = {
            later: {earlier} for earlier, later in zip(effects, effects[1:])
        }  # name -> names that come before
        self.escaping = {v.name for v in graph.results}

    def run(self, fuse_products=lambda nodes, scheduler: nodes):
        """The nodes in execution order.  fuse_products: what becomes one kernel with a matrix
        product, before alike groups are joined."""
        with self.record.timed("dependencies"):
            nodes = self.live([self.make_node(b) for b in self.graph.operations])
        with self.record.timed("fusion"):
            from .foreach import join_alike  # it makes groups

            if config.fusion:
                nodes = self.fuse(nodes)
            nodes = self.topological(nodes)
            self.overwritten = overwritten_inputs(self, nodes)
            nodes = fuse_products(nodes, self)
            if config.foreach:
                nodes = self.topological(join_alike(self, nodes, self.overwritten))
        self.record.fused_ir = Later(
            lambda: "\n\n".join(
                str(n)
                if isinstance(n, Group)
                else f"extern {n.names[0]}: {getattr(n.buffer, 'op', 'output of')} "
                f"{sorted(n.read_names)}"
                for n in nodes
            )
        )
        return nodes

    def make_node(self, buffer):
        if isinstance(buffer, (ExternKernel, MultiOutput)):
            return ExternNode(buffer)
        body = trace(buffer).simplify_loops()
        return Group([Node(buffer, body)], body.outer, body.inner)

    def live(self, nodes):
        """Without the nodes whose results nobody uses.  A scatter writes into its target, so the
        target's other readers count as users of the scatter only through its own name: lowering
        reads the new name."""
        wanted, kept = set(self.escaping), []
        for node in reversed(nodes):
            if self.has_effect(node) or any(name in wanted for name in node.names):
                wanted |= node.read_names
                kept.append(node)
            else:
                self.record.notes.append(f"{node.names[0]} is computed for nobody: dropped")
        return kept[::-1]

    def has_effect(self, node):
        """Does the node do more than compute?  It may also raise where eager does."""
        raises = not self.graph.checks.isdisjoint(node.names)
        if isinstance(node, Group):
            return raises and any(n.body.has_checks() for n in node.nodes)
        return _has_effect(node.buffer) or raises and isinstance(node.buffer, ExternKernel)

    # -- graph of nodes
    def makers(self, nodes):
        """{node: the nodes that must run before it}, from must_follow."""
        maker = {name: node for node in nodes for name in node.names}
        return {
            node: {maker[name] for name in self.must_follow(node, nodes) if name in maker} - {node}
            for node in nodes
        }

    def must_follow(self, node, nodes):
        """Names whose makers run before `node`: what it reads; for a scatter, the other readers of
        its target; for an eager kernel with an effect, the one before it; where it overwrites an
        input, the readers of the old value."""
        names = node.read_names.union(
            *[self.before[name] for name in node.names if name in self.before]
        )
        for target in getattr(node, "targets", ()):
            names.update(
                other.names[0]
                for other in nodes
                if other is not node
                and target in other.read_names
                and not (set(node.names) & other.read_names)
            )
        return names

    def topological(self, nodes, makers=None):
        """Data-flow order; among the ready ones, the original order."""
        position = {b.name: i for i, b in enumerate(self.graph.operations)}
        key = {
            node: (max(position[name] for name in node.names), i) for i, node in enumerate(nodes)
        }
        sorter = graphlib.TopologicalSorter(makers or self.makers(nodes))
        sorter.prepare()  # raises CycleError
        ready, order = [], []
        while sorter.is_active():
            for node in sorter.get_ready():
                heapq.heappush(ready, (key[node], node))
            order.append(heapq.heappop(ready)[1])
            sorter.done(order[-1])
        return order

    def reaches(self, start, goal, makers):
        """Does `goal` read, through other nodes, something `start` makes?  Walks from goal towards
        producers."""
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
    def fuse(self, nodes):
        """Rounds of fusing, the best pairs first, until a round fuses nothing; pairs of one round
        lie apart in the order of nodes."""
        decided = {}
        while True:
            makers = self.makers(nodes)
            nodes = self.topological(nodes, makers)
            self.rank = {node: i for i, node in enumerate(nodes)}
            fused, intervals = {}, []
            for first, second, category, saved in self.candidates(nodes, decided):
                low, high = sorted((self.rank[first], self.rank[second]))
                if any(low <= b and a <= high for a, b in intervals):
                    # near a pair fused in this round: asked again in the next, over the new graph
                    continue
                try:
                    if self.reaches(first, second, makers) or self.reaches(second, first, makers):
                        raise Refused(
                            "another node between them needs the first and feeds the second (a cycle)"
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
            if not fused:
                break
            nodes = list(dict.fromkeys(fused.get(node, node) for node in nodes))
        self.record.fusions.extend([*decided.values(), *self.too_far(nodes)])
        return nodes

    def users_of_buffers(self, nodes):
        """(buffer, the nodes that make or read it in their order), for each that can be a reason to
        fuse."""
        touching = {}
        for node in nodes:
            for name in [*node.names, *node.read_names]:
                touching.setdefault(name, []).append(node)
        for name, users in touching.items():
            layout = self.buffers[name].layout  # None: of several results
            if layout is not None and layout.numel == 1 and not any(name in u.names for u in users):
                users = [
                    u for u in users if not (isinstance(u, Group) and u.full)
                ]  # sharing a learning rate is no reason to differ
            yield name, sorted((u for u in users if isinstance(u, Group)), key=self.rank.get)

    def candidates(self, nodes, decided):
        """(first, second, category, bytes saved) of pairs that touch a common buffer and were not
        `decided` in an earlier round.

        Best score first: category, bytes saved, nearness."""
        pairs = {
            (first, second)
            for _, users in self.users_of_buffers(nodes)
            for i, first in enumerate(users)
            for second in users[i + 1 : i + 1 + REACH]
        } - decided.keys()
        found = [(first, second, *self.category(first, second)) for first, second in pairs]

        def score(pair):
            first, second, category, saved = pair
            a, b = self.rank[first], self.rank[second]
            return category != "horizontal", saved, -abs(a - b), -a, -b

        return sorted(found, reverse=True, key=score)

    def too_far(self, nodes):
        """One record per node and buffer for all the pairs that `candidates` leaves out."""
        return [
            FusionDecision(
                first="+".join(first.names),
                second=f"{len(users) - i - 1 - REACH} later users of {name}",
                fused=False,
                category="distant",
                reason=f"{REACH} other users of {name} lie between them: not tried",
                bytes_saved=buffer_bytes(self.buffers[name]),
            )
            for name, users in self.users_of_buffers(nodes)
            for i, first in enumerate(users[: -1 - REACH])
        ]

    def category(self, first, second):
        flows = set(first.names) & second.read_names
        shared = flows or (first.read_names & second.read_names)
        saved = sum(buffer_bytes(self.buffers[name]) for name in shared)
        if not flows:
            return "horizontal", saved
        if first.is_reduction:
            return ("reductions" if second.is_reduction else "epilogue"), saved
        return ("prologue" if second.is_reduction else "vertical"), saved

    def combine(self, first, second):
        """The fused group, or Refused."""
        devices = {n.buffer.layout.device for n in first.nodes + second.nodes}
        if len(devices) > 1:
            raise Refused(f"they run on different devices: {', '.join(sorted(map(str, devices)))}")
        if len(first.nodes) + len(second.nodes) > MAX_NODES:
            raise Refused(f"the kernel would hold more than {MAX_NODES} buffers")
        if first.has_scan or second.has_scan:
            raise Refused(
                "a scan goes through its loop in order, and its results are read at other places"
            )
        if first.targets or second.targets:
            raise Refused("a scatter writes to elements that no loop variable names")
        if (
            len(first.read_names | second.read_names | set(first.names) | set(second.names))
            > MAX_BUFFERS
        ):
            raise Refused(f"the kernel would take more than {MAX_BUFFERS} pointers")
        if second.is_reduction and not first.is_reduction and self.graph.apart & set(first.names):
            raise Refused("its elements are made where the rows are reduced that they depend on")
        alike, reasons = first.is_reduction == second.is_reduction, []
        for make in (
            [self.same_loops]
            if alike
            else [self.on_inner_loops, self.on_outer_loops, self.on_reordered_loops]
        ):
            try:
                a, b = (
                    make(first, second)
                    if alike or first.is_reduction
                    else reversed(make(second, first))
                )
                self.check_accesses(a, b)
                return Group(a.nodes + b.nodes, a.outer, a.inner or b.inner)
            except Refused as refused:
                reasons.append(str(refused))
        loops = (
            [r for r in reasons if "element" in r]
            or [r for r in reasons if r]
            or ["their loops differ"]
        )
        raise Refused(loops[0])

    def same_loops(self, first, second):
        outer, inner = (
            common_loops(first.outer, second.outer),
            common_loops(first.inner, second.inner),
        )
        if outer is None or inner is None:
            raise Refused(
                f"their loops differ: {list(first.outer)} x {list(first.inner)} and "
                f"{list(second.outer)} x {list(second.inner)}"
            )
        return first.over(outer, inner), second.over(outer, inner)

    def on_inner_loops(self, reduction, pointwise):
        """A pointwise node over all of a reduction's loops."""
        full = common_loops(reduction.full, pointwise.outer)
        if full is None:
            raise Refused(
                f"their loops differ: {list(pointwise.outer)} against {list(reduction.outer)} x "
                f"{list(reduction.inner)}"
            )
        outer_numel = math.prod(reduction.outer)
        cut = next(
            (k for k in range(len(full) + 1) if same(math.prod(full[:k]), outer_numel)), None
        )
        if cut is None:
            raise Refused("their loops differ: it cannot be shown where the reduced loops begin")
        return reduction.over(full[:cut], full[cut:]), pointwise.as_full(full[:cut], full[cut:])

    def on_outer_loops(self, reduction, pointwise):
        """A pointwise node over a reduction's outer loops alone."""
        outer = common_loops(reduction.outer, pointwise.outer)
        if outer is None:
            raise Refused("")
        return reduction.over(outer, reduction.inner), pointwise.over(outer, ())

    def on_reordered_loops(self, reduction, pointwise):
        """A pointwise node whose loops are the reduction's in another order: batch norm reduces
        over (n, hw) for each c, and its pointwise part runs over (n, c, hw).  Only where what one
        outer iteration touches stays in the cache until it is used again."""
        if not config.loop_reordering or pointwise.nodes[0].buffer.layout.device.type != "cpu":
            raise Refused("")
        inner = math.prod(n for n in reduction.inner if isinstance(n, int))
        if (
            not all(isinstance(n, int) for n in reduction.full)
            or inner > CACHED
            or reduction.full[-1:] < (64,)
        ):
            raise Refused("")
        for access in reduction.reads:
            for other in pointwise.reads:
                order = access.name == other.name and loop_order(
                    access.index, reduction, other.index, pointwise
                )
                if order and order != sorted(order):
                    nodes = [Node(n.buffer, n.body.reorder(order, ())) for n in pointwise.nodes]
                    return self.on_inner_loops(reduction, Group(nodes, nodes[0].body.outer, ()))
        raise Refused("")

    def check_accesses(self, first, second):
        """Each read of the other's buffer must be of the element written in this iteration."""
        for writer, reader in ((first, second), (second, first)):
            for access in reader.reads:
                written = writer.writes.get(access.name)
                if written is not None and written.index != access.index:
                    raise Refused(
                        f"{access.name} is read at element {access.index} where {written.index} is written"
                    )
        inside = {n.name for n in first.nodes if n.body.inner and not n.is_reduction}
        for access in [
            access for node in second.nodes if not node.body.inner for access in node.body.reads()
        ]:
            if access.name in inside:  # an outer body cannot take an inner body's many elements
                raise Refused(
                    f"{access.name} has many elements per outer iteration: element mismatch"
                )


def loop_order(index, reduction, other, pointwise):
    """Which loop of `pointwise` runs like each loop of `reduction`, as two accesses of one buffer
    show; None: not all do."""
    mine = [
        (stride_of(index, v), n)
        for v, n in zip(
            loop_variables("x", len(reduction.outer)) + loop_variables("r", len(reduction.inner)),
            reduction.full,
        )
    ]
    theirs = [
        (stride_of(other, v), n)
        for v, n in zip(loop_variables("x", len(pointwise.outer)), pointwise.outer)
    ]
    if len(set(mine)) < len(mine) or set(mine) != set(theirs) or len(mine) != len(theirs):
        return None
    return [theirs.index(loop) for loop in mine]


def _has_effect(buffer):
    """Does the eager kernel do more than compute?  Random ones advance the generator, so they stay,
    in their order; checks may raise."""
    op = getattr(buffer, "op", None)
    schema = getattr(op, "_schema", None)
    if schema is None:
        return False
    return (
        schema.is_mutable
        or not schema.returns
        or torch.Tag.nondeterministic_seeded in getattr(op, "tags", ())
    )
