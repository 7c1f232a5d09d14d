"""`torch.tensor(2.5)`: a Python number becomes a value of the graph, and not memory to be read.

In:   calls of `torch.tensor` with one number.   Out: `torch.full((), 2.5)`, on the same device.

    size = torch.tensor(64.0, device=x.device); x / torch.sqrt(size)

As eager makes it, a number on a GPU is a copy from the host, for which the host waits: in every
call, and in every layer of a model that counts its tokens.  The number that is filled in is the one
that the tensor would hold, rounded to its dtype.  Complex numbers, lists and what has a gradient
are left to torch. Mirrors constant folding in torch/_inductor/fx_passes/joint_graph.py.
"""

from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from ..foreign import ours
from ..autograd.more.rules import call_rule
from ..passes.numbers import EXACT

KNOWN = {"dtype", "device"}  # options that `torch.full` reads in the same way


@call_rule(torch.tensor)
def number(run: fx.Interpreter, target: Any, args: tuple, options: dict[str, Any]) -> Any:
    given = [*args, *(options[key] for key in ("data",) if key in options)]
    others = {key: value for key, value in options.items() if key != "data"}
    if len(given) != 1 or type(given[0]) not in (bool, int, float) or not others.keys() <= KNOWN:
        return run.plain_call(target, args, options)
    held = as_held(given[0], others.get("dtype"))
    if held is None:
        return run.plain_call(target, args, options)
    value, dtype = held
    return run.plain_call(torch.full, ((), value), {**others, "dtype": dtype})


def as_held(value: float, dtype: torch.dtype | None) -> tuple[float, torch.dtype] | None:
    """The number that the tensor holds, and the dtype; None where torch has to say something."""
    try:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            tensor = torch.tensor(value, dtype=dtype, device="cpu")
            return (tensor.item(), tensor.dtype) if tensor.dtype in EXACT else None
    except ours(RuntimeError, OverflowError, TypeError, ValueError):
        return None
