"""What the loop IR means: it runs here with torch tensors, one element grid per loop nest.

In:   `ir.Graph` and the real inputs.  Out: the outputs; mutated inputs have been written.  Slow and
      plain: this is the definition that every code generator is tested against.

    >>> outputs = run_graph(graph, [x])

Each loop variable is an int64 tensor that varies along its own dimension, so one evaluation of a
body computes all iterations.  A load checks that every element it touches lies inside its buffer.

Mirrors nothing in PyTorch; the idea is tinygrad's ops_python.py ("the living definition of uops").
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import Tensor

from ..autograd.eager_graphs import in_layout
from ..ir.handlers import loop_indices, loops, run_body
from ..ir.loops import BufferView, ComputedBuffer, Graph, MultiOutput, Scan, Scatter
from ..ir.ops import Dtype, OpsHandler, set_handler
from ..lowering.random import fractions
from ..sizes.expressions import FloorDiv, Mod, Size
from ..sizes.symbols import extent

# --- index expressions ----------------------------------------------------------------------------
ARITHMETIC = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    sympy.Pow: operator.pow,
    FloorDiv: operator.floordiv,
    Mod: operator.mod,
    sympy.Max: lambda a, b: torch.maximum(torch.as_tensor(a), torch.as_tensor(b)),
    sympy.Min: lambda a, b: torch.minimum(torch.as_tensor(a), torch.as_tensor(b)),
}


def evaluate(expr: Size, values: dict[sympy.Symbol, Any]) -> Any:
    """A sympy expression, or an int, with symbols bound to ints or int64 tensors."""
    expr = sympy.sympify(expr)
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return values[expr]
    if isinstance(expr, sympy.Abs):
        return abs(evaluate(expr.args[0], values))
    if expr.func not in ARITHMETIC:
        raise NotImplementedError(f"index expression {expr}")
    return functools.reduce(ARITHMETIC[expr.func], [evaluate(a, values) for a in expr.args])


# --- the ops --------------------------------------------------------------------------------------
def _checking_zero(function: Callable[..., Tensor], **options: Any) -> Callable[..., Tensor]:
    """`function`, a division, that raises as eager does where an integer is divided by zero."""

    def call(a: Tensor, b: Tensor) -> Tensor:
        if not a.dtype.is_floating_point and (b == 0).any():
            raise ZeroDivisionError("ZeroDivisionError")
        return function(a, b, **options)

    return call


NOT_AS_TORCH = {  # ops that are no torch function of the same name
    "truediv": torch.div,
    "floordiv": _checking_zero(torch.div, rounding_mode="floor"),
    "truncdiv": _checking_zero(torch.div, rounding_mode="trunc"),
    "remainder": _checking_zero(torch.remainder),
    "fmod": _checking_zero(torch.fmod),
}
SCANS = {"sum": torch.cumsum, "prod": torch.cumprod, "logaddexp": torch.logcumsumexp}


class InterpreterHandler(OpsHandler):
    """Every value is a tensor that broadcasts against the grid."""

    def __init__(self, memory: dict[str, Tensor], data: Any, device: torch.device) -> None:
        self.memory = memory  # buffer name -> flat tensor
        ranges = loops(data)
        self.shape = tuple(map(int, ranges.values()))
        self.outer = self.shape[: len(data.ranges)]
        # how many elements are stored: a scan has one for each iteration, a reduction one per row
        self.written = self.shape if isinstance(data, Scan) else self.outer
        self.device = device
        self.values: dict[sympy.Symbol, Any] = {}  # symbol -> int, or int64 tensor
        for d, (symbol, size) in enumerate(ranges.items()):
            along = [-1 if k == d else 1 for k in range(len(ranges))]
            self.values[symbol] = torch.arange(int(size), device=device).view(along)
        self.mask: Tensor | None = None  # where the ops called now count; None: everywhere
        self.count = itertools.count()

    def default(self, op: str, *args: Tensor, **kwargs: Any) -> Tensor:
        result = (NOT_AS_TORCH.get(op) or getattr(torch, op))(*args)
        return result if result.dtype == torch.bool else result.to(args[0].dtype)

    def grid(self, value: Any, dtype: Dtype = torch.int64) -> Tensor:
        if torch.is_tensor(value):
            return value.to(dtype)
        return torch.tensor(value, dtype=dtype, device=self.device)

    # memory
    def load(self, name: str, index: sympy.Expr) -> Tensor:
        flat, where = self.memory[name], self.grid(evaluate(index, self.values))
        if self.mask is not None:
            where = torch.where(self.mask, where, torch.zeros_like(where))
        if not flat.numel() and (self.mask is not None or 0 in self.shape):
            # an empty buffer, of which no iteration reads an element
            return flat.new_zeros(()).expand(where.shape)
        if 0 not in (*self.shape, where.numel()):
            if int(where.min()) < 0 or int(where.max()) >= flat.numel():
                raise IndexError(f"load of {name}[{index}] is out of bounds")
        return flat[where]

    def store(self, name: str, index: sympy.Expr, value: Tensor, mode: str | None = None) -> None:
        flat = self.memory[name]
        shape = self.written
        where = self.grid(evaluate(index, self.values))
        if where.dim() > len(shape):  # the reduced dimensions, which have size 1 here
            where = where.reshape(where.shape[: len(shape)])
        where, value = where.expand(shape).reshape(-1), value.expand(shape).reshape(-1)
        assert value.dtype == flat.dtype, (name, value.dtype, flat.dtype)
        if mode:
            flat.scatter_reduce_(0, where, value, mode)
        else:
            flat[where] = value

    def reduction(self, dtype: Dtype, src_dtype: Dtype, kind: str, value: Tensor) -> Tensor:
        assert value.dtype == src_dtype, (kind, value.dtype, src_dtype)
        # the reduced dimensions as one; -1 cannot tell how long that is where there are no elements
        count = math.prod(self.shape[len(self.outer) :])
        value = value.expand(self.shape).reshape(*self.outer, count)
        if kind == "m2":
            return (value - value.mean(-1, keepdim=True)).square().sum(-1)
        if kind == "sumexp":
            return (value - value.amax(-1, keepdim=True)).exp().sum(-1)
        if kind in ("sum", "prod"):
            return getattr(torch, kind)(value, -1, dtype=dtype)
        if kind.startswith("arg") and src_dtype == torch.bool:
            value = value.to(torch.uint8)
        name = {"max": "amax", "min": "amin"}.get(kind, kind)
        return getattr(torch, name)(value, -1).to(dtype)

    def scan(self, dtype: Dtype, kind: str, value: Tensor) -> Tensor:
        flat = value.expand(self.shape).reshape(*self.outer, -1)
        return SCANS[kind](flat, -1).to(dtype).reshape(self.shape)

    def indirect_indexing(
        self, value: Tensor, size: Size | None, wrap_neg: bool = True
    ) -> sympy.Symbol:
        value = value.to(torch.int64)
        size = 2**62 if size is None else int(evaluate(size, self.values))
        if wrap_neg:
            value = torch.where(value < 0, value + size, value)
        inside = (value >= 0) & (value < size)
        if self.mask is not None:
            inside = inside | ~self.mask
        if math.prod(self.shape) and not bool(inside.all()):
            raise IndexError("index out of range in self")
        symbol = sympy.Symbol(f"interpreted{next(self.count)}", integer=True, nonnegative=True)
        self.values[symbol] = value
        return symbol

    # leaves and conversions
    def constant(self, value: float, dtype: Dtype) -> Tensor:
        return self.grid(value, dtype)

    def index_expr(self, expr: sympy.Expr, dtype: Dtype) -> Tensor:
        return self.grid(evaluate(expr, self.values), dtype)

    def to_dtype(self, x: Tensor, dtype: Dtype, src_dtype: Dtype | None = None) -> Tensor:
        return x.to(dtype)

    # control
    def where(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.where(condition, a, b)

    def masked(self, mask: Tensor, body: Callable[[], Tensor], other: float) -> Tensor:
        before = self.mask
        self.mask = mask if before is None else mask & before
        value = body()
        self.mask = before
        return torch.where(mask, value, self.grid(other, value.dtype))

    def rand(self, seed: Tensor, offset: Tensor) -> Tensor:
        return fractions(seed, offset)


# --- graphs ---------------------------------------------------------------------------------------
def _flat(tensor: Tensor) -> Tensor:
    """The memory under a tensor, from its first element on."""
    return tensor.as_strided((extent(tensor.shape, tensor.stride()),), (1,))


def run_graph(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Execute a lowered graph: the list of its outputs.  Mutated inputs are written."""
    given = dict(zip(graph.inputs, inputs)) | graph.constants
    # buffer -> its elements, flat
    memory = {name: _flat(t.detach()) for name, t in given.items() if isinstance(t, Tensor)}
    several: dict[str, Any] = {}  # eager kernel -> its several results

    def tensor_of(view: BufferView) -> Tensor:
        size, stride = [*map(int, view.size)], [*map(int, view.stride)]
        flat = memory[view.name]
        return flat.as_strided(size, stride, flat.storage_offset() + int(view.offset))

    def tensors_of(tree: Any) -> Any:
        return pytree.tree_map_only(BufferView, tensor_of, tree)

    with torch.no_grad():
        for buffer in graph.operations:
            if isinstance(buffer, ComputedBuffer):
                run_computed(buffer, memory)
                continue
            if isinstance(buffer, MultiOutput):
                value = functools.reduce(operator.getitem, buffer.index, several[buffer.source])
            else:
                value = buffer.op(*tensors_of(buffer.args), **tensors_of(buffer.kwargs))
            if buffer.layout is None:
                several[buffer.name] = value
            else:
                stride = tuple([int(n) for n in buffer.layout.stride])
                memory[buffer.name] = _flat(in_layout(value, stride))
        outputs = tensors_of(graph.outputs)
        for name, new in graph.mutations:
            given[name].copy_(tensor_of(new))
    return outputs


def run_computed(buffer: ComputedBuffer, memory: dict[str, Tensor]) -> None:
    layout = buffer.layout
    if isinstance(buffer.data, Scatter):
        memory[buffer.name] = memory[buffer.data.target]
    else:
        # (graphs of constant sizes alone run here)
        length = int(extent(layout.size, layout.stride, layout.offset))
        memory[buffer.name] = torch.empty(length, dtype=layout.dtype, device=layout.device)
    handler = InterpreterHandler(memory, buffer.data, layout.device)
    with set_handler(handler):
        run_body(buffer, *loop_indices(buffer.data))
