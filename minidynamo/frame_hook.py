"""The frame hook's Python face.

In:   a callback `callback(func, code, args) -> None | (guard, code, ...)`.  It is called when a
      hooked thread is about to run a code object, and none of its cached guards holds.
Out:  while it is installed, a frame runs the cached code whose guard holds.

    >>> def callback(func, code, args):
    ...     print("about to run", code.co_name)
    ...     set_cache(code, None)                 # from now on as is; `...`: with all that it calls
    >>> hooked = enabled(f, callback)        # `hooked(...)` runs f with the hook on, in this thread

`guard(func, *params)` gets the function object and every bound parameter (the *args tuple and
**kwargs dict included) and answers whether the code may run.  A guard that raises makes the frame
raise.  The code object that runs instead must take the same parameters, all positional, and the
same free variables.

Another tool's frame evaluator that is installed gets the frames, too (after ours has swapped their
code), and is there again afterwards.  `_frame_hook.set_alone` names what calls a compiled function
where torch.compile may be at work in this thread (extras/torch_compile.py).

An entry whose third item is callable belongs to that callback: other callbacks pass it over.
The cache of a code object is a plain list of entries that one may print and edit.
Mirrors torch/csrc/dynamo/eval_frame.c and torch/_dynamo/eval_frame.py (paper section 3.1).
"""

import sys
import types
from collections.abc import Callable
from typing import Any

try:
    from ._frame_hook import get_cache, get_callback, set_cache, set_callback
except ModuleNotFoundError as error:
    raise ImportError(
        f"minidynamo's C extension was not built for Python {sys.version_info[0]}."
        f"{sys.version_info[1]}: `make setup`, or "
        "`pip install -e .` in a CPython 3.11, 3.12 or 3.13"
    ) from error

from . import _frame_hook

__all__ = [
    "enabled",
    "disabled",
    "get_cache",
    "get_callback",
    "hand_over",
    "set_cache",
    "set_callback",
    "tail_call",
]


class PlainSwitched:
    """A function that is called with `callback` as this thread's hook (None: without a hook)."""

    def __init__(self, fn: Callable[..., Any], callback: Any) -> None:
        self.__wrapped__, self.__callback__ = fn, callback

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = set_callback(self.__callback__)
        try:
            return self.__wrapped__(*args, **kwargs)
        finally:
            set_callback(before)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:  # __code__, __defaults__...
        return getattr(self.__wrapped__, name)


def plain_hand_over(function: Callable[..., Any], arguments: list[Any]) -> Any:
    """function(*arguments).  One that returns (tail_call, function, arguments) wants that to be
    called next: a loop that breaks a graph in each turn goes on without nesting deeper."""
    result = function(*arguments)
    while type(result) is tuple and len(result) == 3 and result[0] is tail_call:
        result = result[1](*result[2])
    return result


# The same in C (extras/switched.h, extras/hand_over.h): every call of a compiled function goes
# through the first, and the second leaves the arguments to the callee alone.
Switched: Any = getattr(_frame_hook, "Switched", PlainSwitched)
hand_over = getattr(_frame_hook, "hand_over", plain_hand_over)
tail_call = getattr(_frame_hook, "tail_call", object())


def enabled(fn: Any, callback: Any) -> Any:
    """fn, run with `callback` as this thread's hook."""
    return Switched(fn, callback)


def disabled(fn: Any) -> Any:
    """fn, run (with everything it calls) as plain Python."""
    return Switched(fn, None)
