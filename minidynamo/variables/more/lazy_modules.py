"""nn.LazyLinear and its like: the first call gives them their parameters while tracing.

In:   a lazy module of torch's and the tensor that it is called with.
Out:  the module with parameters, of its final class; the frame is traced anew with it.

    >>> minidynamo.compile(nn.LazyLinear(5))(x)        # one graph, no break

The parameters are drawn at the moment of the first call, as in plain Python, when no random number
has been drawn in this frame before: the nodes so far are asked.  A program's own lazy classes, and
those with hooks of the program's, break the graph.
Mirrors torch/_dynamo/variables/nn_module.py (`initialize_lazy_module`).
"""

from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from ...exceptions import Break, Restart
from ...extras.graph_errors import draws
from ...foreign import ours
from ..base import Args, Frame, Named, OutputGraph, Source, Variable
from ..registry import SHARED
from ..tensor import TensorVar
from .opaque import OpaqueVar

HINT = "call the model once before it is compiled"


def refusal(kind: type) -> Break:
    """Why a lazy module of this class is not traced."""
    return Break("module", f"the first call of a {kind.__name__} gives it its parameters", HINT)


class LazyModuleVar(OpaqueVar):
    """A module without parameters yet: it may be called with a tensor."""

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        module = self.value
        tx.output.guard_no_global_hooks()
        if (
            kwargs
            or len(args) != 1
            or not can_begin(module)
            or any(map(draws, tx.output.graph.nodes))
        ):
            raise self.broken
        (given,) = args
        if not isinstance(given, TensorVar) or not all(type(n) is int for n in given.fake.shape):
            raise self.broken
        example = torch.empty(given.fake.shape, dtype=given.fake.dtype, device="meta")
        try:
            module._infer_parameters(module, (example,))
        except ours(Exception):  # the sizes do not fit: plain Python says so
            raise self.broken from None
        raise Restart()


def can_begin(module: Any) -> bool:
    """Is it of torch's own classes, with no other hook than the one that makes parameters?"""
    kind, hooks = type(module), module._forward_pre_hooks
    state = vars(module)
    own = module.__module__.startswith("torch.nn.modules.") and kind.cls_to_become is not None
    replaced = {"initialize_parameters", "reset_parameters", "_infer_parameters"} & state.keys()
    first = state.get("_initialize_hook")
    only = first is not None and list(hooks) == [first.id]
    return own and not replaced and only and not torch.is_inference_mode_enabled()


@SHARED.rule(test=lambda value: issubclass(type(value), LazyModuleMixin), order=4)
def wrap_lazy_module(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """A lazy module: a call of it is all that is traced."""
    if not issubclass(type(value), torch.nn.Module):
        raise refusal(type(value))
    return LazyModuleVar(value, refusal(type(value)), source=source)
