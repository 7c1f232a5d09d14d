"""Chapter 06: what cannot be captured runs as Python; the rest is captured again.

`split` evaluates a frame until it ends, or until an instruction is refused.  Then it writes the
code that runs instead:

    prefix(a, b)            one call: the graph, the effects, and the locals that live on
    <the refused statement, as it stands in the original>
    resume(x, y, ...)       a function whose body starts behind that statement

The resume function is a function like any other: when it is called the frame hook comes by, and
its body is captured in turn, up to the next statement that is refused.

A frame is split between two statements only: there the stack is empty, and nothing but locals has
to be handed on.  (minidynamo splits at the instruction.)  Inside of a `for` loop the stack is never
empty: a frame that breaks there is left to Python, as PyTorch leaves it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from minidynamo.bytecode import Instruction, assemble
from minidynamo.bytecode import assembler as emit
from minidynamo.bytecode.assembler import parameter_count, stack_effect
from minidynamo.frame import frame_hook

from .effects import Outside, replay
from .graph import EAGER, VIEWS, Node, Refused
from .guards import CONSTANTS, Capture
from .machine import Machine
from .program import compile_graph
from .sizes import Size, changed

ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS")
# code of a resume function -> (the code it is the rest of, instructions that stand before that)
ORIGINS: dict[types.CodeType, tuple[types.CodeType, int]] = {}
RESUME: dict[Any, types.CodeType] = {}


def evaluate(function: Any, code: types.CodeType, args: tuple, dynamic: set) -> Machine:
    """Run a machine on this frame.  dynamic: (source, dimension) of sizes that are symbols.

    Wherever a statement begins (the stack is empty, and `machine.first` knows an instruction of the
    original at this place) remember pc, locals and changes.  Where a step is refused, or raises one
    of `ERRORS`, the machine goes back to that place, with an empty stack; its `reason` says why."""
    machine = Machine(Capture(function, dynamic), code, function, "F")
    journal = machine.capture.journal
    for number, (name, value) in enumerate(zip(code.co_varnames, args, strict=False)):
        machine.locals[name] = machine.capture.wrap(value, f"a{number}")
    starts = set(machine.first.values())
    while True:
        if not machine.stack and machine.pc in starts:
            moment = machine.pc, dict(machine.locals), len(journal.undo)
        try:
            if machine.step():
                return machine
        except (Refused, *ERRORS) as error:  # an error of the program: Python shall raise it
            machine.pc, machine.locals, changes = moment
            machine.stack.clear()
            machine.reason = str(error) or type(error).__name__
            journal.back_to(changes)
            return machine


def split(function: Any, code: types.CodeType, args: tuple, before: list[Entry]) -> Entry | str:
    """An entry for this frame; or, as a text, why it is left to Python.  A size that was another
    one in an entry before is a symbol from now on."""
    try:
        machine = evaluate(function, code, args, set())
        dynamic: set[tuple[str, int]] = set()
        for entry in before:
            dynamic |= entry.capture.dynamic
            dynamic |= changed(machine.capture.shapes, entry.capture.shapes)
        if dynamic:
            machine = evaluate(function, code, args, dynamic)
        return Entry(machine, code)
    except (Refused, RecursionError) as error:
        return str(error)


class Entry:
    """One compiled version of a frame.

    guard: whether it may run.  replacement: the code that runs.  reason: why it was split, or "".
    names: the locals that live on, if it was.  values: theirs, or the result of the frame.
    program: the compiled graph.  capture: everything that was found out."""

    def __init__(self, machine: Machine, code: types.CodeType) -> None:
        self.function = machine.function
        self.code = code
        self.capture = machine.capture
        self.reason = machine.reason
        self.changed = list(dict.fromkeys(self.capture.journal.changed))
        if self.reason and not self.capture.graph.nodes and not self.changed:
            raise Refused(self.reason)  # nothing was gained before it
        self.names = list(machine.locals) if self.reason else []
        self.values = [machine.locals[name] for name in self.names] or machine.stack
        self._prepare()
        self.guard = self._guard()
        self.replacement = self._replacement(machine)

    # --- the run ----------------------------------------------------------------------------------
    def _prepare(self) -> None:
        """What the graph must compute (the bases of what lives on), and where everything that the
        prefix needs is found in a call."""
        capture = self.capture
        found: dict[Any, None] = {}

        def note(leaf: Any) -> Any:
            found.setdefault(base_of(leaf))
            return leaf

        written = [[*target.written.values(), target.items] for target in self.changed]
        rebuild([self.values, self.changed, written], note, {})
        self.objects = [leaf for leaf in found if isinstance(leaf, Outside)]
        nodes = [leaf for leaf in found if isinstance(leaf, Node) and leaf.op != "input"]
        self.inputs, self.outputs = capture.graph.inputs, nodes
        capture.graph.outputs = list(nodes)
        examples = list(capture.tensors.values())
        self.program = compile_graph(capture.graph, examples, list(capture.sizes))
        sources = capture.tensors, capture.sizes.values(), [each.source for each in self.objects]
        texts = ["".join(f"{source}, " for source in some) for some in sources]
        self.find = capture.guards.function_of_arguments("(({}), ({}), ({}))".format(*texts))

    def prefix(self, *args: Any) -> tuple:
        """Run the graph, do what the frame did to objects, return the values that live on.

        `find` gives what lies at all sources now: the tensors (`inputs`), the numbers that
        `capture.sizes` names, and the `objects`.  The program gives the `outputs`.  `rebuild` makes
        the values of that, by `_leaf`: what shares memory in Python does so here."""
        tensors, numbers, objects = self.find(self.function, *args)
        sizes = dict(zip(self.capture.sizes, numbers, strict=True))
        results = self.program(list(tensors), sizes)
        names = [*self.inputs, *self.outputs, *self.objects]
        real: dict[Any, Any] = dict(zip(names, [*tensors, *results, *objects], strict=True))
        made: dict[int, Any] = {}
        leaf = partial(self._leaf, real, sizes, made)
        values = tuple(rebuild(self.values, leaf, made))
        for target in self.changed:
            replay(target, real[target], lambda value: rebuild(value, leaf, made))
        return values

    def _leaf(self, real: dict, sizes: dict[str, int], made: dict[int, Any], value: Any) -> Any:
        """What stands for a Size, a Node or an Outside in this call: the number (its text, with
        the `sizes`), or what `real` has.  A view is none of these: `EAGER` makes it.  (A function
        that calls itself from inside of `prefix` would keep all tensors alive, in a cycle.)"""
        if isinstance(value, Size):
            return eval(value.text, {}, sizes)
        if value not in real:
            args = rebuild(value.args, partial(self._leaf, real, sizes, made), made)
            real[value] = EAGER[value.op](*args)
        return real[value]

    def _guard(self) -> Callable[..., bool]:
        """The checks; with writes, those of second names; with symbols, the facts about them."""
        if self.changed:
            self._guard_names()
        if self.capture.facts:
            self._guard_facts()
        return self.capture.guards.build()

    def _guard_names(self) -> None:
        """Guard that no object of `known` is a second name of one that is `changed`: of each pair
        of one type, that their sources give two objects."""
        known = [found for found, _, _ in self.capture.known.values() if isinstance(found, Outside)]
        for target in self.changed:
            for other in known:
                if other is not target and type(other.value) is type(target.value):
                    self.capture.guards.add(f"{target.source} is not {other.source}")

    def _guard_facts(self) -> None:
        """Guard the facts, each once: a lambda of the symbols, called with their sources."""
        sizes = self.capture.sizes
        facts = " and ".join(dict.fromkeys(self.capture.facts))
        check = f"(lambda {', '.join(sizes)}: {facts})({', '.join(sizes.values())})"
        self.capture.guards.add(check)

    # --- the code ---------------------------------------------------------------------------------
    def _replacement(self, machine: Machine) -> types.CodeType:
        code = self.code
        count = parameter_count(code)
        arguments = [emit.load_fast(name) for name in code.co_varnames[:count]]
        unhooked = emit.load_const(frame_hook.disabled(self.prefix))
        body = [*emit.prologue(len(code.co_freevars)), *emit.call(unhooked, *arguments)]
        body.append(Instruction("UNPACK_SEQUENCE", len(self.values)))
        body += [ins for name in self.names for ins in emit.store_fast(name)]
        body += self._rest(machine) if self.reason else emit.return_value()
        room = code.co_stacksize + count + len(code.co_varnames) + 8  # all locals may lie on it
        return assembled(code, body, code.co_varnames, co_argcount=count, co_stacksize=room)

    def _rest(self, machine: Machine) -> list[Instruction]:
        """The refused statement, and a call of the resume function behind it; of two where it ends
        with a jump, one for each way."""
        native = machine.native
        first = max(n for n, ins in enumerate(native) if machine.first[id(ins)] == machine.pc)
        last = end_of_statement(native, first)
        body = [replace(ins, exc=None) for ins in native[first : last + 1]]
        end = body[-1]
        if end.op in ENDS:
            return body
        stored = [ins.arg for ins in body if ins.op == "STORE_FAST"]
        names = list(dict.fromkeys([*self.names, *stored]))
        body += self._resume(native, last + 1, names)
        if isinstance(end.arg, Instruction):
            there = self._resume(native, native.index(end.arg), names)
            end.arg = there[0]
            body += there
        return body

    def _resume(self, native: list[Instruction], start: int, names: list[str]) -> list[Instruction]:
        """Call the function that goes on at native instruction `start` (`resume_code`; it has the
        globals and the closure of this one) with the locals `names`, and return its result."""
        code = resume_code(self.code, native, start, names)
        closure = self.function.__closure__
        function = types.FunctionType(code, self.function.__globals__, code.co_name, None, closure)
        arguments = [emit.load_fast(name) for name in names]
        return [*emit.call(emit.load_const(function), *arguments), *emit.return_value()]


def end_of_statement(native: list[Instruction], first: int) -> int:
    """The place of its last instruction: the first one that leaves the stack empty, or that ends
    the function.  Refused where a statement jumps before its end, or where a name is deleted."""
    depth = 0
    for place, ins in enumerate(native[first:], first):
        depth += stack_effect(ins)
        jumps = isinstance(ins.arg, Instruction)
        forward = ins.op.startswith("POP_JUMP") and "BACKWARD" not in ins.op
        if ins.exc or ins.op == "DELETE_FAST" or jumps and (depth or not forward):
            break
        if not depth or ins.op in ENDS:
            return place
    raise Refused("a statement that cannot stand alone, such as a loop that breaks")


def resume_code(
    code: types.CodeType, native: list[Instruction], start: int, names: list[str]
) -> types.CodeType:
    """The rest of `code` from instruction `start`: its parameters are the locals `names`.  The body
    is kept whole behind a prefix that jumps into it.

    The rest of a rest is a rest of the original, so that a loop that is split in every turn comes
    back to the same code."""
    origin, shift = ORIGINS.get(code, (code, 0))
    key = origin, start - shift, tuple(names)
    if key in RESUME:
        return RESUME[key]
    prefix = [*emit.prologue(len(code.co_freevars)), *emit.jump_forward(native[start])]
    varnames = tuple(dict.fromkeys([*names, *origin.co_varnames]))
    body, name = [*prefix, *native[shift:]], f"<rest of {origin.co_name}>"
    RESUME[key] = assembled(origin, body, varnames, co_argcount=len(names), co_name=name)
    ORIGINS[RESUME[key]] = origin, len(prefix)
    return RESUME[key]


def assembled(code: types.CodeType, body: list, varnames: tuple, **replace: Any) -> types.CodeType:
    """A code like this one, with another body, whose parameters are plain ones."""
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    replace |= {"co_posonlyargcount": 0, "co_kwonlyargcount": 0, "co_flags": flags}
    return assemble(code, body, co_varnames=varnames, **replace)


# --- symbolic values as real ones -----------------------------------------------------------------
def base_of(value: Any) -> Any:
    """The tensor that a node is a view of; of anything else, itself."""
    return base_of(value.args[0]) if isinstance(value, Node) and value.op in VIEWS else value


def rebuild(value: Any, leaf: Callable[[Any], Any], made: dict[int, Any]) -> Any:
    """The value, with `leaf(part)` for each Node, Outside and Size in it, however deep.  Constants
    stay.  Lists and tuples are made anew, each once: `made` knows them by the id of the symbolic
    one.  Refused for what could not be made anew in each call, such as an iterator."""
    if isinstance(value, (Node, Outside, Size)):
        return leaf(value)
    if isinstance(value, (*CONSTANTS, range)):
        return value
    if not isinstance(value, (list, tuple)):
        raise Refused(f"a {type(value).__name__} lives on")
    if id(value) not in made:
        made[id(value)] = type(value)(rebuild(item, leaf, made) for item in value)
    return made[id(value)]
