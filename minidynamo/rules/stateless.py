"""Modules called with other parameters, and tensors in groups: C and functorch, traced as Python.

    torch.func.functional_call(module, {"weight": w}, (x,))
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)

In, out: see `symbolic_eval.registry`.  `functional_call` puts tensors into the module and takes
them out again: both are traced, and the module is as it was.
Mirrors torch/_dynamo/variables/torch.py (`handle_functional_call`) and polyfills.
"""

from __future__ import annotations

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


def grouped(lists: list[list[Any]], with_indices: bool = False) -> dict[Any, Any]:
    """`torch._C._group_tensors_by_device_and_dtype`, of which the first list says how to group.

    Called for tensors of one group: C++ gives several in the order of a hash table.
    """
    groups: dict[Any, Any] = {}
    for number, tensor in enumerate(lists[0]):
        key = tensor.device, tensor.dtype
        if key not in groups:
            groups[key] = [[] for _ in lists], []
        found, indices = groups[key]
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
    if len({(tensor.fake.device, tensor.fake.dtype) for tensor in tensors}) > 1:
        raise Break("torch", "groups of tensors, whose order is that of a hash table of C++")
    return tx.inline(tx.output.wrap_pinned(grouped), [lists, with_indices], {})
