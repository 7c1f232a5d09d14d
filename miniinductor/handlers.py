"""Handlers that read a loop body without running it: text, counts, dtypes.

In:   a body (a function over `ops`).  Out: `PrintHandler` gives its text, `DtypeHandler` the dtype
      of its value.

    >>> print(buffer_text(buffer))
    buf0: float32[4, 8] = pointwise i0 < 4, i1 < 8
        tmp0 = load(arg0, 8*i0 + i1)
        tmp1 = exp(tmp0)
        store(buf0, 8*i0 + i1, tmp1)

Mirrors torch/_inductor/ops_handler.py and dtype_propagation.py.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import sympy
import torch

from .ir import (
    AnyLoops,
    BufferView,
    ComputedBuffer,
    ExternKernel,
    Graph,
    Index,
    MultiOutput,
    Reduction,
    Scan,
    Scatter,
)
from .ops import BINARY, COMPARISON, UNARY, OpsHandler, Value, fill, ops, set_handler
from .sizes.expressions import Size


# --- text -----------------------------------------------------------------------------------------
class PrintHandler(OpsHandler):
    """Each op becomes a line `tmpN = op(...)`; equal lines are written once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Any, Any] = {}  # the text of an op, or the key of an index -> its name
        self.count = itertools.count()
        self.indirect = itertools.count()

    def emit(self, text: str) -> str:
        if text not in self.names:
            self.names[text] = f"tmp{next(self.count)}"
            self.lines.append(f"{self.names[text]} = {text}")
        return self.names[text]

    def store(self, name: str, index: sympy.Expr, value: Value, mode: str | None = None) -> None:
        self.lines.append(f"store({name}, {index}, {value}{', ' + mode if mode else ''})")

    def indirect_indexing(self, value: Value, size: Size, wrap_neg: bool = True) -> sympy.Symbol:
        key = ("indirect", value, size, wrap_neg)
        if key not in self.names:
            symbol = self.names[key] = sympy.Symbol(
                f"indirect{next(self.indirect)}", integer=True, nonnegative=True
            )
            self.lines.append(
                f"{symbol} = indirect_indexing({value}, {size}{'' if wrap_neg else ', no wrap'})"
            )
        return self.names[key]

    def masked(self, mask: Value, body: Callable[[], Value], other: float) -> str:
        outer, self.lines, names = self.lines, [], dict(self.names)
        value = body()
        inner, self.lines, self.names = self.lines, outer, names
        name = f"tmp{next(self.count)}"
        self.lines.append(f"{name} = masked({mask}, other={other}):")
        self.lines += [f"    {line}" for line in [*inner, value]]
        return name


def _show(argument: Any) -> str:
    return str(argument).replace("torch.", "")


def _printed(name: str) -> Callable[..., str]:
    def method(self: PrintHandler, *args: Any, **kwargs: Any) -> str:
        return self.emit(f"{name}({', '.join(map(_show, [*args, *kwargs.values()]))})")

    return method


fill(PrintHandler, _printed)


def buffer_text(buffer: Any) -> str:
    """One operation of a graph as text."""
    layout = buffer.layout
    where = f"{_show(layout.dtype)}{list(layout.size)}" if layout is not None else "(several)"
    origins = f"    # {', '.join(sorted(map(str, buffer.origins)))}" if buffer.origins else ""
    if isinstance(buffer, MultiOutput):
        return f"{buffer.name}: {where} = {buffer.source}{list(buffer.index)}{origins}"
    if isinstance(buffer, ExternKernel):
        arguments = [
            *map(_show_argument, buffer.args),
            *(f"{k}={_show_argument(v)}" for k, v in buffer.kwargs.items()),
        ]
        return f"{buffer.name}: {where} = {buffer.op}({', '.join(arguments)}){origins}"
    assert isinstance(buffer, ComputedBuffer)
    handler = PrintHandler()
    with set_handler(handler):
        run_body(buffer, *loop_indices(buffer.data))
    ranges = ", ".join(f"{i} < {n}" for i, n in loops(buffer.data).items())
    lines = [f"{buffer.name}: {where} = {type(buffer.data).__name__.lower()} {ranges}{origins}"]
    return "\n".join(lines + [f"    {line}" for line in handler.lines])


def _show_argument(argument: Any) -> str:
    if isinstance(argument, (list, tuple)):
        return f"[{', '.join(map(_show_argument, argument))}]"
    if isinstance(argument, BufferView):
        return f"{argument.name}{list(argument.size)}"
    return _show(argument)


def graph_text(graph: Graph) -> str:
    return "\n".join(buffer_text(b) for b in graph.operations)


setattr(Graph, "__repr__", graph_text)  # what a notebook shows of a lowered graph
setattr(ComputedBuffer, "__repr__", buffer_text)


# --- running a body under any handler -------------------------------------------------------------
def loop_indices(data: AnyLoops) -> tuple[list[sympy.Symbol], list[sympy.Symbol]]:
    """Loop variables of a body: i0, i1, ... and r0, r1, ... for the reduced ones."""
    return loop_variables("i", len(data.ranges)), loop_variables("r", len(data.reduction_ranges))


def loops(data: AnyLoops) -> dict[sympy.Symbol, Size]:
    """Loop variable -> how far it runs."""
    index, reduction_index = loop_indices(data)
    return dict(zip(index + reduction_index, [*data.ranges, *data.reduction_ranges]))


@functools.cache
def loop_variable(prefix: str, number: int) -> sympy.Symbol:
    return sympy.Symbol(f"{prefix}{number}", integer=True, nonnegative=True)


def loop_variables(prefix: str, count: int) -> list[sympy.Symbol]:
    return [loop_variable(prefix, i) for i in range(count)]


def run_body(buffer: ComputedBuffer, index: Index, reduction_index: Index) -> None:
    """Call the buffer's body, its reduction and its store, on the installed handler."""
    data = buffer.data
    place = index
    if isinstance(data, Reduction):
        value = data.inner_fn(index, reduction_index)
        value = ops.reduction(data.dtype, data.src_dtype, data.kind, value)
    elif isinstance(data, Scan):
        value = ops.scan(data.src_dtype, data.kind, data.inner_fn(index, reduction_index))
        if data.dtype != data.src_dtype:
            value = ops.to_dtype(value, data.dtype, data.src_dtype)
        place = data.output_index(index, reduction_index)
    else:
        value = data.inner_fn(index)
        if isinstance(data, Scatter):
            place = data.output_index(index)
    ops.store(buffer.name, buffer.layout.indexer(place), value, getattr(data, "mode", None))


# --- dtypes ---------------------------------------------------------------------------------------
class DtypeError(AssertionError):
    """A body mixes dtypes or stores the wrong one: a bug in a lowering."""


class DtypeHandler(OpsHandler):
    """The value of each op is its dtype; operands of one op must agree."""

    def __init__(self, dtype_of_buffer: Callable[[str], torch.dtype]) -> None:
        self.dtype_of_buffer, self.count = dtype_of_buffer, itertools.count()

    def load(self, name: str, index: sympy.Expr) -> torch.dtype:
        return self.dtype_of_buffer(name)

    def store(
        self, name: str, index: sympy.Expr, value: torch.dtype, mode: str | None = None
    ) -> None:
        want = self.dtype_of_buffer(name)
        if value != want:
            raise DtypeError(f"{name} holds {want}, the body stores {value}")

    def reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, kind: str, value: torch.dtype
    ) -> torch.dtype:
        if value != src_dtype:
            raise DtypeError(f"reduction {kind} of {src_dtype} is given {value}")
        return dtype

    def scan(self, dtype: torch.dtype, kind: str, value: torch.dtype) -> torch.dtype:
        if value != dtype:
            raise DtypeError(f"scan {kind} of {dtype} is given {value}")
        return dtype

    def indirect_indexing(
        self, value: torch.dtype, size: Size, wrap_neg: bool = True
    ) -> sympy.Symbol:
        if value not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
            raise DtypeError(f"an index of dtype {value}")
        return sympy.Symbol(f"indirect{next(self.count)}", integer=True, nonnegative=True)

    def constant(self, value: float, dtype: torch.dtype) -> torch.dtype:
        return dtype

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> torch.dtype:
        return dtype

    def to_dtype(
        self, x: torch.dtype, dtype: torch.dtype, src_dtype: torch.dtype | None = None
    ) -> torch.dtype:
        if src_dtype is not None and src_dtype != x:
            raise DtypeError(f"to_dtype from {src_dtype} is given {x}")
        return dtype

    def where(self, condition: torch.dtype, a: torch.dtype, b: torch.dtype) -> torch.dtype:
        self.same("where", a, b)
        if condition != torch.bool:
            raise DtypeError(f"where on {condition}")
        return a

    def masked(self, mask: torch.dtype, body: Callable[[], Value], other: float) -> torch.dtype:
        if mask != torch.bool:
            raise DtypeError(f"masked by {mask}")
        return body()

    def rand(self, seed: torch.dtype, offset: torch.dtype) -> torch.dtype:
        return torch.float32

    def same(self, op: str, first: torch.dtype, *others: torch.dtype) -> torch.dtype:
        if any(o != first for o in others):
            raise DtypeError(f"{op} of {[first, *others]}: operands must have one dtype")
        return first


BOOLEAN = COMPARISON + (
    "logical_not",
    "logical_and",
    "logical_or",
    "logical_xor",
    "isnan",
    "isinf",
    "signbit",
)


def _dtype_rule(name: str) -> Callable[..., torch.dtype]:
    def method(self: DtypeHandler, *args: torch.dtype) -> torch.dtype:
        dtype = self.same(name, *args)
        return torch.bool if name in BOOLEAN else dtype

    return method


for _name in UNARY + BINARY + COMPARISON:
    setattr(DtypeHandler, _name, _dtype_rule(_name))
