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

import sympy
import torch
import torch.utils._pytree as pytree

from .handlers import loop_indices, loops, run_body
from .sizes.expressions import FloorDiv, Mod
from .ir import BufferView, ComputedBuffer, ExternKernel, MultiOutput, Scan, Scatter, extent
from .random import philox
from .runtime.program import in_layout
from .ops import BINARY, COMPARISON, UNARY, OpsHandler, set_handler


# --- index expressions ----------------------------------------------------------------------------
def _extreme(choose):
    return lambda a, b: (
        getattr(torch, choose)(*map(torch.as_tensor, (a, b)))
        if torch.is_tensor(a) or torch.is_tensor(b)
        else (max if choose == "maximum" else min)(a, b)
    )


ARITHMETIC = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    sympy.Pow: operator.pow,
    FloorDiv: operator.floordiv,
    Mod: operator.mod,
    sympy.Max: _extreme("maximum"),
    sympy.Min: _extreme("minimum"),
}


def evaluate(expr, values):
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
def _div_zero_safe(function):
    """Integer division by zero stops the process in C; eager raises.  So does the interpreter."""

    def call(a, b):
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


class InterpreterHandler(OpsHandler):
    """Every value is a tensor that broadcasts against the grid."""

    def __init__(self, memory, data, device):
        self.memory = memory  # buffer name -> flat tensor
        ranges = loops(data)
        self.shape, self.outer, self.device = (
            tuple(map(int, ranges.values())),
            len(data.ranges),
            device,
        )
        self.values = {}  # symbol -> int, or int64 tensor
        for d, symbol in enumerate(ranges):
            self.values[symbol] = torch.arange(self.shape[d], device=device).view(
                [-1 if k == d else 1 for k in range(len(ranges))]
            )
        self.is_scan = isinstance(data, Scan)
        self.mask, self.count = None, itertools.count()

    def grid(self, value, dtype=torch.int64):
        value = (
            value
            if torch.is_tensor(value)
            else torch.tensor(value, dtype=dtype, device=self.device)
        )
        return value.to(dtype)

    # memory
    def load(self, name, index):
        flat = self.memory[name]
        where = self.grid(evaluate(sympy.sympify(index), self.values))
        if self.mask is not None:
            where = torch.where(self.mask, where, torch.zeros_like(where))
            if flat.numel() == 0:
                return flat.new_zeros(()).expand(where.shape)
        if (
            math.prod(self.shape)
            and where.numel()
            and not (0 <= int(where.min()) and int(where.max()) < flat.numel())
        ):
            raise IndexError(f"load of {name}[{index}] is out of bounds")
        return flat[where] if flat.numel() else flat.new_empty(where.shape)

    def store(self, name, index, value, mode=None):
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

    def reduction(self, dtype, src_dtype, kind, value):
        assert value.dtype == src_dtype, (kind, value.dtype, src_dtype)
        outer = self.shape[: self.outer]
        count = math.prod(self.shape[self.outer :])
        value = value.expand(self.shape).reshape(*outer, count)
        if kind in ("argmax", "argmin"):
            result = getattr(torch, kind)(
                value.to(torch.uint8) if src_dtype == torch.bool else value, -1
            )
        elif kind in ("max", "min"):
            result = getattr(torch, f"a{kind}")(value, -1)
        elif kind == "any":
            result = value.to(torch.bool).any(-1)
        else:
            result = getattr(torch, kind)(value, -1, dtype=dtype)
        return result.to(dtype)

    def scan(self, dtype, kind, value):
        flat = value.expand(self.shape).reshape(*self.shape[: self.outer], -1)
        result = {"sum": torch.cumsum, "prod": torch.cumprod, "logaddexp": torch.logcumsumexp}[
            kind
        ](flat, -1)
        return result.to(dtype).reshape(self.shape)

    def indirect_indexing(self, value, size, wrap_neg=True):
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
    def constant(self, value, dtype):
        return torch.tensor(value, dtype=dtype, device=self.device)

    def index_expr(self, expr, dtype):
        return self.grid(evaluate(expr, self.values), dtype)

    def to_dtype(self, x, dtype, src_dtype=None):
        return x.to(dtype)

    # control
    def where(self, condition, a, b):
        return torch.where(condition, a, b)

    def masked(self, mask, body, other):
        before, self.mask = self.mask, mask if self.mask is None else mask & self.mask
        value = body()
        self.mask = before
        return torch.where(mask, value, torch.tensor(other, dtype=value.dtype, device=self.device))

    def rand(self, seed, offset):
        return (philox(seed.to(torch.int64), offset.to(torch.int64)) >> 8).to(
            torch.float32
        ) * 2.0**-24


def _torch_rule(name):
    function = TORCH_NAME.get(name) or getattr(torch, name)

    def method(self, *args):
        result = function(*args)
        return (
            result if name in COMPARISON or result.dtype == torch.bool else result.to(args[0].dtype)
        )

    return method


for _name in UNARY + BINARY + COMPARISON:
    setattr(InterpreterHandler, _name, _torch_rule(_name))


# --- graphs ---------------------------------------------------------------------------------------
def _flat(tensor):
    """The memory under a tensor, from its first element on."""
    if tensor.numel() == 0:
        return tensor.reshape(-1)
    return tensor.as_strided(
        (extent(tensor.shape, tensor.stride()),), (1,), tensor.storage_offset()
    )


def run_graph(graph, inputs):
    """Execute a lowered graph: the list of its outputs.  Mutated inputs are written."""
    memory, several = {}, {}
    for name, tensor in [*zip(graph.inputs, inputs), *graph.constants.items()]:
        if isinstance(tensor, torch.Tensor):
            memory[name] = _flat(tensor.detach())

    def seen(v):
        flat = memory[v.name]
        return flat.as_strided(
            [*map(int, v.size)], [*map(int, v.stride)], flat.storage_offset() + int(v.offset)
        )

    def view(tree):
        return pytree.tree_map_only(BufferView, seen, tree)

    with torch.no_grad():
        for buffer in graph.operations:
            if isinstance(buffer, MultiOutput):
                value = several[buffer.source]
                for i in buffer.index:
                    value = value[i]
                memory[buffer.name] = _flat(in_layout(value, [*map(int, buffer.layout.stride)]))
            elif isinstance(buffer, ExternKernel):
                value = buffer.op(*view(buffer.args), **view(buffer.kwargs))
                if buffer.layout is None:
                    several[buffer.name] = value
                else:
                    memory[buffer.name] = _flat(in_layout(value, [*map(int, buffer.layout.stride)]))
            else:
                assert isinstance(buffer, ComputedBuffer)
                run_computed(buffer, memory)
        outputs = view(graph.outputs)
        by_name = dict(zip(graph.inputs, inputs))
        for name, value in graph.mutations:
            (by_name | graph.constants)[name].copy_(view(value))
    return outputs


def run_computed(buffer, memory):
    layout = buffer.layout
    if isinstance(buffer.data, Scatter):
        memory[buffer.name] = memory[buffer.data.target]
    else:
        memory[buffer.name] = torch.empty(
            extent(layout.size, layout.stride, layout.offset),
            dtype=layout.dtype,
            device=layout.device,
        )
    handler = InterpreterHandler(memory, buffer.data, layout.device)
    with set_handler(handler):
        run_body(buffer, *loop_indices(buffer.data))
