"""Graphs with sizes or numbers that only the run knows, cut at the ops that make them.

In:   an `fx.GraphModule` in which such a value is a SymInt without a hint
      (`node.meta["example_value"]`), and a compiler for the pieces.
Out:  a callable like the graph: eager ops, and between them compiled pieces, for which an unknown
      size is an input like any other.

    def forward(self, s0, x):
        mask = x > 0            # piece: one kernel
        y = x[mask]             # eager
        u0 = y.size(0)          # eager
        return y * 2 + u0       # piece, its sizes: u0

A piece that must know a size (to choose between two kernels, say) runs eagerly, and the record
names the decision. Mirrors what torch/_inductor does with unbacked symbols in one wrapper
(`codegen_unbacked_symbol_defs`).  # PyTorch: kernels on both sides of such an op can be fused, and
it is not run by an interpreter.
"""

import operator

import torch
import torch.utils._pytree as pytree
from torch import fx

from .sizes.symbols import SYMBOLIC


def value_of(node):
    return node.meta.get("example_value", node.meta.get("val"))


def numbers_of(value):
    """The symbolic numbers in a value: itself, or sizes and strides of its tensors."""
    for leaf in pytree.tree_leaves(value):
        yield from (
            n
            for n in ((*leaf.shape, *leaf.stride()) if isinstance(leaf, torch.Tensor) else (leaf,))
            if isinstance(n, SYMBOLIC)
        )


def symbols_of(value):
    return {s for n in numbers_of(value) for s in n.node.expr.free_symbols}


def unknown_symbols(gm):
    """Symbols of the graph's values that have no hint."""
    return {
        s
        for node in gm.graph.nodes
        for n in numbers_of(value_of(node))
        if not n.node.has_hint()
        for s in n.node.expr.free_symbols
    }


def runs_eagerly(node, known):
    """Does this op make an unknown symbol, or compute a number (a float cannot be a kernel's
    argument)?"""
    value = value_of(node)
    inputs = [value_of(n) for n in node.all_input_nodes]
    return (
        isinstance(value, SYMBOLIC)
        or not symbols_of(value) <= known
        or any(isinstance(v, torch.SymFloat) for v in inputs)
    )


def compile_pieces(gm, compile, record):
    """The callable for a graph with unknown sizes, or None where it cannot be cut.  compile(piece,
    examples) -> CompiledGraph."""
    nodes = list(gm.graph.nodes)
    inputs, known, steps = [n for n in nodes if n.op == "placeholder"], set(), []
    numbers = {}  # symbol -> the node whose value it is
    for node in nodes:
        if node.op in ("placeholder", "get_attr") or node.op == "output":
            pass
        elif any(isinstance(value_of(n), (tuple, list)) for n in node.all_input_nodes):
            steps[-1][1].append(node)  # an item of a tuple goes with the tuple
        elif getattr(node.target, "__name__", "").lstrip("_").startswith("set_"):
            return None  # the thread's state: eager and compiled pieces would have to share it
        else:
            eager = runs_eagerly(node, known)
            if not steps or steps[-1][0] != eager:
                steps.append((eager, []))
            steps[-1][1].append(node)
        known |= symbols_of(value_of(node))
        if isinstance(value_of(node), SYMBOLIC) and value_of(node).node.expr.is_Symbol:
            numbers.setdefault(value_of(node).node.expr, node)
    program = []
    for eager, members in steps:
        made = [n for n in members if any(user not in members for user in n.users)]
        if not eager and any(not isinstance(value_of(n), torch.Tensor) for n in made):
            return None
        program.append(
            (None, members, made)
            if eager
            else piece_of(gm, members, made, numbers, compile, record)
        )
    stay = nodes[-1].args[0]
    eager_ops = [
        n.name
        for eager, members in steps
        if eager
        for n in members
        if not isinstance(value_of(n), SYMBOLIC) or n.name == "item"
    ]
    record.notes.append(f"cut at {', '.join(eager_ops)}: sizes or numbers that only the run knows")

    def run(*arguments):
        values = dict(zip(inputs, arguments))
        at = lambda n: values[n] if n in values else fetch(gm, n)  # noqa: E731
        for compiled, taken, made in program:
            if compiled is None:
                for node in taken:
                    args, kwargs = fx.node.map_arg((node.args, node.kwargs), at)
                    values[node] = perform(gm, node, args, kwargs)
            else:
                values.update(zip(made, compiled(*map(at, taken))))
        return fx.node.map_arg(stay, at)

    return run


def piece_of(gm, members, made, numbers, compile, record):
    """(callable, the nodes whose values it takes, the nodes whose values it gives)."""
    taken = list(
        dict.fromkeys(
            n
            for m in members
            for n in m.all_input_nodes
            if n not in members and n.op != "get_attr" and isinstance(value_of(n), torch.Tensor)
        )
    )
    symbols = sorted(
        {s for n in [*taken, *members] for s in symbols_of(value_of(n))}
        | {
            s
            for m in members
            for n in m.all_input_nodes
            if isinstance(value_of(n), SYMBOLIC)
            for s in symbols_of(value_of(n))
        },
        key=str,
    )
    taken = [numbers[s] for s in symbols] + taken
    graph, copies = fx.Graph(), {}

    def copied(node):
        if (
            node not in copies
        ):  # a number stands in the arguments as what it is: an expression over the symbols
            copies[node] = (
                value_of(node)
                if isinstance(value_of(node), SYMBOLIC)
                else graph.get_attr(node.target)
            )
        return copies[node]

    examples = [value_of(n) for n in taken]
    for symbol, node in zip([*symbols, *[None] * len(taken)], taken):
        placeholder = graph.placeholder(str(symbol) if symbol is not None else node.name)
        placeholder.meta.update(node.meta)
        if symbol is None:
            copies[node] = placeholder
    for node in members:
        copies[node] = graph.node_copy(node, copied)
    graph.output(tuple(copied(n) for n in made))
    compiled = compile(fx.GraphModule(gm, graph), examples)
    for name in ("kernels", "fallbacks", "fusions", "notes"):
        getattr(record, name).extend(getattr(compiled.record, name))
    record.wrapper_source += (
        f"# {members[0].name} ... {members[-1].name}\n{compiled.record.wrapper_source}\n"
    )
    return compiled, taken, made


def fetch(gm, node):
    return operator.attrgetter(node.target)(gm)


def perform(gm, node, args, kwargs):
    """What fx.Interpreter does with a node."""
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return (fetch(gm, node) if node.op == "call_module" else node.target)(*args, **kwargs)
