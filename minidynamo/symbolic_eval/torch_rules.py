"""Which torch functions become one node of the graph, and which must not be traced.

In:   a function of torch's.
Out:  `is_leaf(fn)`: does it go into the graph whole?  `call_leaf`: the
      node's variable; `refuse`: a graph break.

    >>> is_leaf(torch.nn.functional.softmax), is_leaf(torch.nn.Linear.forward)
    (True, False)

Torch's Python code that is not a leaf (nn modules, distributions) is inlined like the user's.  The
thread's state, and what else is no plain function of tensors: minidynamo/rules/torch_state.py and
torch_functions.py.  Mirrors torch/_dynamo/trace_rules.py and variables/torch.py.
"""

import types
from typing import TYPE_CHECKING, Any

import torch

from ..exceptions import Break
from ..originals import LEAF_MODULES, made_by_torch
from ..variables.base import Variable
from ..variables.objects import ObjectVar

if TYPE_CHECKING:
    from .evaluator import Frame

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
_LEAVES: dict[int, Any] = {}


def is_leaf(fn: Any) -> bool:
    """Does `fn` become one node?"""
    known = _LEAVES.get(id(fn))
    if known is not fn and _decide(fn):
        known = _LEAVES[id(fn)] = fn  # an id that stays: the table holds `fn`
    return known is fn


def _decide(fn: Any) -> bool:
    if isinstance(fn, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    module = getattr(fn, "__module__", None) or ""
    if isinstance(fn, types.FunctionType):
        if not made_by_torch(fn):
            return False  # the program's, which `functools.wraps` has given a name of torch's
        if module in LEAF_MODULES:
            return True
        owner = {"torch": torch, "torch._tensor": torch.Tensor}.get(module)
        return owner is not None and getattr(owner, fn.__name__, None) is fn
    if not isinstance(fn, types.BuiltinFunctionType):
        return False
    if module in LEAF_MODULES:
        return True
    return getattr(torch._C._VariableFunctions, fn.__name__, None) == fn


def refuse(fn: Any) -> None:
    """Torch code that must not be traced: break at the call."""
    module = fn.__module__ or ""
    name = f"{module}.{fn.__qualname__}"
    if name.startswith(REFUSED) and not name.startswith(TRACED):
        raise Break("torch", f"the call of {name}()")


def call_leaf(tx: "Frame", fn: Any, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
    """The node of a call; a Python function is traced where the program has put one of its own in
    torch's place, or gives it an object (a module, a class of options)."""
    if isinstance(fn, types.FunctionType):
        objects = any(isinstance(value, ObjectVar) for value in (*args, *kwargs.values()))
        if objects or tx.output.calls_replaced(fn, is_leaf):
            return tx.inline(tx.output.wrap_pinned(fn), args, kwargs)
    return tx.node(fn, args, kwargs)
