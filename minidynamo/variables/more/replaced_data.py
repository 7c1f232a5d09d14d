"""A tensor that is given other memory: `p.data = value`, `t.set_(value)`.

In:   a TensorVar, and the tensor whose memory it is to have.
Out:  the variable, which from here on stands for another node: the same numbers as `value`, and
      for a leaf that needs gradients a node through which they reach it.  A tensor from outside is
      given its data behind the graph; it stays the object that it was.

    p.data = p.data * 0.5       # y = (p * x).sum() behind it computes with the new numbers

Autograd keeps tensors for backward by reference, and would meet the new data there: a tensor that
was used with gradients before, or is written afterwards, breaks the graph at the assignment.
Mirrors torch/_dynamo/variables/builder.py and tensor.py (`method_attr_data`, `method_set_`).
"""

import copy
from typing import Any

import torch

from ... import hooks
from ...exceptions import Break
from ...graph_capture import OutputGraph
from ...reconstruct import Codegen
from ..base import Frame, Variable
from ..constant import ConstantVar
from ..tensor import TensorVar
from .tensor_metadata import Metadata

KIND = "tensor attribute"
HINT = "set it outside the compiled function"
TOLD_APART = frozenset(  # what the new node tells in another way than the tensor
    "requires_grad is_leaf grad_fn output_nr retains_grad names _version _base".split()
)


class WithData(torch.autograd.Function):
    """A leaf as it is with the data of another tensor: its gradient is the leaf's."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0], None


def with_data(leaf: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return WithData.apply(leaf, value.detach())


def replace_data(tensor: Metadata, tx: Frame, value: Variable, reason: str) -> None:
    """From here on the tensor has the memory of `value`.  Raises `Break` where eager may refuse,
    or where a later backward pass would tell the difference."""
    if type(value) is not TensorVar or not fits(tensor, value, is_replaced(tensor, tx)):
        raise Break(KIND, reason, HINT)
    learns = tensor.of_fake(tx, "requires_grad")
    if any(needs_gradient(user) for user in tensor.node.users):
        raise Break(KIND, f"{reason}, of a tensor that backward may need", HINT)
    made: Any
    if learns and torch.is_grad_enabled():
        made = tx.node(with_data, [tensor, value])
    else:
        made = tx.node(getattr, [value, ConstantVar("data")])  # which counts its writes apart
    exchange(tx.output, tensor, made)
    state = vars(tx.output).setdefault("with_data", {})
    made_here = tx.user_stack(), tx.output.root.group_step
    state[id(made.fake)] = tensor, learns and not torch.is_grad_enabled(), made_here


def fits(tensor: TensorVar, value: TensorVar, again: bool) -> bool:
    """May it be given, and is nothing lost?  again: the tensor has been given other data before."""
    own, given = tensor.fake, value.fake
    if tensor is value or any(type(fake) is not type(own) for fake in (own, given)):
        return False
    for fake in (own, given):
        plain = fake.layout is torch.strided and not fake.is_inference()
        if not plain or fake.is_neg() or fake.is_conj():
            return False
    alike = own.dtype == given.dtype and own.device == given.device
    is_view = own._is_view() or (tensor.value is not None and tensor.value._is_view())
    if not alike or (is_view and not again):
        return False
    if not own.requires_grad:
        return True
    return (own.is_leaf or again) and list(own.shape) == list(given.shape)


def needs_gradient(node: torch.fx.Node) -> bool:
    """Does autograd keep what this node was computed from?"""
    made = node.meta.get("example_value")
    several = made if isinstance(made, (tuple, list)) else (made,)
    return any(isinstance(one, torch.Tensor) and one.requires_grad for one in several)


def exchange(output: OutputGraph, tensor: TensorVar, made: Any) -> None:
    """`tensor` stands for the node of `made`; the input of the graph keeps the old one."""
    before = copy.copy(tensor)
    for place, variable in enumerate(output.inputs):
        if variable is tensor:
            output.inputs[place] = before
            if id(tensor) in output.input_layouts:
                output.input_layouts[id(before)] = output.input_layouts.pop(id(tensor))
    output.by_fake[id(before.fake)] = before
    tensor.node, tensor.fake = made.node, made.fake
    output.by_fake[id(made.fake)] = tensor


def is_replaced(tensor: TensorVar, tx: Frame) -> bool:
    return id(tensor.fake) in vars(tx.output).get("with_data", ())


def set_from(tensor: Metadata, tx: Frame, args: Any, kwargs: Any) -> Variable:
    """t.set_(value) of a tensor that was made in the frame."""
    reason = "Tensor.set_() is not traced"
    made_here = tensor.source is None and not tensor.of_fake(tx, "requires_grad")
    if not made_here or len(args) != 1 or kwargs or type(args[0]) is not TensorVar:
        raise Break("tensor method", reason, HINT)
    given: Any = args[0]
    if given.of_fake(tx, "requires_grad"):
        raise Break("tensor method", reason, HINT)
    replace_data(tensor, tx, given, reason)
    return tensor


def note_recorded(output: OutputGraph, target: Any, given: list[torch.Tensor], result: Any) -> None:
    """A leaf that got its data where no gradients are recorded is used where they are: from there
    on plain Python's tensor is needed."""
    state = vars(output).get("with_data")
    if state and torch.is_grad_enabled() and any(state.get(id(t), (0, 0))[1] for t in given):
        raise Break(KIND, "a parameter whose data was set without gradients, used with them", HINT)


def refuse_writes(cg: Codegen) -> None:
    """Autograd counts writes for each tensor: those of the new node do not count for the tensor."""
    state = vars(cg.output).get("with_data", {})
    for _, fake in cg.output.written if state else ():
        if id(fake) in state:
            _, _, (stack, step) = state[id(fake)]
            raise Break(KIND, "writes to a tensor whose data was set", HINT, stack, step)


hooks.AFTER_FAKES.append(note_recorded)
hooks.AFTER_WRITES.append(refuse_writes)
