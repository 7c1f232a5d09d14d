"""Programs whose calls and containers nest deeply: while a frame is compiled, Python's limit is as
high as this thread's stack allows.

In, out: Python's recursion limit, which is the program's own again afterwards.

    >>> frames_that_fit()
    12905

Without this file a frame for which the limit is too low runs as plain Python.
"""

import functools
import resource
import sys
import threading

from miniinductor.foreign import STATES

from .extending import extends
from ..convert_frame import CompilingState


SMALL_STACK = 2 << 20  # bytes: what glibc gives a thread where there is no limit
plain_begin = CompilingState.begin


def frames_that_fit() -> int:
    """Calls of Python functions, in one another, that this thread's stack has room for.

    Under a frame hook each takes some 400 bytes of it, and the process ends where the stack does: a
    list that contains itself must meet Python's limit first."""
    size, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if threading.current_thread() is not threading.main_thread():
        size = threading.stack_size() or size
    return min(20_000, (size if size > 0 else SMALL_STACK) // 650)


@extends(CompilingState)
def begin(state: CompilingState) -> None:
    plain_begin(state)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), frames_that_fit()))


STATES.append(lambda state: functools.partial(sys.setrecursionlimit, sys.getrecursionlimit()))
