"""Questions about values that follow from the program alone: they are answered while tracing.

In:   an ATen op that fake tensors refuse (`masked_select`, `nonzero`, `item`, `equal`), of tensors
      that the graph makes of numbers: `torch.arange(5) < 3`.
Out:  a number, or an indexing with positions that are constants of the graph.

    torch.combinations(x)       # x[i], x[j] at the places of a mask that its length gives

    known_tensor(tracer, fake)  # the real one; None where an input of the graph is in it

PyTorch: fake tensors carry the value of constants of one element.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from ..autograd.more.rules import op_rule

aten = torch.ops.aten
QUESTIONS = (aten.equal.default, aten._local_scalar_dense.default, aten.nonzero.default)
LARGEST = 1 << 16  # elements of a tensor that is computed while tracing
RANDOM = torch.Tag.nondeterministic_seeded


@dataclass
class Known:
    """What has been computed so far: up to the node `last`."""

    last: fx.Node
    values: dict[fx.Node, Any] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)  # memories that something unknown was written to


def known_tensor(tracer: Any, tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of a tensor of the trace, if no input is in them.  What the trace has recorded
    since the last question is run for it, in order and with its writes."""
    if not all(type(size) is int for size in tensor.shape) or tensor.numel() > LARGEST:
        return None
    wanted = tracer.node_of(tensor)
    state = vars(tracer).setdefault("known", Known(tracer.graph._root))
    with _disable_current_modes(), torch.no_grad():
        while state.last.next is not tracer.graph._root:
            state.last = state.last.next
            if state.last.op == "call_function":
                run_if_known(state.last, state.values, state.unknown)
    found = state.values.get(wanted)
    return None if not isinstance(found, torch.Tensor) or memory(found) in state.unknown else found


def memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def run_if_known(node: fx.Node, values: dict[fx.Node, Any], unknown: set[int]) -> None:
    """Adds the node's value; where it has none, what it may write is unknown from here on."""
    arguments = [values.get(given) for given in node.all_input_nodes]
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    is_op = isinstance(node.target, torch._ops.OpOverload)
    made = [one for one in pytree.tree_leaves(node.meta.get("val")) if torch.is_tensor(one)]
    small = all(type(n) is int for one in made for n in one.shape) and all(
        one.numel() <= LARGEST and one.device.type == "cpu" for one in made
    )
    random = is_op and RANDOM in node.target.tags
    fine = len(arguments) == sum(value is not None for value in arguments) and small and not random
    if fine and not any(memory(tensor) in unknown for tensor in tensors):
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if not any(isinstance(leaf, torch.SymInt) for leaf in pytree.tree_leaves((args, kwargs))):
            values[node] = node.target(*args, **kwargs)
            return
    if is_op and node.target._schema.is_mutable:
        unknown.update(map(memory, tensors))


@op_rule(lambda op: op in QUESTIONS, order=50)
def answer(tracer: Any, op: Any, args: tuple, kwargs: dict) -> Any:
    known = [known_tensor(tracer, value) for value in args]
    if any(value is None for value in known):
        return NotImplemented
    with _disable_current_modes():
        found = op(*known)
    return found if not isinstance(found, torch.Tensor) else constant(tracer, found)


@op_rule(lambda op: op is aten.masked_select.default, order=50)
def select(tracer: Any, op: Any, args: tuple, kwargs: dict) -> Any:
    values, mask = args
    if list(values.shape) != list(mask.shape):
        return NotImplemented
    known = known_tensor(tracer, mask)
    if known is None:
        return NotImplemented
    with _disable_current_modes():
        places = known.nonzero().unbind(1)
    with tracer:
        return aten.index.Tensor(values, [constant(tracer, place) for place in places])


def constant(tracer: Any, real: torch.Tensor) -> torch.Tensor:
    """A tensor of the trace that has these values."""
    with _disable_current_modes():
        kept = real.contiguous().clone()
    tracer.constant(kept)
    return tracer.to_fake(kept)
