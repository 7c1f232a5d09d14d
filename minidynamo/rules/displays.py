"""What comprehensions and stars put together: `[f(a) for a in xs]`, `[*xs, 1]`, `f(*args)`.

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.
"""

from __future__ import annotations

from ..exceptions import Break
from ..symbolic_eval.opcodes import HANDLERS, callee, opcode, pushes
from ..variables.base import Frame
from ..variables.containers import TupleVar


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


@opcode
def CALL_FUNCTION_EX(frame: Frame, flags: int) -> None:
    named = frame.stack.pop().pairs(frame) if flags & 1 else ()
    kwargs = {key.as_constant(): value for key, value in named}
    function, args = callee(frame, frame.listed(frame.stack.pop()))
    frame.stack.append(function.call(frame, args, kwargs))
