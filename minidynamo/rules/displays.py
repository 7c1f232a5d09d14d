"""Dictionaries that are written out, comprehensions, stars; defaults of a function that is made.

    {"a": x}        [f(a) for a in xs]        [*xs, 1]        f(*args)        lambda n=1: n

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ..exceptions import Break
from ..symbolic_eval.opcodes import HANDLERS, callee, opcode, pushes
from ..variables.base import NULL, Frame, Variable
from ..variables.containers import DictVar, TupleVar
from ..variables.functions import FunctionVar


def _into(op: str, method: str, count: int = 1, needed: str = "") -> None:
    """An opcode that puts the `count` values on top of the stack into the container `n` below them,
    as a call of its `method` does.  Values without the method `needed` break the graph: CPython
    complains of them in words that the method does not use."""

    def handler(frame: Frame, n: int) -> None:
        values = frame.popn(count)
        if needed and not hasattr(values[0].python_type(), needed):
            raise Break("arguments", f"{op} of {values[0]}")
        frame.stack[-n].call_method(frame, method, values, {})

    HANDLERS[op] = handler


_into("LIST_APPEND", "append")
_into("SET_ADD", "add")
_into("MAP_ADD", "__setitem__", 2)
_into("LIST_EXTEND", "extend", needed="__iter__")
_into("SET_UPDATE", "update")
_into("DICT_UPDATE", "update", needed="keys")
pushes({"LIST_TO_TUPLE": lambda frame, _: TupleVar(list(frame.stack.pop().iterate(frame)))})


def dict_of(frame: Frame, keys: Iterable[Variable], values: Iterable[Variable]) -> DictVar:
    made = DictVar({})
    for key, value in zip(keys, values):
        made.store(frame, key, value)
    return made


def dict_of_pairs(frame: Frame, keys_and_values: list[Variable]) -> DictVar:
    return dict_of(frame, keys_and_values[::2], keys_and_values[1::2])


pushes(
    {
        "BUILD_MAP": lambda frame, n: dict_of_pairs(frame, frame.popn(2 * n)),
        "BUILD_CONST_KEY_MAP": lambda frame, n: dict_of(
            frame, frame.stack.pop().iterate(frame), frame.popn(n)
        ),
    }
)


# ---- parts of a function that is made
def set_defaults(frame: Frame, made: FunctionVar, value: Any) -> None:
    made.defaults = tuple(value.iterate(frame))


def set_named_defaults(frame: Frame, made: FunctionVar, value: Any) -> None:
    made.kwdefaults = {key.as_constant(): item for key, item in value.pairs(frame)}


def set_annotations(frame: Frame, made: FunctionVar, value: Any) -> None:
    made.annotations = dict_of_pairs(frame, list(value.iterate(frame)))


# what the value below a function becomes -> what makes it that
FUNCTION_PARTS: dict[int, Callable[[Frame, FunctionVar, Any], None]] = {
    1: set_defaults,
    2: set_named_defaults,
    4: set_annotations,
}
plain_attribute = HANDLERS["SET_FUNCTION_ATTRIBUTE"]


@opcode
def SET_FUNCTION_ATTRIBUTE(frame: Frame, part: int) -> None:
    if part not in FUNCTION_PARTS:
        return plain_attribute(frame, part)
    value, made = frame.popn(2)
    FUNCTION_PARTS[part](frame, made, value)
    frame.stack.append(made)


@opcode
def CALL_FUNCTION_EX(frame: Frame, flags: int) -> None:
    named = frame.stack.pop().pairs(frame) if flags & 1 else ()
    kwargs = {key.as_constant(): value for key, value in named}
    function, args = callee(frame, frame.listed(frame.stack.pop()))
    frame.stack.append(function.call(frame, args, kwargs))


@opcode
def LOAD_FAST_AND_CLEAR(frame: Frame, name: str) -> None:
    """In front of a comprehension that is inlined (3.12): its variable hides one of the frame's,
    which waits on the stack, NULL if it is unbound, until a STORE_FAST puts it back."""
    if name in frame.cells and name in frame.code.co_cellvars:
        frame.stack.append(frame.cells.pop(name))
        return
    value = frame.locals.pop(name, NULL)
    frame.stack.append(value.realize(frame))
