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
arrive between any two instructions, in an `__exit__` too, so no `with` block is enough.  Where that
matters it is put back twice, the second time where the first was cut short:

    ThreadState().around(work, *arguments)

PyTorch: swallows what is an `Exception` under `suppress_errors`, and nothing otherwise.
"""

import functools
import gc
import itertools
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _python_dispatch as modes

NEVER_OURS = (MemoryError, TimeoutError)


# --- whose exception it is -----------------------------------------------------------------------
@dataclass
class Whose:
    """What tells whose an exception is, beside its class.

    from_outside: did a handler, a tracing function or another thread raise it?
    is_fault: is it of a class, and from a place, that a fault of the compiler has?
    met: called with an exception that arrives in a function that C++ has called, and may lose.
    left: called with the exception that has cut the compiler short.
    """

    from_outside: Callable[[Any], bool] = lambda error: False
    is_fault: Callable[[Any], bool] = lambda error: True
    met: Callable[[BaseException], None] = lambda error: None
    left: Callable[[BaseException], None] = lambda error: None


WHOSE = Whose()


def ours(*classes: type) -> tuple:
    """`classes`, for an `except` clause, or nothing where the exception that is being handled is
    foreign."""
    return () if is_foreign(sys.exc_info()[1]) else classes


def faults() -> tuple:
    """`(Exception,)`, for an `except` clause, where the exception that is being handled is a fault
    of ours, else nothing."""
    return (Exception,) if is_fault(sys.exc_info()[1]) else ()


def is_fault(error: Any) -> bool:
    """Is it an internal failure?"""
    return not is_foreign(error) and WHOSE.is_fault(error)


def is_foreign(error: Any) -> bool:
    """Does it come from outside of what the program and the compiler do?"""
    is_usual = isinstance(error, Exception) and not isinstance(error, NEVER_OURS)
    return WHOSE.from_outside(error) or not is_usual


def remembered(function: Callable) -> Callable:
    """`function`, which C++ calls: what arrives in it from outside leaves `ThreadState.around`."""

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as error:
            WHOSE.met(error)
            raise

    return called


# --- the thread's state ---------------------------------------------------------------------------
def together(take: Callable, *calls: tuple) -> Callable:
    """A function that makes these calls once, each a tuple (function of C, its arguments...), and
    gives their results to `take`, another function of C.

    Python looks for signals, and for what other threads have set, only between two instructions.
    Here everything that runs is C, the returned function too, so an exception from outside comes
    before all of the calls or after all of them."""
    return functools.partial(take, itertools.starmap(operator.call, calls))


class ThreadState:
    """What compiling changes for this thread, as it is now."""

    def __init__(self) -> None:
        self.collecting = gc.isenabled()
        self.recording = torch.is_grad_enabled()
        self.autocast = [
            (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in ("cpu", "cuda")
        ]
        self.autocast_cache = torch.is_autocast_cache_enabled()
        self.nesting = autocast_nesting()
        self.dispatch = modes._get_current_dispatch_mode_stack()
        # the pairs of hooks that `take_hooks` has taken away; after each the None that `pop` gave
        self.hooks: list = []

    def around(self, work: Callable, *arguments: Any) -> Any:
        """work(*arguments), after which the state is as it was, whatever was raised."""
        try:
            try:
                self.begin()
                result = work(*arguments)
            finally:
                self.put_back()
        except BaseException as error:  # perhaps one that came in the middle of that
            self.put_back(error)
            raise
        return result

    def begin(self) -> None:
        # nothing that is being built is garbage yet, and looking through it takes long
        gc.disable()

    def take_hooks(self) -> None:
        """Take the user's saved-tensor hooks away until `put_back`: they are meant for the tensors
        of the run, not for fake ones."""
        top = torch._C._autograd._top_saved_tensors_default_hooks
        pop = torch._C._autograd._pop_saved_tensors_default_hooks
        while top(False) is not None:
            together(self.hooks.extend, (top, False), (pop,))()

    def push_hooks(self) -> None:
        push = torch._C._autograd._push_saved_tensors_default_hooks
        again = [(push, *pair) for pair in reversed(self.hooks) if pair is not None]
        together(list, *again, (self.hooks.clear,))()

    def put_back(self, error: BaseException | None = None) -> None:
        """error: what cut the work short.  What its frames of ours had entered is left first."""
        if error is not None:
            WHOSE.left(error)
        torch._C._set_grad_enabled(self.recording)
        for device, enabled, dtype in self.autocast:
            if torch.is_autocast_enabled(device) != enabled:
                torch.set_autocast_enabled(device, enabled)
            if torch.get_autocast_dtype(device) != dtype:
                torch.set_autocast_dtype(device, dtype)
        if torch.is_autocast_cache_enabled() != self.autocast_cache:
            torch.set_autocast_cache_enabled(self.autocast_cache)
        if autocast_nesting() != self.nesting:
            restore_autocast_nesting(self.nesting)
        if modes._get_current_dispatch_mode_stack() != self.dispatch:
            restore_dispatch_modes(self.dispatch)
        if self.hooks:
            self.push_hooks()
        if self.collecting:
            gc.enable()


def autocast_nesting() -> int:
    """How many `with autocast` blocks are open: the counter has no getter of its own."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth


def restore_autocast_nesting(depth: int) -> None:
    while autocast_nesting() > depth:
        torch.autocast_decrement_nesting()
    while autocast_nesting() < depth:
        torch.autocast_increment_nesting()
    if depth == 0:
        torch.clear_autocast_cache()


def restore_dispatch_modes(before: list) -> None:
    for mode in reversed(modes._get_current_dispatch_mode_stack()):
        modes._pop_mode(getattr(mode, "_mode_key", None))
    for mode in before:
        modes._push_mode(mode)
