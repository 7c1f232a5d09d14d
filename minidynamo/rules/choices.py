"""max(a, b) and min(a, b) of tensors that hold one number: `torch.where(b > a, b, a)`.

Python gives one of the two objects, the graph a new tensor that equals it.  Nobody can tell, unless
gradients flow (the other one gets none at all, not zeros), or one of them is written to, or the
result leaves the frame beside the tensor that it is: all these are graph breaks.
"""

import functools
import weakref
from typing import Any, NamedTuple

import torch

from .. import hooks
from ..exceptions import Break
from ..extras.undo import storage
from ..graph_capture import OutputGraph
from ..reconstruct import Codegen
from ..variables.base import Frame, Variable
from ..variables.tensor import TensorVar

MOST = 8  # that are compared one after the other


class Choice(NamedTuple):
    result: TensorVar
    operands: tuple[TensorVar, ...]
    stack: list[tuple[str, int, str]]
    step: int  # of the root frame


CHOICES: "weakref.WeakKeyDictionary[OutputGraph, list[Choice]]" = weakref.WeakKeyDictionary()


def are_numbers(values: list[Variable]) -> bool:
    """Are these a few tensors, alike but for the one number in each, to which no gradients flow?"""
    if not 2 <= len(values) <= MOST or not all(type(value) is TensorVar for value in values):
        return False
    fakes = [value.fake for value in values if type(value) is TensorVar]
    kinds = {(fake.dtype, fake.device, fake.dim(), fake.requires_grad) for fake in fakes}
    return len(kinds) == 1 and fakes[0].dim() == 0 and not fakes[0].requires_grad


def extreme(tx: Frame, symbol: str, values: list[Any]) -> Variable:
    """The first that no other one exceeds, as `symbol` compares them."""

    def better(best: Variable, value: Variable) -> Variable:
        return tx.node(torch.where, [tx.compare(symbol, value, best), value, best])

    result: Any = functools.reduce(better, values)
    where = tx.user_stack(), tx.output.root.group_step
    choice = Choice(result, tuple(values), *where)
    CHOICES.setdefault(tx.output, []).append(choice)
    return result


def refuse_what_is_noticed(cg: Codegen) -> None:
    """Break at a choice whose result is a new tensor where the program would see one of two."""
    output = cg.output
    written = {storage(fake) for _, fake in output.written}
    given = {storage(variable.fake) for variable in output.by_fake.values() if variable.source}
    for result, operands, *where in CHOICES.get(output, []):
        memories = {storage(operand.fake) for operand in operands}
        seen = any(operand in cg.outputs for operand in operands) or memories & given
        if result in cg.outputs and seen or written & (memories | {storage(result.fake)}):
            text = "which of its tensors max() or min() gives"
            raise Break("data-dependent", text, "use torch.maximum or torch.minimum", *where)


hooks.AFTER_WRITES.append(refuse_what_is_noticed)
