"""Replacement code: load the graph's inputs, call it, rebuild values, replay mutations, then return
or go on.

In:   the root frame after tracing and its `OutputGraph`.
Out:  a code object with the same parameters: a short prefix, then `RETURN_VALUE`; or, at a graph
      break, the instruction that was not traced and calls of resume functions (resume.py).

    >>> dis.dis(replacement_code)       # LOAD_CONST graph; LOAD_FAST x; CALL; ...; RETURN_VALUE

`Codegen` turns variables back into Python, as instructions:

    >>> cg = Codegen(frame)
    >>> cg.value(frame.returned)        # LOAD_FAST .mg0; LOAD_CONST 1; BUILD_TUPLE 2

All new values are pushed before the first mutation is written, so that a swap reads the old state
on both sides.  Of `a[0], b[0] = b[0], a[0]`:

    push  b0, a, 0, a0, b, 0        # value, container, key of each write
    write b[0] = a0, a[0] = b0      # STORE_SUBSCR takes three from the top: the last write first

Locals of ours have a dot in their names, which no variable of the program has:

| `.m0` | a value that is used again |
|---|---|
| `.mg0` | a result of the graph |
| `.ms0` | a symbolic size |
| `.s0` | a stack slot, between the graph and a continuation |
| `.1s0` | a stack slot, as a parameter of a continuation (resume.py) |

Mirrors torch/_dynamo/codegen.py, side_effects.py, resume_execution.py and symbolic_convert.py's
create_call_resume_at (paper sections 3.6 to 3.8).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch

from miniinductor.sizes.expressions import python_code

from ..bytecode import Instruction, assemble, assembler, disassemble
from ..bytecode.assembler import HANDLED, parameter_count, stack_effect
from ..errors import SkipFrame
from ..guards.checks import NAMES
from ..guards.originals import BUILTINS
from ..shapes.symbolic_numbers import size_function
from ..variables.base import NULL, Lazy, RealVar, Variable, peek
from ..variables.functions import CellVar
from .resume import Continuations, closure_names

if TYPE_CHECKING:
    import sympy

    from ..evaluate.evaluator import Frame, RootFrame
    from ..guards.sources import Source

Part = Variable | Callable[["Codegen"], None]  # of a call: a variable, or what pushes a value
BASE = "base"  # in the text of an access: what is read from
PREFIX = ".m"  # of the names of our locals


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
        self.commits: list[tuple[str, Any]] = []  # (operation, argument) of each write
        # what the names in the text of an access mean
        pins = {pin.key: pin.value for pin in self.output.tree.pins.values()}
        self.named: dict[str, Any] = BUILTINS | NAMES | pins

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

    def push_call(self, function: Any, *args: Part) -> None:
        """Push a fixed object and the arguments of its call."""
        self.add(assembler.callee(assembler.load_const(function)))
        self.push(*args)

    def call_object(self, function: Any, *args: Part) -> None:
        """Call a fixed object."""
        self.push_call(function, *args)
        self.add(assembler.call_n(len(args)))

    def commit_call(self, function: Any, *args: Part) -> None:
        """Push a call that writes, and note it: `object.__setattr__(config, "size", 3)`."""
        self.push_call(function, *args)
        for instruction in reversed(assembler.call_n(len(args)) + assembler.pop_top()):
            self.commit(instruction.op, instruction.arg)

    def push(self, *parts: Part) -> None:
        for part in parts:
            if isinstance(part, Variable):
                self.value(part)
            else:
                part(self)

    def temp(self) -> str:
        name = f"{PREFIX}{len(self.temps)}"
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
            self.emit("LOAD_FAST", known[0])
        elif type(variable) is CellVar:  # a cell of the frame's own is loaded by its name
            variable.reconstruct(self)
        elif variable.source is not None:
            self.load_source(variable.source)
        else:
            variable.reconstruct(self)
            if variable.shared:
                self.remember(variable)

    def remember(self, variable: Any) -> None:
        name = self.temp()
        self.emit("COPY", 1)
        self.emit("STORE_FAST", name)
        self.variable_temps[id(variable)] = (name, variable)

    def load_source(self, source: Source | None) -> None:
        """Push what lies at `source`: CPython compiles the text of its access."""
        assert source is not None
        if source.kind == "pinned":
            self.pinned(source.value)
        elif source.base is None:  # an argument, or a variable of the closure
            name = source.key[1] if source.kind == "free" else source.key
            self.emit("LOAD_DEREF" if name in closure_names(self.code) else "LOAD_FAST", name)
        else:
            for op, arg, flags in instructions_of(source.expr(BASE)):
                if op != "LOAD_NAME":
                    self.add([Instruction(op, arg, flags)])
                elif arg == BASE:
                    self.load_source(source.base)
                else:
                    self.load_const(self.named[arg])

    def pinned(self, value: Any) -> None:
        """An object that the entry holds; what each call of the program makes anew (a module
        without state, the class of a named tuple) is made again, once."""
        maker = self.output.makers.get(id(value))
        if maker is None:
            self.load_const(value)
        elif id(value) in self.variable_temps:
            self.emit("LOAD_FAST", self.variable_temps[id(value)][0])
        else:
            self.call_object(maker)
            self.remember(value)

    def load_graph_output(self, variable: Variable) -> None:
        if variable not in self.outputs:
            self.outputs.append(variable)
        self.emit("LOAD_FAST", f"{PREFIX}g{self.outputs.index(variable)}")

    def symbolic(self, expr: sympy.Expr) -> None:
        """A number over the inputs' sizes."""
        if expr.is_Symbol:
            self.symbols.append(expr)
            self.emit("LOAD_FAST", PREFIX + expr.name)
            return
        symbols = sorted(expr.free_symbols, key=lambda s: s.name)
        self.call_object(
            size_function(python_code(expr), tuple(s.name for s in symbols)),
            *[functools.partial(Codegen.symbolic, expr=s) for s in symbols],
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

    def commit_item(self, container: Any, key: Part, value: Part) -> None:
        """container[key] = value.  For the contents of an object it is the `__setitem__` of list or
        dict: that of the object's class was traced, and must not run again."""
        if any(variable.payload is container for variable in self.output.sourced):
            self.commit_call(container.cls.__setitem__, container, key, value)
            return
        self.push(value, container, key)
        self.commit("STORE_SUBSCR")

    def mutations(self) -> None:
        """Repeat the frame's writes: all that they need is pushed, then they are written, the last
        first."""
        start = self.depth
        written: list[Any] = [*self.output.sourced, *self.output.globals.values()]
        for variable in (*written, *self.mutated_cells()):
            variable.replay(self)
        for op, arg in reversed(self.commits):
            self.emit(op, arg)
        self.set_state()
        assert self.depth == start, "mutations left the stack unbalanced"

    def set_state(self) -> None:
        """Set grad mode and the like, and the depth of autocast regions, as the traced code left
        them."""
        changes = self.output.state
        calls: list[tuple] = [
            (setter, *key, final) for (setter, key), final in changes.after.items()
        ]
        calls += [(torch.autocast_increment_nesting,)] * changes.autocast_depth
        calls += [(torch.autocast_decrement_nesting,)] * -changes.autocast_depth
        for function, *args in calls:
            self.call_object(function, *map(RealVar, args))
            self.emit("POP_TOP")

    def mutated_cells(self) -> list[CellVar]:
        """The frame's own cells, then those that it was given."""
        given = [variable for variable, _ in self.output.memo.values() if type(variable) is CellVar]
        cells = {id(cell): cell for cell in (*self.frame.cells.values(), *given)}
        return [cell for cell in cells.values() if cell.mutated]


@functools.lru_cache(1000)
def instructions_of(text: str) -> list[tuple[str, Any, int]]:
    """What computes an expression, without RESUME and RETURN_VALUE: (operation, argument,
    flags)."""
    body = disassemble(compile(text, "<minidynamo access>", "eval"))
    return [(ins.op, ins.arg, ins.flags) for ins in body[1:-1]]


# Code that asks so may read any of its variables behind a graph break.
READERS_OF_ALL = {"locals", "vars", "eval", "exec", "dir"}


def rebuild(frame: "RootFrame") -> "Epilogue":
    """The `Epilogue`: values and mutations, then the return, or the state at the split.

    Raises `Break` with the `step` that made it, where a value cannot be rebuilt (a generator that
    has started).
    """
    epilogue = Epilogue(frame)
    for generator in epilogue.output.generators:
        generator.check_left()
    if frame.split is None:
        epilogue.value(frame.returned)
        epilogue.mutations()
        epilogue.emit("RETURN_VALUE")
    else:
        epilogue.push_state(frame.split[0])
    return epilogue


def replacement(
    epilogue: "Epilogue", graph: Callable | None, tick: Callable[[], Any]
) -> types.CodeType:
    """The code object: prologue (the graph's inputs and its call), epilogue, and what follows.
    graph: None if there is nothing to call.  tick: called first, once a call (it counts calls)."""
    prologue = Prologue(epilogue)
    prologue.call_object(tick)
    prologue.emit("POP_TOP")
    inputs = epilogue.output.inputs if graph is not None else []
    results = [f"{PREFIX}g{n}" for n in range(len(epilogue.outputs))]
    sizes = prologue.read_sizes(epilogue.symbols, inputs)
    if graph is not None:
        prologue.call_graph(graph, inputs)
        prologue.emit("UNPACK_SEQUENCE", len(results))
        for name in results:
            prologue.emit("STORE_FAST", name)
    names = epilogue.temps + results + sizes
    if epilogue.frame.split is not None:  # nothing that was made here may outlive the graph break
        for name in names:
            epilogue.emit("DELETE_FAST", name)
    return assembled(prologue, epilogue, names)


class Prologue(Codegen):
    """What runs up to and with the call of the graph.  An error of the graph jumps to
    `GraphErrors.handler` (convert/conversion.py), whose code stands before the original body."""

    def __init__(self, epilogue: "Epilogue") -> None:
        super().__init__(epilogue.frame)
        self.temps = epilogue.temps
        self.handler: list[Instruction] = []

    def read_sizes(self, symbols: list[Any], inputs: Sequence[Any]) -> list[str]:
        """Read these symbols, and those of the inputs, from the frame's arguments, into locals of
        these names."""
        exprs = [variable.expr for variable in inputs if hasattr(variable, "expr")]
        of_inputs = [symbol for expr in exprs for symbol in sorted(expr.free_symbols, key=str)]
        names = []
        for symbol in dict.fromkeys(symbols + of_inputs):
            self.load_source(self.output.shape_env.table[symbol].sources[0])
            names.append(PREFIX + symbol.name)
            self.emit("STORE_FAST", names[-1])
        return names

    def call_graph(self, graph: Callable, inputs: Sequence[Any]) -> None:
        """Call the compiled graph: its results lie on the stack, as a tuple or list."""
        arguments = [
            functools.partial(Codegen.symbolic, expr=variable.expr)
            if hasattr(variable, "expr")
            else variable
            for variable in inputs
        ]
        start = len(self.instructions)
        self.call_object(graph, *arguments)
        self.handler = self.output.errors.handler(self.output.root, self.instructions[start:])


class Epilogue(Codegen):
    """What runs after the graph: it rebuilds values and repeats mutations, then returns, or hands
    the frame's state on at a graph break."""

    frame: "RootFrame"

    def push_state(self, position: int) -> None:
        """Push the stack and the live locals, repeat the mutations, then store the locals.  The
        instruction that was not traced runs next."""
        frame = self.frame
        for item in frame.stack:
            if item.stack_kind == HANDLED:
                raise SkipFrame("a graph break where an exception is handled")
            self.value(item)
        if READERS_OF_ALL & set(self.code.co_names):
            frame.kept = set(self.code.co_varnames)
        live = frame.info.live_before(position).union(frame.kept)
        stores = self.push_locals(live)
        self.mutations()
        for name in reversed(stores):
            self.emit("STORE_FAST", name)

    def push_locals(self, live: Collection[str]) -> list[str]:
        """Push the live locals that have changed, in the order of these names."""
        stores = []
        for name in self.code.co_varnames:
            value = self.frame.locals.get(name)
            if value is None or name not in live:
                continue
            source = value.source
            if source is None or source.kind != "local" or source.key != name:
                self.value(value)
                stores.append(name)
        return stores


# ---- the code object
def assembled(prologue: Prologue, epilogue: Epilogue, names: list[str]) -> types.CodeType:
    """The code object of a prologue, an epilogue and what follows; `names`: their new locals.

    The original body stands behind these where something goes on in it: the handler of a graph's
    error, which lets plain Python run it from the start, or what no resume function can
    continue."""
    frame, code, depth = epilogue.frame, epilogue.code, max(prologue.max_depth, epilogue.max_depth)
    prefix, handler = prologue.instructions + epilogue.instructions, prologue.handler
    body = disassemble(code)
    start = next(n for n, native in enumerate(body) if native.op == "RESUME") + 1
    varnames = code.co_varnames + tuple(names)
    for instruction in prefix + handler:
        instruction.pos = body[start - 1].pos
    made = body[:start] + prefix
    if frame.split is not None:
        bound = {name for name, value in frame.locals.items() if value is not NULL}
        rest = Continuations(frame, bound, body, frame.info.native_numbers[frame.split[0]])
        made += rest.instructions()
        varnames += rest.names
        depth += rest.depth
    made += handler
    if handler or leads_into(made, body):
        made += body[start:]
    return assemble(
        code,
        made,
        co_varnames=varnames,
        co_stacksize=max(code.co_stacksize, depth) + 4,
        parameters=parameter_count(code),
    )


def leads_into(made: list[Instruction], body: list[Instruction]) -> bool:
    """Does an instruction of `made` jump to one of `body`, or has its handler there?"""
    goals = {id(ins.arg) for ins in made} | {id(ins.exc[0]) for ins in made if ins.exc}
    return any(id(native) in goals for native in body)
