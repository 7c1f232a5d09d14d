"""(coverage) What ends with the program's last name for it ends there: files, temporary folders,
generators, objects whose class has a `__del__`.

    def f(x, log):
        file = open_file()
        y = x.sin()
        file = None             # its `__del__` runs here: the graph breaks, plain Python does this
        log.append("after")     # not before that
        return y

In:   the instructions of the frame that is compiled by which one of its names, or its stack, lets
      go of an argument (behind a graph break the locals are arguments).
Out:  a graph break, so that plain Python runs the instruction at its place.

Without this file such objects end behind the graph, when the frame's writes are repeated.  An
object that only a container holds, or an attribute, does so all the same (docs/limits.md).

PyTorch: torch.compile (2.13, backend "eager") logs "after" first in the program above.
"""

from collections.abc import Iterator
from typing import Any

from ..exceptions import Break
from ..symbolic_eval.opcodes import HANDLERS, opcode
from ..variables.base import Lazy, RealVar, peek
from ..variables.objects import ObjectVar

pop_top, store_fast, delete_fast = map(HANDLERS.get, ("POP_TOP", "STORE_FAST", "DELETE_FAST"))
assert pop_top and store_fast and delete_fast


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


def refuse_end(frame: Any, variable: Any) -> None:
    """Raise Break where the frame lets go of an argument that has a finalizer."""
    value = argument_of(variable)
    if not hasattr(type(value), "__del__"):
        return
    if sum(held is value for held in arguments_held(frame)) == 1:
        reason = f"the finalizer of {type(value).__name__} may run here"
        raise Break("finalizer", reason, "let go of the object outside")


def arguments_held(frame: Any) -> Iterator[Any]:
    for variable in (*frame.locals.values(), *frame.stack):
        yield argument_of(variable)


def argument_of(variable: Any) -> Any:
    """The object, if it is an argument of the frame; None otherwise."""
    source = getattr(variable, "source", None)
    if source is None or source.kind != "local":
        return None
    held = peek(variable)
    return held.value if isinstance(held, (Lazy, RealVar, ObjectVar)) else None
