"""Programs whose history one autograd function cannot have, or can have with some care.

In:   a traced program.  Out: the same, or CannotTrace: it runs eagerly then; and in the joint graph
      which primals the results do not depend on, and which are written through `.data` alone.
      Where the compiled graph is called: hooks of results that the loss does not reach are not.

    x.requires_grad_()                     # refused: an input's place in autograd's history changes
    x.data.add_(1)                          # joint.uncounted: this write must not raise x's version
    y = MyFunction.apply(x)[0]              # refused, where MyFunction has several outputs: its
                                            # backward must see which of them reached the loss
"""

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx

from ..exceptions import CannotTrace
from .outputs import is_custom, is_tensor, needs_gradient
from .rules import call_rule
from .writes import data_of


@call_rule(getattr)
def attribute(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    out = fx.Interpreter.call_function(interpreter, target, args, kwargs)
    if args[1] == "data":
        interpreter.tracer.share(out, interpreter.tracer.to_fake(args[0]), data_of)
    return out


class StandIn(torch.autograd.Function):
    """A tensor that needs gradients and is no leaf, so that the program may write to it."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)  # no gradient is not a gradient of zeros
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def check_histories(tensors: Sequence[Any], objects: Sequence[Any]) -> None:
    """Raise CannotTrace if the program has changed whether an input needs gradients other than by
    writing to it: `detach_`, `requires_grad_`.  (Autograd lets nobody write to a leaf that needs
    gradients, so one that has a history now was detached before.)"""
    for tensor, thing in zip(tensors, objects):
        if not is_tensor(tensor):
            continue
        was_learned = tensor.is_leaf and tensor.requires_grad
        if thing.grad_fn is not None and not was_learned:
            continue
        before, now = (tensor.requires_grad, tensor.is_leaf), (thing.requires_grad, thing.is_leaf)
        if before != now:
            raise CannotTrace("the program changes an input's requires_grad, or detaches it")


def history_of(tensors: Sequence[Any]) -> set[Any]:
    """The functions of autograd through which gradients of these tensors would pass."""
    work, seen = [t.grad_fn for t in tensors], set()
    while work:
        function = work.pop()
        if function is not None and function not in seen:
            seen.add(function)
            work.extend(following for following, _ in function.next_functions)
    return seen


def unreached(leaves: Sequence[Any], history: set[Any]) -> list[int]:
    """Which of the leaves have no part in the history?  Autograd would tell their hooks so, if it
    met them among the arguments of our function; eager does not."""
    met = {id(getattr(function, "variable", None)) for function in history}
    return [i for i, leaf in enumerate(leaves) if needs_gradient(leaf) and id(leaf) not in met]


def has_several_outputs(function: Any) -> bool:
    """Is it the backward of a custom autograd function that gets several gradients?

    PyTorch keeps to itself how many: where it does not tell, there may be several."""
    if not is_custom(function) or getattr(function, "_forward_cls", None) is StandIn:
        return False
    metadata = getattr(function, "_input_metadata", None)
    return metadata is None or len(metadata) > 1


def has_siblings(function: Any) -> bool:
    """Has the operation that this is the backward of several results?  A hook of one of them is
    called with None, in eager, where the loss reaches only another."""
    return len(getattr(function, "_input_metadata", ())) > 1


def forget_history(graph: fx.Graph) -> None:
    """Detach every node's fake tensor: the fake autograd graph has done its work."""
    detached: dict[int, torch.Tensor] = {}

    def detach(value: Any) -> Any:
        if needs_gradient(value) and id(value) not in detached:
            detached[id(value)] = value.detach()
        return detached.get(id(value), value)

    values = [(node, node.meta["val"]) for node in graph.nodes if "val" in node.meta]
    for node, value in values:  # a list keeps all of them alive: ids stay unique
        node.meta["val"] = pytree.tree_map(detach, value)


# --- where a compiled graph is called -------------------------------------------------------------
def registration(siblings: list[int]) -> Callable:
    """What `Tensor.register_hook` calls for the first hook of one of our function's results.

    Autograd calls the hooks of all results of a function that it reaches.  The results of a graph
    have one function, but where the program had one for each it would not reach them all."""

    def register(function: Any, tensor: torch.Tensor) -> None:
        if tensor.output_nr not in siblings:
            tensor._backward_hooks = HooksOfReached()
        torch._C._FunctionBase._register_hook_dict(function, tensor)

    return register


class HooksOfReached(collections.OrderedDict):
    """The hooks of a tensor; none is called without a gradient."""

    def __setitem__(self, key: Any, hook: Callable) -> None:
        # those that wait for several tensors' gradients count how often they are called
        counts = getattr(hook, "__module__", None) == "torch.autograd.graph"
        super().__setitem__(key, hook if counts else functools.partial(call_if_reached, hook))


def call_if_reached(hook: Callable, gradient: torch.Tensor | None) -> Any:
    return None if gradient is None else hook(gradient)
