"""Chapter 02: tensor operations as a graph, and passes over it.

A `Node` is a tensor that does not exist yet.  It behaves like one: arithmetic and methods write
new nodes into its graph.

    >>> graph = Graph()
    >>> x = graph.input((2, 3))
    >>> graph.outputs = [(x * 2).sum(-1)]
    >>> print(graph)
    in0 = input((2, 3), torch.float32) (2, 3)
    mul_1 = mul(in0, 2) (2, 3)
    sum_2 = sum(mul_1, (1,), False) (2,)
    return sum_2

Every node has one of the few operations of `EAGER`.  Functions at the end of the file compose
other operations of them (`softmax`, `layer_norm`, ...).  No operation writes to a tensor.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from .sizes import Size, plain, product

FLOAT = torch.float32
# What an operation does, by torch's own kernels: (values of its arguments) -> value.
NAMES = ("add", "sub", "mul", "neg", "exp", "log", "tanh", "sqrt", "eq", "where")
POINTWISE: dict[str, Callable] = {name: getattr(torch, name) for name in NAMES}
POINTWISE |= {"maximum": torch.clamp_min, "div": operator.truediv}  # maximum with a number
REDUCTIONS: dict[str, Callable] = {"sum": torch.sum, "amax": torch.amax}
VIEWS = {"reshape": torch.reshape, "permute": torch.permute, "expand": torch.Tensor.expand}
ATEN = torch.ops.aten  # the last two of these are derivatives
OTHERS: dict[str, Callable] = {
    "matmul": torch.matmul,
    "rows": lambda table, index: F.embedding(index, table),
    "nll": F.nll_loss,
    "add_rows": lambda g, index, count: ATEN.embedding_dense_backward(g, index, count, -1, False),
    "nll_back": lambda g, x, target: ATEN.nll_loss_backward(
        g, x, target, None, 1, -100, (target != -100).sum().float()
    ),
}
EAGER = {**POINTWISE, **REDUCTIONS, **VIEWS, **OTHERS}


class Refused(Exception):
    """This cannot be captured, or not compiled; the message says why."""


def _unary(op: str) -> Callable[[Node], Node]:
    """A method of Node that writes this operation into its graph."""
    return lambda self: self.graph.add(op, self)


def _binary(op: str) -> Callable[[Node, Any], Node]:
    return lambda self, other: self.graph.add(op, self, other)


def _reduction(op: str) -> Callable[..., Node]:
    return lambda self, dim=None, keepdim=False: self.graph.add(op, self, self.dims(dim), keepdim)


@dataclass(eq=False, repr=False)
class Node:
    """A tensor of the graph.

    op: the name of its operation, or "input".  args: nodes, numbers, tuples of sizes.
    shape: ints, or Sizes.  dtype: float32, int64 or bool.
    """

    graph: Graph
    op: str
    args: tuple
    shape: tuple[int, ...]
    dtype: torch.dtype
    name: str

    def __repr__(self) -> str:
        return self.name

    @property
    def inputs(self) -> list[Node]:
        """The arguments that are nodes."""
        return [arg for arg in self.args if isinstance(arg, Node)]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    # --- what a tensor can do ---------------------------------------------------------------------
    __add__ = __radd__ = _binary("add")
    __sub__ = _binary("sub")
    __mul__ = __rmul__ = _binary("mul")
    __truediv__ = _binary("div")
    __matmul__ = _binary("matmul")
    __neg__ = _unary("neg")
    exp = _unary("exp")
    log = _unary("log")
    tanh = _unary("tanh")
    sqrt = _unary("sqrt")
    sum = _reduction("sum")
    amax = _reduction("amax")

    def __rsub__(self, other: Any) -> Node:
        return -self + other

    def relu(self) -> Node:
        return self.graph.add("maximum", self, 0.0)

    def mean(self, dim: Any = None, keepdim: bool = False) -> Node:
        """The sum, divided by the number of elements that were added."""
        count = product(self.shape[d] for d in self.dims(dim))
        return self.sum(dim, keepdim) / count

    def reshape(self, *shape: Any) -> Node:
        """shape: the sizes one by one, or all of them as one tuple or list.  A size of -1 is
        computed from the others.  Refused if the number of elements would change."""
        is_one = len(shape) == 1 and isinstance(shape[0], (tuple, list))
        wanted = tuple(shape[0]) if is_one else shape
        missing = product(self.shape) // product(size for size in wanted if size != -1)
        result = tuple(missing if size == -1 else size for size in wanted)
        if product(result) != product(self.shape):
            raise Refused(f"shape {self.shape} cannot become {wanted}")
        return self.graph.add("reshape", self, result)

    view = reshape  # (eager mode refuses some strides; here the numbers are the same)

    def permute(self, *order: int) -> Node:
        return self.graph.add("permute", self, self.dims(order))

    def transpose(self, first: int, second: int) -> Node:
        """A `permute` that exchanges two dimensions.  `dims` makes negative ones positive."""
        order = list(range(self.ndim))
        first, second = self.dims((first, second))
        order[first], order[second] = second, first
        return self.permute(*order)

    def expand(self, shape: tuple[int, ...]) -> Node:
        return self.graph.add("expand", self, shape)

    def dims(self, dim: Any) -> tuple[int, ...]:
        """The dimensions as a tuple of numbers from 0 on; None means all of them."""
        if not isinstance(dim, (tuple, list)):
            dim = range(self.ndim) if dim is None else (dim,)
        return tuple(plain(d) % self.ndim for d in dim)


class Graph:
    """nodes: in the order in which they are computed.  outputs: those that are returned."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.outputs: list[Node] = []

    @property
    def inputs(self) -> list[Node]:
        return [node for node in self.nodes if node.op == "input"]

    def input(self, shape: tuple[int, ...], dtype: torch.dtype = FLOAT) -> Node:
        return self.add("input", tuple(shape), dtype)

    def add(self, op: str, *args: Any) -> Node:
        """A new node.  Raises Refused where eager would raise an error, or change a dtype."""
        name = f"{'in' if op == 'input' else op + '_'}{len(self.nodes)}"
        self.nodes.append(Node(self, op, args, *RESULTS[op](*args), name))
        return self.nodes[-1]

    def __str__(self) -> str:
        lines = [f"{n} = {n.op}({', '.join(map(str, n.args))}) {n.shape}" for n in self.nodes]
        return "\n".join([*lines, f"return {', '.join(map(str, self.outputs))}"])

    def run(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs for these inputs, computed by torch's kernels.  A compiled graph must give
        the same."""
        values: dict[Node, Any] = dict(zip(self.inputs, tensors, strict=True))
        for node in self.nodes:
            if node.op != "input":
                args = (values[a] if isinstance(a, Node) else a for a in node.args)
                values[node] = EAGER[node.op](*args)
        return [values[node] for node in self.outputs]


# --- shapes and dtypes of results -----------------------------------------------------------------
Result = tuple[tuple[int, ...], torch.dtype]


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape.  Compared from the right, sizes must be equal or 1; else Refused."""
    result: list[int] = []
    for place in range(1, max(map(len, shapes), default=0) + 1):
        sizes = [shape[-place] for shape in shapes if place <= len(shape)]
        wide = [size for size in sizes if size != 1]
        if any(size != wide[0] for size in wide):
            raise Refused(f"shapes {shapes} do not fit")
        result.insert(0, wide[0] if wide else 1)
    return tuple(result)


def _pointwise(*args: Any) -> Result:
    fits = (isinstance(a, Node) and a.dtype == FLOAT or type(a) in (int, float, Size) for a in args)
    if not all(fits):
        raise Refused("arithmetic of anything but float32 and numbers")
    return broadcast(*(arg.shape for arg in args if isinstance(arg, Node))), FLOAT


def _reduced(x: Node, dims: tuple[int, ...], keepdim: bool) -> Result:
    if x.dtype != FLOAT or not dims or any(x.shape[d] == 0 for d in dims):
        raise Refused("a reduction of integers, or over nothing")
    kept = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]
    return tuple(kept), x.dtype


def _matmul(a: Node, b: Node) -> Result:
    """Shape and dtype of a product.  All dimensions before the last two are a batch, to which
    `broadcast` applies.  Refused unless both operands have two dimensions or more, are FLOAT, and
    have shapes that can be multiplied."""
    if a.ndim < 2 or b.ndim < 2 or a.dtype != FLOAT or b.dtype != FLOAT:
        raise Refused("a product of vectors, or of integers")
    if a.shape[-1] != b.shape[-2]:
        raise Refused(f"shapes {a.shape} and {b.shape} cannot be multiplied")
    return (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype


RESULTS: dict[str, Callable[..., Result]] = {
    "input": lambda shape, dtype: (shape, dtype),
    **dict.fromkeys(POINTWISE, _pointwise),
    "eq": lambda a, b: (_pointwise(a, b)[0], torch.bool),
    "where": lambda *args: (broadcast(*(a.shape for a in args if isinstance(a, Node))), FLOAT),
    **dict.fromkeys(REDUCTIONS, _reduced),
    "reshape": lambda x, shape: (shape, x.dtype),
    "permute": lambda x, order: (tuple(x.shape[d] for d in order), x.dtype),
    "expand": lambda x, shape: (broadcast(x.shape, shape), x.dtype),
    "matmul": _matmul,
    "rows": lambda table, index: ((*index.shape, table.shape[1]), table.dtype),
    "nll": lambda x, target: ((), x.dtype),
    "add_rows": lambda g, index, count: ((count, g.shape[-1]), g.dtype),
    "nll_back": lambda g, x, target: (x.shape, x.dtype),
}


def bytes_of(tensor: Any) -> int:
    """Of a node, or of a buffer (chapter 09)."""
    return int(product(tensor.shape)) * tensor.dtype.itemsize


# --- passes ---------------------------------------------------------------------------------------
def without_dead_code(graph: Graph) -> None:
    """Keep the inputs, and the nodes that an output needs."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.inputs)
    graph.nodes = [node for node in graph.nodes if node in needed or node.op == "input"]


def without_repetition(graph: Graph) -> None:
    """Of several equal operations on equal arguments keep the first; the others leave
    `graph.nodes`.  Inputs and outputs stay, since two results are two tensors.  1, 1.0 and True are
    three different arguments."""
    first: dict[Any, Node] = {}
    instead: dict[Node, Node] = {}
    for node in graph.nodes:
        node.args = tuple(instead[arg] if isinstance(arg, Node) else arg for arg in node.args)
        key = node.op, tuple((type(arg), arg) for arg in node.args)
        earlier = first.setdefault(key, node)
        instead[node] = node if node.op == "input" or node in graph.outputs else earlier
    graph.nodes = [node for node in graph.nodes if instead[node] is node]


def optimize(graph: Graph) -> None:
    without_repetition(graph)
    without_dead_code(graph)


# --- what is composed of the operations above -----------------------------------------------------
def softmax(x: Node, dim: int = -1) -> Node:
    """exp(x), divided by its sum along `dim`; right for large x, too."""
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def layer_norm(
    x: Node, shape: Any, weight: Node | None = None, bias: Node | None = None, eps: float = 1e-5
) -> Node:
    """Shift and scale each row to mean 0 and variance 1 (divided by n, not n - 1).  Then multiply
    by the weight and add the bias, if given.  Refused unless `shape` is that of the last dimension
    alone."""
    if tuple(shape) != (x.shape[-1],):
        raise Refused("layer_norm over anything but the last dimension")
    centred = x - x.mean(-1, keepdim=True)
    result = centred / ((centred * centred).mean(-1, keepdim=True) + eps).sqrt()
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def gelu(x: Node, approximate: str = "none") -> Node:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); refused unless `approximate` is "tanh"."""
    if approximate != "tanh":
        raise Refused("gelu without approximate='tanh'")
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
    return 0.5 * x * (inner.tanh() + 1.0)


def linear(x: Node, weight: Node, bias: Node | None = None) -> Node:
    """x times the transposed weight, plus the bias if given."""
    result = x @ weight.transpose(0, 1)
    return result if bias is None else result + bias


def embedding(index: Node, table: Node, *options: Any) -> Node:
    """Refused unless the options have the values that a module without options passes."""
    if options not in ((), (None, None, 2.0, False, False)):
        raise Refused("an embedding with one of its options")
    return table.graph.add("rows", table, index)


def cross_entropy(logits: Node, target: Node) -> Node:
    """Apply the operation "nll" to the logarithm of the softmax of each row, which is x - max -
    log(sum(exp(x - max))).  Refused unless the shapes are (n, classes) and (n,), and the targets
    int64."""
    if logits.ndim != 2 or target.ndim != 1 or target.dtype != torch.int64:
        raise Refused("cross_entropy of other shapes than (n, classes) and (n,)")
    shifted = logits - logits.amax(-1, keepdim=True)
    log_softmax = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return logits.graph.add("nll", log_softmax, target)


def where(condition: Node, a: Any, b: Any) -> Node:
    return condition.graph.add("where", condition, a, b)
