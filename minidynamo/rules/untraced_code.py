"""Python code of torch's that must not be traced: its compilers, autograd, what talks to devices.

In:   a Python function that is about to be inlined.   Out: a graph break at its call.

    torch.cuda.synchronize()        # a graph break

Mirrors torch/_dynamo/trace_rules.py.
"""

from typing import Any

from ..extras.extending import extends
from ..exceptions import Break
from ..symbolic_eval.evaluator import Frame


REFUSED = tuple(
    """
    torch._dynamo torch._inductor torch.jit torch.autograd torch.distributed torch.utils.checkpoint
    torch.fx torch._functorch torch.func torch.optim.lr_scheduler torch.serialization torch.export
    torch.utils.data torch._subclasses torch.cuda torch.profiler torch.library torch._tensor_str
    torch.random
    """.split()
)
TRACED = (
    "torch.autograd.grad_mode",
    "torch.autograd.function.FunctionCtx",
    "torch.autograd.variable",
    "torch.utils.checkpoint.checkpoint_sequential",
)


def refuse(fn: Any) -> None:
    """Torch code that must not be traced: break at the call."""
    module = fn.__module__ or ""
    name = f"{module}.{fn.__qualname__}"
    if name.startswith(REFUSED) and not name.startswith(TRACED):
        raise Break("torch", f"the call of {name}()")


@extends(Frame)
def check_code(tx: Frame, fn: Any) -> None:
    refuse(fn)
