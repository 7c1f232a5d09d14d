"""`raise`, `try` and `with`: exceptions of the traced program.

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.

`assert torch.isfinite(x).all(), "..."`: the condition is checked in the graph.

Where it fails the graph raises, and plain Python runs the frame and raises the program's own
AssertionError, with its message, where it stands (`extras/graph_errors.py`).  In a graph that
writes or draws, and on a GPU, where such a check would end the process, it is a graph break.
Mirrors torch/_dynamo/symbolic_convert.py (`_detect_and_normalize_assert_statement`).
"""

import sys
from typing import Any, NoReturn

import torch

from ..extras.extending import extends
from ..exceptions import Break, ObservedException
from ..symbolic_eval.evaluator import Frame, RootFrame
from ..resume import VALUE
from ..symbolic_eval.opcodes import HANDLERS, opcode, pushes
from ..symbolic_eval.operations import Operations
from ..symbolic_eval.registry import NONE, rules
from ..extras.handled_slots import HANDLED, LASTI
from ..variables.base import Codegen, Variable
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.containers import DictVar, TupleVar
from ..variables.more.exceptions import ExceptionVar, TracebackVar, nothing_handled
from ..variables.objects import ObjectVar
from ..variables.tensor import TensorVar
from .torch_state import ContextVar


class LastInstruction(ConstantVar):
    """Where an exception was raised, which some handlers find on the stack; only a RERAISE looks at
    it."""

    stack_kind = LASTI


class Handled(Variable):
    """What PUSH_EXC_INFO leaves below an exception that is being handled: POP_EXCEPT takes it, and
    sets `exception` to None."""

    exception: Any

    @property
    def stack_kind(self) -> str:  # type: ignore[override]
        return VALUE if self.exception is None else HANDLED

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(None)


@extends(Operations)
class Raising(Operations):
    def raise_(self: Any, kind: type, *args: Any) -> NoReturn:
        self.raise_var(kind, [ConstantVar(arg) for arg in args])

    def raise_var(self: Any, kind: type, args: Any) -> NoReturn:
        made = ExceptionVar(kind, fields=DictVar({}))
        made.init_args = args
        raise self.raised(made)

    def unbound(self: Any, name: str) -> NoReturn:
        nothing = "where it is not associated with a value"
        if name in self.code.co_freevars:
            text = f"cannot access free variable '{name}' {nothing} in enclosing scope"
            self.raise_(NameError, text)
        self.raise_(UnboundLocalError, f"cannot access local variable '{name}' {nothing}")

    def wrong_number(self, expected: int, found: int) -> NoReturn:
        few = f"not enough values to unpack (expected {expected}, got {found})"
        many = f"too many values to unpack (expected {expected})"
        self.raise_(ValueError, few if found < expected else many)

    def raised(self: Any, var: Any) -> ObservedException:
        """The signal that `var` is raised here: its traceback begins, and what is being handled is
        its context (CPython's _PyErr_SetObject)."""
        if not isinstance(var, ObjectVar) or var.value is not None:
            raise Break("exception", "raising an exception that was made before this frame")
        var.slots["__traceback__"] = TracebackVar((self.user_stack(), self.output.root.group_step))
        context = link = self.handling()
        if context is not None and context is not var:
            seen = []
            while isinstance(link, ObjectVar) and link not in seen:  # no new circle
                seen.append(link)
                after = link.slots.get("__context__")
                if after is var:
                    link.slots["__context__"] = ConstantVar(None)
                link = after
            var.slots["__context__"] = context
        return ObservedException(var)

    def handling(self: Any) -> Any:
        """The exception that is being handled here, or None: this frame's or a caller's, as far as
        they are traced."""
        frame = self
        while frame is not None and not frame.handled:
            frame = frame.parent
        return frame and frame.handled[-1]


@extends(Frame)
class Catching(Frame):
    def caught(self, raised: ObservedException, entry: Any) -> bool:
        if entry is not None:
            self.unwind(raised.var, entry)
        return entry is not None

    def unwind(self, exception: Variable, entry: tuple[int, int, bool]) -> None:
        """Go to the handler of the instruction that raised."""
        target, depth, lasti = entry
        del self.stack[depth:]
        if lasti:
            self.stack.append(LastInstruction(0))
        self.stack.append(exception)
        self.pc = target


break_plainly = RootFrame.break_at


@extends(RootFrame)
class CatchingRoot(RootFrame):
    def caught(self, raised: ObservedException, entry: Any) -> bool:
        if entry is None:
            kind, text = raised.var.python_type().__name__, message_of(raised.var)
            reason = f"{kind} leaves the frame{text and ': ' + text}"
            stack, step = raised_at(raised.var)
            self.break_at(Break("exception", reason, stack=stack), step)
        self.unwind(raised.var, entry)
        return True

    def break_at(self, reason: Break, step: int | None = None) -> NoReturn:
        """Where an exception is being handled that was raised while tracing, the frame is split at
        the instruction that raised: plain Python must make the traceback, and the handler lies in
        the continuation."""
        for exception in reversed(self.handled):  # the outermost decides
            step = raised_at(exception)[1] or step
        break_plainly(self, reason, step)


def message_of(exception: Any) -> str:
    """What it says of a name that there is not.  (Other texts may be others in each call, and are
    counted as one reason.)"""
    named = issubclass(exception.python_type(), (AttributeError, NameError))
    args = named and getattr(exception, "init_args", None) or ()
    return str(args[0].value) if len(args) == 1 and isinstance(args[0], ConstantVar) else ""


def raised_at(exception: Any) -> tuple[Any, int | None]:
    """The user's stack and the root's step at which an exception was raised while tracing; twice
    None for a real one."""
    traceback = getattr(exception, "slots", {}).get("__traceback__")
    return getattr(traceback, "where", (None, None))


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


# --- assert of a tensor ---------------------------------------------------------------------------
jump = HANDLERS["POP_JUMP_IF_TRUE"]


def POP_JUMP_IF_TRUE(frame: Any, target: int) -> None:
    """Over the `raise` of an assert statement: it is not needed once the graph has checked."""
    condition = frame.stack[-1]
    if type(condition) is not TensorVar or not raises_assertion(frame):
        return jump(frame, target)
    fake = condition.fake
    if not fake.is_cpu or fake.dim() or getattr(fake, "constant", None) is not None:
        return jump(frame, target)
    frame.stack.pop()
    made = frame.user_stack(), frame.output.root.group_step
    vars(frame.output).setdefault("asserted", []).append(made)
    frame.node(torch._assert_async, [condition])
    frame.pc = target
    return None


def raises_assertion(frame: Any) -> bool:
    """Does what follows, unless it is jumped over, begin to make an AssertionError?"""
    follows = frame.info.operations[frame.pc]
    return follows.op == "LOAD_CONST" and follows.arg is AssertionError


HANDLERS["POP_JUMP_IF_TRUE"] = POP_JUMP_IF_TRUE
