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
code), and is there again afterwards.

An entry whose third item is callable belongs to that callback: other callbacks pass it over.
The cache of a code object is a plain list of entries that one may print and edit.
Mirrors torch/csrc/dynamo/eval_frame.c and torch/_dynamo/eval_frame.py (paper section 3.1).
"""

import sys
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
