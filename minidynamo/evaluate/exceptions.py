"""`try`, `raise` and `with`: the opcodes that handle exceptions of the traced program.

In:   the frame and the opcode's argument.
Out:  a variable of the exception on the frame's stack, or ObservedException: the frame looks for a
      handler (`Frame.caught`), then the frames around it.

    try:                        PUSH_EXC_INFO leaves `Handled` below the exception
        y = table[key]          CHECK_EXC_MATCH compares classes alone
    except KeyError:            POP_EXCEPT takes `Handled` away
        y = x

Exceptions themselves: `ExceptionVar` in variables/objects.py.  Mirrors the opcode methods of
torch/_dynamo/symbolic_convert.py (`exception_handler`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bytecode.assembler import HANDLED, VALUE
from ..errors import Break, ObservedException
from ..variables.base import Codegen, Variable
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.dicts import TupleVar
from ..variables.objects import ObjectVar
from .opcodes import opcode, pushes

if TYPE_CHECKING:
    from .evaluator import Frame


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
def RAISE_VARARGS(frame: Frame, n: int) -> None:
    if n == 0:
        if not frame.handled:
            raise Break("exception", "a bare `raise` of what is not handled in this function")
        raise ObservedException(frame.handled[-1])
    values = [v.call(frame, [], {}) if type(v) is ClassVar else v for v in frame.popn(n)]
    if not isinstance(values[0], ObjectVar) or not issubclass(values[0].cls, BaseException):
        raise Break("exception", f"raising {values[0]}")
    if n == 2:
        values[0].setattr(frame, "__cause__", values[1])
    raise frame.raised(values[0])


@opcode
def RERAISE(frame: Frame, _: None) -> None:
    raise ObservedException(frame.stack.pop())


@opcode
def PUSH_EXC_INFO(frame: Frame, _: None) -> None:
    raised = frame.stack.pop()
    frame.stack += [Handled(raised), raised]
    frame.handled.append(raised)


@opcode
def POP_EXCEPT(frame: Frame, _: None) -> None:
    frame.stack.pop().exception = None
    frame.handled.pop()


@opcode
def CHECK_EXC_MATCH(frame: Frame, _: None) -> None:
    expected = frame.stack.pop()
    kinds = [*expected.iterate(frame)] if isinstance(expected, TupleVar) else [expected]
    caught = [kind.as_constant() for kind in kinds]
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in caught):
        raise Break("exception", f"`except` with {expected}")
    # no metaclass is asked
    matches = not {*caught}.isdisjoint(frame.stack[-1].python_type().__mro__)
    frame.stack.append(ConstantVar(matches))


@opcode
def BEFORE_WITH(frame: Frame, _: None) -> None:
    manager = frame.stack.pop()
    methods = "__enter__", "__exit__"
    enter, leave = (
        manager.special(frame, name) if isinstance(manager, ObjectVar) else None for name in methods
    )
    if enter is None or leave is None:
        raise Break("with", f"{manager} as a context manager")
    frame.stack += [leave, enter.call(frame, [], {})]


def exc_info(frame: Frame, raised: Any) -> list[Variable]:
    """What `__exit__` is given."""
    kind = ClassVar(raised.python_type())
    return [kind, raised, raised.getattr(frame, "__traceback__")]


@opcode
def STOPITERATION_ERROR(frame: Frame, _: None) -> None:
    """3.12+: an exception leaves a generator; a StopIteration would become a RuntimeError."""
    if issubclass(frame.stack[-1].python_type(), StopIteration):
        raise Break("generator", "a generator raises StopIteration")


pushes(
    {
        "WITH_EXCEPT_START": lambda frame, _: frame.stack[-4].call(
            frame, exc_info(frame, frame.stack[-1]), {}
        )
    }
)
