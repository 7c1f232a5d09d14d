"""Whose an exception is, told by where it was raised.

In:   an exception that arrived while something was compiled, checked or run.   Out: whose it is,
      in place of foreign.py's plain answers.

What is promised of foreign exceptions (foreign.py says which these are):

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
library catches; one at the first instruction of a function that C++ calls, before its `try`, which
torch takes for a wrong argument; a handler that is a C function and raises a fault's class with
words; StopIteration that another thread sets.  And one that arrives while C++ asks a tensor without
data for its device (`prim.device`) ends the process: torch's function for it is `noexcept`.
"""

import functools
import importlib.util
import inspect
import opcode
import os
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from ..foreign import NEVER_OURS, ThreadState, arrived, is_fault, is_foreign
from .thread_states import cut_short

# What a fault in the compiler looks like, exactly: a subclass of the user's is none of them.
FAULTS = (
    *(AssertionError, AttributeError, ImportError, ModuleNotFoundError, NameError),
    *(NotImplementedError, RecursionError, RuntimeError, StopIteration, SyntaxError, SystemError),
    *(TypeError, UnboundLocalError, UnicodeDecodeError, UnicodeEncodeError, ValueError),
)
WORDLESS = (StopIteration, StopAsyncIteration)  # C code raises these without a word
PACKAGES = ("minidynamo", "miniinductor", "torch")
LIBRARIES = ("jinja2", "markupsafe", "mpmath", "networkx", "numpy", "sympy", "triton")
GENERATED = ("<eval_with_key>", "<minidynamo ", "<miniinductor ", "<frozen ", "<template>")
RAISING = {opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]}


NOTHING = object()


class Lost(threading.local):
    """error: a foreign exception, where another one now stands in its place.  For example, it
    arrived in a function that C++ calls, and C++ took it for an argument of a wrong type.
    handled: what the program itself was handling when compiling began, or None; NOTHING while
    nothing is compiled."""

    error: BaseException | None = None
    handled: Any = NOTHING


LOST = Lost()


@is_foreign.replaced
def from_outside(error: Any) -> bool:
    """Did it come from outside, or does it stand in the place of one that did?"""
    if LOST.error is None:
        LOST.error = replaced_by(error)
    return LOST.error is not None or came_from_outside(error)


@is_fault.replaced
def looks_like_a_fault(error: Any) -> bool:
    """Is it of a known class, raised by the compiler or by a library that it uses?"""
    if is_foreign(error) or not has_known_class(error):
        return False
    innermost = list(trace_of(error))[-1:]
    return not innermost or is_known_code(innermost[0].tb_frame)


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
        return str(frame.f_globals.get("__name__")).partition(".")[0] in PACKAGES
    if file.startswith(known_folders()):
        return True
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


@arrived.replaced
def met(error: BaseException) -> None:
    if is_foreign(error):
        LOST.error = error


def raise_lost() -> None:
    """Raise what C++ has lost, if there is anything."""
    lost, LOST.error = LOST.error, None
    if lost is not None:
        raise lost


@cut_short.replaced
def leave_frames(error: BaseException) -> None:
    """Drop the locals of the compiler's finished frames: a `with` whose `__enter__` was cut short
    is left when its generator goes, now and not when the user lets go of the exception."""
    if not is_foreign(error):
        return
    for at in reversed(list(trace_of(error))):  # what was entered last is left first
        if is_known_code(at.tb_frame):
            try:
                at.tb_frame.clear()
            except RuntimeError:  # it is still running: a frame around this one
                pass


def around(
    self: ThreadState, work: Callable, *arguments: Any, plain: Callable = ThreadState.around
) -> Any:
    """`ThreadState.around`, which raises what C++ has lost."""
    before = LOST.handled
    LOST.error, LOST.handled = None, sys.exc_info()[1]
    try:
        result = plain(self, work, *arguments)
    except BaseException:
        LOST.handled = before
        raise_lost()
        raise
    LOST.handled = before
    raise_lost()
    return result


setattr(ThreadState, "around", around)
