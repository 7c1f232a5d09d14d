"""Why a graph is not compiled: what the stages raise, and what the driver answers; and which
exceptions are not the compiler's to answer.

    >>> try:
    ...     raise CannotTrace("it asks for the value of a tensor")      # a stage
    ... except NOT_COMPILED as reason:                                  # the driver
    ...     print(f"runs eagerly: {reason}")
    runs eagerly: it asks for the value of a tensor

All of `NOT_COMPILED` are refusals, not faults: the program is right, and has no compiled form here.
Where one operation of the program is to blame, the error names it, and the driver compiles the
graph around it (pieces.py); else the whole graph runs eagerly.

A *foreign* exception comes neither from the program nor from the compiler, and may arrive at any
time: while something is compiled, checked or run.  It must leave the user's call, as it would leave
plain Python.  Foreign are all that are no `Exception` (KeyboardInterrupt, SystemExit,
GeneratorExit), a MemoryError, a TimeoutError, and what a signal's handler or a tracing function has
raised.  A handler is recognised by its frame in the traceback: it was given, as an argument, the
frame that it interrupted.

    >>> try:
    ...     compile_it()
    ... except ours(OSError):           # the clause does not see a TimeoutError of a signal handler
    ...     ...
    ... except faults() as error:       # of the compiler itself: recorded, and plain Python runs
    ...     ...

`ThreadState` remembers what compiling changes for this thread, and puts it back, whatever is
raised.

    ThreadState().around(work, *arguments)

PyTorch: swallows what is an `Exception` under `suppress_errors`, and nothing otherwise.
"""

import contextlib
import gc
import inspect
import os
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _python_dispatch as modes


class NotCompiled(Exception):
    """origins: names of the nodes of the captured graph that are to blame, if that is known."""

    origins: frozenset[str] = frozenset()


class CannotTrace(NotCompiled):
    """This program, on these arguments, is not traced."""


class DataDependent(CannotTrace):
    """The program asks for the *value* of a tensor; it cannot be traced whole."""


class CannotFunctionalize(NotCompiled):
    """A write that has no functional form here."""


class CannotLower(NotCompiled):
    """This graph cannot be lowered."""


class CompilerError(RuntimeError):
    """No C++ compiler, or it refused a kernel."""


NOT_COMPILED = (NotCompiled, CompilerError)


@contextlib.contextmanager
def blaming(meta: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """A refusal raised in the block gets the `origins` of the node whose meta `meta()` returns."""
    try:
        yield
    except NotCompiled as error:
        error.origins = error.origins or meta().get("origins", frozenset())
        raise


# --- whose exception it is -----------------------------------------------------------------------
NEVER_OURS = (MemoryError, TimeoutError)
PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = (  # of Python's, of ours and of libraries; then generated code
    *(os.path.join(PACKAGES, name) + os.sep for name in ("minidynamo", "miniinductor")),
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    os.path.dirname(torch.__file__) + os.sep,
    *("<eval_with_key>", "<minidynamo ", "<miniinductor ", "<frozen ", "<template>", "<string>"),
)


def ours(*classes: type) -> tuple:
    """`classes`, for an `except` clause, or nothing where the exception that is being handled is
    foreign.  (Python evaluates the clause when an exception has come, so it can be asked for.)"""
    return () if is_foreign(sys.exc_info()[1]) else classes


def faults() -> tuple:
    """`(Exception,)`, for an `except` clause, where the exception that is being handled is a fault
    of ours, else nothing."""
    return (Exception,) if is_fault(sys.exc_info()[1]) else ()


def is_foreign(error: Any) -> bool:
    """Does the exception come neither from the program nor from the compiler?"""
    if not isinstance(error, Exception) or isinstance(error, NEVER_OURS):
        return True
    frames = frames_of(error)
    return any(is_given(inner, outer) for outer, inner in zip(frames, frames[1:]))


def frames_of(error: BaseException) -> list[types.FrameType]:
    """The frames of its traceback, from where it is caught to where it was raised."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def is_given(frame: types.FrameType, interrupted: types.FrameType) -> bool:
    """Is the frame `interrupted` an argument of the call, as a signal's handler is called?  (Other
    locals do not count: torch keeps frames in some of its own.)"""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    for name in code.co_varnames[:count]:
        value = frame.f_locals.get(name)
        if value is interrupted or type(value) is tuple and any(v is interrupted for v in value):
            return True
    return False


def is_fault(error: Any) -> bool:
    """Was the exception raised by our code, Python's or a library's, and not by the program's?"""
    innermost = frames_of(error)[-1:]
    return not is_foreign(error) and (
        not innermost or innermost[0].f_code.co_filename.startswith(FOLDERS)
    )


# --- the thread's state ---------------------------------------------------------------------------
class ThreadState:
    """What compiling changes for this thread, as it is now: grad mode, autocast, dispatch modes,
    the collection of garbage.  The user's saved-tensor hooks are taken away meanwhile: they are
    meant for the tensors of the run, not for fake ones."""

    def __init__(self) -> None:
        self.collecting = gc.isenabled()
        self.recording = torch.is_grad_enabled()
        self.autocast = [
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in ("cpu", "cuda")
        ]
        self.caches, self.nesting = torch.is_autocast_cache_enabled(), autocast_nesting()
        self.modes = modes._get_current_dispatch_mode_stack()
        self.hooks: list[Any] = []

    def around(self, work: Callable, *arguments: Any) -> Any:
        """work(*arguments), after which the state is as it was."""
        try:
            self.begin()
            return work(*arguments)
        finally:
            self.put_back()

    def begin(self) -> None:
        # nothing that is being built is garbage yet, and looking through it takes long
        gc.disable()
        top = torch._C._autograd._top_saved_tensors_default_hooks
        while (pair := top(False)) is not None:
            self.hooks.append(pair)
            torch._C._autograd._pop_saved_tensors_default_hooks()

    def put_back(self) -> None:
        torch._C._set_grad_enabled(self.recording)
        for kind, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(self.caches)
        while autocast_nesting() > self.nesting:
            torch.autocast_decrement_nesting()
        for mode in reversed(modes._get_current_dispatch_mode_stack()[len(self.modes) :]):
            modes._pop_mode(getattr(mode, "_mode_key", None))
        while self.hooks:
            torch._C._autograd._push_saved_tensors_default_hooks(*self.hooks[-1])
            self.hooks.pop()
        if self.collecting:
            gc.enable()


def autocast_nesting() -> int:
    """How many `with autocast` blocks are open: the counter has no getter of its own."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth
