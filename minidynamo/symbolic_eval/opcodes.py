"""One function for each canonical opcode (named as in CPython 3.13).

In:   the frame and the opcode's argument.
Out:  the frame's stack, locals and program counter are changed; True where the frame is left.

    >>> HANDLERS["BINARY_OP"](frame, "+")

Mirrors the opcode methods of torch/_dynamo/symbolic_convert.py.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..bytecode.emit import CLOSURE
from ..exceptions import Break
from ..variables.base import NULL, Lazy, Variable, refusal
from ..variables.constant import ConstantVar
from ..variables.containers import ListVar, SequenceVar, TupleVar
from ..variables.functions import CellVar, FunctionVar
from ..variables.iterators import IteratorVar

if TYPE_CHECKING:
    from .evaluator import Frame

Handler = Callable[["Frame", Any], Any]
HANDLERS: dict[str, Handler] = {}


def opcode(function: Handler) -> Handler:
    HANDLERS[function.__name__] = function
    return function


unsupported = refusal("opcode", "the instruction {0} is not traced")


# ---- the stack
@opcode
def POP_TOP(frame: Frame, _: Any) -> None:
    frame.stack.pop()


@opcode
def SWAP(frame: Frame, n: int) -> None:
    stack = frame.stack
    stack[-1], stack[-n] = stack[-n], stack[-1]


# ---- variables
@opcode
def LOAD_CONST(frame: Frame, value: Any) -> None:
    frame.stack.append(frame.output.wrap_result(value))


@opcode
def LOAD_FAST(frame: Frame, name: str) -> None:
    value = frame.locals.get(name)
    if value is None:
        if name not in frame.cells:
            frame.unbound(name)
        value = frame.cells[name]  # 3.13 loads a cell for a closure with this opcode, too
    elif type(value) is Lazy:
        value = frame.locals[name] = value.realize(frame)
    frame.stack.append(value)


@opcode
def STORE_FAST(frame: Frame, name: str) -> None:
    value = frame.stack.pop()
    if value is NULL:  # behind an inlined comprehension, see LOAD_FAST_AND_CLEAR
        frame.locals.pop(name, None)
    elif type(value) is CellVar and name in frame.code.co_cellvars:  # such a comprehension's cell
        frame.cells[name] = value
    else:
        frame.locals[name] = value


@opcode
def DELETE_FAST(frame: Frame, name: str) -> None:
    if frame.locals.pop(name, None) is None:
        frame.unbound(name)


@opcode
def MAKE_CELL(frame: Frame, name: str) -> None:
    cell = frame.cells[name] = CellVar(frame.locals.pop(name, None))
    # the root's own cells exist in the replacement code too
    cell.cell = name if frame.parent is None else None


@opcode
def LOAD_DEREF(frame: Frame, name: str) -> None:
    value = frame.cells[name].load(frame)
    if value is None:
        frame.unbound(name)
    frame.stack.append(value)


# ---- attributes and items
@opcode
def LOAD_METHOD(frame: Frame, name: str) -> None:
    push_callable(frame, frame.stack.pop().getattr(frame, name))


def push_callable(frame: Frame, found: Variable) -> None:
    """A callable and NULL, in this version's order: behind a graph break the real CALL takes
    them."""
    frame.stack.extend((NULL, found) if sys.version_info < (3, 13) else (found, NULL))


# ---- what pushes one value, and what jumps
PUSHES = {
    "COPY": lambda frame, n: frame.stack[-n],
    "PUSH_NULL": lambda frame, _: NULL,
    "LOAD_CLOSURE": lambda frame, name: frame.cells[name],
    "LOAD_GLOBAL": lambda frame, name: frame.globals.load(frame, name),
    "BINARY_OP": lambda frame, symbol: frame.binary(symbol, *frame.popn(2)),
    "COMPARE_OP": lambda frame, symbol: frame.compare(symbol, *frame.popn(2)),
    "LOAD_ATTR": lambda frame, name: frame.stack.pop().getattr(frame, name),
    "BUILD_TUPLE": lambda frame, n: TupleVar(frame.popn(n)),
    "BUILD_LIST": lambda frame, n: ListVar(frame.popn(n)),
    "GET_ITER": lambda frame, _: frame.iter_of(frame.stack.pop()),
    # CPython pushes the generator, and its next instruction pops it: the body follows
    "RETURN_GENERATOR": lambda frame, _: ConstantVar(None),
}
JUMPS = {
    "POP_JUMP_IF_FALSE": lambda frame, value: not value.truth(frame),
    "POP_JUMP_IF_TRUE": lambda frame, value: value.truth(frame),
    "POP_JUMP_IF_NONE": lambda frame, value: value.identity() is None,
    "POP_JUMP_IF_NOT_NONE": lambda frame, value: value.identity() is not None,
}


def pushes(table: dict[str, Callable[[Frame, Any], Any]]) -> None:
    """Opcodes that push one value."""
    for op, make in table.items():
        HANDLERS[op] = _push(make)


def _push(make: Callable[[Frame, Any], Any]) -> Handler:
    def handler(frame: Frame, arg: Any) -> None:
        frame.stack.append(make(frame, arg))

    return handler


def _jump_if(test: Callable[[Frame, Variable], bool]) -> Handler:
    def handler(frame: Frame, target: int) -> None:
        if test(frame, frame.stack.pop()):
            frame.pc = target

    return handler


pushes(PUSHES)
HANDLERS.update({op: _jump_if(test) for op, test in JUMPS.items()})


# ---- writes
@opcode
def STORE_DEREF(frame: Frame, name: str) -> None:
    frame.cells[name].store(frame.stack.pop())


@opcode
def STORE_GLOBAL(frame: Frame, name: str) -> None:
    frame.globals.written[name] = frame.stack.pop()


@opcode
def STORE_ATTR(frame: Frame, name: str) -> None:
    value, owner = frame.popn(2)
    owner.setattr(frame, name, value)


@opcode
def STORE_SUBSCR(frame: Frame, _: Any) -> None:
    value, container, key = frame.popn(3)
    container.setitem(frame, key, value)


# ---- containers
@opcode
def UNPACK_SEQUENCE(frame: Frame, n: int) -> None:
    value = frame.stack.pop()
    walk = value.iterate(frame)
    # one more than wanted is enough to see that there are too many; a sequence tells how many
    values = list(walk if isinstance(value, SequenceVar) else itertools.islice(walk, n + 1))
    if len(values) != n:
        frame.wrong_number(n, len(values))
    frame.stack.extend(reversed(values))


@opcode
def BINARY_SUBSCR(frame: Frame, _: Any) -> None:
    container, key = frame.popn(2)
    frame.stack.append(container.getitem(frame, key))


# ---- calls
def callee(frame: Frame, args: list[Variable]) -> tuple[Variable, list[Variable]]:
    """(callable, arguments): the two slots hold NULL and the callable, in either order, or method
    and self."""
    first, second = frame.popn(2)
    if first is NULL:
        return second, args
    return (first, args) if second is NULL else (first, [second, *args])


@opcode
def CALL(frame: Frame, n: int) -> None:
    function, args = callee(frame, frame.popn(n))
    frame.stack.append(function.call(frame, args, {}))


@opcode
def CALL_KW(frame: Frame, n: int) -> None:
    names = frame.stack.pop().as_constant()
    values = frame.popn(n)
    kwargs = dict(zip(names, values[n - len(names) :]))
    function, args = callee(frame, values[: n - len(names)])
    frame.stack.append(function.call(frame, args, kwargs))


@opcode
def MAKE_FUNCTION(frame: Frame, _: Any) -> None:
    code = frame.stack.pop().value
    frame.stack.append(FunctionVar(None, code, frame.function.globals, code.co_qualname))


@opcode
def SET_FUNCTION_ATTRIBUTE(frame: Frame, part: int) -> None:
    value, made = frame.popn(2)
    if part != CLOSURE:  # rules/displays.py knows the other parts
        raise Break("function", "a function with defaults or annotations is made")
    made.closure = tuple(value.items)
    frame.stack.append(made)


# ---- control flow
@opcode
def JUMP(frame: Frame, target: int) -> None:
    frame.pc = target


@opcode
def FOR_ITER(frame: Frame, target: int) -> None:
    if not isinstance(frame.stack[-1], IteratorVar):
        raise Break("loop", "the next step of a loop whose iterator was made before this frame")
    value = frame.stack[-1].next(frame)
    if value is None:
        frame.stack.pop()
        frame.pc = target
    else:
        frame.stack.append(value)


@opcode
def RETURN_VALUE(frame: Frame, _: Any) -> bool:
    frame.returned = frame.stack.pop()
    return True


@opcode
def YIELD_VALUE(frame: Frame, _: Any) -> bool:
    frame.yielded = frame.stack.pop()
    return True
