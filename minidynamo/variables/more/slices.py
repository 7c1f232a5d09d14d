"""Slices: `rows[1:]`, `x[:, n:]`.

In:   the parts, as variables.
Out:  a constant, or a slice whose parts may be symbolic numbers and tensors.

    >>> slice_of([ConstantVar(1), ConstantVar(None)]).as_constant()
    slice(1, None, None)

Mirrors torch/_dynamo/variables/lists.py (SliceVariable).
"""

from collections.abc import Callable
from typing import Any

from ...extras.extending import extends
from ...symbolic_eval.opcodes import pushes
from ..base import Codegen, Frame, Variable
from ..constant import ConstantVar
from .constants import ARGUMENTS, argument_of
from .tuples import sequence_of
from ..containers import INDICES, SequenceVar


class SliceVar(Variable):
    """A slice with parts that are not constants (x[: tensor])."""

    parts: list[Variable]
    cls = slice
    shared = True

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        return slice(*map(part, self.parts))

    def as_constant(self) -> Any:
        return slice(*[part.as_constant() for part in self.parts])

    def reconstruct(self, cg: Codegen) -> None:
        for part in self.parts:
            cg.value(part)
        cg.emit("BUILD_SLICE", 3)


def slice_of(parts: list[Any]) -> Variable:
    parts = parts if len(parts) == 3 else [*parts, ConstantVar(None)]
    if all(type(part) is ConstantVar for part in parts):
        return ConstantVar(slice(*[part.value for part in parts]))
    return SliceVar(parts)


def slice_argument(value: slice) -> slice:
    return slice(argument_of(value.start), argument_of(value.stop), argument_of(value.step))


@extends(SequenceVar)
def item_or_items(sequence: SequenceVar, tx: Frame, index: Any) -> Variable:
    if not isinstance(index, slice):
        return sequence.item(tx, index)
    found = sequence.items[index]
    if sequence.cls is tuple and found == sequence.items:
        return sequence  # CPython makes no copy
    return sequence_of(sequence.cls, found)


INDICES.add(SliceVar)
ARGUMENTS[slice] = slice_argument
pushes({"BUILD_SLICE": lambda frame, n: slice_of(frame.popn(n))})
