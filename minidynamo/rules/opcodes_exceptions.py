"""Opcodes of `raise`, `try` and `with`.

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.
"""

import torch

from ..exceptions import Break, ObservedException
from ..symbolic_eval.opcodes import opcode, pushes
from ..variables.base import Handled
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.containers import TupleVar
from ..variables.objects import ObjectVar
from .torch_state import ContextVar


@opcode
def RAISE_VARARGS(frame, n):
    if n == 0:
        handled = frame.handling()
        if handled is None and frame.output.nothing_handled():
            frame.raise_(RuntimeError, "No active exception to reraise")
        if not frame.handled:
            raise Break("exception", "a bare `raise` of what a caller handles")
        raise ObservedException(handled)
    values = [v.call(frame, [], {}) if type(v) is ClassVar else v for v in frame.popn(n)]
    if not isinstance(values[0], ObjectVar) or not issubclass(
        values[0].python_type(), BaseException
    ):
        frame.raise_(TypeError, "exceptions must derive from BaseException")
    if n == 2:
        values[0].setattr(frame, "__cause__", values[1])
    raise frame.raised(values[0])


@opcode
def RERAISE(frame, _):
    raise ObservedException(frame.stack.pop())


@opcode
def PUSH_EXC_INFO(frame, _):
    raised = frame.stack.pop()
    frame.stack += [Handled(raised), raised]
    frame.handled.append(raised)


@opcode
def POP_EXCEPT(frame, _):
    frame.stack.pop().exception = None
    frame.handled.pop()


@opcode
def CHECK_EXC_MATCH(frame, _):
    expected = frame.stack.pop()
    kinds = (
        [v.as_constant() for v in expected.iterate(frame)]
        if isinstance(expected, TupleVar)
        else [expected.as_constant()]
    )
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            frame.raise_(
                TypeError, "catching classes that do not inherit from BaseException is not allowed"
            )
    frame.stack.append(
        ConstantVar(not {*kinds}.isdisjoint(frame.stack[-1].python_type().__mro__))
    )  # no metaclass is asked


@opcode
def BEFORE_WITH(frame, _):
    manager = frame.stack.pop()
    if type(manager) is ConstantVar and type(manager.value) is torch.device:
        manager = ContextVar(torch.device, manager.value, {})
    if type(manager) is ContextVar:
        frame.stack += [manager.getattr(frame, "__exit__"), manager.method___enter__(frame)]
        return
    if not isinstance(manager, ObjectVar):
        raise Break("with", f"{manager} as a context manager")
    enter, leave = manager.special(frame, "__enter__"), manager.special(frame, "__exit__")
    if enter is None or leave is None:
        missed = " (missed __exit__ method)" if enter is not None else ""
        frame.raise_(
            TypeError,
            f"'{manager.cls.__name__}' object does not support the context manager protocol{missed}",
        )
    frame.stack += [leave, enter.call(frame, [], {})]


def exc_info(frame, raised):
    return [
        frame.output.wrap_pinned(raised.python_type()),
        raised,
        raised.getattr(frame, "__traceback__"),
    ]


pushes(
    {
        "WITH_EXCEPT_START": lambda frame, _: frame.stack[-4].call(
            frame, exc_info(frame, frame.stack[-1]), {}
        ),
    }
)
