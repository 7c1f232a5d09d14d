"""Exceptions that are not the compiler's to answer, and the thread's state that they must find as
it was.

In:   an exception that arrived while something was compiled, checked or run.  Out: whose it is.

    >>> try:
    ...     compile_it()
    ... except ours(OSError):           # the clause does not see a TimeoutError of a signal handler
    ...     ...
    ... except faults() as error:       # of the compiler itself: recorded, and plain Python runs
    ...     ...

A *foreign* exception comes from outside of what the program and the compiler do: a handler of a
signal raised it, a tracing function did (a debugger's, coverage's), or another thread set it
(`PyThreadState_SetAsyncExc`).  It must leave the user's call, as it would leave plain Python.
What is no `Exception` (KeyboardInterrupt, SystemExit, GeneratorExit), MemoryError and TimeoutError
are never the compiler's; more/whose_exception.py tells the others by where they were raised, and
says what is promised.

`ThreadState` remembers what compiling changes for this thread, and puts it back: an exception may
arrive between any two instructions, in an `__exit__` too, so no `with` block is enough
(more/thread_states.py puts it back twice, and autocast and others with it):

    ThreadState().around(work, *arguments)

PyTorch: swallows what is an `Exception` under `suppress_errors`, and nothing otherwise.
"""

import functools
import gc
import sys
from collections.abc import Callable
from typing import Any

import torch

from .replaceable import replaceable

NEVER_OURS = (MemoryError, TimeoutError)


# --- whose exception it is -----------------------------------------------------------------------
def ours(*classes: type) -> tuple:
    """`classes`, for an `except` clause, or nothing where the exception that is being handled is
    foreign.  (Python evaluates the clause when an exception has come, so it can be asked for.)"""
    return () if is_foreign(sys.exc_info()[1]) else classes


def faults() -> tuple:
    """`(Exception,)`, for an `except` clause, where the exception that is being handled is a fault
    of ours, else nothing."""
    return (Exception,) if is_fault(sys.exc_info()[1]) else ()


# more/whose_exception.py looks at more than the class
@replaceable
def is_foreign(error: Any) -> bool:
    """Does it come from outside of what the program and the compiler do?"""
    return not isinstance(error, Exception) or isinstance(error, NEVER_OURS)


@replaceable
def is_fault(error: Any) -> bool:
    """Is it an internal failure?"""
    return not is_foreign(error)


@replaceable
def arrived(error: BaseException) -> None:
    """Told of an exception in a function that C++ has called, and may lose."""


def remembered(function: Callable) -> Callable:
    """`function`, which C++ calls: what arrives in it from outside leaves `ThreadState.around`."""

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as error:
            arrived(error)
            raise

    return called


# --- the thread's state ---------------------------------------------------------------------------
# what else compiling changes for a thread: each looks at it, and gives what puts it back
STATES: list[Callable[["ThreadState"], Callable[[], None]]] = []


class ThreadState:
    """What compiling changes for this thread, as it is now.  (more/thread_states.py remembers more,
    and puts it back whenever an exception comes.)"""

    def __init__(self) -> None:
        self.collecting = gc.isenabled()
        self.recording = torch.is_grad_enabled()

    def around(self, work: Callable, *arguments: Any) -> Any:
        """work(*arguments), after which the state is as it was, whatever was raised."""
        try:
            self.begin()
            return work(*arguments)
        finally:
            self.put_back()

    def begin(self) -> None:
        # nothing that is being built is garbage yet, and looking through it takes long
        gc.disable()

    def take_hooks(self) -> None:
        """Take the user's saved-tensor hooks away until `put_back`.  (more/thread_states.py)"""

    def put_back(self, error: BaseException | None = None) -> None:
        """error: what cut the work short."""
        torch._C._set_grad_enabled(self.recording)
        if self.collecting:
            gc.enable()
