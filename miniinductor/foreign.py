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
(`PyThreadState_SetAsyncExc`).  It must leave the user's call, as it would leave plain Python.  What
is promised:

- what is no `Exception` (KeyboardInterrupt, SystemExit, GeneratorExit), MemoryError and
  TimeoutError are never the compiler's;
- whatever class a handler raises, its frame is in the traceback and was given the frame that it
  interrupted: that tells it;
- another thread can set a class, no instance, so the exception carries no words, and the
  interpreter raises it between two instructions or after a call, where neither `raise` nor `assert`
  stands: that tells it, whatever its class;
- a class of nobody that we call (the user's), with none of the user's frames in the traceback, was
  raised by none of us.

Not promised: an exception that arrives where Python itself can only print it (a finalizer, a
callback of a weak reference: the same in plain Python); one that torch, sympy or the standard
library catches; a handler that is a C function and raises a fault's class with words; StopIteration
that another thread sets.  And one that arrives while C++ asks a tensor without data for its device
(`prim.device`) ends the process: torch's function for it is `noexcept`.

`ThreadState` remembers what compiling changes for this thread, and puts it back: an exception may
arrive between any two instructions, in an `__exit__` too, so no `with` block is enough.  Where that
matters it is put back twice, the second time where the first was cut short:

    ThreadState().around(work, *arguments)

PyTorch: swallows what is an `Exception` under `suppress_errors`, and nothing otherwise.
"""

import functools
import gc
import importlib.util
import inspect
import itertools
import opcode
import operator
import os
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _python_dispatch as modes

# What a fault in the compiler looks like, exactly: a subclass of the user's is none of them.
FAULTS = (
    AssertionError,
    AttributeError,
    ImportError,
    ModuleNotFoundError,
    NameError,
    NotImplementedError,
    RecursionError,
    RuntimeError,
    StopIteration,
    SyntaxError,
    SystemError,
    TypeError,
    UnboundLocalError,
    UnicodeDecodeError,
    UnicodeEncodeError,
    ValueError,
)
NEVER_OURS = (MemoryError, TimeoutError)
WORDLESS = (StopIteration, StopAsyncIteration)  # C code raises these without a word
PACKAGES = ("minidynamo", "miniinductor", "torch")
LIBRARIES = ("jinja2", "markupsafe", "mpmath", "networkx", "numpy", "sympy", "triton")
GENERATED = ("<eval_with_key>", "<minidynamo ", "<miniinductor ", "<frozen ", "<template>")
RAISING = {opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]}
BENCH = os.path.join("minidynamo", "bench") + os.sep  # its workloads are user programs


# --- whose exception it is -----------------------------------------------------------------------
def ours(*classes: type) -> tuple:
    """`classes`, for an `except` clause, or nothing where the exception that is being handled is
    foreign."""
    return () if is_foreign(sys.exc_info()[1]) else classes


def faults() -> tuple:
    """`(Exception,)`, for an `except` clause, where the exception that is being handled is a fault
    of ours, else nothing."""
    return (Exception,) if is_fault(sys.exc_info()[1]) else ()


def is_fault(error: Any) -> bool:
    """Is it an internal failure: of a known class, raised by the compiler or by a library that it
    uses?"""
    if is_foreign(error) or not has_known_class(error):
        return False
    innermost = list(trace_of(error))[-1:]
    return not innermost or is_known_code(innermost[0].tb_frame)


def is_foreign(error: Any) -> bool:
    """Does it come from outside of what the program and the compiler do (see above), or stand in
    the place of one that does?"""
    if LOST.error is None:
        LOST.error = replaced_by(error)
    return LOST.error is not None or came_from_outside(error)


def replaced_by(error: BaseException) -> BaseException | None:
    """A foreign exception that was on its way when compiling raised this one: an `__exit__` fails,
    for example, because its `__enter__` was cut short."""
    at = error.__context__
    while LOST.handled is not NOTHING and at is not None and at is not LOST.handled:
        if came_from_outside(at):
            return at
        at = at.__context__
    return None


def came_from_outside(error: BaseException) -> bool:
    if not isinstance(error, Exception) or isinstance(error, NEVER_OURS):
        return True
    trace = list(trace_of(error))
    if is_of_a_handler(trace) or was_set_from_outside(error, trace):
        return True
    if has_known_home(type(error)):
        return False
    return all(is_known_code(at.tb_frame) for at in trace)


def trace_of(error: BaseException) -> Iterator[types.TracebackType]:
    """The entries of its traceback, from where it is caught to where it was raised."""
    at = error.__traceback__
    while at is not None:
        yield at
        at = at.tb_next


def is_of_a_handler(trace: list[types.TracebackType]) -> bool:
    """Was one of these frames called with the frame that it interrupted, as handlers and tracing
    functions are?"""
    for outer, inner in zip(trace, trace[1:]):
        given = arguments_of(inner.tb_frame)
        if len(given) >= 2 and any(value is outer.tb_frame for value in given):
            return True
    return False


def arguments_of(frame: types.FrameType) -> list:
    """What it was called with.  Not its other locals: torch keeps frames in some of its own."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    found = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & inspect.CO_VARARGS:
        rest = frame.f_locals.get(code.co_varnames[count])
        if type(rest) is tuple:  # the function may have given the name to something else
            found += rest
    return found


def was_set_from_outside(error: BaseException, trace: list[types.TracebackType]) -> bool:
    """Has another thread set it: no words, at an instruction that raises nothing?"""
    if error.args or isinstance(error, WORDLESS) or not trace:
        return False
    at = trace[-1]
    return at.tb_frame.f_code.co_code[at.tb_lasti] not in RAISING


def has_known_class(error: BaseException) -> bool:
    """Can the compiler, Python or a library that we use have raised this class?"""
    kind = type(error)
    if kind.__module__ == "builtins":
        return kind in FAULTS or isinstance(error, (ArithmeticError, OSError, LookupError, Warning))
    return has_known_home(kind)


def has_known_home(kind: type) -> bool:
    """Is it a class of ours, of Python, or of a library that we use?"""
    home = kind.__module__.partition(".")[0]
    return home in PACKAGES or home in LIBRARIES or home in sys.stdlib_module_names


def is_known_code(frame: types.FrameType) -> bool:
    """Is it code of ours, of torch, or of a library that we use?  Everything else may be the
    user's."""
    file = frame.f_code.co_filename
    if file == "<string>":  # made by dataclass and namedtuple
        return frame.f_globals.get("__name__", "").partition(".")[0] in PACKAGES
    if file.startswith(known_folders()):
        return BENCH not in file
    if file.startswith(standard_folders()):
        return not file.startswith(site_folders())
    return file.startswith(GENERATED)


@functools.cache
def known_folders() -> tuple:
    """Where our two packages, torch and the libraries lie."""
    specs = [importlib.util.find_spec(name) for name in (*PACKAGES, *LIBRARIES)]
    origins = [spec.origin for spec in specs if spec is not None and spec.origin]
    return tuple(os.path.dirname(origin) + os.sep for origin in origins)


@functools.cache
def standard_folders() -> tuple:
    return tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))


@functools.cache
def site_folders() -> tuple:
    return tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))


NOTHING = object()


class Lost(threading.local):
    """error: a foreign exception, where another one now stands in its place.  For example, it
    arrived in a function that C++ calls, and C++ took it for an argument of a wrong type.
    handled: what the program itself was handling when compiling began, or None; NOTHING while
    nothing is compiled."""

    error: BaseException | None = None
    handled: Any = NOTHING


LOST = Lost()


def remembered(function: Callable) -> Callable:
    """`function`, which C++ calls: what arrives in it from outside leaves `ThreadState.around`."""

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as error:
            if is_foreign(error):
                LOST.error = error
            raise

    return called


def raise_lost() -> None:
    """Raise what C++ has lost, if there is anything."""
    lost, LOST.error = LOST.error, None
    if lost is not None:
        raise lost


# --- the thread's state ---------------------------------------------------------------------------
def together(take: Callable, *calls: tuple) -> Callable:
    """A function that makes these calls, each a tuple (function of C, its arguments...), once, and
    gives their results to `take`, another function of C.

    Python looks for signals and for what other threads have set only between two instructions, so
    an exception from outside comes before all of it or after all of it: all that runs is C, the
    function that is returned, too."""
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
        self.hooks: list = []  # each that `take_hooks` has popped, and None after each

    def around(self, work: Callable, *arguments: Any) -> Any:
        """work(*arguments), after which the state is as it was, whatever was raised."""
        before = LOST.handled
        LOST.error, LOST.handled = None, sys.exc_info()[1]
        try:
            try:
                self.begin()
                result = work(*arguments)
            finally:
                self.put_back()
        except BaseException as error:  # perhaps one that came in the middle of that
            self.put_back(error)
            LOST.handled = before
            raise_lost()
            raise
        LOST.handled = before
        raise_lost()
        return result

    def begin(self) -> None:
        # nothing that is being built is garbage yet, and looking through it takes long
        gc.disable()

    def take_hooks(self) -> None:
        """Until `put_back` the user's saved-tensor hooks do not count: they are for the tensors of
        the run, not for fake ones."""
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
        if error is not None and is_foreign(error):
            leave_frames(error)
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


def leave_frames(error: BaseException) -> None:
    """Drop the locals of the compiler's finished frames: a `with` whose `__enter__` was cut short
    is left when its generator goes, now and not when the user lets go of the exception."""
    for at in reversed(list(trace_of(error))):  # what was entered last is left first
        if is_known_code(at.tb_frame):
            try:
                at.tb_frame.clear()
            except RuntimeError:  # it is still running: a frame around this one
                pass


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
