"""Tensors: a node of the FX graph and a fake tensor that knows shape, dtype, device and
requires_grad.

In:   attribute reads, methods and operators on it.
Out:  graph nodes (through `tx.output.call_graph`), constants for metadata; what needs the *values*
      breaks the graph.

    >>> TensorVar(node, fake).getattr(tx, "shape")      # TupleVar of constants, no node

Mirrors torch/_dynamo/variables/tensor.py (paper section 3.5).
"""

from __future__ import annotations

import operator
import types

import torch

from ..exceptions import Break
from ..originals import calls_replaced, in_leaf_module, made_by_torch, replaced_in_tensor
from .base import Args, Codegen, Frame, Named, Variable
from .lookup import lookup
from .objects import method_of_class


class TensorVar(Variable):
    """`node` in the graph under construction, `fake` its example value, `cls` Tensor or Parameter;
    `value` the real one of an input."""

    node: torch.fx.Node
    fake: torch.Tensor
    cls: type = torch.Tensor
    value: torch.Tensor | None = None

    def truth(self, tx: Frame) -> bool:
        reason = f"a branch on a tensor's value ({self.describe()})"
        raise Break("data-dependent", reason, "use torch.where, or keep the test outside")

    def describe(self) -> str:
        return f"{str(self.fake.dtype).removeprefix('torch.')}{list(self.fake.shape)}"

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        return tx.node(operator.getitem, [self, key])

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        tx.node(operator.setitem, [self, key, value])

    def getattr(self, tx: Frame, name: str) -> Variable:
        found = self.replaced(tx, name)
        if found is not None:
            return found
        read = getattr(self, "get_" + name, None)
        if read is not None:
            return read(tx)
        return self._other_attribute(tx, name)

    def get_shape(self, tx: Frame) -> Variable:
        return tx.output.wrap_result(self.fake.shape)

    def _other_attribute(self, tx: Frame, name: str) -> Variable:
        """A method; what else a tensor may have is known to more/tensor_attributes.py."""
        if not callable(getattr(torch.Tensor, name, None)):
            raise Break("tensor attribute", f"Tensor.{name} is not traced")
        return tx.method_of(self, name)

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        found = self.replaced(tx, name)
        if found is not None:
            return found.call(tx, args, kwargs)
        method = getattr(self, "method_" + name, None)  # a method that is no node of the graph
        if method is not None:
            return method(tx, *args, **kwargs)
        if not callable(getattr(torch.Tensor, name, None)):  # a property, or on this tensor alone
            return self.getattr(tx, name).call(tx, args, kwargs)
        return tx.output.call_graph(tx, "call_method", name, [self, *args], kwargs)

    def replaced(self, tx: Frame, name: str) -> Variable | None:
        """What a program has put in the place of this attribute of torch's (`torch.Tensor.relu =
        mine`); a Python method of torch's that calls what the program has replaced; or None: it
        goes into the graph whole."""
        owner, found = lookup(torch.Tensor, name)
        if replaced_in_tensor(owner, name, found):
            if not isinstance(found, types.FunctionType):
                raise Break("tensor attribute", f"Tensor.{name}, which the program has replaced")
        elif not made_by_torch(found) or not calls_replaced(tx.output, found, in_leaf_module):
            return None
        return method_of_class(tx, owner, found, name, self, tx.output.wrap_pinned(self.cls))

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_graph_output(self)
