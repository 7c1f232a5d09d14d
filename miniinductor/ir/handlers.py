"""Handlers of a loop body's closure: it is recorded, printed, its dtypes are checked.

In:   an FX graph, a lowered graph, one buffer or loop body of it.
Out:  a recorded `LoopBody` (dependencies.py) of a `ComputedBuffer`; lines that know what they show
      (`lines_of` in records.py finds the function by the class); dtypes; `BadGraph` where a lowered
      graph makes no sense.

    >>> trace(buffer).reads()
    [Access(name='arg0', index=8*x0 + x1, mode=None)]

The recorder keeps an integer that is computed from `index_expr`s and constants as an expression,
and uses that in an index: x[arange(n) + 1] reads x at x0 + 1, and no index is loaded or checked.

    >>> print(buffer)
    buf0: float32[4, 8] = pointwise i0 < 4, i1 < 8
        tmp0 = load(arg0, 8*i0 + i1)
        tmp1 = exp(tmp0)
        store(buf0, 8*i0 + i1, tmp1)
    >>> verify_graph(graph)

`verify_graph` runs between lowering and scheduling (`config.verify`, on by default).  Its rules:
every buffer that is read was made before; the operands of each op have one dtype, and a body stores
its buffer's dtype; a load that no mask protects stays inside its buffer, where the sizes are
numbers.  A rule broken here is a bug in a lowering, found before it becomes a wrong number.

Mirrors torch/_inductor/dependencies.py, index_propagation.py, dtype_propagation.py, and the
`KernelFormatterHandler` in ops_handler.py; the idea of a verifier is tinygrad's uop/spec.py.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch import fx

from ..records import Marked, lines_of
from ..sizes.expressions import FloorDiv, Position, Size, flatten
from ..sizes.symbols import bounds, extent, lies_in
from .dependencies import Instruction, LoopBody, Ref, Result
from .loops import (
    BufferView,
    ComputedBuffer,
    ExternKernel,
    Graph,
    Index,
    Layout,
    MultiOutput,
    buffer_views,
    origin,
    playing,
)
from .ops import (
    COMPARISON,
    INTEGER_DIVISIONS,
    LOGICAL,
    TESTS,
    Dtype,
    OpsHandler,
    Value,
    exact_key,
    indirect_symbol,
    loop_variables,
    ops,
    set_handler,
)


# --- bodies that are run --------------------------------------------------------------------------
def run_body(buffer: ComputedBuffer, index: Index, reduction_index: Index) -> None:
    """Call the buffer's body, its reduction and its store, on the installed handler."""
    value, place = buffer.data.element(index, reduction_index)
    mode = getattr(buffer.data, "mode", None)
    ops.store(buffer.name, buffer.layout.indexer(place), value, mode)


def loop_indices(data: Any) -> tuple[list[sympy.Symbol], list[sympy.Symbol]]:
    """Loop variables of a body: i0, i1, ... and r0, r1, ... for the reduced ones."""
    return loop_variables("i", len(data.ranges)), loop_variables("r", len(data.reduction_ranges))


def loops(data: Any) -> dict[sympy.Symbol, Size]:
    """Loop variable -> how far it runs."""
    index, reduction_index = loop_indices(data)
    return dict(zip(index + reduction_index, [*data.ranges, *data.reduction_ranges]))


# --- recording ------------------------------------------------------------------------------------
FOLLOWED = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "maximum": sympy.Max,
    "minimum": sympy.Min,
    "abs": sympy.Abs,
}


class Recorder(OpsHandler):
    """Writes each op down, equal ones once, and follows the integers that are known."""

    buffer = ""  # whose body it is
    flat_reduction_index: sympy.Expr

    def __init__(self, ranges: Mapping[sympy.Symbol, Size]):
        self.instructions: list[Instruction] = []
        self.seen: dict[tuple, object] = {}
        self.count = itertools.count()
        self.ranges = ranges
        # Ref -> the expression that it equals, and its dtype
        self.known: dict[object, tuple[sympy.Expr, torch.dtype]] = {}
        # upper bounds of integers that are not negative: n for x.clamp(0, n)
        self.highest: dict[Ref, sympy.Expr] = {}

    def default(self, op: str, *args: Any, **kwargs: Any) -> Result:
        return self.emit(op, *args, *kwargs.values())

    def emit(
        self, op: str, *args: object, block: tuple = (), make: Callable[[int], Result] = Ref
    ) -> Result:
        """Record an op, or find an equal one.  make: gives the result, from its number."""
        key = (op, exact_key(args))
        if not block and op != "store" and key in self.seen:
            return self.seen[key]
        result = make(next(self.count))
        first, node = (self.buffer, result), origin.value
        if playing.value is not None:
            first, node = playing.value.first, playing.value.origin
        self.instructions.append(Instruction(op, args, result, block, node, first))
        self.seen[key] = result
        return result

    def reduction(
        self,
        dtype: torch.dtype,
        src_dtype: torch.dtype,
        kind: str,
        value: Ref,
        flat: sympy.Expr | None = None,
    ) -> Ref:
        if flat is None:  # (a sum asks for no place: its loops may be merged in any order)
            flat = self.flat_reduction_index if kind.startswith("arg") else sympy.Integer(0)
        return self.emit("reduction", dtype, src_dtype, kind, value, flat)

    def indirect_indexing(self, value: Ref, size: Size, wrap_neg: bool = True) -> sympy.Expr:
        known = self.expressions(value)
        if known is not None and lies_in(known[0], size, self.ranges):
            return known[0]
        if lies_in(self.highest.get(value, sympy.oo), size, self.ranges):
            size, wrap_neg = None, False  # no check is needed
        position = lambda number: Position(f"indirect{number}", integer=True)  # noqa: E731
        return self.emit("indirect_indexing", value, size, wrap_neg, make=position)

    def masked(self, mask: Ref, body: Callable[[], Ref], other: object) -> Ref:
        outside, seen = self.instructions, self.seen
        self.instructions, self.seen = [], dict(seen)
        value = body()
        block, self.instructions, self.seen = tuple(self.instructions), outside, seen
        return self.emit("masked", mask, value, other, block=block)

    # -- integers that are known
    def expressions(self, *args: object) -> list[sympy.Expr] | None:
        """The expressions that these values equal, if all have one."""
        return [self.known[a][0] for a in args] if self.known.keys() >= set(args) else None

    def knows(self, result: Ref, expr: sympy.Expr | None, dtype: torch.dtype) -> Ref:
        """Note that `result` equals `expr`, if the dtype holds that without wrapping."""
        if expr is not None and dtype in (torch.int32, torch.int64) and self.holds(dtype, expr):
            self.known[result] = expr, dtype
        return result

    def holds(self, dtype: torch.dtype, expr: sympy.Expr) -> bool:
        """Does `expr` stay within the range of the dtype?  Products of symbolic sizes, which count
        elements, stay within that of int64."""
        limits, end = bounds(expr, self.ranges), 1 << 8 * dtype.itemsize - 1
        if limits is not None:
            return -end <= limits[0] and limits[1] < end
        return dtype == torch.int64 and all(abs(n) < 1 << 31 for n in expr.atoms(sympy.Integer))

    def index_expr(self, expr: Size, dtype: torch.dtype) -> Ref:
        expr = sympy.sympify(expr)
        return self.knows(self.emit("index_expr", expr, dtype), expr, dtype)

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Ref:
        number = sympy.Integer(int(value)) if isinstance(value, int) else None
        return self.knows(self.emit("constant", value, dtype), number, dtype)

    def to_dtype(self, x: Ref, dtype: torch.dtype, src_dtype: torch.dtype | None = None) -> Ref:
        expr, _ = self.known.get(x, (None, None))
        return self.knows(self.emit("to_dtype", x, dtype, src_dtype), expr, dtype)

    def arithmetic(self, op: str, *args: Ref) -> Ref:
        result, known = self.emit(op, *args), self.expressions(*args)
        if known is not None:
            self.knows(result, sympy.expand(FOLLOWED[op](*known)), self.known[args[0]][1])
        last = self.expressions(args[-1])
        if op == "maximum" and last == [0]:
            self.highest[result] = sympy.oo
        if op == "minimum" and last and self.highest.get(args[0]) is sympy.oo:
            self.highest[result] = last[0]
        return result

    def floordiv(self, a: Ref, b: Ref) -> Ref:
        """Of an index of 32 bits by a number: no check, it is not zero."""
        known = self.expressions(a, b)
        if known and known[1].is_positive and lies_in(known[0], 1 << 31, self.ranges):
            return self.index_expr(FloorDiv(*known), self.known[a][1])
        return self.emit("floordiv", a, b)

    add, sub, mul, maximum, minimum, abs = map(
        functools.partialmethod, [arithmetic] * len(FOLLOWED), FOLLOWED
    )


def trace(buffer: ComputedBuffer) -> LoopBody:
    """Record the body of a buffer once, over the buffer's own ranges."""
    data = buffer.data
    outer, inner = tuple(data.ranges), tuple(data.reduction_ranges)
    x, r = loop_variables("x", len(outer)), loop_variables("r", len(inner))
    recorder = Recorder(dict(zip(x + r, outer + inner)))
    recorder.flat_reduction_index, recorder.buffer = flatten(r, inner), buffer.name
    with origin.set(""), set_handler(recorder):
        run_body(buffer, x, r)
    body = LoopBody(outer, inner, without_unused(recorder.instructions))
    return body.rewritten(lambda e: e)  # (simplified)


MAY_RAISE = ("indirect_indexing", *INTEGER_DIVISIONS)
HAS_EFFECT = ("store", *MAY_RAISE)


def without_unused(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Only those whose result something uses.

    Checks stay though nobody uses their result: x[i] of an x with one row reads the same element
    for each i, but must raise for i = 1."""
    used: set[object] = set()

    def sweep(block: Sequence[Instruction]) -> list[Instruction]:
        kept = []
        for instruction in reversed(block):
            if instruction.op not in HAS_EFFECT and instruction.result not in used:
                continue
            used.update(arg for arg in instruction.args if isinstance(arg, Ref))
            used.update(*[expr.free_symbols for expr in instruction.expressions()])
            if instruction.block:
                instruction = replace(instruction, block=tuple(sweep(instruction.block)))
            kept.append(instruction)
        return kept[::-1]

    return sweep(instructions)


# --- text -----------------------------------------------------------------------------------------
text_of = functools.lru_cache(4096)(str)  # of an expression: sympy takes long for one


class PrintHandler(OpsHandler):
    """Each op becomes a line `tmpN = op(...)`; equal lines are written once."""

    def __init__(self) -> None:
        self.lines: list[Marked] = []
        # "exp(tmp0)" -> "tmp1"; what an indirect_indexing is given -> its symbol
        self.names: dict[Any, Any] = {}
        self.count = itertools.count()
        self.indirect = itertools.count()

    def default(self, op: str, *args: Any, **kwargs: Any) -> str:
        return self.emit(op, f"{op}({', '.join(map(_show, [*args, *kwargs.values()]))})")

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
        self.say(f"store({name}, {text_of(index)}, {value}{', ' + mode if mode else ''})", "store")

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


def _show(argument: Any) -> str:
    if isinstance(argument, (list, tuple)):
        return f"[{', '.join(map(_show, argument))}]"
    if isinstance(argument, BufferView):
        return f"{argument.name}{list(argument.size)}"
    written = text_of if isinstance(argument, sympy.Basic) else str
    return written(argument).replace("torch.", "")


@lines_of.register(ComputedBuffer)
def buffer_lines(buffer: Any) -> list[Marked]:
    """One operation of a graph as text: a head, and the statements of its body."""
    layout = buffer.layout
    where = f"{_show(layout.dtype)}{list(layout.size)}" if layout is not None else "(several)"
    made_of = sorted(map(str, buffer.origins))
    origins = f"    # {', '.join(made_of)}" if made_of else ""
    handler, op = PrintHandler(), "buffer"
    if isinstance(buffer, MultiOutput):
        what = f"{buffer.source}{list(buffer.index)}"
    elif isinstance(buffer, ExternKernel):
        arguments = [_show(value) for value in buffer.args]
        arguments += [f"{key}={_show(value)}" for key, value in buffer.kwargs.items()]
        what, op = f"{buffer.op}({', '.join(arguments)})", str(buffer.op)
    else:
        with origin.set(""), set_handler(handler):
            run_body(buffer, *loop_indices(buffer.data))
        ranges = ", ".join(f"{i} < {n}" for i, n in loops(buffer.data).items())
        what = f"{type(buffer.data).__name__.lower()} {ranges}"
    head = Marked.of(f"{buffer.name}: {where} = {what}{origins}", buffer.name, made_of, op=op)
    lines = [line.written(f"    {line}") for line in handler.lines]
    for number, line in enumerate(lines):
        line.about = (f"{buffer.name}:{number}", *line.about[1:])
    return [head, *lines]


@lines_of.register
def graph_lines(graph: Graph) -> list[str]:
    return [line for buffer in graph.operations for line in buffer_lines(buffer)]


@lines_of.register
def fx_lines(graph: fx.Graph) -> list[str]:
    """A line for each call of an ATen graph, with the names of the traced nodes that it came
    from."""
    lines: list[str] = []
    for node in graph.nodes:
        if node.op == "call_function":
            options = [f"{key}={value}" for key, value in node.kwargs.items()]
            text = f"{node.name} = {node.target}({', '.join([*map(str, node.args), *options])})"
            marks = node.meta.get("traced", ())
            lines.append(Marked.of(text, node.name, marks, op=str(node.target)))
    return lines


# --- before and after fusion ----------------------------------------------------------------------
@lines_of.register
def body_lines(body: LoopBody) -> list[str]:
    printer = PrintHandler()
    body.play(printer)
    loops = ", ".join(f"{v} < {n}" for v, n in body.ranges().items())
    return [Marked.of(f"for {loops}:", reason="a loop"), *printer.lines]


# --- dtypes and places ----------------------------------------------------------------------------
TRUTHS = (*COMPARISON, *TESTS, *LOGICAL)  # their result is a bool, whatever they are given
INDEX_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class BadGraph(AssertionError):
    """The loop IR breaks a rule: a bug in a lowering."""


def expect(what: str, want: Dtype, *given: Dtype) -> Dtype:
    """`want`; BadGraph if one of the `given` dtypes is another."""
    for dtype in given:
        if dtype != want:
            raise BadGraph(f"{what} of {want} is given {dtype}")
    return want


class DtypeHandler(OpsHandler):
    """The value of each op is its dtype; operands of one op must agree."""

    def __init__(self, dtype_of_buffer: Callable[[str], Dtype]) -> None:
        self.dtype_of_buffer = dtype_of_buffer
        self.count = itertools.count()

    def default(self, op: str, *args: Dtype, **kwargs: Any) -> Dtype:
        dtype = expect(op, *args)  # the others' must be the first one's
        return torch.bool if op in TRUTHS else dtype

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
            raise BadGraph(f"an index of dtype {value}")
        return indirect_symbol(self.count)

    def constant(self, value: object, dtype: Dtype) -> Dtype:
        return dtype

    index_expr = constant

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


class Verifier(DtypeHandler):
    """Dtypes, and where loads go."""

    def __init__(self, known: dict[str, Layout], buffer: ComputedBuffer) -> None:
        self.known = {**known, buffer.name: buffer.layout}
        super().__init__(lambda name: layout_of(name, self.known, buffer.name).dtype)
        self.buffer = buffer
        self.ranges = loops(buffer.data)
        # nothing is read where a loop never runs, or where a mask is false
        self.is_protected = 0 in self.ranges.values()

    def load(self, name: str, index: sympy.Expr) -> Dtype:
        layout = layout_of(name, self.known, self.buffer.name)
        size = extent(layout.size, layout.stride, layout.offset)
        limits = bounds(sympy.sympify(index), self.ranges)
        if not self.is_protected and isinstance(size, int) and limits is not None:
            if limits[0] < 0 or limits[1] >= size:
                reached = f"{name}[{index}], elements {limits[0]} to {limits[1]} of {size}"
                raise BadGraph(f"{self.buffer.name} loads {reached}")
        return layout.dtype

    def masked(self, mask: Dtype, body: Callable[[], Dtype], other: float) -> Dtype:
        before, self.is_protected = self.is_protected, True
        value = super().masked(mask, body, other)
        self.is_protected = before
        return value


def layout_of(name: str, known: dict[str, Any], user: str) -> Any:
    if name not in known:
        raise BadGraph(f"{user} reads {name}, which nothing made before")
    return known[name]


def verify_graph(graph: Graph) -> None:
    """Raise BadGraph if the graph breaks a rule."""
    given = {name: graph.buffers[name] for name in graph.constants if name in graph.buffers}
    known = {name: buffer.layout for name, buffer in (graph.inputs | given).items()}
    for buffer in graph.operations:
        if isinstance(buffer, ExternKernel):
            for view in buffer_views([buffer.args, buffer.kwargs]):
                layout_of(view.name, known, buffer.name)
        elif isinstance(buffer, ComputedBuffer):
            with set_handler(Verifier(known, buffer)):
                run_body(buffer, *loop_indices(buffer.data))
        known[buffer.name] = buffer.layout
    for view in graph.results:
        layout_of(view.name, known, "the output")
