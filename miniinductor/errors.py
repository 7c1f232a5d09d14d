"""Why a graph is not compiled: what the stages raise, and what the driver answers.

    >>> try:
    ...     raise CannotTrace("it asks for the value of a tensor")      # a stage
    ... except NOT_COMPILED as reason:                                  # the driver
    ...     print(f"runs eagerly: {reason}")
    runs eagerly: it asks for the value of a tensor

All of them are refusals, not faults: the program is right, and has no compiled form here.  Where
one operation of the program is to blame, the error names it, and the driver compiles the graph
around it (pieces.py); else the whole graph runs eagerly.

Exceptions that are not the compiler's to answer, and the thread's state that they must find as
it was.

In:   an exception that arrived while something was compiled, checked or run.  Out: whose it is.

    >>> try:
    ...     compile_it()
    ... except ours(OSError):           # the clause does not see a TimeoutError of a signal handler
    ...     ...
    ... except faults() as error:       # of the compiler itself: recorded, and plain Python runs
    ...     ...

A *foreign* exception comes from outside of what the program and the compiler do.  It must leave the
user's call, as it would leave plain Python:

- what is no `Exception` (KeyboardInterrupt, SystemExit, GeneratorExit), MemoryError, TimeoutError;
- what a handler of a signal or a tracing function (a debugger's, coverage's) raised: its frame is
  in the traceback, and was given the frame that it interrupted;
- what another thread set (`PyThreadState_SetAsyncExc`): a class without words, which arrives at an
  instruction that raises nothing.

`ThreadState` remembers what compiling changes for this thread, and puts it back, whatever is
raised: an exception may arrive between any two instructions, in an `__exit__` too.

    ThreadState().around(work, *arguments)

PyTorch: swallows what is an `Exception` under `suppress_errors`, and nothing otherwise.
"""

import contextlib
import functools
import gc
import inspect
import opcode
import os
import sys
import sysconfig
import threading
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
    """What is refused in the block is to be blamed on the operation of which `meta` tells."""
    try:
        yield
    except NotCompiled as error:
        error.origins = error.origins or meta().get("origins", frozenset())
        raise


NEVER_OURS = (MemoryError, TimeoutError)
WORDLESS = (StopIteration, StopAsyncIteration)  # C code raises these without a word
RAISING = {opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]}
PACKAGES = ("minidynamo", "miniinductor", "torch", "sympy", "numpy", "triton", "networkx", "jinja2")
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = (
    *(os.path.join(HERE, name) + os.sep for name in PACKAGES[:2]),
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(
        os.path.dirname(torch.__file__) + os.sep,
        "<eval_with_key>",
        "<minidynamo ",
        "<miniinductor ",
    ),
    *("<frozen ", "<template>", "<string>"),
)


# --- whose exception it is -----------------------------------------------------------------------
def ours(*classes: type) -> tuple:
    """`classes`, for an `except` clause, or nothing where the exception that is being handled is
    foreign.  (Python evaluates the clause when an exception has come, so it can be asked for.)"""
    return () if is_foreign(sys.exc_info()[1]) else classes


def faults() -> tuple:
    """`(Exception,)`, for an `except` clause, where the exception that is being handled is a fault
    of ours, else nothing."""
    return (Exception,) if is_fault(sys.exc_info()[1]) else ()


def is_foreign(error: Any) -> bool:
    """Did it come from outside, or does it stand in the place of one that did?  (An `__exit__`
    fails, for example, because its `__enter__` was cut short.)"""
    at = error.__context__ if LOST.compiling and error is not None else None
    while LOST.error is None and at is not None and at is not LOST.handled:
        if not isinstance(at, GeneratorExit):  # a generator of ours was let go
            LOST.error = at if came_from_outside(at) else None
        at = at.__context__
    return LOST.error is not None or came_from_outside(error)


def came_from_outside(error: BaseException) -> bool:
    if not isinstance(error, Exception) or isinstance(error, NEVER_OURS):
        return True
    trace = list(trace_of(error))
    return is_of_a_handler(trace) or was_set_from_outside(error, trace)


def is_of_a_handler(trace: list[types.TracebackType]) -> bool:
    """Was one of these frames called with the frame that it interrupted?"""
    for outer, inner in zip(trace, trace[1:]):
        given = arguments_of(inner.tb_frame)
        if len(given) >= 2 and any(value is outer.tb_frame for value in given):
            return True
    return False


def was_set_from_outside(error: BaseException, trace: list[types.TracebackType]) -> bool:
    """Has another thread set it: no words, at an instruction that raises nothing?"""
    if error.args or isinstance(error, WORDLESS) or not trace:
        return False
    return trace[-1].tb_frame.f_code.co_code[trace[-1].tb_lasti] not in RAISING


def trace_of(error: BaseException) -> Iterator[types.TracebackType]:
    """The entries of its traceback, from where it is caught to where it was raised."""
    at = error.__traceback__
    while at is not None:
        yield at
        at = at.tb_next


def arguments_of(frame: types.FrameType) -> list:
    """What it was called with.  Not its other locals: torch keeps frames in some of its own."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    found = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & inspect.CO_VARARGS:
        rest = frame.f_locals.get(code.co_varnames[count])
        found += rest if type(rest) is tuple else ()
    return found


def is_fault(error: Any) -> bool:
    """Is it of a class of Python's, of ours or of a library's, and not raised by the program?"""
    home = type(error).__module__.partition(".")[0]
    if is_foreign(error) or home not in PACKAGES and home not in sys.stdlib_module_names:
        return False
    innermost = list(trace_of(error))[-1:]
    return not innermost or innermost[0].tb_frame.f_code.co_filename.startswith(FOLDERS)


class Lost(threading.local):
    """error: a foreign exception, where another one may now stand in its place: C++ took it for an
    argument of a wrong type.  handled: what the program was handling when compiling began."""

    error: BaseException | None = None
    handled: Any = None
    compiling = False


LOST = Lost()


def remembered(function: Callable) -> Callable:
    """`function`, which C++ calls: what arrives in it from outside leaves `ThreadState.around`."""

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as error:
            LOST.error = error if is_foreign(error) else None
            raise

    return called


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
        """work(*arguments), after which the state is as it was.  What C++ has lost is raised."""
        before = vars(LOST).copy()
        LOST.error, LOST.handled, LOST.compiling = None, sys.exc_info()[1], True
        try:
            try:
                self.begin()
                result = work(*arguments)
            finally:
                self.put_back()
        except BaseException as error:  # perhaps one that came in the middle of that
            if is_foreign(error):  # what compiling has entered is left now, not when it is let go
                traceback.clear_frames(error.__traceback__)
            self.put_back()
            if LOST.error not in (None, error):
                raise LOST.error
            raise
        finally:
            lost = LOST.error
            vars(LOST).clear()
            vars(LOST).update(before)
        if lost is not None:
            raise lost
        return result

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
