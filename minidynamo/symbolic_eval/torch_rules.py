"""Which torch functions become one node of the graph.

In:   a function of torch's.   Out: does it go into the graph whole?

    >>> is_leaf(torch.nn.functional.softmax), is_leaf(torch.nn.Linear.forward)
    (True, False)

Torch's Python code that is not a leaf (nn modules, distributions) is inlined like the user's, but
for torch's compilers, autograd, and what talks to devices (`check_traced`).  The thread's state,
and what else is no plain function of tensors: minidynamo/rules/torch_state.py, torch_functions.py.
Mirrors torch/_dynamo/trace_rules.py and variables/torch.py.
"""

import types
from typing import Any

import torch

from ..exceptions import Break
from ..originals import LEAF_MODULES, made_by_torch


def is_leaf(fn: Any) -> bool:
    """Does `fn` become one node?"""
    if isinstance(fn, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    module = getattr(fn, "__module__", None) or ""
    if isinstance(fn, types.FunctionType):
        if not made_by_torch(fn):
            return False  # the program's, which `functools.wraps` has given a name of torch's
        if module in LEAF_MODULES:
            return True
        owner = {"torch": torch, "torch._tensor": torch.Tensor}.get(module)
        if fn.__name__.startswith("set_"):  # of the process's state: no node, which runs twice
            return False
        return owner is not None and getattr(owner, fn.__name__, None) is fn
    if not isinstance(fn, types.BuiltinFunctionType):
        return False
    if module in LEAF_MODULES:
        return True
    return getattr(torch._C._VariableFunctions, fn.__name__, None) == fn


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


def check_traced(fn: Any) -> None:
    """Raises Break at the call of a Python function of torch's that must not be traced, and of the
    program's with the mark that `torch.compiler.disable` leaves.  (torch.compile, once used, wraps
    methods of torch's optimizers in it.)"""
    module = fn.__module__ or ""
    name = f"{module}.{fn.__qualname__}"
    if getattr(fn, "_torchdynamo_disable", False) and not module.startswith("torch."):
        raise Break("disabled", f"{fn.__qualname__} is disabled by torch.compiler.disable")
    if name.startswith(REFUSED) and not name.startswith(TRACED):
        raise Break("torch", f"the call of {name}()")
