"""Chapter 09: operations as loops.

`lower` turns a graph into steps.  A `Loop` computes one stored tensor, the `Buffer`, element by
element; an `Extern` calls a kernel of torch (matrix products, and what else has no loop here).

A node that is no step of its own is *inlined*: it is kept as a function from an index to an
expression.  Calling that function with symbols as the index writes the expression down, through
all inlined nodes that lie before it.  (miniinductor calls this define-by-run.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .graph import POINTWISE, REDUCTIONS, VIEWS, Graph, Node
from .sizes import text_of

DEAR = ("exp", "log", "tanh", "sqrt", "div")
Index = tuple[str, ...]  # one text for each dimension: "i0", "i1", ..., "c" for the last, or "0"


def at(index: Index, shape: tuple[int, ...]) -> Index:
    """The first places of the index, as many as the shape has dimensions, with "0" in those of size
    1: one element has one index."""
    return tuple("0" if size == 1 else i for i, size in zip(index, shape, strict=False))


def rows_and_column(count: int) -> Index:
    """("i0", "i1", ..., "c"): the index of a loop over so many dimensions of rows."""
    return *(f"i{number}" for number in range(count)), "c"


@dataclass(eq=False)
class Buffer:
    """A contiguous tensor in memory.  base: the one whose memory it may share, a reshaped one."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    base: Buffer | None = None

    @property
    def root(self) -> Buffer:
        return self.base.root if self.base else self


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
    def result(self) -> Load:
        """Where the result lies: by this another loop reads the element just computed.  (The buffer
        of a reduction has no columns, or one.)"""
        return Load(self.buffer, at(rows_and_column(len(self.rows)), self.buffer.shape))


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
    """How many operations an expression consists of; a Load or a number is none."""
    return 1 + sum(map(operations, value.args)) if isinstance(value, Apply) else 0


class Lowering:
    """A graph on its way to steps.  stored: nodes that lie in memory; inlined: the others."""

    def __init__(self, graph: Graph) -> None:
        self.steps: list[Step] = []
        self.stored: dict[Node, Buffer] = {}
        self.inlined: dict[Node, Inlined] = {}
        self.users = Counter(arg for node in graph.nodes for arg in node.inputs)
        for number, node in enumerate(graph.inputs):
            self.stored[node] = Buffer(f"in{number}", node.shape, node.dtype)

    def lower(self, node: Node) -> None:
        """What becomes of a node.  Views and pointwise operations are inlined: their functions are
        methods of this class (of the name of the view, `pointwise`).  (Not so a reshape that gives
        None.)  What is pointwise, dear and has several users is stored as well.  A reduction over
        the last dimension, and no other, is a loop (`reduction`); all else torch computes
        (`extern`)."""
        inlined = None
        if node.op in VIEWS:
            inlined = getattr(self, node.op)(node)
        elif node.op in POINTWISE:
            inlined = self.pointwise(node)
        if inlined:
            self.inlined[node] = inlined
            if node.op in POINTWISE and self.users[node] > 1 and self.is_dear(node):
                self.store(node)
        elif node.op in REDUCTIONS and node.args[1] == (node.args[0].ndim - 1,):  # the columns
            self.reduction(node)
        else:
            self.extern(node)

    def is_dear(self, node: Node) -> bool:
        """Too much to be computed once for every reader: `DEAR`, or an expression of more than four
        operations (`operations`), at whatever index."""
        index = rows_and_column(node.ndim - 1)[: node.ndim]
        return node.op in DEAR or operations(self.inlined[node](index)) > 4

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
        back = [order.index(dim) for dim in range(len(order))]
        return lambda index: self.element(x, tuple(index[place] for place in back))

    def expand(self, node: Node) -> Inlined:
        """The argument's element, at the same index."""
        return lambda index: self.element(node.args[0], index)

    def reshape(self, node: Node) -> Inlined | None:
        """Dimensions of size 1 come and go for nothing: the others find their places in the index.
        None where those change as well: it is the same memory under another shape, and torch sees
        to that."""
        x, shape = node.args
        places = [dim for dim, size in enumerate(shape) if size != 1]
        own = [dim for dim, size in enumerate(x.shape) if size != 1]
        if [text_of(shape[d]) for d in places] != [text_of(x.shape[d]) for d in own]:
            return None

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
            index = at(rows_and_column(len(rows)), node.shape)
            self.add(node, Loop, rows, columns, None, self.inlined[node](index))
        return self.stored[node]

    def reduction(self, node: Node) -> None:
        """A step: a loop whose value is the argument's element at (i0, i1, ..., c), where c is
        the column that is reduced over."""
        x = node.args[0]
        value = self.element(x, rows_and_column(x.ndim - 1))
        self.add(node, Loop, x.shape[:-1], x.shape[-1], node.op, value)

    def extern(self, node: Node) -> None:
        """A step: a call of torch, with its `operand`s.  A reshaped tensor has a base: the buffer
        that was read."""
        reads: list[Buffer] = []
        args = [self.operand(arg, reads) for arg in node.args]
        self.add(node, Extern, node.op, args, reads)
        if node.op == "reshape":
            self.stored[node].base = reads[0]

    def operand(self, value: Any, reads: list[Buffer]) -> str:
        """An argument of a torch kernel, as a text; the buffers in it are added to `reads`.
        `permute` and `expand` cost nothing there: they are written behind their argument."""
        if not isinstance(value, Node):
            return text_of(value)
        if value not in self.stored and value.op in ("permute", "expand"):
            x, how = value.args
            return f"{self.operand(x, reads)}.{value.op}({text_of(how)})"
        buffer = self.store(value)
        reads.append(buffer)
        return buffer.name


def lower(graph: Graph) -> tuple[list[Step], list[Buffer]]:
    """The steps of a graph in an order in which they may run, and the buffers of its outputs."""
    lowering = Lowering(graph)
    for node in graph.nodes:
        if node.op != "input":
            lowering.lower(node)
    outputs = [lowering.store(node) for node in graph.outputs]
    return lowering.steps, outputs
