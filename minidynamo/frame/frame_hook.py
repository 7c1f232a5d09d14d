"""The frame hook's Python face, and what a program tells it: disable, graph_break, is_compiling.

In:   a callback `callback(func, code, args) -> None | (guard, code, ...)`.  It is called when a
      hooked thread is about to run a code object, and none of its cached guards holds.
Out:  while it is installed, a frame runs the cached code whose guard holds.

    >>> def callback(func, code, args):
    ...     print("about to run", code.co_name)
    ...     set_cache(code, None)            # run this code as it is from now on
    >>> hooked = enabled(f, callback)        # `hooked(...)` runs f with the hook on, in this thread

`set_cache(code, ...)`, with an Ellipsis, also leaves alone everything that the code calls.

`guard(func, *params)` gets the function object and every bound parameter (the *args tuple and
**kwargs dict included) and answers whether the code may run.  A guard that raises makes the frame
raise.  The code object that runs instead must take the same parameters, all positional, and the
same free variables.

Where another tool's frame evaluator is installed (torch.compile's), ours stays away, and functions
run as they are.

An entry whose third item is callable belongs to that callback: other callbacks pass it over.
The cache of a code object is a plain list of entries that one may print and edit.
Mirrors torch/csrc/dynamo/eval_frame.c, torch/_dynamo/eval_frame.py and decorators.py (paper section
3.1).
"""

import functools
import sys
import types
from typing import Any

try:
    from ._frame_hook import Switched, get_cache, get_callback, set_cache, set_callback
except ModuleNotFoundError as error:
    raise ImportError(
        f"minidynamo's C extension was not built for Python {sys.version_info[0]}."
        f"{sys.version_info[1]}: `make setup`, or "
        "`pip install -e .` in a CPython 3.11, 3.12 or 3.13"
    ) from error

__all__ = ["enabled", "disabled", "get_cache", "get_callback", "set_cache", "set_callback"]


def enabled(fn: Any, callback: Any) -> Any:
    """fn, run with `callback` as this thread's hook."""
    return Switched(fn, callback)


def disabled(fn: Any) -> Any:
    """fn, run (with everything it calls) as plain Python."""
    return Switched(fn, None)


def named_like(fn: Any, made: Any) -> Any:
    """`made`, which gets the name, documentation and attributes of `fn`."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(fn, name):
            setattr(made, name, getattr(fn, name))
    if isinstance(fn, types.FunctionType):
        made.__dict__.update(fn.__dict__)
    return made


def disable(fn: Any) -> Any:
    """`fn`, run as plain Python with everything it calls."""
    if not callable(fn):
        raise TypeError(f"disable() takes a function or a module, not {type(fn).__name__}")
    return named_like(fn, disabled(fn))


def graph_break() -> None:
    """Ask for a graph break here; nothing in plain Python."""


def is_compiling() -> bool:
    """True while the caller is being traced."""
    return False
