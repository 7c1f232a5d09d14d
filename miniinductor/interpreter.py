"""What the loop IR means: it runs here with torch tensors, one element grid per loop nest.

In:   `ir.Graph` and the real inputs.  Out: the outputs, and mutations done.  Slow and plain: this
      is the definition
every code generator is tested against.

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

from .handlers import loop_indices, loops, run_body
from .ir import (
    AnyLoops,
    BufferView,
    ComputedBuffer,
    ExternKernel,
    Graph,
    MultiOutput,
    Scan,
    Scatter,
    extent,
)
from .ops import BINARY, COMPARISON, UNARY, OpsHandler, set_handler
from .runtime.program import in_layout
from .sizes.expressions import FloorDiv, Mod, Size


# --- index expressions ----------------------------------------------------------------------------
def _extreme(of_tensors: Callable[..., Any], of_numbers: Callable[..., Any]) -> Callable[..., Any]:
    """The larger (smaller) of two, of which either may be a tensor."""

    def choose(a: Any, b: Any) -> Any:
        if torch.is_tensor(a) or torch.is_tensor(b):
            return of_tensors(torch.as_tensor(a), torch.as_tensor(b))
        return of_numbers(a, b)

    return choose


ARITHMETIC = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    sympy.Pow: operator.pow,
    FloorDiv: operator.floordiv,
    Mod: operator.mod,
    sympy.Max: _extreme(torch.maximum, max),
    sympy.Min: _extreme(torch.minimum, min),
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
def _div_zero_safe(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Integer division by zero stops the process in C; eager raises.  So does the interpreter."""

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if not a.dtype.is_floating_point and (b == 0).any():
            raise ZeroDivisionError("ZeroDivisionError")
        return function(a, b)

    return call


TORCH_NAME = {
    "truediv": torch.div,
    "remainder": _div_zero_safe(torch.remainder),
    "fmod": _div_zero_safe(torch.fmod),
} | {
    f"{mode}div": _div_zero_safe(functools.partial(torch.div, rounding_mode=mode))
    for mode in ("floor", "trunc")
}
SCATTER_MODES = {
    "atomic_add": "sum",
    "atomic_mul": "prod",
    "atomic_max": "amax",
    "atomic_min": "amin",
}
SCANS = {"sum": torch.cumsum, "prod": torch.cumprod, "logaddexp": torch.logcumsumexp}
WORD = 0xFFFFFFFF


def philox(seed: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Philox4x32-10: the first 32 random bits for each element of `offset` (int64), as int64;
    seed: int64, broadcast."""
    c0 = offset & WORD
    c1 = offset >> 32 & WORD
    c2 = torch.zeros_like(offset)
    c3 = torch.zeros_like(offset)
    k0 = seed & WORD
    k1 = seed >> 32 & WORD
    for _ in range(10):
        a = c0 * 0xD2511F53  # the low 64 bits, whatever the sign
        b = c2 * 0xCD9E8D57
        c0 = (b >> 32 & WORD) ^ c1 ^ k0
        c1 = b & WORD
        c2 = (a >> 32 & WORD) ^ c3 ^ k1
        c3 = a & WORD
        k0 = k0 + 0x9E3779B9 & WORD
        k1 = k1 + 0xBB67AE85 & WORD
    return c0


class InterpreterHandler(OpsHandler):
    """Every value is a tensor that broadcasts against the grid."""

    def __init__(
        self, memory: dict[str, torch.Tensor], data: AnyLoops, device: torch.device
    ) -> None:
        self.memory = memory  # buffer name -> flat tensor
        ranges = loops(data)
        self.shape = tuple(map(int, ranges.values()))
        self.outer = len(data.ranges)
        self.device = device
        self.values: dict[sympy.Symbol, Any] = {}  # symbol -> int, or int64 tensor
        for d, symbol in enumerate(ranges):
            shape = [1] * len(ranges)
            shape[d] = -1
            self.values[symbol] = torch.arange(self.shape[d], device=device).view(shape)
        self.is_scan = isinstance(data, Scan)
        self.mask: torch.Tensor | None = None
        self.count = itertools.count()

    def grid(self, value: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        if torch.is_tensor(value):
            return value.to(dtype)
        return torch.tensor(value, dtype=dtype, device=self.device)

    # memory
    def load(self, name: str, index: sympy.Expr) -> torch.Tensor:
        flat = self.memory[name]
        where = self.grid(evaluate(sympy.sympify(index), self.values))
        if self.mask is not None:
            where = torch.where(self.mask, where, torch.zeros_like(where))
            if flat.numel() == 0:
                return flat.new_zeros(()).expand(where.shape)
        if math.prod(self.shape) and where.numel():
            if int(where.min()) < 0 or int(where.max()) >= flat.numel():
                raise IndexError(f"load of {name}[{index}] is out of bounds")
        return flat[where] if flat.numel() else flat.new_empty(where.shape)

    def store(
        self, name: str, index: sympy.Expr, value: torch.Tensor, mode: str | None = None
    ) -> None:
        flat = self.memory[name]
        shape = self.shape if self.is_scan else self.shape[: self.outer]
        where = self.grid(evaluate(index, self.values))
        if where.dim() > len(shape):
            where = where.reshape(where.shape[: len(shape)])
        where, value = where.expand(shape).reshape(-1), value.expand(shape).reshape(-1)
        assert value.dtype == flat.dtype, (name, value.dtype, flat.dtype)
        if mode:
            flat.scatter_reduce_(0, where, value, SCATTER_MODES[mode])
        else:
            flat[where] = value

    def reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, kind: str, value: torch.Tensor
    ) -> torch.Tensor:
        assert value.dtype == src_dtype, (kind, value.dtype, src_dtype)
        outer = self.shape[: self.outer]
        count = math.prod(self.shape[self.outer :])
        value = value.expand(self.shape).reshape(*outer, count)
        if kind in ("argmax", "argmin"):
            if src_dtype == torch.bool:
                value = value.to(torch.uint8)
            result = getattr(torch, kind)(value, -1)
        elif kind in ("max", "min"):
            result = getattr(torch, f"a{kind}")(value, -1)
        elif kind == "any":
            result = value.to(torch.bool).any(-1)
        else:
            result = getattr(torch, kind)(value, -1, dtype=dtype)
        return result.to(dtype)

    def scan(self, dtype: torch.dtype, kind: str, value: torch.Tensor) -> torch.Tensor:
        flat = value.expand(self.shape).reshape(*self.shape[: self.outer], -1)
        return SCANS[kind](flat, -1).to(dtype).reshape(self.shape)

    def indirect_indexing(
        self, value: torch.Tensor, size: Size, wrap_neg: bool = True
    ) -> sympy.Symbol:
        value = value.to(torch.int64)
        size = int(evaluate(size, self.values))
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
    def constant(self, value: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(value, dtype=dtype, device=self.device)

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> torch.Tensor:
        return self.grid(evaluate(expr, self.values), dtype)

    def to_dtype(
        self, x: torch.Tensor, dtype: torch.dtype, src_dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        return x.to(dtype)

    # control
    def where(self, condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.where(condition, a, b)

    def masked(
        self, mask: torch.Tensor, body: Callable[[], torch.Tensor], other: float
    ) -> torch.Tensor:
        before = self.mask
        self.mask = mask if before is None else mask & before
        value = body()
        self.mask = before
        return torch.where(mask, value, torch.tensor(other, dtype=value.dtype, device=self.device))

    def rand(self, seed: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        bits = philox(seed.to(torch.int64), offset.to(torch.int64))
        return (bits >> 8).to(torch.float32) * 2.0**-24


def _torch_rule(name: str) -> Callable[..., torch.Tensor]:
    function = TORCH_NAME.get(name) or getattr(torch, name)

    def method(self: InterpreterHandler, *args: torch.Tensor) -> torch.Tensor:
        result = function(*args)
        if name in COMPARISON or result.dtype == torch.bool:
            return result
        return result.to(args[0].dtype)

    return method


for _name in UNARY + BINARY + COMPARISON:
    setattr(InterpreterHandler, _name, _torch_rule(_name))


# --- graphs ---------------------------------------------------------------------------------------
def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory under a tensor, from its first element on."""
    length = extent(tensor.shape, tensor.stride())
    if not length:
        return tensor.reshape(-1)
    return tensor.as_strided((length,), (1,), tensor.storage_offset())


def run_graph(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Execute a lowered graph: the list of its outputs.  Mutated inputs are written."""
    memory: dict[str, torch.Tensor] = {}  # buffer -> its elements, flat
    several: dict[str, Any] = {}  # eager kernel -> its several results
    for name, tensor in [*zip(graph.inputs, inputs), *graph.constants.items()]:
        if isinstance(tensor, torch.Tensor):
            memory[name] = _flat(tensor.detach())

    def view(tree: Any) -> Any:
        return pytree.tree_map_only(BufferView, lambda v: _seen(v, memory[v.name]), tree)

    with torch.no_grad():
        for buffer in graph.operations:
            if isinstance(buffer, ComputedBuffer):
                run_computed(buffer, memory)
                continue
            if isinstance(buffer, MultiOutput):
                value = several[buffer.source]
                for i in buffer.index:
                    value = value[i]
            else:
                assert isinstance(buffer, ExternKernel)
                value = buffer.op(*view(buffer.args), **view(buffer.kwargs))
            if buffer.layout is None:
                several[buffer.name] = value
            else:
                stride = tuple([int(n) for n in buffer.layout.stride])
                memory[buffer.name] = _flat(in_layout(value, stride))
        outputs = view(graph.outputs)
        written = dict(zip(graph.inputs, inputs)) | graph.constants
        for name, new in graph.mutations:
            written[name].copy_(view(new))
    return outputs


def _seen(view: BufferView, flat: torch.Tensor) -> torch.Tensor:
    size = [*map(int, view.size)]
    stride = [*map(int, view.stride)]
    return flat.as_strided(size, stride, flat.storage_offset() + int(view.offset))


def run_computed(buffer: ComputedBuffer, memory: dict[str, torch.Tensor]) -> None:
    layout = buffer.layout
    if isinstance(buffer.data, Scatter):
        memory[buffer.name] = memory[buffer.data.target]
    else:
        length = extent(layout.size, layout.stride, layout.offset)
        assert length is not None, "the interpreter runs graphs of constant sizes"
        memory[buffer.name] = torch.empty(length, dtype=layout.dtype, device=layout.device)
    handler = InterpreterHandler(memory, buffer.data, layout.device)
    with set_handler(handler):
        run_body(buffer, *loop_indices(buffer.data))
