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

Gradients = tuple[Node, ...]


def fit(gradient: Node, to: Any) -> Node | None:
    """The gradient of something that was broadcast: summed over what it was repeated along.  None
    for what has no gradient: numbers, and tensors that are not FLOAT."""
    if not isinstance(to, Node) or to.dtype != FLOAT:
        return None
    extra = gradient.ndim - to.ndim
    pairs = zip(gradient.shape[extra:], to.shape, strict=True)
    repeated = [extra + dim for dim, (size, own) in enumerate(pairs) if own == 1 and size != 1]
    dims = [*range(extra), *repeated]
    if not dims:
        return gradient
    return gradient.sum(dims, keepdim=True).reshape(*to.shape)


# Rules take the gradient that came, the result, and the arguments; they give what goes on to each
# argument.  (`fit` comes afterwards: a rule need not think of numbers and of broadcasting.)
def _mul(g: Node, out: Node, a: Node, b: Any) -> Gradients:
    """One factor is what the other's gradient is multiplied by."""
    return g * b, g * a


def _div(g: Node, out: Node, a: Node, b: Any) -> Gradients:
    """Of a quotient a / b.  The second is shorter with `out` in it."""
    return g / b, -g * out / b


def _maximum(g: Node, out: Node, x: Node, bound: float) -> Gradients:
    """relu: where the bound was taken (`eq`), the gradient is 0; at the bound itself, too."""
    return (where(out.graph.add("eq", out, bound), 0.0, g),)


def _sum(g: Node, out: Node, x: Node, dims: tuple, keepdim: bool) -> Gradients:
    """Each element that was added gets the gradient of its sum (`_spread`, `expand`)."""
    return (_spread(g, x, dims).expand(x.shape),)


def _amax(g: Node, out: Node, x: Node, dims: tuple, keepdim: bool) -> Gradients:
    """Where several elements are the largest (`eq`, `where`), they share the gradient."""
    largest = x.graph.add("eq", x, _spread(out, x, dims))
    count = where(largest, 1.0, 0.0).sum(dims, keepdim=True)
    return (where(largest, _spread(g, x, dims) / count, 0.0),)


def _spread(value: Node, x: Node, dims: tuple) -> Node:
    """With the dimensions again, of size 1, over which x was reduced."""
    return value.reshape(*(1 if d in dims else size for d, size in enumerate(x.shape)))


def _matmul(g: Node, out: Node, a: Node, b: Node) -> Gradients:
    """g @ b' for the first, a' @ g for the second, where ' exchanges the last two dimensions."""
    if b.ndim == 2:  # one matrix for the whole batch: the batch is one long matrix
        rows, columns = a.reshape(-1, a.shape[-1]), g.reshape(-1, g.shape[-1])
        return g @ b.transpose(0, 1), rows.transpose(0, 1) @ columns
    return g @ b.transpose(-1, -2), a.transpose(-1, -2) @ g


def _permute(g: Node, out: Node, x: Node, order: tuple) -> Gradients:
    """Back into the old order."""
    return (g.permute(*(order.index(dim) for dim in range(len(order)))),)


RULES: dict[str, Callable[..., Gradients]] = {
    "add": lambda g, out, a, b: (g, g),
    "sub": lambda g, out, a, b: (g, -g),
    "mul": _mul,
    "div": _div,
    "neg": lambda g, out, x: (-g,),
    "exp": lambda g, out, x: (g * out,),
    "log": lambda g, out, x: (g / x,),
    "tanh": lambda g, out, x: (g * (1.0 - out * out),),
    "sqrt": lambda g, out, x: (g / (2.0 * out),),
    "maximum": _maximum,
    "sum": _sum,
    "amax": _amax,
    "reshape": lambda g, out, x, shape: (g.reshape(*x.shape),),
    "permute": _permute,
    "expand": lambda g, out, x, shape: (g,),
    "matmul": _matmul,
    "rows": lambda g, out, table, index: (g.graph.add("add_rows", g, index, table.shape[0]),),
    "nll": lambda g, out, x, target: (g.graph.add("nll_back", g, x, target),),
}


def differentiate(graph: Graph, wanted: Iterable[Node]) -> tuple[list[Node], list[Node | None]]:
    """Append the backward graph.  Returns the tangents, one for each output (inputs of the joint
    graph: the gradients that come in), and the gradients of the wanted inputs (None: it has
    none)."""
    order = list(graph.nodes)
    tangents = [graph.input(out.shape, out.dtype) for out in graph.outputs]
    gradient: dict[Node, Node] = {}

    def receive(node: Any, amount: Node) -> None:
        fitted = fit(amount, node)
        if fitted is not None:
            gradient[node] = gradient[node] + fitted if node in gradient else fitted

    for out, tangent in zip(graph.outputs, tangents, strict=True):
        receive(out, tangent)
    for node in reversed(order):
        if node in gradient and node.op in RULES:
            amounts = RULES[node.op](gradient[node], node, *node.args)
            for arg, amount in zip(node.args, amounts, strict=False):
                receive(arg, amount)
    return tangents, [gradient.get(node) for node in wanted]


# --- the cut --------------------------------------------------------------------------------------
CHEAP = {*POINTWISE, *VIEWS}  # may be computed a second time


def computed_of(graph: Graph, some: Iterable[Node]) -> set[Node]:
    """These nodes, and all that is computed of them."""
    result = set(some)
    for node in graph.nodes:
        if result.intersection(node.inputs):
            result.add(node)
    return result


def cut(graph: Graph, tangents: list[Node], gradients: list[Node]) -> list[Node]:
    """What the forward half saves, so that the fewest bytes are kept."""
    backward = computed_of(graph, tangents)
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
