"""Handlers that look at a loop body without computing: its text, its dtypes.

In:   a buffer whose body is a function over `ops`.  Out: `PrintHandler` has its text and
      `DtypeHandler` the dtypes of its values; `run_body` plays it to any handler.

    >>> print(buffer_text(buffer))
    buf0: float32[4, 8] = pointwise i0 < 4, i1 < 8
        tmp0 = load(arg0, 8*i0 + i1)
        tmp1 = exp(tmp0)
        store(buf0, 8*i0 + i1, tmp1)

Mirrors torch/_inductor/ops_handler.py and dtype_propagation.py.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
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
    origin,
    playing,
)
from .ops import BINARY, COMPARISON, TRUTHS, UNARY, Dtype, OpsHandler, Value, fill, ops, set_handler
from .listings import Listing, Marked
from .sizes.expressions import Size


# --- text -----------------------------------------------------------------------------------------
class PrintHandler(OpsHandler):
    """Each op becomes a line `tmpN = op(...)`; equal lines are written once."""

    def __init__(self) -> None:
        self.lines: list[Marked] = []
        # "exp(tmp0)" -> "tmp1"; what an indirect_indexing is given -> its symbol
        self.names: dict[Any, Any] = {}
        self.count = itertools.count()
        self.indirect = itertools.count()

    def emit(self, op: str, text: str) -> str:
        if text not in self.names:
            self.names[text] = f"tmp{next(self.count)}"
            self.say(f"{self.names[text]} = {text}", op)
        return self.names[text]

    def say(self, text: str, op: str) -> None:
        """A line, which comes from the instruction or the FX node whose op is called."""
        instruction = playing.value
        name, node = ("", origin.value) if instruction is None else instruction.about
        self.lines.append(Marked.of(text, name, (node,) if node else (), op=op))

    def store(self, name: str, index: sympy.Expr, value: Value, mode: str | None = None) -> None:
        self.say(f"store({name}, {index}, {value}{', ' + mode if mode else ''})", "store")

    def indirect_indexing(self, value: Value, size: Size, wrap_neg: bool = True) -> sympy.Symbol:
        key = ("indirect", value, size, wrap_neg)
        if key not in self.names:
            symbol = self.names[key] = indirect_symbol(self.indirect)
            no_wrap = "" if wrap_neg else ", no wrap"
            self.say(f"{symbol} = indirect_indexing({value}, {size}{no_wrap})", "indirect_indexing")
        return self.names[key]

    def masked(self, mask: Value, body: Callable[[], Value], other: float) -> str:
        outer, names = self.lines, dict(self.names)
        self.lines = []
        value = body()
        inner = self.lines
        self.lines, self.names = outer, names  # names that the body defined end with it
        name = f"tmp{next(self.count)}"
        self.say(f"{name} = masked({mask}, other={other}):", "masked")
        self.lines += [line.written(f"    {line}") for line in inner]
        self.lines.append(self.lines[-1].written(f"    {value}"))
        return name


def indirect_symbol(count: Iterator[int]) -> sympy.Symbol:
    """A fresh symbol for a position that is data."""
    return sympy.Symbol(f"indirect{next(count)}", integer=True, nonnegative=True)


def _show(argument: Any) -> str:
    if isinstance(argument, (list, tuple)):
        return f"[{', '.join(map(_show, argument))}]"
    if isinstance(argument, BufferView):
        return f"{argument.name}{list(argument.size)}"
    return str(argument).replace("torch.", "")


def _printed(name: str) -> Callable[..., str]:
    def method(self: PrintHandler, *args: Any, **kwargs: Any) -> str:
        return self.emit(name, f"{name}({', '.join(map(_show, [*args, *kwargs.values()]))})")

    return method


fill(PrintHandler, _printed)


def buffer_lines(buffer: Any) -> list[Marked]:
    """One operation of a graph as text: a head, and the statements of its body."""
    layout = buffer.layout
    where = f"{_show(layout.dtype)}{list(layout.size)}" if layout is not None else "(several)"
    origins = f"    # {', '.join(sorted(map(str, buffer.origins)))}" if buffer.origins else ""
    handler, op = PrintHandler(), "buffer"
    if isinstance(buffer, MultiOutput):
        what = f"{buffer.source}{list(buffer.index)}"
    elif isinstance(buffer, ExternKernel):
        arguments = [_show(value) for value in buffer.args]
        arguments += [f"{key}={_show(value)}" for key, value in buffer.kwargs.items()]
        what, op = f"{buffer.op}({', '.join(arguments)})", str(buffer.op)
    else:
        assert isinstance(buffer, ComputedBuffer)
        origin.value = ""
        with set_handler(handler):
            run_body(buffer, *loop_indices(buffer.data))
        ranges = ", ".join(f"{i} < {n}" for i, n in loops(buffer.data).items())
        what = f"{type(buffer.data).__name__.lower()} {ranges}"
    made_of = sorted(map(str, buffer.origins))
    head = Marked.of(f"{buffer.name}: {where} = {what}{origins}", buffer.name, made_of, op=op)
    lines = [line.written(f"    {line}") for line in handler.lines]
    for number, line in enumerate(lines):
        line.name = f"{buffer.name}:{number}"
    return [head, *lines]


def buffer_text(buffer: Any) -> str:
    """One operation of a graph as text."""
    return "\n".join(buffer_lines(buffer))


def graph_text(graph: Graph) -> Listing:
    return Listing.of([line for buffer in graph.operations for line in buffer_lines(buffer)])


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
INDEX_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class DtypeError(AssertionError):
    """A body mixes dtypes or stores the wrong one: a bug in a lowering."""


def expect(what: str, want: Dtype, *given: Dtype) -> Dtype:
    """`want`; DtypeError if one of the `given` dtypes is another."""
    for dtype in given:
        if dtype != want:
            raise DtypeError(f"{what} of {want} is given {dtype}")
    return want


class DtypeHandler(OpsHandler):
    """The value of each op is its dtype; operands of one op must agree."""

    def __init__(self, dtype_of_buffer: Callable[[str], Dtype]) -> None:
        self.dtype_of_buffer = dtype_of_buffer
        self.count = itertools.count()

    def load(self, name: str, index: sympy.Expr) -> Dtype:
        return self.dtype_of_buffer(name)

    def store(self, name: str, index: sympy.Expr, value: Dtype, mode: str | None = None) -> None:
        expect(f"store to {name}", self.dtype_of_buffer(name), value)

    def reduction(self, dtype: Dtype, src_dtype: Dtype, kind: str, value: Dtype) -> Dtype:
        expect(f"reduction {kind}", src_dtype, value)
        return dtype

    def scan(self, dtype: Dtype, kind: str, value: Dtype) -> Dtype:
        return expect(f"scan {kind}", dtype, value)

    def indirect_indexing(self, value: Dtype, size: Size, wrap_neg: bool = True) -> sympy.Symbol:
        if value not in INDEX_DTYPES:
            raise DtypeError(f"an index of dtype {value}")
        return indirect_symbol(self.count)

    def constant(self, value: float, dtype: Dtype) -> Dtype:
        return dtype

    def index_expr(self, expr: sympy.Expr, dtype: Dtype) -> Dtype:
        return dtype

    def to_dtype(self, x: Dtype, dtype: Dtype, src_dtype: Dtype | None = None) -> Dtype:
        expect("to_dtype", src_dtype or x, x)
        return dtype

    def where(self, condition: Dtype, a: Dtype, b: Dtype) -> Dtype:
        expect("where", torch.bool, condition)
        return expect("where", a, b)

    def masked(self, mask: Dtype, body: Callable[[], Dtype], other: float) -> Dtype:
        expect("masked", torch.bool, mask)
        return body()

    def rand(self, seed: Dtype, offset: Dtype) -> Dtype:
        return torch.float32


def _dtype_rule(name: str) -> Callable[..., Dtype]:
    def method(self: DtypeHandler, *args: Dtype) -> Dtype:
        dtype = expect(name, *args)  # the others' must be the first one's
        return torch.bool if name in TRUTHS else dtype

    return method


for _name in UNARY + BINARY + COMPARISON:
    setattr(DtypeHandler, _name, _dtype_rule(_name))
