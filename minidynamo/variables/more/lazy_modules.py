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
from torch.fx.node import map_arg
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._python_dispatch import TorchDispatchMode

from ...exceptions import Break, Restart
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
        if kwargs or len(args) != 1 or not can_begin(module) or draws_random_numbers(tx.output):
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


class Watching(TorchDispatchMode):
    """Notes whether an operation draws random numbers."""

    random = False

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.random |= torch.Tag.nondeterministic_seeded in op.tags
        return op(*args, **(kwargs or {}))


def draws_random_numbers(output: OutputGraph) -> bool:
    """Does the graph so far?  Its nodes are run with fake tensors once more; the frame is traced
    anew whatever is found, so that what they write does not matter.  True where one cannot run."""
    graph, watching = output.graph, Watching()
    with output.fake_mode, watching:
        for node in graph.nodes:
            if not node.op.startswith("call"):
                continue
            try:
                args, kwargs = map_arg((node.args, node.kwargs), example)
                if node.op == "call_method":
                    getattr(args[0], node.target)(*args[1:], **kwargs)
                else:
                    node.target(*args, **kwargs)
            except ours(Exception):
                return True
    return watching.random


def example(node: torch.fx.Node) -> Any:
    """The fake value of a node."""
    return node.meta["example_value"]


@SHARED.rule(test=lambda value: issubclass(type(value), LazyModuleMixin), order=15)
def wrap_lazy_module(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """A lazy module: a call of it is all that is traced."""
    if not issubclass(type(value), torch.nn.Module):
        raise refusal(type(value))
    return LazyModuleVar(value, refusal(type(value)), source=source)
