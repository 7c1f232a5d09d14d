"""Methods of tensors that few programs call, and what may be set on a tensor.

In:   a TensorVar and arguments.   Out: a node of the graph, a constant, or a break.

    >>> tensor.call_method(tx, "requires_grad_", [], {})
"""

from __future__ import annotations

from typing import Any

import torch

from ...exceptions import Break
from ..base import Frame, Variable, extends
from ..constant import ConstantVar
from ..tensor import TensorVar


@extends(TensorVar)
class TensorMethods(TensorVar):
    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        if name == "requires_grad" and sets_what_is(self, tx, value):
            return
        raise Break(
            "tensor attribute", f"setting Tensor.{name}", "set it outside the compiled function"
        )

    def method_requires_grad_(self, tx: Frame, *args: Variable, **kwargs: Variable) -> Any:
        tensor = self.fake if self.value is None else self.value
        self._told(tx, "requires_grad")
        if tensor.is_inference() or tensor._is_view():  # what it needs is not told by its flag
            raise Break("tensor method", "requires_grad_() of a view or an inference tensor")
        return tx.output.call_graph(tx, "call_method", "requires_grad_", [self, *args], kwargs)

    def method_detach_(self, tx: Frame) -> Any:
        self._told(tx, "requires_grad")  # eager refuses a view
        return tx.output.call_graph(tx, "call_method", "detach_", [self], {})

    def method_type(self, tx: Frame, *args: Variable, **kwargs: Variable) -> Any:
        if not args and not kwargs:
            return ConstantVar(self.fake.type())
        return tx.output.call_graph(tx, "call_method", "type", [self, *args], kwargs)

    def method_new(self, tx: Frame, *args: Variable, **kwargs: Variable) -> Any:
        """x.new(size) makes a tensor of that size, x.new((2, 3)) one that holds 2 and 3: a graph
        has tuples only, so that a torch.Size is given by its name."""
        if args and getattr(args[0], "cls", None) is torch.Size:
            kwargs = kwargs | {"size": args[0]}
            args = args[1:]
        return tx.output.call_graph(tx, "call_method", "new", [self, *args], kwargs)

    def method___hash__(self, tx: Frame) -> None:
        raise Break("tensor method", "hash(tensor)")


def sets_what_is(self: TensorVar, tx: Frame, value: Variable) -> bool:
    """Does `tensor.requires_grad = value` neither change anything nor raise?"""
    tensor = self.fake if self.value is None else self.value
    return (
        value.as_constant() is self.fake.requires_grad
        and not tensor.is_inference()
        and not tensor._is_view()  # its own flag may differ from what it tells
        and self.getattr(tx, "is_leaf").as_constant()
    )
