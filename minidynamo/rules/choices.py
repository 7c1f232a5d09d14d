"""max(a, b) and min(a, b) of tensors that hold one number: `torch.where(b > a, b, a)`.

    scale = max(x.abs().max(), 1e-8)        # a tensor or a float: Python tells them apart in a call
    y = x / scale                           # beside x both give the same

Python gives one of the two objects, the graph a new tensor that equals it.  Nobody can tell, unless
gradients flow (the other one gets none at all, not zeros), or one of them is written to, or the
result leaves the frame beside the tensor that it is: all these are graph breaks.  Where one of them
is a plain number, the result may only be added to, multiplied with... a tensor of its dtype that
has dimensions.
"""

import functools
import math
import operator
import weakref
from typing import Any, NamedTuple

import torch

from .. import hooks
from ..exceptions import Break
from ..extras.graph_errors import storage
from ..graph_capture import OutputGraph
from ..reconstruct import Codegen
from ..symbolic_eval.operators import Operator, in_place
from ..variables.base import Frame, Variable
from ..variables.constant import ConstantVar
from ..variables.tensor import TensorVar

MOST = 8  # that are compared one after the other
HINT = "use torch.maximum or torch.minimum"
ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv)
ARITHMETIC += (operator.iadd, operator.isub, operator.imul, operator.itruediv)


class Choice(NamedTuple):
    result: TensorVar
    operands: tuple[TensorVar, ...]
    or_number: bool  # or one of Python's numbers
    stack: list[tuple[str, int, str]]
    step: int  # of the root frame


CHOICES: "weakref.WeakKeyDictionary[OutputGraph, list[Choice]]" = weakref.WeakKeyDictionary()


class NumberOrTensor(Variable):
    """What max() gives of a tensor and a number: `result` equals it, where a node of the graph
    takes it; nothing else is known."""

    result: TensorVar
    choice: Choice

    def argument(self, part: Any) -> Any:
        return part(self.result)

    def reconstruct(self, cg: Codegen) -> None:
        raise Break("data-dependent", TEXT, HINT, self.choice.stack, self.choice.step)


@in_place(NumberOrTensor)
def _in_place(tx: Frame, operator: Operator, a: Any, b: Any) -> Variable:
    """A number is another one afterwards, a tensor is written."""
    raise Break("data-dependent", TEXT, HINT)


TEXT = "which of its tensors and numbers max() or min() gives"


def are_numbers(values: list[Variable]) -> bool:
    """Are these a few tensors, alike but for the one number in each, to which no gradients flow;
    and perhaps numbers that are exact in their dtype?"""
    if not 2 <= len(values) <= MOST:
        return False
    fakes = [value.fake for value in values if type(value) is TensorVar]
    kinds = {(fake.dtype, fake.device, fake.dim(), fake.requires_grad) for fake in fakes}
    if len(kinds) != 1 or fakes[0].dim() or fakes[0].requires_grad:
        return False
    others = [value for value in values if type(value) is not TensorVar]
    return all(is_exact(value, fakes[0].dtype) for value in others)


def is_exact(number: Variable, dtype: torch.dtype) -> bool:
    if type(number) is not ConstantVar or dtype not in (torch.float32, torch.float64):
        return False
    value = number.value
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > 1e30:
        return False
    return torch.tensor(value, dtype=dtype).item() == value


def extreme(tx: Frame, symbol: str, values: list[Any]) -> Variable:
    """The first that no other one exceeds, as `symbol` compares them."""

    def better(best: Variable, value: Variable) -> Variable:
        return tx.node(torch.where, [tx.compare(symbol, value, best), value, best])

    result: Any = functools.reduce(better, values)
    where = tx.user_stack(), tx.output.root.group_step
    tensors = tuple(value for value in values if type(value) is TensorVar)
    choice = Choice(result, tensors, len(tensors) < len(values), *where)
    CHOICES.setdefault(tx.output, []).append(choice)
    return NumberOrTensor(result, choice) if choice.or_number else result


def operand_beside(user: torch.fx.Node, number: torch.fx.Node) -> torch.Tensor | None:
    """The other one of two operands, if it is a tensor that has dimensions: its dtype decides what
    dtype the result has."""
    if user.target not in ARITHMETIC or user.kwargs or user.args[0] is user.args[1]:
        return None
    (other,) = [arg for arg in user.args if arg is not number]
    value = getattr(other, "meta", {}).get("example_value")
    return value if isinstance(value, torch.Tensor) and value.dim() else None


def is_beside_tensor(user: torch.fx.Node, number: torch.fx.Node) -> bool:
    """Is the node beside a tensor of its dtype?"""
    other = operand_beside(user, number)
    return other is not None and other.dtype is number.meta["example_value"].dtype


def refuse_what_is_noticed(cg: Codegen) -> None:
    """Break at a choice whose result is a new tensor where the program would see one of two."""
    output = cg.output
    written = {storage(fake) for _, fake in output.written}
    given = {storage(variable.fake) for variable in output.by_fake.values() if variable.source}
    for result, operands, or_number, *where in CHOICES.get(output, []):
        users = result.node.users
        if or_number and not all(is_beside_tensor(user, result.node) for user in users):
            raise Break("data-dependent", TEXT, HINT, *where)
        memories = {storage(operand.fake) for operand in operands}
        seen = any(operand in cg.outputs for operand in operands) or memories & given
        if result in cg.outputs and seen or written & (memories | {storage(result.fake)}):
            text = "which of its tensors max() or min() gives"
            raise Break("data-dependent", text, HINT, *where)


hooks.AFTER_WRITES.append(refuse_what_is_noticed)
