"""Graphs that are compiled in pieces, and a graph cut at the programs of its own that it calls.

In:   an `fx.GraphModule` with a node that chooses when it runs (`torch.cond`, `torch.while_loop`),
      and a compiler for the pieces.
Out:  a callable like the graph: that node runs eagerly, what lies around it is compiled.

    def forward(self, s0, x):
        a = x.sin() * 2             # piece: one kernel
        b = cond(a.sum() > 0, a)    # eager
        return b * s0               # piece

Where an op before or behind the cut changes the thread's state, the whole graph runs eagerly.
(gradient_buckets.py cuts for another reason.)  # PyTorch: the branches are compiled, too.
"""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx

from ..autograd.functionalize import Graph
from ..compile import Compilation
from ..eager_graphs import runnable
from ..exceptions import CannotLower
from ..hooks import extends
from ..records import CompileRecord
from ..sizes.symbols import SYMBOLIC

PieceCompiler = Callable[[fx.GraphModule, list[Any]], Any]  # (graph, examples) -> CompiledGraph
OUTSIDE = ("placeholder", "get_attr", "output")


@dataclass
class Piece:
    """A part of the program: what it takes and makes.  compiled None: `taken` runs op by op."""

    compiled: Any
    taken: list[fx.Node]
    made: list[fx.Node]


@extends(Compilation)
class InPieces(Compilation):
    def compiled(self) -> Callable[..., Any]:
        if not any(map(runs_apart, self.gm.graph.nodes)):
            return super().compiled()
        if any(map(changes_state, self.gm.graph.nodes)):
            raise CannotLower("a program of its own, and changes of the thread's state")
        program = self.cut_apart()
        names = [node.name for node in self.gm.graph.nodes if runs_apart(node)]
        self.record.notes.append(f"cut at {', '.join(names)}, which runs eagerly")
        return in_turn(self.gm, program)

    def cut_apart(self) -> list[Piece]:
        """The program: nodes that run apart, and numbers, op by op; what lies between, compiled."""
        program = []
        for is_eager, members in in_steps(self.gm):
            made = [node for node in members if any(user not in members for user in node.users)]
            if is_eager:
                program.append(Piece(None, members, made))
            else:
                program.append(piece_of(self.gm, members, made, self.compile_piece, self.record))
        return program

    def compile_piece(self, gm: fx.GraphModule, inputs: list[Any]) -> Any:
        return type(self)(gm, inputs, self.mode, self.generates).run()


def runs_apart(node: fx.Node) -> bool:
    """Is it a program of its own (`torch.cond`), which chooses by what tensors hold?"""
    return getattr(node.target, "runs_apart", False)


def changes_state(node: fx.Node) -> bool:
    """Does this op change the thread's state for those behind it (`torch.set_grad_enabled`)?"""
    name = getattr(node.target, "__name__", str(node.target)).lstrip("_")
    return name.startswith(("set_", "enter_", "exit_"))


def in_steps(gm: fx.GraphModule) -> list[tuple[bool, list[fx.Node]]]:
    """The graph's ops in runs of those that are eager, and of those that are compiled."""
    steps: list[tuple[bool, list[fx.Node]]] = []
    for node in gm.graph.nodes:
        if node.op in OUTSIDE:
            continue
        if any(isinstance(value_of(given), (tuple, list)) for given in node.all_input_nodes):
            steps[-1][1].append(node)  # an item of a tuple goes with the tuple
            continue
        is_eager = runs_apart(node) or isinstance(value_of(node), SYMBOLIC)
        if not steps or steps[-1][0] != is_eager:
            steps.append((is_eager, []))
        steps[-1][1].append(node)
    return steps


def piece_of(
    gm: fx.GraphModule,
    members: list[fx.Node],
    made: list[fx.Node],
    compile: PieceCompiler,
    record: CompileRecord,
) -> Piece:
    """`members`, compiled as a graph that takes the tensors from outside, and the numbers that
    their sizes are made of, in front."""
    outside = dict.fromkeys(
        n for member in members for n in member.all_input_nodes if n not in members
    )
    tensors = [n for n in outside if n.op != "get_attr" and isinstance(value_of(n), torch.Tensor)]
    given = [n for n in outside if isinstance(value_of(n), SYMBOLIC)]
    used = {s for n in [*tensors, *given, *members] for s in symbols_of(value_of(n))}
    numbers = [node for symbol, node in symbol_nodes(gm).items() if symbol in used]
    graph = Graph()
    copies: dict[fx.Node, Any] = {}
    for node in [*numbers, *tensors]:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)

    def copied(node: fx.Node) -> Any:
        value = value_of(node)
        if isinstance(value, SYMBOLIC):
            return value  # stands in the arguments as what it is: an expression over the symbols
        if node not in copies:
            copies[node] = graph.get_attr(str(node.target))
        return copies[node]

    for node in members:
        copies[node] = graph.node_copy(node, copied)
    graph.output(tuple(copied(n) for n in made))
    taken = numbers + tensors
    compiled = compile(fx.GraphModule(gm, graph), [value_of(n) for n in taken])
    note_piece(record, compiled.record, f"{members[0].name} ... {members[-1].name}")
    return Piece(compiled, taken, made)


def note_piece(record: CompileRecord, piece: CompileRecord, name: str) -> None:
    record.kernels.extend(piece.kernels)
    record.fallbacks.extend(piece.fallbacks)
    record.fusions.extend(piece.fusions)
    record.notes.extend(piece.notes)
    record.wrapper_source += f"# {name}\n{piece.wrapper_source}\n"


def in_turn(gm: fx.GraphModule, program: list[Piece]) -> Callable[..., Any]:
    """A function like the graph that runs the pieces one after the other: its text is that of a
    graph whose nodes call them, so that each value dies where it is read last."""
    *_, output = gm.graph.nodes
    graph = Graph()
    copies = {node: graph.placeholder(node.name) for node in gm.graph.find_nodes(op="placeholder")}

    def at(node: fx.Node) -> fx.Node:
        if node not in copies:  # a parameter
            copies[node] = graph.node_copy(node)
        return copies[node]

    for piece in program:
        if piece.compiled is None:
            for node in piece.taken:
                copies[node] = graph.node_copy(node, at)
            continue
        made = graph.call_function(callable_of(piece.compiled), tuple(map(at, piece.taken)))
        for n, node in enumerate(piece.made):
            copies[node] = graph.call_function(operator.getitem, (made, n))
    graph.output(fx.node.map_arg(output.args[0], at))
    return runnable(fx.GraphModule(gm, graph))


def callable_of(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled piece as the target of a node, which must be a function with a name."""

    def piece(*inputs: Any) -> Any:
        return compiled(*inputs)

    return piece


# --- what nodes give ------------------------------------------------------------------------------
def value_of(node: fx.Node) -> Any:
    return node.meta.get("example_value", node.meta.get("val"))


def symbol_nodes(gm: fx.GraphModule) -> dict[sympy.Symbol, fx.Node]:
    """symbol -> the first node whose value it is."""
    found: dict[sympy.Symbol, fx.Node] = {}
    for node in gm.graph.nodes:
        value = value_of(node)
        if isinstance(value, SYMBOLIC) and value.node.expr.is_Symbol:
            found.setdefault(value.node.expr, node)
    return found


def symbols_of(value: Any) -> set[sympy.Symbol]:
    """The symbols in a number, or in the sizes and strides of tensors."""
    return {s for n in numbers_of(value) for s in n.node.expr.free_symbols}


def numbers_of(value: Any) -> Iterator[Any]:
    for leaf in pytree.tree_leaves(value):
        numbers = (*leaf.shape, *leaf.stride()) if isinstance(leaf, torch.Tensor) else (leaf,)
        yield from (n for n in numbers if isinstance(n, SYMBOLIC))
