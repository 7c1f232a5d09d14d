"""Graphs, loop bodies and schedules as text: what a record and `print` show.

In:   an FX graph, a lowered graph, one buffer of it, a schedule, a node of one.  Out: lines that
      know what they show; `lines_of` (listings.py) finds the function by the class.

    >>> print(buffer)
    buf0: float32[4, 8] = pointwise i0 < 4, i1 < 8
        tmp0 = load(arg0, 8*i0 + i1)
        tmp1 = exp(tmp0)
        store(buf0, 8*i0 + i1, tmp1)

`PrintHandler` is the handler under which a loop body prints itself.  Mirrors the
`KernelFormatterHandler` in torch/_inductor/ops_handler.py.
"""

import itertools
from collections.abc import Callable
from typing import Any

import sympy
from torch import fx

from ..ir.dependencies import LoopBody
from ..ir.handlers import indirect_symbol, loop_indices, loops, run_body
from ..ir.loops import BufferView, ComputedBuffer, ExternKernel, Graph, MultiOutput, origin, playing
from ..ir.ops import OpsHandler, Value, fill, set_handler
from ..records import Marked, indent, lines_of
from ..sizes.expressions import Size
from .nodes import ExternNode, Group, Schedule


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


@lines_of.register(ComputedBuffer)
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


@lines_of.register
def extern_lines(node: ExternNode) -> list[str]:
    op = str(getattr(node.buffer, "op", "output of an eager kernel"))
    what = getattr(node.buffer, "op", "output of")
    text = f"extern {node.names[0]}: {what} {sorted(node.read_names)}"
    return [Marked.of(text, node.names[0], sorted(map(str, node.buffer.origins)), op=op)]


@lines_of.register
def group_lines(group: Group) -> list[str]:
    """A head, and of each node its head and its statements."""
    kind = "reduction" if group.is_reduction else "pointwise"
    reduced = f" x reduce {list(group.inner)}" if group.inner else ""
    head = f"{kind} kernel over {list(group.outer)}{reduced}"
    lines: list[str] = [Marked.of(head, f"group:{'+'.join(group.names)}", group.names, op="group")]
    for node in group.nodes:
        layout, origins = node.buffer.layout, sorted(map(str, node.buffer.origins))
        head = f"  {node.name}: {layout.dtype} {list(layout.size)}  # {', '.join(origins)}"
        lines.append(Marked.of(head, node.name, origins, op="buffer"))
        loop, *statements = lines_of(node.body)
        lines += indent([loop]) + indent(statements, 2)
    return lines


@lines_of.register
def schedule_lines(schedule: Schedule) -> list[str]:
    lines: list[str] = []
    for node in schedule.nodes:
        lines += [*([""] if lines else []), *lines_of(node)]
    return lines
