"""Constants that are more than their value: enumerations and their members; text that is joined.

In:   an enumeration, or a member whose attributes the program reads.
Out:  members as constants, once it is guarded that there are these; attributes guarded one by one.

    >>> EnumVar(Color).getitem(tx, ConstantVar("RED")).getattr(tx, "value")
"""

import enum
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...extras.extending import extends
from ...exceptions import Break
from ..base import Args, Frame, Named, OutputGraph, Variable
from ..constant import ConstantVar
from ..lookup import lookup
from ..registry import RESULTS


@RESULTS.rule(test=lambda value: True, order=99)
def pinned_result(output: OutputGraph, value: Any) -> Variable:
    """What else a folded call gave is held by the entry; not what each call makes anew."""
    check_can_be_pinned(value)
    return output.wrap_pinned(value)


def check_can_be_pinned(value: Any) -> None:
    """Raises `Break` for what the entry must not hold, because each call makes a new one."""
    if isinstance(value, torch.Tensor):
        raise Break("argument", "a folded call gave a tensor")
    kind = type(value)
    if hasattr(kind, "__next__") or kind in (bytearray, set):
        raise Break("constant", f"a call gave a {kind.__name__}")


def argument_of(value: Any) -> Any:
    """The constant as torch's functions take it."""
    convert = ARGUMENTS.get(type(value))
    return value if convert is None else convert(value)


# type -> what makes an argument of torch's functions of such a constant; else it is one itself
ARGUMENTS: dict[type, Callable[[Any], Any]] = {}


@extends(ConstantVar)
class ConstantMethods(ConstantVar):
    def argument(self, part: Any) -> Any:
        return argument_of(self.value)

    def getattr(self, tx: Frame, name: str) -> Variable:
        if not isinstance(self.value, enum.Enum):
            return tx.fold(getattr, self.value, name)
        own = f"_{name}_"  # a member of an enumeration has `_name_` and `_value_`
        if name not in ("name", "value") or lookup(type(self.value), name)[0] is not enum.Enum:
            raise Break("attribute", f".{name} of {self}, which is neither its name nor its value")
        fields = tx.output.fields_of(self.value, tx.output.tree.pinned(self.value).instance_dict())
        return fields.get(tx, ConstantVar(own))

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        """A method of an immutable object is called now."""
        if isinstance(self.value, enum.Enum):
            return self.getattr(tx, name).call(tx, args, kwargs)
        if type(self.value) is str and name == "join" and len(args) == 1:
            items = [item.as_constant() for item in tx.listed_fast(args[0])]
            return tx.fold(self.value.join, items)
        if type(self.value) is str and name == "format":
            values = [tx.text_of(value) for value in args]
            named = {key: tx.text_of(value) for key, value in kwargs.items()}
            return tx.fold(self.value.format, *values, **named)
        if name in ("__enter__", "__exit__"):
            raise Break("context", f"{self} is entered by a call, or left where it was not entered")
        values = [value.as_constant() for value in args]
        named = {key: value.as_constant() for key, value in kwargs.items()}
        return tx.fold(lambda: getattr(self.value, name)(*values, **named))

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        return tx.iter_of(self).rest(tx)

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        return tx.fold(lambda: self.value[key.as_constant()])
