"""Code that rebuilds values and replays mutations: from variables back to Python.

In:   variables, when the graph has run.   Out: instructions, in `Codegen.instructions`.

    >>> cg = Codegen(frame)
    >>> cg.value(frame.returned)        # LOAD_FAST .mg0; LOAD_CONST 1; BUILD_TUPLE 2

All new values are pushed before the first mutation is written, so that a swap reads the old state
on both sides. Mirrors torch/_dynamo/codegen.py and side_effects.py (paper section 3.6).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from miniinductor.sizes.printing import python_code

from . import frame_hook, hooks
from .bytecode import Instruction, emit
from .bytecode.assembler import VERSION, stack_effect
from .exceptions import SkipFrame
from .variables.base import Lazy, Variable, peek
from .variables.functions import CellVar

if TYPE_CHECKING:
    import sympy

    from .sources import Source
    from .symbolic_eval.evaluator import Frame

Part = Variable | Callable[[], None]  # of a call: a variable, or something to call that pushes it
# kind of a source -> function that reads it, of the base and the key; coverage adds some
BY_CALL = {
    "raw_dict": object.__getattribute__,
    "dict_item": dict.__getitem__,
    "list_item": list.__getitem__,
    "tuple_item": tuple.__getitem__,
    "stride": torch.Tensor.stride,
    "getattr": getattr,
}
# kind of a source -> the attribute of the base that is read
BY_ATTRIBUTE = {"dict": "__dict__", "cell": "cell_contents"}
# kind of a source -> the attribute of the base whose item is read; None: an item of the base
BY_ITEM = {"item": None, "pinned_item": None, "closure": "__closure__", "class_item": "__dict__"}


class Codegen:
    """Emits instructions and keeps count of the stack."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.code = frame.code
        self.output = frame.output
        self.instructions: list[Instruction] = []
        self.temps: list[str] = []
        self.variable_temps: dict[int, tuple[str, Any]] = {}  # id -> (its local, what has the id)
        self.outputs: list[Variable] = []  # what the graph must return
        # symbols of sizes that are used; they are read before the graph runs
        self.symbols: list[sympy.Symbol] = []
        self.depth = self.max_depth = 0
        self.prefix = ".m"
        while any(name.startswith(self.prefix) for name in self.code.co_varnames):
            self.prefix += "_"
        self.constants: dict[Variable, Any] = {}  # the literals that stand for containers
        self.building: set[int] = set()
        self.commits: list[tuple[str, Any]] = []  # (operation, argument) of each write
        # iterators to be positioned once the lists that they walk are written
        self.late: list[Any] = []
        self.pins = {pin.key: pin.value for pin in self.output.tree.pins.values()}

    # ---- instructions
    def emit(self, op: str, arg: Any = None) -> None:
        self.add([Instruction(op, arg)])

    def add(self, piece: list[Instruction]) -> None:
        for instruction in piece:
            self.instructions.append(instruction)
            self.depth += stack_effect(instruction)
        # 2 more: an operation may be several of CPython's, which push something in between
        self.max_depth = max(self.max_depth, self.depth + 2)

    def load_const(self, value: Any) -> None:
        self.emit("LOAD_CONST", value)

    def load_fast(self, name: str) -> None:
        self.emit("LOAD_FAST", name)

    def store_fast(self, name: str) -> None:
        self.emit("STORE_FAST", name)

    def load_attr(self, name: str) -> None:
        self.emit("LOAD_ATTR", name)

    def push_null(self) -> None:
        self.emit("PUSH_NULL")

    def start_call(self, load: Callable[[], None]) -> None:
        """The callable; its arguments follow, then `finish_call`."""
        if VERSION >= (3, 13):
            load()
            self.push_null()
        else:
            self.push_null()
            load()

    def finish_call(self, count: int) -> None:
        self.add(emit.call_n(count))

    def call_object(self, function: Any, *args: Part) -> None:
        """Call a fixed object.  An argument is a variable, or something to call that pushes it."""
        self.finish_call(self.push_call(function, *args))

    def push_call(self, function: Any, *args: Part) -> int:
        """Everything that `finish_call` needs; the number of arguments."""
        self.start_call(lambda: self.load_const(function))
        for arg in args:
            self.push(arg)
        return len(args)

    def push(self, part: Part) -> None:
        if isinstance(part, Variable):
            self.value(part)
        else:
            part()

    def constant(self, value: Any) -> Callable[[], None]:
        """`value` as a `Part` of a call."""
        return functools.partial(self.load_const, value)

    def emitter(self, reconstruct: Callable[[Codegen], None]) -> Callable[[], None]:
        """What `reconstruct(self)` pushes, as a `Part` of a call."""
        return functools.partial(reconstruct, self)

    def temp(self) -> str:
        name = f"{self.prefix}{len(self.temps)}"
        self.temps.append(name)
        return name

    # ---- values
    def value(self, variable: Variable) -> None:
        """Push the value of `variable`."""
        variable = peek(variable)
        if type(variable) is Lazy:  # nobody has looked at it
            self.load_source(variable.source)
            return
        known = self.variable_temps.get(id(variable))
        if known is not None:
            self.load_fast(known[0])
        elif type(variable) is CellVar:  # which the frame itself may have
            variable.reconstruct(self)
        elif variable.source is not None:
            self.load_source(variable.source)
        elif variable.shared:
            if id(variable) in self.building:
                raise SkipFrame("a container that contains itself")
            self.building.add(id(variable))
            variable.reconstruct(self)
            self.building.discard(id(variable))
            self.remember(variable)
        else:
            variable.reconstruct(self)

    def remember(self, variable: Variable) -> None:
        name = self.temp()
        self.emit("COPY", 1)
        self.store_fast(name)
        self.variable_temps[id(variable)] = (name, variable)

    def load_source(self, source: Source | None) -> None:
        assert source is not None
        kind, key = source.kind, source.key
        if kind == "local":
            self.emit("LOAD_DEREF" if key in self.code.co_cellvars else "LOAD_FAST", key)
            return
        if kind == "free":
            self.emit("LOAD_DEREF", key[1])
            return
        if kind == "pinned":
            self.pinned(source.value)
            return
        if kind in BY_CALL:
            self.call_object(
                BY_CALL[kind],
                lambda: self.load_source(source.base),
                lambda: self.load_const("__dict__" if kind == "raw_dict" else key),
            )
            return
        self.load_source(source.base)
        if kind not in BY_ITEM:
            self.load_attr(BY_ATTRIBUTE.get(kind, key))
            return
        table = BY_ITEM[kind]
        if table is not None:
            self.load_attr(table)
        self.load_const(self.pins[key] if kind == "pinned_item" else key)
        self.emit("BINARY_SUBSCR")

    def pinned(self, value: Any) -> None:
        """An object that the entry holds."""
        self.load_const(value)

    def load_graph_output(self, variable: Variable) -> None:
        if variable not in self.outputs:
            self.outputs.append(variable)
        self.load_fast(f"{self.prefix}g{self.outputs.index(variable)}")

    def symbolic(self, expr: sympy.Expr) -> None:
        """A number over the inputs' sizes."""
        if expr in self.output.unbacked:
            self.load_graph_output(self.output.unbacked[expr])
            return
        if expr.is_Symbol:
            self.symbols.append(expr)
            self.load_fast(self.prefix + expr.name)
            return
        symbols = sorted(expr.free_symbols, key=lambda s: s.name)
        self.call_object(
            size_function(python_code(expr), tuple(s.name for s in symbols)),
            *[functools.partial(self.symbolic, s) for s in symbols],
        )

    def build(self, op: str, values: Sequence[Variable]) -> None:
        for value in values:
            self.value(value)
        self.emit(op, len(values))

    # ---- side effects
    def commit(self, op: str, arg: Any = None) -> None:
        """Note that `op` writes what was just pushed; `mutations` emits it, once the operands of
        all writes lie on the stack."""
        self.commits.append((op, arg))

    def commit_call(self, function: Any, *args: Part) -> None:
        """Push a call that writes, and note it."""
        self.commit("CALL", self.push_call(function, *args))

    def commit_item(self, container: Any, key: Part, value: Part) -> None:
        """container[key] = value."""
        for part in (value, container, key):
            self.push(part)
        self.commit("STORE_SUBSCR")

    def mutations(self) -> None:
        """Repeat the frame's writes: all that they need is pushed, then they are written, the last
        first."""
        start = self.depth
        written: list[Any] = [*self.output.sourced, *self.output.globals.values()]
        for variable in (*written, *self.mutated_cells()):
            variable.replay(self)
        for op, arg in reversed(self.commits):
            if op == "CALL":
                self.finish_call(arg)
                self.emit("POP_TOP")
            else:
                self.emit(op, arg)
        for write in hooks.AFTER_WRITES:
            write(self)
        assert self.depth == start, "mutations left the stack unbalanced"

    def mutated_cells(self) -> list[CellVar]:
        """The frame's own cells, then those that it was given."""
        known = [variable for variable, _ in self.output.memo.values()]
        given = [variable for variable in known if type(variable) is CellVar]
        cells = {id(cell): cell for cell in (*self.frame.cells.values(), *given)}
        return [cell for cell in cells.values() if cell.mutated]


@functools.lru_cache(1000)
def size_function(text: str, names: tuple[str, ...]) -> Callable:
    """The function of symbols that computes `text`; never compiled itself."""
    function = eval(
        compile(f"lambda {', '.join(names)}: {text}", "<minidynamo sizes>", "eval"), {"math": math}
    )
    frame_hook.set_cache(function.__code__, None)
    return function
