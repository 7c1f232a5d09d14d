"""Chapter 06: what cannot be captured runs as Python; the rest is captured again.

`split` evaluates a frame until it ends, or until an instruction is refused.  Then it writes the
code that runs instead:

    prefix(a, b)            one call: the graph, the effects, and the values that live on
    <the refused instruction, as it stands in the original>
    resume(x, y, ...)       a function whose body starts behind that instruction

The resume function is a function like any other: when it is called the frame hook comes by, and
its body is captured in turn, up to the next instruction that is refused.
"""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from minidynamo import frame_hook
from minidynamo.bytecode import Instruction, assemble, emit
from minidynamo.bytecode.assembler import parameter_count

from .effects import Outside, replay
from .graph import EAGER, VIEWS, Node, Refused, optimize
from .machine import NULL, Bound, Capture, Loop, Machine
from .program import compile_graph
from .sizes import Shape, Size, text_of

LIST_ITERATOR = type(iter([]))
ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
# instructions that may stand alone between two functions, and how many values they leave
PUSHED = {
    **dict.fromkeys(["BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP", "IS_OP", "CONTAINS_OP"], 1),
    **dict.fromkeys(["UNARY_NOT", "UNARY_NEGATIVE", "UNARY_INVERT", "GET_ITER", "LOAD_GLOBAL"], 1),
    **dict.fromkeys(["LOAD_ATTR", "CALL", "CALL_KW", "BUILD_LIST", "BUILD_TUPLE", "BUILD_MAP"], 1),
    **dict.fromkeys(["STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_DEREF"], 0),
    **dict.fromkeys(["POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE"], 0),
    **dict.fromkeys(["POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE"], 0),
}
# code of a resume function -> (the code it is the rest of, instructions that stand before that)
ORIGINS: dict[types.CodeType, tuple[types.CodeType, int]] = {}
RESUME: dict[Any, types.CodeType] = {}


@dataclass
class Moment:
    """A machine between two instructions of the original, and the changes made so far."""

    pc: int
    stack: list[Any]
    locals: dict[str, Any]
    changes: int


@dataclass
class Evaluation:
    """What became of a frame.  moment: None where the machine came to the end; otherwise that
    before the refused instruction, to which machine and effects have been taken back."""

    function: Any
    code: types.CodeType
    capture: Capture
    machine: Machine
    moment: Moment | None = None
    reason: str = ""


def evaluate(function: Any, code: types.CodeType, args: tuple, dynamic: set) -> Evaluation:
    """Run the machine on this frame.  dynamic: (source, dimension) of sizes that are symbols.

    Before each operation that begins an instruction of the original (`machine.first` knows their
    places) the moment is noted.  Where a step is refused, or raises one of `ERRORS`, journal, stack
    and locals go back to that moment."""
    capture = Capture(function, dynamic)
    machine = Machine(capture, code, function, "F")
    for number, (name, value) in enumerate(zip(code.co_varnames, args, strict=False)):
        is_loop = name[0] == "." and type(value) is LIST_ITERATOR
        read = capture.rest_of_loop if is_loop else capture.wrap
        machine.locals[name] = read(value, f"a{number}")
    starts = set(machine.first.values())
    moment = Moment(0, [], dict(machine.locals), 0)
    while True:
        if machine.pc in starts:
            changes = len(capture.journal.undo)
            moment = Moment(machine.pc, list(machine.stack), dict(machine.locals), changes)
        try:
            if machine.step():
                return Evaluation(function, code, capture, machine)
        except (Refused, *ERRORS) as error:  # an error of the program: Python shall raise it
            capture.journal.back_to(moment.changes)
            machine.stack, machine.locals = moment.stack, moment.locals
            return Evaluation(function, code, capture, machine, moment, str(error))


def changed_sizes(capture: Capture, before: Iterable[Entry]) -> set[tuple[str, int]]:
    """(source, dimension) of sizes that were others in an earlier entry: symbols from now on."""
    found: set[tuple[str, int]] = set()
    shapes = {s: t.shape for s, t in zip(capture.tensors, capture.examples, strict=True)}
    for entry in before:
        found |= entry.capture.dynamic
        for source, example in zip(entry.capture.tensors, entry.capture.examples, strict=True):
            now = shapes.get(source, ())
            pairs = zip(now, example.shape, strict=False)
            found |= {(source, dim) for dim, (a, b) in enumerate(pairs) if a != b}
    return found


def split(function: Any, code: types.CodeType, args: tuple, before: list[Entry]) -> Entry | str:
    """An entry for this frame; or, as a text, why it is left to Python."""
    try:
        found = evaluate(function, code, args, set())
        dynamic = changed_sizes(found.capture, before)
        if dynamic:
            found = evaluate(function, code, args, dynamic)
        has_work = found.capture.graph.nodes or found.capture.journal.changed
        if found.moment is not None and not has_work:
            raise Refused(found.reason)  # nothing was gained before it
        return Entry(found)
    except Refused as error:
        return str(error)


class Entry:
    """One compiled version of a frame.

    guard: whether it may run.  replacement: the code that runs.  reason: why it was split, or "".
    program: the compiled graph.  capture: everything that was found out."""

    def __init__(self, found: Evaluation) -> None:
        machine, moment = found.machine, found.moment
        self.function = found.function
        self.code = found.code
        self.capture = found.capture
        self.reason = found.reason
        # (what a resume function was given for the stack lies there by now)
        self.names = [name for name in machine.locals if moment and name[0] != "."]
        live = [machine.locals[name] for name in self.names]
        self.values = [*live, *(value for value in machine.stack if value is not NULL)]
        self._prepare()
        self.guard = self._guard()
        self.replacement = self._replacement(machine, moment)

    # --- the run ----------------------------------------------------------------------------------
    def _prepare(self) -> None:
        capture = self.capture
        self.objects: dict[Outside, None] = {}
        self.bases: dict[Node, None] = {}
        for value in self.values:
            self._look_into(value)
        for target in capture.journal.changed:
            self._look_into(target)
            self._look_into(list(target.written.values()))
            self._look_into(target.items if target.items_changed else None)
        capture.graph.outputs = [node for node in self.bases if node.op != "input"]
        self.outputs = list(capture.graph.outputs)
        self.inputs = list(capture.graph.inputs)
        self.graph = str(capture.graph)
        optimize(capture.graph)
        self.program = compile_graph(capture.graph, capture.examples)
        find = capture.guards.function_of_arguments
        self.find_tensors = find(_tuple(capture.tensors))
        self.find_sizes = find(_tuple(capture.sizes.values()))
        self.find_objects = find(_tuple(found.source for found in self.objects))

    def _look_into(self, value: Any) -> None:
        """Note the tensors and the objects from outside of which `value` is made."""
        if isinstance(value, Node):
            self.bases.setdefault(base_of(value))
        elif isinstance(value, Outside):
            self.objects.setdefault(value)
        elif isinstance(value, Bound):
            self._look_into(value.first)
        elif isinstance(value, Loop):
            self._look_into(value.items)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self._look_into(item)
        elif isinstance(value, dict):
            self._look_into(list(value.values()))

    def prefix(self, *args: Any) -> tuple:
        """Run the graph, do what the frame did to objects, return the values that live on."""
        tensors = self.find_tensors(self.function, *args)
        sizes = dict(zip(self.capture.sizes, self.find_sizes(self.function, *args), strict=True))
        objects = dict(zip(self.objects, self.find_objects(self.function, *args), strict=True))
        results = self.program(list(tensors), sizes)
        values = dict(zip(self.inputs, tensors, strict=True))
        values |= dict(zip(self.outputs, results, strict=True))
        rebuild = Rebuild(values, objects, sizes)
        made = tuple(rebuild(value) for value in self.values)
        for target in dict.fromkeys(self.capture.journal.changed):
            replay(target, objects[target], rebuild)
        return made

    def _guard(self) -> Callable[..., bool]:
        """The checks, and the facts about sizes."""
        guards, sizes = self.capture.guards, self.capture.sizes
        known = [found for found, _, _ in self.capture.known.values() if isinstance(found, Outside)]
        for target in self.capture.journal.changed:  # what is written must have no second name
            for other in known:
                if other is not target and type(other.value) is type(target.value):
                    guards.add(f"{target.source} is not {other.source}")
        facts = " and ".join(dict.fromkeys(self.capture.facts))
        if facts:
            guards.add(f"(lambda {', '.join(sizes)}: {facts})({', '.join(sizes.values())})")
        return guards.build()

    # --- the code ---------------------------------------------------------------------------------
    def _replacement(self, machine: Machine, moment: Moment | None) -> types.CodeType:
        code = self.code
        count = parameter_count(code)
        arguments = [emit.load_fast(name) for name in code.co_varnames[:count]]
        body = emit.prologue(len(code.co_freevars))
        unhooked = frame_hook.disabled(self.prefix)
        body += emit.call(emit.load_const(unhooked), *arguments)
        places = [f".stack{n}" for n in range(len(machine.stack) + 2)]
        if moment is None:
            body += [Instruction("UNPACK_SEQUENCE", 1), *emit.return_value()]
        else:
            body += self._rest(machine, moment, places)
        return assemble(
            code,
            body,
            varnames=tuple(dict.fromkeys([*code.co_varnames, *places])),
            cellvars=(),
            stacksize=code.co_stacksize + len(self.values) + count + 8,
            co_argcount=count,
            co_posonlyargcount=0,
            co_kwonlyargcount=0,
            co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        )

    def _rest(self, machine: Machine, moment: Moment, places: list[str]) -> list[Instruction]:
        """Put back locals and stack, run the refused instruction, call the resume function."""
        instruction = machine.operations[moment.pc].instruction
        last = machine.native.index(instruction)
        alone = instruction.op in PUSHED and not instruction.exc
        if not alone or instruction.op.startswith("LOAD") and instruction.flags:
            raise Refused(f"{self.reason} (at {instruction.op}, where no function can be split)")
        first = last
        while first and machine.first[id(machine.native[first - 1])] == moment.pc:
            first -= 1  # such as KW_NAMES, which belong to the instruction
        body = [Instruction("UNPACK_SEQUENCE", len(self.values))]
        body += [ins for name in self.names for ins in emit.store_fast(name)]
        body += self._push(machine.stack, places)
        refused = [_copy(ins) for ins in machine.native[first : last + 1] if ins.op != "RESUME"]
        is_null = [value is NULL for value in machine.stack]
        jumps = isinstance(instruction.arg, Instruction)
        depth = len(is_null) + sum(map(stack_effect, refused))
        pushed = PUSHED[instruction.op]
        is_null = [*is_null[: depth - pushed], *[False] * pushed]
        go_on = self._resume(machine, last + 1, is_null, places)
        if not jumps:
            return [*body, *refused, *go_on]
        target = machine.native.index(instruction.arg)
        there = self._resume(machine, target, is_null, places)
        refused[-1].arg = there[0]
        return [*body, *refused, *go_on, *there]

    def _push(self, stack: list[Any], places: list[str]) -> list[Instruction]:
        """The values of the stack lie on the real one already, the first on top (so leaves them
        UNPACK_SEQUENCE): store them, and push them in their order, with the NULLs among them."""
        filled = [place for place, value in zip(places, stack, strict=False) if value is not NULL]
        body = [ins for place in filled for ins in emit.store_fast(place)]
        for place, value in zip(places, stack, strict=False):
            body += emit.push_null() if value is NULL else emit.load_fast(place)
        return body

    def _resume(
        self, machine: Machine, start: int, is_null: list[bool], places: list[str]
    ) -> list[Instruction]:
        """Call the function that goes on at native instruction `start`, and return its result."""
        stack = places[: len(is_null)]
        body = [ins for place in reversed(stack) for ins in emit.store_fast(place)]
        code = resume_code(self.code, machine.native, start, self.names, is_null)
        function = types.FunctionType(
            code, self.function.__globals__, code.co_name, None, self.function.__closure__
        )
        kept = [place for place, null in zip(stack, is_null, strict=True) if not null]
        arguments = [emit.load_fast(name) for name in [*self.names, *kept]]
        call = emit.call(emit.load_const(function), *arguments)
        return [*body, *call, *emit.return_value()]


def resume_code(
    code: types.CodeType,
    native: list[Instruction],
    start: int,
    names: list[str],
    is_null: list[bool],
) -> types.CodeType:
    """The rest of `code` from instruction `start`: its parameters are the locals `names`, then
    what lies on the stack.  The body is kept whole behind a prefix that jumps into it.

    The rest of a rest is a rest of the original, so that a loop that is split in every turn comes
    back to the same code."""
    origin, shift = ORIGINS.get(code, (code, 0))
    key = origin, start - shift, tuple(names), tuple(is_null)
    if key in RESUME:
        return RESUME[key]
    body = native[shift:]
    stack = [f".stack{n}" for n, null in enumerate(is_null) if not null]
    prefix = emit.prologue(len(code.co_freevars))
    for number, null in enumerate(is_null):
        prefix += emit.push_null() if null else emit.load_fast(f".stack{number}")
    prefix += emit.jump_forward(native[start])
    parameters = [*names, *stack]
    others = [name for name in origin.co_varnames if name not in names]
    made = assemble(
        origin,
        [*prefix, *body],
        varnames=(*parameters, *others),
        stacksize=origin.co_stacksize + len(is_null) + 4,
        co_name=f"<rest of {origin.co_name}>",
        co_argcount=len(parameters),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=origin.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
    )
    ORIGINS[made] = origin, len(prefix)
    RESUME[key] = made
    return made


def _copy(ins: Instruction) -> Instruction:
    return Instruction(ins.op, ins.arg, ins.flags, None, ins.pos)


COUNTING = ("CALL", "PRECALL", "BUILD", "UNPACK", "COPY", "SWAP", "BINARY_OP")


def stack_effect(ins: Instruction) -> int:
    """By how much the stack grows where it does not jump.  Only of some instructions the argument
    is a number that counts."""
    has_argument = dis.opmap[ins.op] >= dis.HAVE_ARGUMENT
    if not has_argument:
        return dis.stack_effect(dis.opmap[ins.op], jump=False)
    counts = isinstance(ins.arg, int) and ins.op.startswith(COUNTING)
    argument = ins.arg if counts else ins.flags
    return dis.stack_effect(dis.opmap[ins.op], argument, jump=False)


def _tuple(sources: Iterable[str]) -> str:
    return "(" + "".join(f"{source}, " for source in sources) + ")"


# --- symbolic values as real ones -----------------------------------------------------------------
def base_of(node: Node) -> Node:
    """The tensor that `node` is a view of.  Views are made anew of it, so that what shares memory
    in Python does so in what was compiled."""
    return base_of(node.args[0]) if node.op in VIEWS else node


class Rebuild:
    """Symbolic values as real ones, in one call.  What is one object there is one object here."""

    def __init__(
        self, tensors: dict[Node, Any], objects: dict[Outside, Any], sizes: dict[str, int]
    ) -> None:
        self.tensors = tensors
        self.objects = objects
        self.sizes = sizes
        self.made: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Size):
            return eval(text_of(value), {}, self.sizes)
        if isinstance(value, Outside):
            return self.objects[value]
        if isinstance(value, Node):
            return self._tensor(value)
        if isinstance(value, Bound):
            return getattr(self(value.first), value.name)
        if isinstance(value, (list, tuple, dict, Loop)):
            return self._container(value)
        return value

    def _tensor(self, node: Node) -> Any:
        if node not in self.tensors:
            args = [self(arg) for arg in node.args]
            self.tensors[node] = EAGER[node.op](*args)
        return self.tensors[node]

    def _container(self, value: Any) -> Any:
        if id(value) in self.made:
            return self.made[id(value)]
        if isinstance(value, Loop):
            made: Any = iter([self(item) for item in value.items[value.position :]])
        elif isinstance(value, list):
            made = self.made[id(value)] = []
            made += [self(item) for item in value]
        elif isinstance(value, dict):
            made = {key: self(item) for key, item in value.items()}
        else:
            kind = torch.Size if isinstance(value, Shape) else tuple
            made = kind([self(item) for item in value])
        self.made[id(value)] = made
        return made
