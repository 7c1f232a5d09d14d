"""What a program sets on a tensor: `p.grad = None`, `x.scale = 2`.

In:   a TensorVar, a name, a value.
Out:  nothing in the graph: reading gives the value back, and it is set behind the graph.

    >>> tensor.setattr(tx, "grad", ConstantVar(None))

What torch itself keeps in a tensor (`requires_grad`, `names`, `data`) is none of these: setting
that breaks the graph.
Mirrors torch/_dynamo/side_effects.py and variables/tensor.py (`method_attr_grad`, `SET_ATTR`).
"""

from typing import Any

import torch

from ...extras.extending import extends
from ...exceptions import Break
from ..base import Codegen, Frame, Variable
from ..tensor import TensorVar
from .tensor_metadata import Metadata
from .tensor_methods import BREAKING_METHODS, sets_what_is, written

HINT = "set it outside the compiled function"
plain_attribute = TensorVar._other_attribute


@extends(TensorVar)
class TensorAttributes(Metadata):
    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        if name == "data" and value is self:  # module.to(...) that changes nothing
            return
        if name == "requires_grad" and sets_what_is(self, tx, value):
            return
        is_plain = not hasattr(torch.Tensor, name) and not name.startswith("_")
        is_gradient = name == "grad" and fits_as_gradient(self, tx, value)
        if not is_plain and not is_gradient:
            raise Break("tensor attribute", f"setting Tensor.{name}", HINT)
        self.note_written(tx, name, value)

    def note_written(self, tx: Frame, name: str, value: Variable) -> None:
        """The attribute is set again behind the graph."""
        if not self.mutated:
            self.mutated = True
            tx.output.sourced.append(self)
        written(self)[name] = value

    def _other_attribute(self, tx: Frame, name: str) -> Variable:
        """What the frame has set, what the program has put on the tensor, or a method."""
        if name in written(self):
            return written(self)[name]
        if name == "_typed_storage" or name in BREAKING_METHODS and not hasattr(torch.Tensor, name):
            raise Break("tensor attribute", f"Tensor.{name} is not traced")
        if self.value is not None and name in getattr(self.value, "__dict__", {}):
            return tx.output.wrap(self.value.__dict__[name], self.source.attr(name))
        if not hasattr(torch.Tensor, name) and hasattr(self.cls, name):
            raise Break("tensor attribute", f"{self.cls.__name__}.{name} is the program's")
        if getattr(torch.Tensor, name, None) is None:
            if self.value is not None:
                tx.output.guard(self.source, ("ABSENT", name), "not hasattr({0}, {pin})", name)
            tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        return plain_attribute(self, tx, name)

    def replay(self, cg: Codegen) -> None:
        for name, value in written(self).items():
            cg.value(value)
            cg.value(self)
            cg.commit("STORE_ATTR", name)


def fits_as_gradient(tensor: TensorVar, tx: Frame, value: Any) -> bool:
    """May it be set?  Of what does not fit plain Python says why."""
    if not tensor.getattr(tx, "is_leaf").as_constant():
        return False
    if value.identity() is None:
        return True
    if type(value) is not TensorVar or value is tensor:
        return False
    own, given = tensor.fake, value.fake
    alike = (own.dtype, own.device, own.layout) == (given.dtype, given.device, given.layout)
    return alike and list(own.shape) == list(given.shape)
