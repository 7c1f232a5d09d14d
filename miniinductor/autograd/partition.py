"""Split the joint graph in two: what to save for the backward half is a minimum cut.

In:   a `Joint`.  Out: `Parts`: a forward graph that also returns what is saved, a backward graph,
      the list of saved values.

    >>> parts = partition(joint, 2, is_cheap)  # of relu(x @ w): a mask of bytes is kept, no result
    >>> [(node.name, about.reason) for node, about in zip(parts.saved, parts.activations)]
    [('primal0', 'input'), ('primal1', 'input'), ('le_scalar', 'smallest cut')]

Cost model.  Saving a value costs its bytes; an input costs (almost) nothing, since it is in memory
anyway, unless the program overwrites it: then it must be copied; a value that would otherwise stay
inside a fused kernel costs a tenth more, because it must be written out first.  Computing a value
again costs nothing if it is cheap, because it is fused into the backward kernel that needs it, and
is forbidden otherwise:

    random ops                      a second draw would differ
    matrix products, convolutions, attention, whatever runs as an eager kernel      too slow
    reductions that shrink their input at least fourfold                 slow to redo, small to keep
    operands of eager kernels in the backward half                would have to be written out again

So each value is an edge in -> out with its cost as capacity, values flow from what cannot be
computed again to what the backward half reads, and the cheapest set of values that separates the
two is a minimum cut (max-flow, networkx). `config.partition`: "min-cut", "save-everything" (what
eager would keep), "recompute-all" (only what must be kept). Mirrors
torch/_functorch/partitioners.py (paper section 3.10).  Left out: a memory budget, heuristics for
long chains.
"""

import math
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx

from .. import config
from ..checks import may_raise
from ..records import SavedActivation
from ..sizes.symbols import alike, hint, is_dense
from . import functionalize
from .functionalize import Node, add_node, is_needed, with_graph
from .joint import Joint

aten = torch.ops.aten
IsCheap: TypeAlias = Callable[[Any], bool]  # does the op become part of a fused kernel?
Reasons: TypeAlias = dict[fx.Node, str]  # why a value must not be computed again, or ""
WRITTEN_OUT = 1.1
RANDOM = torch.Tag.nondeterministic_seeded
VIEW_COPIES = {aten._unsafe_view.default, aten.reshape.default}


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
    activations: list[SavedActivation]  # for explain


def is_view(node: fx.Node) -> bool:
    return node.op == "call_function" and (
        node.target in VIEW_COPIES or functionalize.is_view(node.target)
    )


def element_bytes(value: Any) -> int:
    """Bytes of a tensor's elements."""
    return elements(value) * value.dtype.itemsize if isinstance(value, torch.Tensor) else 0


def elements(value: torch.Tensor) -> int:
    """Their number in this run: symbolic sizes count as their hints."""
    return math.prod(hint(n, 512) for n in value.shape)


def why_saved(node: Node, is_cheap: IsCheap, value: Any = None) -> str:
    """Why this value must not be computed again, or "" if it may be."""
    if node.op != "call_function":
        return "input"
    value = node.meta["val"] if value is None else value
    if node.target is operator.getitem:
        return why_saved(node.args[0], is_cheap, value)
    if RANDOM in getattr(node.target, "tags", ()):
        return "random"
    if is_view(node) or not node.all_input_nodes:  # the latter: made of nothing, such as zeros
        return ""
    if not is_cheap(node.target):
        return "eager kernel"
    largest = max(
        (
            elements(s.meta["val"])
            for s in node.all_input_nodes
            if isinstance(s.meta["val"], torch.Tensor)
        ),
        default=0,
    )
    if (
        isinstance(value, torch.Tensor)
        and elements(value) * 4 <= largest
        and config.partition != "recompute-all"
    ):
        return "small result of a reduction"
    return ""


def backward_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Everything that depends on a tangent, and what only a backward formula checks."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if is_tangent(node):
            found.add(node)
        elif node.op == "call_function":
            depends = any(source in found for source in node.all_input_nodes)
            if depends or only_checks(node) and node.meta.get("backward"):
                found.add(node)
    return found


def is_tangent(node: Node) -> bool:
    return node.op == "placeholder" and node.target.startswith("tangent")


def only_checks(node: fx.Node) -> bool:
    """Does this call stay only because it may raise?"""
    return node.op == "call_function" and not node.users and may_raise(node)


def read_by_kernel(node: fx.Node, backward: set[fx.Node], is_cheap: IsCheap) -> bool:
    """Does an eager kernel of the backward half read this value, perhaps through views?"""
    return any(
        not is_cheap(user.target) and user in backward
        if not is_view(user)
        else read_by_kernel(user, backward, is_cheap)
        for user in node.users
        if user.op == "call_function" and user.target is not operator.getitem
    )


def cost_of_saving(node: fx.Node, reason: str, is_read: bool, overwritten: set[str]) -> float:
    """Bytes, weighed as the cost model has it.  reason: why it must not be computed again, if so;
    is_read: by the backward half itself."""
    value = node.meta["val"]
    nbytes = max(element_bytes(value), 1)
    if node.op == "placeholder":
        return nbytes if node.target in overwritten else 1e-3
    if not isinstance(value, torch.Tensor) or not is_dense(value) and (is_view(node) or not reason):
        return math.inf
    if not reason and config.partition == "recompute-all":
        return math.inf
    if is_read and config.partition == "save-everything":
        return 1e-6
    return nbytes if reason else nbytes * WRITTEN_OUT


def choose_saved(
    graph: fx.Graph, gradients: Sequence[Any], overwritten: set[str], is_cheap: IsCheap
) -> tuple[list[fx.Node], Reasons]:
    """The forward values to keep, as nodes in graph order; and the reasons."""
    backward = backward_nodes(graph)
    read = [s for n in graph.nodes if n in backward for s in n.all_input_nodes if s not in backward]
    read += [n for n in gradients if isinstance(n, fx.Node) and n not in backward]
    reasons = reasons_of(read, backward, is_cheap)
    near = smallest_cut(reasons, read, backward, overwritten)
    cut = {n for n in reasons if (n, "in") in near and (n, "out") not in near}
    return [n for n in graph.nodes if n in cut], reasons


def reasons_of(read: list[fx.Node], backward: set[fx.Node], is_cheap: IsCheap) -> Reasons:
    """Of all that the backward half reads, and could compute again from: why it must not."""
    reasons: Reasons = {}
    work = list(read)
    while work:
        node = work.pop()
        if node in reasons or node.op == "get_attr":
            continue
        reasons[node] = why_saved(node, is_cheap)
        if not reasons[node] and config.partition != "recompute-all":
            is_made = not is_view(node) and node.all_input_nodes
            if is_made and read_by_kernel(node, backward, is_cheap):
                reasons[node] = "operand of an eager kernel in backward"
        if not reasons[node]:
            work.extend(node.all_input_nodes)
    return reasons


def smallest_cut(
    reasons: Reasons, read: list[fx.Node], backward: set[fx.Node], overwritten: set[str]
) -> set:
    """The ends of the edges in -> out of values that lie on the forward side of the cut."""
    # takes a tenth of a second, which a graph that comes from disk need not wait for
    import networkx

    cut = networkx.DiGraph()  # (an edge without a capacity cannot be cut)
    cut.add_nodes_from(("source", "sink"))
    for node, reason in reasons.items():
        is_read = any(user in backward for user in node.users)
        cost = cost_of_saving(node, reason, is_read, overwritten)
        cut.add_edge((node, "in"), (node, "out"), capacity=cost)
        makers = [(s, "out") for s in node.all_input_nodes if s.op != "get_attr"]
        cut.add_edges_from((maker, (node, "in")) for maker in (["source"] if reason else makers))
    cut.add_edges_from(((node, "out"), "sink") for node in read if node in reasons)
    # solved from the sink, networkx names the smallest set at the source: among equal cuts the
    # earliest values, which are in memory anyway (results of eager kernels)
    flow = networkx.algorithms.flow.boykov_kolmogorov
    _, (_, near) = networkx.minimum_cut(cut.reverse(copy=False), "sink", "source", flow_func=flow)
    return near


def partition(joint: Joint, primals: int, is_cheap: IsCheap) -> Parts:
    """Parts of the joint graph; `is_cheap(op)`: does the op become part of a fused kernel?"""
    graph = joint.graph.graph
    (results, gradients), writes = list(graph.nodes)[-1].args[0]
    placeholders = list(graph.find_nodes(op="placeholder"))
    inputs, tangents = placeholders[:primals], placeholders[primals:]
    overwritten = {inputs[w.primal].target for w in joint.writes}
    saved, reasons = choose_saved(graph, gradients, overwritten, is_cheap)
    # other inputs need not pass through
    extra = [n for n in saved if n.op != "placeholder" or n.target in overwritten]
    late = backward_nodes(graph)  # attention's backward is random too: it repeats the dropout
    forward = extract(
        joint.graph,
        inputs,
        [*results, *extra, *writes],
        lambda new: (
            [new(r) for r in results] + [_own_copy(new(n), overwritten) for n in extra],
            [new(w) for w in writes],
        ),
        also=[n for n in graph.nodes if n not in late and has_effect(n)],
    )
    unique = list(dict.fromkeys(g for g in gradients if isinstance(g, fx.Node)))
    sizes = [n for n in inputs if isinstance(n.meta["val"], torch.SymInt)]
    backward = extract(
        joint.graph,
        [*sizes, *saved, *tangents],
        unique,
        lambda new: (_not_shared([new(g) for g in unique]), []),
        also=[n for n in late if only_checks(n)],
    )
    where = [unique.index(g) if isinstance(g, fx.Node) else None for g in gradients]
    activations = [activation(n, reasons[n], overwritten) for n in saved]
    return Parts(forward, backward, saved, tangents, where, activations)


def has_effect(node: fx.Node) -> bool:
    """Must the forward half make this call, though nobody reads it?  Later draws depend on it, or
    it may raise; what a backward formula computes is checked in the backward half."""
    is_late = node.meta.get("backward") and may_raise(node)
    return node.op == "call_function" and is_needed(node) and not is_late


def activation(node: fx.Node, reason: str, overwritten: set[str]) -> SavedActivation:
    """What the record says of a saved value."""
    value, source = node.meta["val"], base(node)
    return SavedActivation(
        node.name,
        "getitem" if node.target is operator.getitem else str(node.target),
        f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}",
        element_bytes(value),
        source.op == "placeholder" and source.target not in overwritten,
        reason or "smallest cut",
        node.meta.get("source_line", ""),
    )


def base(node: fx.Node) -> fx.Node:
    """What a chain of views looks at: saving a view of an input costs nothing."""
    while is_view(node):
        node = node.all_input_nodes[0]
    return node


def _root(node: Node) -> Node:
    while is_view(node):
        node = node.args[0]
    return node


def _own_copy(node: fx.Node, overwritten: set[str]) -> fx.Node:
    """A saved value; a copy if it shares memory with an input that is overwritten when the call
    ends."""
    root = _root(node)
    return (
        add_node(node.graph, node, aten.clone.default, (node,))
        if root.op == "placeholder" and root.target in overwritten
        else node
    )


def _not_shared(gradients: Sequence[fx.Node]) -> list[fx.Node]:
    """Gradients that share no memory with one another or with what the caller holds: autograd may
    adopt them as `.grad`."""
    seen, result = set(), []
    for node in gradients:
        root = _root(node)
        alone = root not in seen and (root.op == "call_function" or root is node)
        result.append(node if alone else add_node(node.graph, node, aten.clone.default, (node,)))
        seen.add(root)
    return result


def extract(
    gm: fx.GraphModule,
    inputs: Sequence[fx.Node],
    wanted: Sequence[Any],
    make_output: Callable[[Callable], Any],
    also: Sequence[fx.Node] = (),
) -> fx.GraphModule:
    """The part of gm's graph that computes the nodes `wanted` from the nodes `inputs`;
    make_output(copied) gives its output.

    also: nodes to keep though nobody reads them.
    """
    graph, copied, needed = fx.Graph(), {}, set()
    for node in inputs:
        copied[node] = graph.placeholder(node.name)
        copied[node].meta.update(node.meta)
    work = [n for n in [*wanted, *also] if isinstance(n, fx.Node)]
    while work:
        node = work.pop()
        if node not in needed and node not in copied:
            needed.add(node)
            work.extend(node.all_input_nodes)
    for node in gm.graph.nodes:
        if node in needed:
            if node.op == "placeholder":
                raise AssertionError(f"{node} is not available in this half")
            copied[node] = graph.node_copy(node, copied.__getitem__)
    with gm.meta["fake_mode"]:
        graph.output(make_output(lambda node: copied[node] if isinstance(node, fx.Node) else node))
    return with_graph(gm, graph)


def without_tangents(gm: fx.GraphModule, missing: Collection[str]) -> fx.GraphModule:
    """The backward graph for the case that the tangents named in `missing` do not arrive.

    Every backward op is linear in all that depends on tangents, so an op that only sees missing
    ones is zero; a sum leaves such a term out; elsewhere a zero that is needed is made.
    """
    return WithoutTangents(gm, missing).run() if missing else gm


class WithoutTangents:
    """One pass over a backward graph.

    zero: nodes that are zero now; live: the others that depend on tangents; known: what the forward
    half has checked, and nobody reads any more."""

    def __init__(self, gm: fx.GraphModule, missing: Collection[str]):
        self.gm, self.missing, self.graph = gm, missing, fx.Graph()
        self.copied: dict[fx.Node, fx.Node] = {}
        self.zero: set[fx.Node] = set()
        self.live: set[fx.Node] = set()
        self.known: set[fx.Node] = set()

    def run(self) -> fx.GraphModule:
        for node in self.gm.graph.nodes:
            linear = [s for s in node.all_input_nodes if s in self.zero or s in self.live]
            if node.op == "output":
                values = [None if n in self.zero else self.copied[n] for n in node.args[0][0]]
                self.graph.output((values, []))
            elif self.is_zero(node, linear):
                self.zero.add(node)
            else:
                self.copy(node, linear)
        self.graph.eliminate_dead_code(lambda n: is_needed(n) and n not in self.known)
        return with_graph(self.gm, self.graph)

    def is_zero(self, node: fx.Node, linear: list[fx.Node]) -> bool:
        if node.op == "placeholder":
            return node.target in self.missing
        return bool(linear) and all(source in self.zero for source in linear)

    def copy(self, node: fx.Node, linear: list[fx.Node]) -> None:
        term = self.last_term(node, linear)
        if term is not None:
            self.copied[node] = self.copied[term]
            self.live.add(node)
            return
        self.copied[node] = self.graph.node_copy(node, self.use)
        if linear or is_tangent(node):
            self.live.add(node)
        elif may_raise(node) and node.users:
            self.known.add(self.copied[node])

    def last_term(self, node: fx.Node, linear: list[fx.Node]) -> fx.Node | None:
        """Of a sum of which one term is zero: the term that is left, if that is the sum."""
        if node.target is not aten.add.Tensor or node.kwargs:
            return None
        if not any(source in self.zero for source in linear):
            return None
        left = [a for a in node.args if isinstance(a, fx.Node) and a not in self.zero]
        value = node.meta["val"]
        return next((term for term in left if alike(term.meta["val"], value)), None)

    def use(self, node: fx.Node) -> fx.Node:
        """The node's copy; zeros of its shape where it is zero."""
        if node not in self.copied:
            value = node.meta["val"]
            place = {"dtype": value.dtype, "device": value.device}
            self.copied[node] = self.graph.call_function(
                aten.full.default, (list(value.shape), 0), place
            )
            self.copied[node].meta.update(node.meta)
        return self.copied[node]
