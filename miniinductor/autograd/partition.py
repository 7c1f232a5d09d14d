"""Split the joint graph in two: what to save for the backward half is a minimum cut.

In:   a `Joint`.  Out: `Parts`: a forward graph that also returns what is saved, a backward graph,
      the saved values, and why each is saved.

    >>> parts = partition(joint, 2, is_cheap)  # of relu(x @ w): a mask of bytes is kept, no result
    >>> [(node.name, parts.reasons[node] or "smallest cut") for node in parts.saved]
    [('primal0', 'input'), ('primal1', 'input'), ('le_scalar', 'smallest cut')]

Cost model.  Saving a value costs its bytes; an input costs (almost) nothing, since it is in memory
anyway, unless the program overwrites it: then it must be copied; a value that would otherwise stay
inside a fused kernel costs a tenth more, because it must be written out first.  Computing a value
again costs nothing if it is cheap, because it is fused into the backward kernel that needs it, and
is forbidden otherwise:

    random ops                      a second draw would differ
    matrix products, convolutions, attention, whatever runs as an eager kernel      too slow
    reductions that shrink their input at least fourfold                 slow to redo, small to keep

So each value is an edge in -> out with its cost as capacity, values flow from what cannot be
computed again to what the backward half reads, and the cheapest set of values that separates the
two is a minimum cut (max-flow, networkx). `config.partition`: "min-cut", "save-everything" (what
eager would keep), "recompute-all" (only what must be kept). Mirrors
torch/_functorch/partitioners.py (paper section 3.10).  Left out: a memory budget, heuristics for
long chains.
"""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx

from .. import config
from ..records import SavedActivation
from ..sizes.symbols import estimate, is_dense
from .fake_mode import is_random
from .functionalize import MAY_BE_VIEWS, Graph, Node, add_node, is_needed, is_view, with_graph
from .joint import Joint

aten = torch.ops.aten
IsCheap: TypeAlias = Callable[[Any], bool]  # does the op become part of a fused kernel?
Reasons: TypeAlias = dict[fx.Node, str]  # why a value must not be computed again, or ""
WRITTEN_OUT = 1.1
SOURCE, SINK = 0, 1


@dataclass
class Parts:
    """forward: primals -> results, new values of written primals, saved values (nodes that are no
    primals). backward: sizes, saved values, tangents -> gradients of the primals that get one.
    saved: nodes of the joint graph."""

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: list[fx.Node]
    tangents: list[fx.Node]  # placeholders of the joint graph
    gradients: list[int | None]  # for each primal the position among backward's outputs, or None
    reasons: Reasons  # why each of them is not computed again, or "": it is the smallest cut
    overwritten: set[str]  # placeholders that the program writes


def is_view_node(node: fx.Node) -> bool:
    """Is this node a view of another, or may it be one?"""
    is_call = node.op == "call_function"
    return is_call and (node.target in MAY_BE_VIEWS or is_view(node.target))


# --- y = torch.utils.checkpoint.checkpoint(block, x): x and y are kept, not what `block` computes
def wants_again(node: fx.Node) -> bool:
    """Is the node inside a checkpoint, whose values the program wants computed again?"""
    return node.meta.get("checkpointed") == "body" and not node.meta.get("backward")


def wants_kept(node: fx.Node) -> bool:
    """Is the node a result of a checkpoint, which is kept?"""
    return node.meta.get("checkpointed") == "result"


def in_wanted_order(nodes: list[fx.Node]) -> list[fx.Node]:
    """The nodes in their order, but what is computed again for a checkpoint right before it is
    read, so that one checkpoint's values lie in memory at a time."""
    late = set(filter(wants_again, nodes))
    if not late:
        return nodes
    found: dict[fx.Node, None] = {}
    rest = set(nodes)
    for node in [n for n in nodes if n not in late] + nodes:
        work = [node]
        while work:
            missing = [s for s in work[-1].all_input_nodes if s in rest and s not in found]
            if not missing:
                found.setdefault(work.pop())
            work += missing
    return list(found)


def element_bytes(value: Any) -> int:
    """Bytes of a tensor's elements."""
    return elements(value) * value.dtype.itemsize if isinstance(value, torch.Tensor) else 0


def elements(value: Any) -> int:
    """How many elements a tensor has in this run: symbolic sizes count as their hints."""
    return estimate(value.shape) if isinstance(value, torch.Tensor) else 0


def why_saved(node: Node, is_cheap: IsCheap, value: Any = None) -> str:
    """Why this value must not be computed again, or "" if it may be.

    value: of an item of a tuple, for which the node that makes the tuple is asked."""
    if node.op != "call_function":
        return "input"
    value = node.meta["val"] if value is None else value
    if node.target is operator.getitem:
        return why_saved(node.args[0], is_cheap, value)
    if is_random(node.target):
        return "random"
    if wants_kept(node):
        return "result of a checkpoint"
    is_made_of_nothing = not node.all_input_nodes  # zeros, arange
    if is_view_node(node) or is_made_of_nothing or wants_again(node):
        return ""
    if not is_cheap(node.target):
        return "eager kernel"
    largest = max(elements(source.meta["val"]) for source in node.all_input_nodes)
    is_small = isinstance(value, torch.Tensor) and elements(value) * 4 <= largest
    if is_small and config.partition != "recompute-all":
        return "small result of a reduction"
    return ""


def backward_nodes(graph: fx.Graph) -> set[fx.Node]:
    """All that depends on a tangent."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        depends = any(source in found for source in node.all_input_nodes)
        if is_tangent(node) or depends and node.op == "call_function":
            found.add(node)
    return found


def is_tangent(node: Node) -> bool:
    return node.op == "placeholder" and node.target.startswith("tangent")


def cost_of_saving(node: fx.Node, reason: str, is_read: bool, overwritten: set[str]) -> float:
    """The capacity of the value's edge: its bytes, weighed by the cost model in this file's header.

    reason: why it must not be computed again, or "".  is_read: does the backward half itself read
    it?"""
    value = node.meta["val"]
    nbytes = max(element_bytes(value), 1)
    if node.op == "placeholder":
        return nbytes if node.target in overwritten else 1e-3  # almost nothing: it is there anyway
    if not isinstance(value, torch.Tensor):
        return math.inf  # only tensors can be saved
    if not reason and (config.partition == "recompute-all" or wants_again(node)):
        return math.inf
    if not is_dense(value.shape, value.stride()) and (is_view_node(node) or not reason):
        return math.inf  # what it is a view of, or made of, is saved in its place
    if is_read and config.partition == "save-everything":
        return 1e-6  # less than its inputs would cost
    return nbytes if reason else nbytes * WRITTEN_OUT


def choose_saved(
    graph: fx.Graph,
    backward: set[fx.Node],
    gradients: Sequence[fx.Node],
    overwritten: set[str],
    is_cheap: IsCheap,
) -> tuple[list[fx.Node], Reasons]:
    """The forward values to keep, as nodes in graph order; and the reasons."""
    given = [s for n in graph.nodes if n in backward for s in n.all_input_nodes]
    read = [n for n in [*given, *gradients] if n not in backward]
    reasons = reasons_of(read, is_cheap)
    cut = smallest_cut(reasons, read, backward, overwritten)
    return [n for n in graph.nodes if n in cut], reasons


def reasons_of(read: list[fx.Node], is_cheap: IsCheap) -> Reasons:
    """For all that the backward half reads, or would read if it computed those values again: why
    it must not compute them again, or ""."""
    reasons: Reasons = {}
    work = list(read)
    while work:
        node = work.pop()
        if node in reasons or node.op == "get_attr":
            continue
        reasons[node] = why_saved(node, is_cheap)
        if not reasons[node]:
            work.extend(node.all_input_nodes)
    return reasons


def smallest_cut(
    reasons: Reasons, read: list[fx.Node], backward: set[fx.Node], overwritten: set[str]
) -> set[fx.Node]:
    """The values that are saved.

    Each value is an edge in -> out.  A value that must not be computed again hangs on the source,
    any other on the values that it is computed from."""
    # importing it takes a tenth of a second, for which a graph from disk need not wait
    import networkx

    # Of equal cuts we want the one with the earliest values, which are in memory anyway (results of
    # eager kernels).  networkx keeps the side on which the flow ends small: so the flow runs
    # backwards, from the sink to the source.
    network = networkx.DiGraph()  # (an edge without a capacity cannot be cut)
    network.add_nodes_from((SOURCE, SINK))
    # in: an even number, out: the next one (to hash and compare fx nodes takes ten times as long)
    place = {node: 2 * n for n, node in enumerate(reasons, 1)}
    for node, n in place.items():
        is_read = not backward.isdisjoint(node.users)
        cost = cost_of_saving(node, reasons[node], is_read, overwritten)
        network.add_edge(n + 1, n, capacity=cost)
        makers = [SOURCE]
        if not reasons[node]:
            makers = [place[s] + 1 for s in node.all_input_nodes if s.op != "get_attr"]
        network.add_edges_from((n, maker) for maker in makers)
    network.add_edges_from((SINK, place[node] + 1) for node in read if node in place)
    flow = networkx.algorithms.flow.boykov_kolmogorov
    _, (_, before) = networkx.minimum_cut(network, SINK, SOURCE, flow_func=flow)
    return {node for node, n in place.items() if n in before and n + 1 not in before}


def partition(joint: Joint, primals: int, is_cheap: IsCheap) -> Parts:
    """Parts of the joint graph; `is_cheap(op)`: does the op become part of a fused kernel?"""
    gm, graph = joint.graph, joint.graph.graph
    (results, gradients), writes = graph.output_node().args[0]
    placeholders = list(graph.find_nodes(op="placeholder"))
    inputs, tangents = placeholders[:primals], placeholders[primals:]
    overwritten = {inputs[w.primal].target for w in joint.writes}
    wanted = list(dict.fromkeys(filter(None, gradients)))
    late = backward_nodes(graph)
    saved, reasons = choose_saved(graph, late, wanted, overwritten, is_cheap)
    # saved inputs that are not overwritten need not be outputs of the forward half
    extra = [n for n in saved if n.op != "placeholder" or n.target in overwritten]
    effects = [n for n in graph.nodes if n.op == "call_function" and is_needed(n)]
    forward, new = extract(
        gm, inputs, [*results, *extra, *writes, *[n for n in effects if n not in late]]
    )
    sizes = [inputs[place] for place in joint.symbols]
    backward, again = extract(
        gm, [*sizes, *saved, *tangents], [*wanted, *late.intersection(effects)], again=True
    )
    with gm.meta["fake_mode"]:
        kept = [own_copy(new[n], overwritten) for n in extra]
        results, writes = fx.map_arg((results, writes), new.__getitem__)
        forward.output(([*results, *kept], writes))
        backward.output((not_shared([again[n] for n in wanted]), []))
    return Parts(
        with_graph(gm, forward),
        with_graph(gm, backward),
        saved,
        tangents,
        [None if g is None else wanted.index(g) for g in gradients],
        reasons,
        overwritten,
    )


def base(node: Node) -> Node:
    """What a chain of views looks at: saving a view of an input costs nothing."""
    while is_view_node(node):
        node = node.args[0]
    return node


def own_copy(node: fx.Node, overwritten: set[str]) -> fx.Node:
    """A saved value; a copy if it shares memory with an input that is overwritten when the call
    ends."""
    root = base(node)
    if root.op == "placeholder" and root.target in overwritten:
        return add_node(node.graph, node, aten.clone.default, (node,))
    return node


def not_shared(gradients: Sequence[fx.Node]) -> list[fx.Node]:
    """The gradients, copied where one shares memory with another or with what the caller holds:
    autograd may adopt them as `.grad`."""
    seen, result = set(), []
    for node in gradients:
        root = base(node)
        if root in seen or (root.op != "call_function" and root is not node):
            node = add_node(node.graph, node, aten.clone.default, (node,))
        result.append(node)
        seen.add(root)
    return result


def extract(
    gm: fx.GraphModule,
    inputs: Sequence[fx.Node],
    wanted: Sequence[fx.Node | None],
    again: bool = False,
) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """The part of gm's graph that computes the nodes `wanted` from the nodes `inputs`, without an
    output; and what became of each node.  again: it may compute values of the other half again."""
    graph, copied, needed = Graph(), {}, set()
    for node in inputs:
        copied[node] = graph.placeholder(node.name)
        copied[node].meta.update(node.meta)
    work = [node for node in wanted if node is not None]
    while work:
        node = work.pop()
        if node not in needed and node not in copied:
            needed.add(node)
            work.extend(node.all_input_nodes)
    nodes = [node for node in gm.graph.nodes if node in needed]
    for node in in_wanted_order(nodes) if again else nodes:
        if node.op == "placeholder":
            raise AssertionError(f"{node} is not available in this half")
        copied[node] = graph.node_copy(node, copied.__getitem__)
    return graph, copied


# --- what the record says -------------------------------------------------------------------------
def activations(parts: Parts) -> list[SavedActivation]:
    """What the record says of the saved values.

    primal0    float32[2, 3]  input             # of relu(x @ w): it is in memory anyway
    le_scalar  bool[2, 4]     smallest cut
    """
    found = []
    for node in parts.saved:
        value, source = node.meta["val"], base(node)
        is_input = source.op == "placeholder" and source.target not in parts.overwritten
        found.append(
            SavedActivation(
                node.name,
                "getitem" if node.target is operator.getitem else str(node.target),
                f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}",
                element_bytes(value),
                is_input,
                parts.reasons[node] or "smallest cut",
                node.meta.get("source_line", ""),
            )
        )
    return found
