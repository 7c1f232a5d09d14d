"""Modules called with other parameters, and tensors in groups: C and functorch, traced as Python.

    torch.func.functional_call(module, {"weight": w}, (x,))
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)

In, out: see `symbolic_eval.registry`.  `functional_call` puts tensors into the module and takes
them out again: both are traced, and the module is as it was.
Mirrors torch/_dynamo/variables/torch.py (`handle_functional_call`) and polyfills.
"""

from typing import Any

import torch
from torch.nn.utils import stateless

from ..exceptions import Break
from ..symbolic_eval.registry import rule
from ..variables.base import Frame, Variable
from ..variables.constant import ConstantVar
from ..variables.tensor import TensorVar


def inlined(function: Any) -> None:
    """A function of Python that lies where torch's code is not traced is traced all the same."""

    @rule(function)
    def trace(tx: Frame, *args: Any, **kwargs: Any) -> Variable:
        return tx.inline(tx.output.wrap_pinned(function), list(args), kwargs)


inlined(torch.func.functional_call)
inlined(stateless.functional_call)


def grouped(lists: list[list[Any]], order: list[Any], with_indices: bool = False) -> dict[Any, Any]:
    """`torch._C._group_tensors_by_device_and_dtype`, of which the first list says how to group, and
    `order` in which order the groups come."""
    groups: dict[Any, Any] = {key: ([[] for _ in lists], []) for key in order}
    for number, tensor in enumerate(lists[0]):
        found, indices = groups[tensor.device, tensor.dtype]
        for members, given in zip(found, lists):
            if given:
                members.append(given[number])
        if with_indices:
            indices.append(number)
    return groups


@rule(torch._C._group_tensors_by_device_and_dtype)
def _group(tx: Frame, lists: Variable, with_indices: Any = ConstantVar(False), /) -> Variable:
    first = next(iter(lists.iterate(tx)), None)
    tensors = [] if first is None else list(first.iterate(tx))
    if not tensors or not all(isinstance(tensor, TensorVar) for tensor in tensors):
        raise Break("torch", "a list of tensors to group, in which something else lies")
    order = tx.output.wrap_pinned(order_of_groups([tensor.fake for tensor in tensors]))
    return tx.inline(tx.output.wrap_pinned(grouped), [lists, order, with_indices], {})


def order_of_groups(tensors: list[torch.Tensor]) -> list[tuple[torch.device, torch.dtype]]:
    """The order is that of a hash table of C++, and sums depend on it: C++ itself is asked."""
    groups = torch._C._group_tensors_by_device_and_dtype([tensors], True)
    return [
        (tensors[indices[0]].device, tensors[indices[0]].dtype) for _, indices in groups.values()
    ]
