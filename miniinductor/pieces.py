"""A graph in pieces: what cannot be compiled runs op by op, between compiled pieces.

In:   a captured graph, the nodes that run by themselves, and a compiler for what lies between them.
Out:  a callable like the graph.

    y = conv(x)                 # a piece
    z = odd_op(y)               # eager: one kernel, and autograd knows its gradient
    return relu(z) + y          # a piece

The driver (compile.py) cuts a graph at the operation for which a stage refused it, and, if asked,
after so many bytes of parameters.  Each piece has a forward and a backward half of its own; no
kernel spans two pieces.  Sizes are no values that cross: each piece computes them from the symbols
among the graph's inputs.
Mirrors torch/fx/passes/split_module.py, and what torch/_inductor does with fallback kernels.
"""

import functools
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx

from .autograd.eager_graphs import in_layout, runnable
from .autograd.functionalize import Graph
from .records import CompileRecord
from .sizes.symbols import SYMBOLIC

PieceCompiler = Callable[[fx.GraphModule, list[Any]], Any]  # (graph, examples) -> CompiledGraph
OUTSIDE = ("placeholder", "get_attr", "output")
# what its tensors are at a cut is not known: their history, or where in their memory they lie
UNKNOWN = set(
    """as_strided as_strided_ as_strided_copy as_strided_scatter requires_grad_ detach_ unsqueeze_
    squeeze_ t_ transpose_ swapaxes_ swapdims_ resize_ resize_as_ set_""".split()
)


@dataclass
class Step:
    """Nodes that follow each other, and whether they are compiled or run op by op."""

    is_eager: bool
    members: list[fx.Node]

    def made(self) -> list[fx.Node]:
        """What others read of it.  (Numbers are computed where they are read.)"""
        here = set(self.members)
        used = [node for node in self.members if any(user not in here for user in node.users)]
        return [node for node in used if not isinstance(value_of(node), SYMBOLIC)]

    def is_made_of_numbers(self) -> bool:
        return all(isinstance(value_of(node), SYMBOLIC) for node in self.members)


def value_of(node: fx.Node) -> Any:
    return node.meta.get("example_value", node.meta.get("val"))


def symbols_of(values: Any) -> set[sympy.Symbol]:
    """The symbols in numbers, and in the sizes and strides of tensors."""
    leaves = pytree.tree_leaves(values)
    numbers = [n for t in leaves if isinstance(t, torch.Tensor) for n in (*t.shape, *t.stride())]
    numbers += [leaf for leaf in leaves if isinstance(leaf, SYMBOLIC)]
    return {s for n in numbers if isinstance(n, SYMBOLIC) for s in n.node.expr.free_symbols}


def buckets(gm: fx.GraphModule, limit: int) -> list[Step]:
    """The graph's ops in runs of about `limit` bytes of parameters (`config.gradient_buckets`).

    One backward half gives all its gradients when it ends; of several, DDP sends those of the last
    one while the one before computes.  (PyTorch: torch/_dynamo/backends/distributed.py.)"""
    runs, seen, count = [Step(False, [])], set[str](), 0
    for node in gm.graph.nodes:
        if node.op in OUTSIDE:
            continue
        held = {str(n.target) for n in node.all_input_nodes if n.op == "get_attr"} - seen
        new = [t for t in (operator.attrgetter(name)(gm) for name in held) if t.requires_grad]
        reads_tuple = any(isinstance(value_of(n), (tuple, list)) for n in node.all_input_nodes)
        if new and count >= limit and not reads_tuple:
            runs.append(Step(False, []))
            count = 0
        seen |= held
        count += sum(t.numel() * t.element_size() for t in new)
        runs[-1].members.append(node)
    return runs


def steps_of(gm: fx.GraphModule, apart: Collection[fx.Node]) -> list[Step] | None:
    """The graph's ops in steps, `apart` in eager ones; None where it cannot be cut.

    An item of a tuple goes with the tuple."""
    steps: list[Step] = []
    for node in gm.graph.nodes:
        if node.op in OUTSIDE:
            continue
        if node.users and value_of(node) is None:
            return None
        is_eager = node in apart
        tuples = [n for n in node.all_input_nodes if isinstance(value_of(n), (tuple, list))]
        if tuples:
            step = next(s for s in steps if tuples[0] in s.members)
            step.is_eager |= is_eager
            step.members.append(node)
        elif steps and steps[-1].is_eager == is_eager:
            steps[-1].members.append(node)
        else:
            steps.append(Step(is_eager, [node]))
    return steps


def name_of(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def in_pieces(
    gm: fx.GraphModule, steps: Sequence[Step], compile: PieceCompiler, record: CompileRecord
) -> Callable[..., Any] | None:
    """The callable; None where it cannot be cut so."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    given = [node for node in placeholders if isinstance(value_of(node), SYMBOLIC)]
    numbers = {str(s): node for node in given for s in symbols_of(value_of(node))}
    if not may_be_cut(gm, steps, numbers):
        return None
    graph = Graph()
    copies: dict[fx.Node, Any] = {node: graph.placeholder(node.target) for node in placeholders}
    at = functools.partial(copy_of, graph, copies)
    eager = {node for step in steps if step.is_eager for node in step.members}
    for step in steps:
        if step.is_eager:
            for node in step.members:
                copies[node] = graph.node_copy(node, at)
        elif not step.is_made_of_numbers():
            made = step.made()
            taken, piece = piece_of(gm, step.members, made, numbers)
            compiled = compile(piece, [value_of(node) for node in taken])
            part = compiled.record
            for field in ("kernels", "fallbacks", "fusions", "notes"):
                getattr(record, field).extend(getattr(part, field))
            name = f"# {step.members[0]} ... {step.members[-1]}"
            record.wrapper_source += f"{name}\n{part.wrapper_source}\n"
            handed = [laid_out(graph, node, at(node), eager) for node in taken]
            out = graph.call_function(named(compiled), tuple(handed))
            for place, node in enumerate(made):
                copies[node] = graph.call_function(operator.getitem, (out, place))
    graph.output(fx.map_arg(gm.graph.output_node().args[0], at))
    return runnable(fx.GraphModule(gm, graph))


def may_be_cut(gm: fx.GraphModule, steps: Sequence[Step], numbers: Collection[str]) -> bool:
    """May the graph be cut there?  Not if anything but tensors would cross a cut, such as a size
    that is computed before it, nor where the thread's state is another one than at the beginning
    (`torch.set_grad_enabled`)."""
    if all(step.is_eager or step.is_made_of_numbers() for step in steps):
        return False
    for step in steps:
        after: dict[Any, Any] = {}  # setter, without "set_", and what it sets -> the last value
        for node in step.members:
            name = name_of(node)
            if name in UNKNOWN:
                return False
            if (setter := name.lstrip("_")).startswith("set_"):
                after[setter[4:], *node.args[:-1]] = node.args[-1]
        for (name, *key), value in after.items():
            read = getattr(torch, f"is_{name}", getattr(torch, f"get_{name}", None))
            if read is None or read(*key) != value:
                return False
    crossing = [value_of(node) for step in steps for node in step.made()]
    symbols = symbols_of([value_of(node) for node in gm.graph.nodes])
    is_known = all(str(symbol) in numbers for symbol in symbols)
    return is_known and all(isinstance(value, torch.Tensor) for value in crossing)


def copy_of(graph: Graph, copies: dict[fx.Node, Any], node: fx.Node) -> Any:
    """What stands for a node in `graph`; for a size its value, which prints as Python over the
    symbols."""
    if node not in copies:  # a size, or a get_attr node
        value = value_of(node)
        copies[node] = value if isinstance(value, SYMBOLIC) else graph.node_copy(node)
    return copies[node]


def laid_out(graph: Graph, node: fx.Node, copy: Any, eager: Collection[fx.Node]) -> Any:
    """What a piece takes, in the layout that it is compiled for: torch's rule for an eager kernel
    may have been wrong about it."""
    strides = value_of(node).stride() if node in eager else (None,)
    is_known = all(isinstance(n, int) for n in strides)
    return graph.call_function(in_layout, (copy, strides)) if is_known else copy


def named(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled piece as the target of a node, which must be a function with a name."""

    def piece(*inputs: Any) -> Any:
        return compiled(*inputs)

    return piece


def piece_of(
    gm: fx.GraphModule, members: list[fx.Node], made: list[fx.Node], numbers: dict[str, fx.Node]
) -> tuple[list[fx.Node], fx.GraphModule]:
    """(what it takes, the graph of `members`): symbols first, then the tensors from outside."""
    here = set(members)
    outside = dict.fromkeys(n for m in members for n in m.all_input_nodes if n not in here)
    tensors = [n for n in outside if n.op != "get_attr" and not isinstance(value_of(n), SYMBOLIC)]
    symbols = sorted(map(str, symbols_of([value_of(n) for n in [*outside, *members]])))
    graph, copies = Graph(), dict[fx.Node, Any]()
    for symbol in symbols:
        graph.placeholder(symbol).meta.update(numbers[symbol].meta)
    for node in tensors:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)

    at = functools.partial(copy_of, graph, copies)
    for node in members:
        copies[node] = graph.node_copy(node, at)
    graph.output(tuple(map(at, made)))
    return [*[numbers[s] for s in symbols], *tensors], fx.GraphModule(gm, graph)
