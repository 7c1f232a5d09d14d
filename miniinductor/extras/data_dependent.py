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

Which sizes and numbers of a captured graph only the run knows.

In:   an `fx.GraphModule` whose nodes carry fake values (`node.meta["example_value"]`).  Out: the
      symbols among them that have no hint.

    y = x[x > 0]            # y has u0 rows: so many as there are positive numbers
    return y * 2

    >>> unknown_symbols(gm)         # of a graph without such an op; of this one, {u0}
    set()

A graph that has some, and does not get them as inputs, is cut where they are made
(data_dependent.py), or runs eagerly.  Mirrors the unbacked symbols of torch's ShapeEnv.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx

from ..autograd.functionalize import Graph
from ..autograd.more.fallen_back import runnable
from ..compile import Compilation
from ..exceptions import CannotLower
from ..foreign import ThreadState
from ..hooks import extends
from ..records import CompileRecord
from ..sizes.symbols import SYMBOLIC

PieceCompiler = Callable[[fx.GraphModule, list[Any]], Any]  # (graph, examples) -> CompiledGraph
# Changes of the thread's state: the pieces behind them are compiled in what they make.  (Those of
# autocast are none: its cache lets gradients of the uses of a weight be added in 16 bits.)
SETTERS = {torch._C._set_grad_enabled}


def runs_eagerly(node: fx.Node, known: set[sympy.Symbol]) -> bool:
    """Does this op make an unknown symbol, or compute a number (a float cannot be a kernel's
    argument)?"""
    value = value_of(node)
    inputs = [value_of(n) for n in node.all_input_nodes]
    return (
        runs_apart(node)
        or isinstance(value, SYMBOLIC)
        or not symbols_of(value) <= known
        or any(isinstance(v, torch.SymFloat) for v in inputs)
    )


def runs_apart(node: fx.Node) -> bool:
    """Is it a program of its own (`torch.cond`), which chooses by what tensors hold?"""
    return getattr(node.target, "runs_apart", False)


def compile_pieces(
    gm: fx.GraphModule, compile: PieceCompiler, record: CompileRecord
) -> Callable[..., Any] | None:
    """The callable for a graph with unknown sizes, or None where it cannot be cut.  compile(piece,
    examples) -> CompiledGraph."""
    steps = _cut(gm)
    if steps is None:
        return None
    program = ThreadState().around(_program, gm, steps, compile, record)
    if program is None:
        return None
    names = [name for step in steps if step.eager for name in step.names()]
    record.notes.append(f"cut at {', '.join(names)}: sizes or numbers that only the run knows")
    return _runner(gm, program)


def _program(
    gm: fx.GraphModule, steps: "list[_Step]", compile: PieceCompiler, record: CompileRecord
) -> "list[Piece] | None":
    """The steps, compiled; None where a piece would give a number."""
    numbers = _number_nodes(gm)
    program = []
    for step in steps:
        made = step.made()
        if step.eager:
            program.append(Piece(None, step.members, made))
            for node in step.members:
                if node.target in SETTERS:
                    perform(gm, node, node.args, node.kwargs)
        elif all(isinstance(value_of(n), torch.Tensor) for n in made):
            program.append(piece_of(gm, step.members, made, numbers, compile, record))
        else:
            return None
    return program


def changes_state(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "").lstrip("_").startswith("set_")


@dataclass
class _Step:
    """Nodes that follow each other and run in the same way."""

    eager: bool
    members: list[fx.Node]

    def made(self) -> list[fx.Node]:
        """What others use of it."""
        return [n for n in self.members if any(user not in self.members for user in n.users)]

    def names(self) -> list[str]:
        """The ops to name to the user: `x.size(0)` and what computes with it are left out."""
        return [
            n.name
            for n in self.members
            if n.target not in SETTERS
            and (not isinstance(value_of(n), SYMBOLIC) or n.target == "item")
        ]


@dataclass
class Piece:
    """A part of the program: what it takes and makes.  compiled None: `taken` runs op by op."""

    compiled: Any
    taken: list[fx.Node]
    made: list[fx.Node]


def _cut(gm: fx.GraphModule) -> list[_Step] | None:
    """The graph's ops in steps; None where a piece would share more of the thread's state with
    eager ops than `SETTERS` change."""
    known: set[sympy.Symbol] = set()
    steps: list[_Step] = []
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output"):
            if any(isinstance(value_of(n), (tuple, list)) for n in node.all_input_nodes):
                steps[-1].members.append(node)  # an item of a tuple goes with the tuple
            elif node.target not in SETTERS and changes_state(node):
                return None
            else:
                eager = node.target in SETTERS or runs_eagerly(node, known)
                if not steps or steps[-1].eager != eager:
                    steps.append(_Step(eager, []))
                steps[-1].members.append(node)
        known |= symbols_of(value_of(node))
    return steps


def _number_nodes(gm: fx.GraphModule) -> dict[sympy.Symbol, fx.Node]:
    """symbol -> the first node whose value it is."""
    numbers: dict[sympy.Symbol, fx.Node] = {}
    for node in gm.graph.nodes:
        value = value_of(node)
        if isinstance(value, SYMBOLIC) and value.node.expr.is_Symbol:
            numbers.setdefault(value.node.expr, node)
    return numbers


def _runner(gm: fx.GraphModule, program: list[Piece]) -> Callable[..., Any]:
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


def piece_of(
    gm: fx.GraphModule,
    members: list[fx.Node],
    made: list[fx.Node],
    numbers: dict[sympy.Symbol, fx.Node],
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
    symbols = sorted(used, key=str)
    graph = Graph()
    copies: dict[fx.Node, Any] = {}
    for symbol in symbols:
        graph.placeholder(str(symbol)).meta.update(numbers[symbol].meta)
    for node in tensors:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)

    def copied(node: fx.Node) -> Any:
        if node not in copies:
            value = value_of(node)
            if isinstance(value, SYMBOLIC):
                # a number stands in the arguments as what it is: an expression over the symbols
                copies[node] = value
            else:
                copies[node] = graph.get_attr(str(node.target))
        return copies[node]

    for node in members:
        copies[node] = graph.node_copy(node, copied)
    graph.output(tuple(copied(n) for n in made))
    taken = [numbers[s] for s in symbols] + tensors
    compiled = compile(fx.GraphModule(gm, graph), [value_of(n) for n in taken])
    _note_piece(record, compiled.record, f"{members[0].name} ... {members[-1].name}")
    return Piece(compiled, taken, made)


def _note_piece(record: CompileRecord, piece: CompileRecord, name: str) -> None:
    record.kernels.extend(piece.kernels)
    record.fallbacks.extend(piece.fallbacks)
    record.fusions.extend(piece.fusions)
    record.notes.extend(piece.notes)
    record.wrapper_source += f"# {name}\n{piece.wrapper_source}\n"


def fetch(gm: fx.GraphModule, node: fx.Node) -> Any:
    return operator.attrgetter(str(node.target))(gm)


def perform(gm: fx.GraphModule, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What fx.Interpreter does with a node."""
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    function: Any = fetch(gm, node) if node.op == "call_module" else node.target
    return function(*args, **kwargs)


@extends(Compilation)
class InPieces(Compilation):
    def compiled(self) -> Callable[..., Any]:
        is_whole = not any(map(runs_apart, self.gm.graph.nodes))
        if is_whole and not unknown_symbols(self.gm) - symbols_of([*self.inputs]):
            return super().compiled()
        run = compile_pieces(self.gm, self.compile_piece, self.record)
        if run is None:
            raise CannotLower("sizes that only the run knows, and changes of the thread's state")
        return run


# --- which they are -------------------------------------------------------------------------------
def value_of(node: fx.Node) -> Any:
    return node.meta.get("example_value", node.meta.get("val"))


def numbers_of(value: Any) -> Iterator[Any]:
    """The symbolic numbers in a value: itself, or sizes and strides of its tensors."""
    for leaf in pytree.tree_leaves(value):
        numbers = (*leaf.shape, *leaf.stride()) if isinstance(leaf, torch.Tensor) else (leaf,)
        yield from (n for n in numbers if isinstance(n, SYMBOLIC))


def symbols_of(value: Any) -> set[sympy.Symbol]:
    return {s for n in numbers_of(value) for s in n.node.expr.free_symbols}


def unknown_symbols(gm: fx.GraphModule) -> set[sympy.Symbol]:
    """Symbols of the graph's values that have no hint."""
    return {
        s
        for node in gm.graph.nodes
        for n in numbers_of(value_of(node))
        if not n.node.has_hint()
        for s in n.node.expr.free_symbols
    }
