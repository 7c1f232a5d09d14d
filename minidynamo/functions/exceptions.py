"""`raise`, `try` and `with`: exceptions of the traced program.

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.
Mirrors torch/_dynamo/symbolic_convert.py.
"""

import sys
from typing import Any

from ..bytecode.assembler import HANDLED, VALUE
from ..errors import Break, ObservedException
from ..evaluate.opcodes import opcode, pushes
from ..variables.base import Codegen, Variable
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.dicts import TupleVar
from ..variables.exceptions import nothing_handled
from ..variables.objects import ObjectVar
from ..variables.registry import NONE, rules


class Handled(Variable):
    """What PUSH_EXC_INFO leaves below an exception that is being handled: POP_EXCEPT takes it, and
    sets `exception` to None."""

    exception: Any

    @property
    def stack_kind(self) -> str:  # type: ignore[override]
        return VALUE if self.exception is None else HANDLED

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(None)


@opcode
def RAISE_VARARGS(frame: Any, n: int) -> None:
    if n == 0:
        handled = frame.handling()
        if handled is None and nothing_handled(frame.output):
            frame.raise_(RuntimeError, "No active exception to reraise")
        if not frame.handled:
            raise Break("exception", "a bare `raise` of what a caller handles")
        raise ObservedException(handled)
    values = [v.call(frame, [], {}) if type(v) is ClassVar else v for v in frame.popn(n)]
    if not isinstance(values[0], ObjectVar) or not issubclass(values[0].cls, BaseException):
        frame.raise_(TypeError, "exceptions must derive from BaseException")
    if n == 2:
        values[0].setattr(frame, "__cause__", values[1])
    raise frame.raised(values[0])


@opcode
def RERAISE(frame: Any, _: Any) -> None:
    raise ObservedException(frame.stack.pop())


@opcode
def PUSH_EXC_INFO(frame: Any, _: Any) -> None:
    raised = frame.stack.pop()
    frame.stack += [Handled(raised), raised]
    frame.handled.append(raised)


@opcode
def POP_EXCEPT(frame: Any, _: Any) -> None:
    frame.stack.pop().exception = None
    frame.handled.pop()


@opcode
def CHECK_EXC_MATCH(frame: Any, _: Any) -> None:
    expected = frame.stack.pop()
    kinds = [*expected.iterate(frame)] if isinstance(expected, TupleVar) else [expected]
    caught = [kind.as_constant() for kind in kinds]
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in caught):
        text = "catching classes that do not inherit from BaseException is not allowed"
        frame.raise_(TypeError, text)
    # no metaclass is asked
    matches = not {*caught}.isdisjoint(frame.stack[-1].python_type().__mro__)
    frame.stack.append(ConstantVar(matches))


@opcode
def BEFORE_WITH(frame: Any, _: Any) -> None:
    manager = frame.stack.pop()
    if not isinstance(manager, ObjectVar):
        raise Break("with", f"{manager} as a context manager")
    enter, leave = manager.special(frame, "__enter__"), manager.special(frame, "__exit__")
    if enter is None or leave is None:
        missed = " (missed __exit__ method)" if enter is not None else ""
        text = f"does not support the context manager protocol{missed}"
        frame.raise_(TypeError, f"'{manager.cls.__name__}' object {text}")
    frame.stack += [leave, enter.call(frame, [], {})]


def exc_info(frame: Any, raised: Any) -> list[Any]:
    return [
        frame.output.wrap_pinned(raised.python_type()),
        raised,
        raised.getattr(frame, "__traceback__"),
    ]


def _exception(tx):
    handled = tx.handling()
    if handled is None and not nothing_handled(tx.output):
        raise Break("exception", "what is being handled around this frame")
    return handled


def _exc_info(tx):
    handled = _exception(tx)
    return TupleVar([NONE] * 3 if handled is None else exc_info(tx, handled))


rules({sys.exception: _exception, sys.exc_info: _exc_info})
pushes(
    {
        "WITH_EXCEPT_START": lambda frame, _: frame.stack[-4].call(
            frame, exc_info(frame, frame.stack[-1]), {}
        )
    }
)
