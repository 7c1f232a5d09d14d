"""Chapter 09: operations as loops.

`lower` turns a graph into steps.  A `Loop` computes one stored tensor, the `Buffer`, element by
element; an `Extern` calls a kernel of torch (matrix products, and what else has no loop here).

A node that is no step of its own is *inlined*: it is kept as a function from an index to an
expression.  Calling that function with symbols as the index writes the expression down, through
all inlined nodes that lie before it.  (miniinductor calls this define-by-run.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .graph import POINTWISE, REDUCTIONS, VIEWS, Graph, Node
from .sizes import text_of

Index = tuple[str, ...]  # one text for each dimension: "i0", "i1", ..., "c" for the last, or "0"


def at(index: Index, shape: tuple[int, ...]) -> Index:
    """The index, with "0" in the dimensions of size 1: one element has one index."""
    return tuple("0" if size == 1 else i for i, size in zip(index, shape, strict=True))


@dataclass(eq=False)
class Buffer:
    """A contiguous tensor in memory.  base: the one whose memory it shares under another shape."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    base: Buffer | None = None

    @property
    def root(self) -> Buffer:
        return self.base.root if self.base else self

    @property
    def sizes(self) -> str:
        """Its shape as a text."""
        return "(" + "".join(f"{text_of(size)}, " for size in self.shape) + ")"


@dataclass(frozen=True)
class Load:
    """An element of a buffer."""

    buffer: Buffer
    index: Index


@dataclass(frozen=True)
class Apply:
    """A pointwise operation on expressions and numbers."""

    op: str
    args: tuple[Any, ...]


Expression = Load | Apply | float | int
Inlined = Callable[[Index], Expression]


@dataclass(eq=False)
class Loop:
    """For all rows: for all columns: store `value`, or add it up ("sum", "amax") for the row."""

    buffer: Buffer
    rows: tuple[int, ...]
    columns: int
    reduction: str | None
    value: Expression

    @property
    def row_index(self) -> Index:
        return tuple(f"i{number}" for number in range(len(self.rows)))

    @property
    def own_row(self) -> Index:
        """The index of the row; dimensions of size 1 are always at 0."""
        return at(self.row_index, self.rows)

    @property
    def store_index(self) -> Index:
        """Where in the buffer the result lies."""
        if len(self.buffer.shape) == len(self.rows):
            return self.row_index
        return (*self.row_index, "0" if self.reduction else "c")

    @property
    def result(self) -> Load:
        """By this another loop reads the element that was just computed."""
        return Load(self.buffer, at(self.store_index, self.buffer.shape))


@dataclass(eq=False)
class Extern:
    """A call of a torch kernel.  args: texts of the wrapper, in which buffers are variables."""

    buffer: Buffer
    op: str
    args: list[str]
    reads: list[Buffer]


Step = Loop | Extern


def loads(value: Any) -> list[Load]:
    """All elements that an expression reads."""
    if isinstance(value, Load):
        return [value]
    if isinstance(value, Apply):
        return [load for arg in value.args for load in loads(arg)]
    return []


def operations(value: Any) -> int:
    """How many operations an expression consists of."""
    return 1 + sum(map(operations, value.args)) if isinstance(value, Apply) else 0


class Lowering:
    """A graph on its way to steps.  stored: nodes that lie in memory; inlined: the others."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Step] = []
        self.stored: dict[Node, Buffer] = {}
        self.inlined: dict[Node, Inlined] = {}
        self.users: dict[Node, int] = dict.fromkeys(graph.nodes, 0)
        for node in graph.nodes:
            for arg in node.inputs:
                self.users[arg] += 1
        for number, node in enumerate(graph.inputs):
            self.stored[node] = Buffer(f"in{number}", node.shape, node.dtype)

    def run(self) -> list[Buffer]:
        """Write all steps; the buffers of the outputs."""
        for node in self.graph.nodes:
            if node.op != "input":
                self.lower(node)
        return [self.store(node) for node in self.graph.outputs]

    def lower(self, node: Node) -> None:
        """What becomes of a node.  Views and pointwise operations are inlined: their functions are
        methods of this class (of the name of the view, `pointwise`).  What is pointwise, dear
        and has several users is stored as well.  A reduction over the last dimension, and no
        other, is a loop (`reduction`); whatever else there is, torch computes (`extern`)."""
        if node.op in VIEWS:
            self.inlined[node] = getattr(self, node.op)(node)
        elif node.op in POINTWISE:
            self.inlined[node] = self.pointwise(node)
            if self.users[node] > 1 and self.is_dear(node):
                self.store(node)
        elif node.op in REDUCTIONS and node.args[1] == (node.args[0].ndim - 1,):  # the columns
            self.reduction(node)
        else:
            self.extern(node)

    def is_dear(self, node: Node) -> bool:
        """Too much to be computed once for every reader."""
        index = tuple(f"i{n}" for n in range(node.ndim))
        return node.op in ("exp", "log", "tanh", "sqrt", "div") or (
            operations(self.inlined[node](index)) > 4
        )

    # --- inlined nodes ----------------------------------------------------------------------------
    def element(self, value: Any, index: Index) -> Expression:
        """The element of a node, or of a number, that a result needs at `index`.  Broadcast from
        the right, it has only the last places of the index, `at` its own shape.  Of a stored node
        it is a Load; of an inlined one, what its function says."""
        if not isinstance(value, Node):
            return value
        own = at(index[len(index) - value.ndim :], value.shape)
        if value in self.stored:
            return Load(self.stored[value], own)
        return self.inlined[value](own)

    def pointwise(self, node: Node) -> Inlined:
        """The operation, applied to its arguments' elements at the same index (`element`)."""
        return lambda index: Apply(node.op, tuple(self.element(a, index) for a in node.args))

    def permute(self, node: Node) -> Inlined:
        """The argument's element, at an index whose places are exchanged."""
        x, order = node.args
        return lambda index: self.element(
            x, tuple(index[order.index(dim)] for dim in range(len(order)))
        )

    def expand(self, node: Node) -> Inlined:
        return lambda index: self.element(node.args[0], index)

    def reshape(self, node: Node) -> Inlined:
        """Dimensions of size 1 come and go for nothing; anything else is the same memory under
        another shape, so that the source has to lie in memory."""
        x, shape = node.args
        places = [dim for dim, size in enumerate(shape) if size != 1]
        own = [dim for dim, size in enumerate(x.shape) if size != 1]
        if [text_of(shape[d]) for d in places] != [text_of(x.shape[d]) for d in own]:
            source = self.store(x)
            buffer = Buffer(source.name, node.shape, node.dtype, source)
            self.stored[node] = buffer
            return lambda index: Load(buffer, index)

        def element(index: Index) -> Expression:
            new = dict(zip(own, (index[dim] for dim in places), strict=True))
            return self.element(x, tuple(new.get(dim, "0") for dim in range(x.ndim)))

        return element

    # --- steps ------------------------------------------------------------------------------------
    def add(self, node: Node, step: Callable[..., Step], *parts: Any) -> None:
        """A step that computes this node into a buffer of its own."""
        self.stored[node] = Buffer(f"buf{len(self.steps)}", node.shape, node.dtype)
        self.steps.append(step(self.stored[node], *parts))

    def store(self, node: Node) -> Buffer:
        """The buffer of a node; a loop is written for it if it has none."""
        if node not in self.stored:
            rows, columns = node.shape[:-1], node.shape[-1] if node.shape else 1
            index = (*(f"i{n}" for n in range(len(rows))), "c")[: node.ndim]
            value = self.inlined[node](at(index, node.shape))
            self.add(node, Loop, rows, columns, None, value)
        return self.stored[node]

    def reduction(self, node: Node) -> None:
        """A step: a loop whose value is the argument's element at (i0, i1, ..., c), where c is
        the column that is reduced over."""
        x = node.args[0]
        rows, columns = x.shape[:-1], x.shape[-1]
        index = (*(f"i{n}" for n in range(len(rows))), "c")
        value = self.element(x, index)
        self.add(node, Loop, rows, columns, node.op, value)

    def extern(self, node: Node) -> None:
        reads: list[Buffer] = []
        args = [self.operand(arg, reads) for arg in node.args]
        self.add(node, Extern, node.op, args, reads)

    def operand(self, value: Any, reads: list[Buffer]) -> str:
        """An argument of a torch kernel, as a text.  Views cost nothing there."""
        if isinstance(value, tuple):
            return "(" + "".join(f"{text_of(item)}, " for item in value) + ")"
        if not isinstance(value, Node):
            return text_of(value) if type(value) is not bool else str(value)
        if value not in self.stored and value.op in ("permute", "expand"):
            x, how = value.args
            return f"{self.operand(x, reads)}.{value.op}({self.operand(how, reads)})"
        buffer = self.store(value)
        reads.append(buffer.root)
        return f"{buffer.name}.view({buffer.sizes})" if buffer.base else buffer.name


def lower(graph: Graph) -> tuple[list[Step], list[Buffer]]:
    """The steps of a graph in an order in which they may run, and the buffers of its outputs."""
    lowering = Lowering(graph)
    outputs = lowering.run()
    return lowering.steps, outputs
