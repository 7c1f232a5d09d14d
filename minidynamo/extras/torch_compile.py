"""(coverage) torch.compile in one process with us: calls of ours inside theirs.

In:   a compiled call that begins in a thread in which torch.compile may be at work: its frame
      evaluator is installed (frame_hook.c looks).
Out:  the call, made with torch.compile off in this thread, as `torch.compiler.disable` does.

    torch.compile(lambda x: minidynamo.compile(f)(x) + 1)       # f is ours, the rest is torch's

Else torch would compile the code that we have put in the place of f's, and our compiler with it.
The other way round nothing is needed: the frames of torch/_dynamo, and all that they call, are
left alone by our hook (skipping.py), and torch's evaluator is installed above ours.
"""

from collections.abc import Callable
from typing import Any

import torch

from .. import _frame_hook


def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


DISABLED: list[Callable[..., Any]] = []  # `call`, for torch.compile to leave alone


def call_alone(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if not DISABLED:  # (loads torch._dynamo, which is there where torch's evaluator is installed)
        DISABLED.append(torch.compiler.disable(call))
    return DISABLED[0](function, *args, **kwargs)


_frame_hook.set_alone(call_alone)
