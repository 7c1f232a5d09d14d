"""Chapter 08: the backward graph, and the cut between the two.

`differentiate` goes through a graph from its outputs to its inputs and writes, for each operation,
what its derivative does with the gradient of its result.  What it writes are nodes of the same
graph: the *joint* graph.

`cut` divides that graph in two.  The forward half has to save what the backward half reads.  It
may save a value, or something smaller from which the value can be computed again: the smallest
number of bytes is a minimum cut of a network in which each value is an edge as wide as its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import networkx

from .graph import FLOAT, POINTWISE, VIEWS, Graph, Node, bytes_of, where

Gradients = tuple[Node | None, ...]


def fit(gradient: Node, to: Any) -> Node | None:
    """The gradient of something that was broadcast: summed over what it was repeated along."""
    if not isinstance(to, Node) or to.dtype != FLOAT:
        return None
    extra = gradient.ndim - to.ndim
    pairs = zip(gradient.shape[extra:], to.shape, strict=True)
    repeated = [extra + dim for dim, (size, own) in enumerate(pairs) if own == 1 and size != 1]
    dims = [*range(extra), *repeated]
    if not dims:
        return gradient
    return gradient.sum(dims, keepdim=True).reshape(*to.shape)


def _add(node: Node, g: Node) -> Gradients:
    a, b = node.args
    return fit(g, a), fit(g, b)


def _sub(node: Node, g: Node) -> Gradients:
    a, b = node.args
    return fit(g, a), fit(-g, b)


def _mul(node: Node, g: Node) -> Gradients:
    """The second argument may be a number: it has no gradient (None)."""
    a, b = node.args
    return fit(g * b, a), fit(g * a, b) if isinstance(b, Node) else None


def _div(node: Node, g: Node) -> Gradients:
    """Of a quotient: `node` itself is the result.  The second argument may be a number."""
    a, b = node.args
    return fit(g / b, a), fit(-g * node / b, b) if isinstance(b, Node) else None


def _maximum(node: Node, g: Node) -> Gradients:
    """relu: where the bound was taken, the gradient is 0; at the bound itself, too."""
    x, bound = node.args
    is_bound = node.graph.add("eq", node, bound)
    return where(is_bound, 0.0, g), None


def _sum(node: Node, g: Node) -> Gradients:
    """Each element that was added gets the gradient of its sum (`_spread`, `expand`).  One answer
    for each of the three arguments."""
    return _spread(g, node).expand(node.args[0].shape), None, None


def _amax(node: Node, g: Node) -> Gradients:
    """Where several elements are the largest, they share the gradient."""
    x, dims, _ = node.args
    largest = x.graph.add("eq", x, _spread(node, node))
    count = where(largest, 1.0, 0.0).sum(dims, keepdim=True)
    return where(largest, _spread(g, node) / count, 0.0), None, None


def _spread(value: Node, reduction: Node) -> Node:
    """With the dimensions again, of size 1, over which `reduction` went."""
    x, dims, _ = reduction.args
    return value.reshape(*(1 if d in dims else size for d, size in enumerate(x.shape)))


def _matmul(node: Node, g: Node) -> Gradients:
    """g @ b' for the first, a' @ g for the second, where ' exchanges the last two dimensions."""
    a, b = node.args
    if b.ndim == 2:  # one matrix for the whole batch: the batch is one long matrix
        rows, columns = a.reshape(-1, a.shape[-1]), g.reshape(-1, g.shape[-1])
        return g @ b.transpose(0, 1), rows.transpose(0, 1) @ columns
    return fit(g @ b.transpose(-1, -2), a), fit(a.transpose(-1, -2) @ g, b)


def _permute(node: Node, g: Node) -> Gradients:
    """Back into the old order.  The order itself has no gradient."""
    order = node.args[1]
    return g.permute(*(order.index(dim) for dim in range(len(order)))), None


def _rows(node: Node, g: Node) -> Gradients:
    table, index = node.args
    return node.graph.add("add_rows", g, index, table.shape[0]), None


def _nll(node: Node, g: Node) -> Gradients:
    return node.graph.add("nll_back", g, *node.args), None


RULES: dict[str, Callable[[Node, Node], Gradients]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": lambda node, g: (-g,),
    "exp": lambda node, g: (g * node,),
    "log": lambda node, g: (g / node.args[0],),
    "tanh": lambda node, g: (g * (1.0 - node * node),),
    "sqrt": lambda node, g: (g / (2.0 * node),),
    "maximum": _maximum,
    "sum": _sum,
    "amax": _amax,
    "reshape": lambda node, g: (g.reshape(*node.args[0].shape), None),
    "permute": _permute,
    "expand": lambda node, g: (fit(g, node.args[0]), None),
    "matmul": _matmul,
    "rows": _rows,
    "nll": _nll,
}


def differentiate(graph: Graph, wanted: Iterable[Node]) -> tuple[list[Node], list[Node | None]]:
    """Append the backward graph.  Returns the tangents, one for each output (inputs of the joint
    graph: the gradients that come in), and the gradients of the wanted inputs (None: it has
    none)."""
    order = list(graph.nodes)
    tangents = [graph.input(out.shape, out.dtype) for out in graph.outputs]
    gradient: dict[Node, Node] = {}

    def receive(node: Node, amount: Node | None) -> None:
        if amount is not None:
            gradient[node] = gradient[node] + amount if node in gradient else amount

    for out, tangent in zip(graph.outputs, tangents, strict=True):
        receive(out, tangent if out.dtype == FLOAT else None)
    for node in reversed(order):
        if node not in gradient or node.op not in RULES:
            continue
        for arg, amount in zip(node.args, RULES[node.op](node, gradient[node]), strict=False):
            if isinstance(arg, Node):
                receive(arg, amount)
    return tangents, [gradient.get(node) for node in wanted]


# --- the cut --------------------------------------------------------------------------------------
CHEAP = {*POINTWISE, *VIEWS}  # may be computed a second time


def cut(graph: Graph, tangents: list[Node], gradients: list[Node]) -> list[Node]:
    """What the forward half saves, so that the fewest bytes are kept."""
    backward = set(tangents)
    for node in graph.nodes:
        if backward.intersection(node.inputs):
            backward.add(node)
    network = networkx.DiGraph()
    network.add_nodes_from(["start", "end"])
    for node in graph.nodes:
        if node in backward:
            for arg in node.inputs:
                if arg not in backward:
                    network.add_edge((arg, "out"), "end", capacity=math.inf)
            continue
        width = 0 if node.op == "input" else bytes_of(node) + 1
        network.add_edge((node, "in"), (node, "out"), capacity=width)
        if node.op not in CHEAP:
            network.add_edge("start", (node, "in"), capacity=math.inf)
        for arg in node.inputs:
            network.add_edge((arg, "out"), (node, "in"), capacity=math.inf)
    for node in gradients:  # a gradient that needs no tangent is computed in the backward half, too
        if node not in backward:
            network.add_edge((node, "out"), "end", capacity=math.inf)
    _, (before, _) = networkx.minimum_cut(network, "start", "end")
    return [n for n in graph.nodes if (n, "in") in before and (n, "out") not in before]


def part(graph: Graph, inputs: list[Node], outputs: list[Node]) -> Graph:
    """The piece of `graph` that computes `outputs` from `inputs`, as a graph of its own."""
    needed, given = set(outputs), set(inputs)
    for node in reversed(graph.nodes):
        if node in needed and node not in given:
            needed.update(node.inputs)
    result = Graph()
    copies = {node: result.input(node.shape, node.dtype) for node in inputs}
    for node in graph.nodes:
        if node in needed and node not in given:
            args = tuple(copies[a] if isinstance(a, Node) else a for a in node.args)
            copies[node] = result.add(node.op, *args)
    result.outputs = [copies[node] for node in outputs]
    return result
