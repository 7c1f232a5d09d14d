"""(coverage) What ends where the program lets go of it ends there: files, temporary folders,
generators, objects whose class has a `__del__`.

    def f(x, log):
        file = open_file()
        y = x.sin()
        file = None             # its `__del__` runs here: the graph breaks, plain Python does this
        log.append("after")     # not before that
        return y

In:   the instructions of the frame that is compiled by which one of its names, or its stack, lets
      go of an argument (behind a graph break the locals are arguments); and what its writes remove
      from containers, objects, cells and globals.
Out:  a graph break, so that plain Python runs the instruction at its place.  Where writes remove
      something it is the first write to that container.

Without this file such objects end behind the graph, while the frame's writes are repeated, and what
their finalizers write may be overwritten.

PyTorch: torch.compile (2.13, backend "eager") logs "after" first in the program above.
"""

import collections
import contextlib
import gc
import types
from collections.abc import Iterable, Iterator
from typing import Any

from .. import hooks
from ..exceptions import Break
from ..symbolic_eval.opcodes import HANDLERS, opcode
from ..variables.base import RUNNING, Codegen, Variable, peek
from ..variables.objects import ObjectVar

pop_top, store_fast, delete_fast = map(HANDLERS.get, ("POP_TOP", "STORE_FAST", "DELETE_FAST"))
store_global = HANDLERS.get("STORE_GLOBAL")
assert pop_top and store_fast and delete_fast and store_global
CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque, types.SimpleNamespace)
HEAP_TYPE = 1 << 9  # CPython's flag of a class that a program has made
PARTS = ("items", "content", "fields", "payload", "slots", "instance", "closure")  # of variables
DEPTH = 3  # so deep lies what is looked for: a file in a list in an object that goes


def may_end(value: Any, depth: int = DEPTH) -> bool:
    """Has it a finalizer, or something in it?"""
    kind = type(value)
    if hasattr(kind, "__del__"):
        return True
    is_opened = issubclass(kind, CONTAINERS) or kind.__flags__ & HEAP_TYPE
    if depth == 0 or not is_opened or issubclass(kind, type):
        return False
    return any(may_end(part, depth - 1) for part in gc.get_referents(value))


def refusal(value: Any, *place: Any) -> Break:
    reason = f"the finalizer of {type(value).__name__}, or of what it holds, may run here"
    return Break("finalizer", reason, "let go of the object outside", *place)


# ---- names
@opcode
def POP_TOP(frame: Any, argument: Any) -> None:
    if frame.parent is None:
        refuse_end(frame, frame.stack[-1])
    pop_top(frame, argument)


@opcode
def STORE_FAST(frame: Any, name: str) -> None:
    if frame.parent is None and name in frame.locals:
        refuse_end(frame, frame.locals[name])
    store_fast(frame, name)


@opcode
def DELETE_FAST(frame: Any, name: str) -> None:
    if frame.parent is None and name in frame.locals:
        refuse_end(frame, frame.locals[name])
    delete_fast(frame, name)


@opcode
def STORE_GLOBAL(frame: Any, name: str) -> None:
    was = frame.globals.values.get(name)
    if name not in frame.globals.written and may_end(was):
        raise refusal(was)
    store_global(frame, name)


def refuse_end(frame: Any, variable: Any) -> None:
    """Raise Break where the frame lets go of an argument that has a finalizer."""
    value = argument_of(frame, variable)
    if not may_end(value):
        return
    if sum(held is value for held in arguments_held(frame)) == 1:
        raise refusal(value)


def arguments_held(frame: Any) -> Iterator[Any]:
    for variable in (*frame.locals.values(), *frame.stack):
        yield argument_of(frame, variable)


def argument_of(frame: Any, variable: Any) -> Any:
    """The object, if it is an argument of the frame; None otherwise."""
    source = getattr(variable, "source", None)
    if source is None or source.kind != "local":
        return None
    bound = frame.bound.get(source.key)
    return None if bound is None else bound.value


# ---- writes
class Mutated:
    """`variable.mutated`, which notes where in the frame the first write was."""

    def __get__(self, variable: Any, owner: type) -> bool:
        return vars(variable).get("mutated", False) if variable is not None else False

    def __set__(self, variable: Any, value: bool) -> None:
        fields = vars(variable)
        fields["mutated"] = value
        if value and "written_at" not in fields:
            fields["written_at"] = place()


def place() -> tuple[Any, int]:
    """The stack, and the step of the frame that is compiled."""
    if not RUNNING:
        return None, 0
    return RUNNING[-1].user_stack(), RUNNING[-1].output.root.group_step


Variable.mutated = Mutated()  # type: ignore[assignment]


def refuse_removals(cg: Codegen) -> None:
    """Raise Break where the frame's writes remove what has a finalizer, or an argument that was put
    somewhere before, and nothing that the frame knows holds it now."""
    frame, known = cg.output.root, known_before(cg)
    written = [(variable, value) for variable, value in known if variable.mutated]
    if not written:
        return
    globals_written = [module.written for module in cg.output.globals.values()]
    live = [frame.locals, frame.stack, frame.returned, frame.cells, globals_written]
    real = {id(variable): value for variable, value in known}
    held = held_now([live, [variable for variable, _ in written]], real)
    first = min((variable for variable, _ in written), key=lambda variable: variable.written_at[1])
    candidates = [(first, argument.value) for argument in frame.bound.values()]
    for variable, value in written:
        candidates += [(variable, part) for part in held_before(variable, value)]
    for variable, part in candidates:
        if id(part) not in held and may_end(part):
            raise refusal(part, *variable.written_at)


def known_before(cg: Codegen) -> list[tuple[Any, Any]]:
    """(variable, what it stands for) of all that may hold something, as it was in front of the
    frame."""
    frame, known = cg.output.root, list(cg.output.memo.values())
    known += [(held.payload, value) for held, value in known if held.payload is not None]
    own = [(cell, frame.bound.get(name)) for name, cell in frame.cells.items()]
    return known + [(cell, types.CellType(was.value)) for cell, was in own if was is not None]


def held_before(variable: Any, value: Any) -> Iterable[Any]:
    if not isinstance(variable, ObjectVar):
        return gc.get_referents(value)
    slots = []  # its `__dict__` is known by itself
    for name in variable.slots:
        with contextlib.suppress(AttributeError):
            slots.append(object.__getattribute__(value, name))
    return slots


def held_now(variables: Any, real: dict[int, Any]) -> set[int]:
    """The ids of the objects that these variables stand for, and those that they contain."""
    found, seen, left = set(), set(), [variables]
    while left:
        variable = left.pop()
        if isinstance(variable, (list, tuple, dict)):
            left += variable.values() if isinstance(variable, dict) else variable
            continue
        variable = peek(variable)
        if not isinstance(variable, Variable) or id(variable) in seen:
            continue
        seen.add(id(variable))
        found.add(id(real.get(id(variable), getattr(variable, "value", None))))
        left += [vars(variable).get(name) for name in PARTS]
    return found


hooks.BEFORE_VALUES.append(refuse_removals)
