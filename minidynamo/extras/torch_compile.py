"""(coverage) torch.compile and torch.jit.trace in one process with us: calls of ours inside theirs.

In:   a compiled call that begins in a thread in which torch.compile may be at work: its frame
      evaluator is installed (frame_hook.c looks).
Out:  the call, made with torch.compile off in this thread, as `torch.compiler.disable` does.

    torch.compile(lambda x: minidynamo.compile(f)(x) + 1)       # f is ours, the rest is torch's

Else torch would compile the code that we have put in the place of f's, and our compiler with it.
The other way round nothing is needed: the frames of torch/_dynamo, and all that they call, are
left alone by our hook (skipping.py), and torch's evaluator is installed above ours.

What torch.jit.trace calls runs as plain Python: it sees torch's operations alone, not our kernels.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

import torch

from .. import _frame_hook, frame_hook
from ..foreign import ours

TRACING_STATE = "_ZN5torch3jit6tracer15getTracingStateEv"  # torch::jit::tracer::getTracingState()


def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


DISABLED: list[Callable[..., Any]] = []  # `call`, for torch.compile to leave alone


def call_alone(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if torch._C._is_tracing():
        return frame_hook.disabled(getattr(function, "__wrapped__"))(*args, **kwargs)
    if not DISABLED:  # (loads torch._dynamo, which is there where torch's evaluator is installed)
        DISABLED.append(torch.compiler.disable(call))
    return DISABLED[0](function, *args, **kwargs)


def address_of(symbol: str) -> int:
    """Of a function of torch's library; 0: it has none of this name."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        try:
            function = getattr(ctypes.CDLL(os.path.join(folder, name)), symbol)
        except ours(OSError, AttributeError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


_frame_hook.set_alone(call_alone)
_frame_hook.set_tracing_state(address_of(TRACING_STATE))
