"""Constants that are more than their value: enumerations and their members; text that is joined.

In:   an enumeration, or a member whose attributes the program reads.
Out:  members as constants, once it is guarded that there are these; attributes guarded one by one.

    >>> EnumVar(Color).getitem(tx, ConstantVar("RED")).getattr(tx, "value")
"""

import enum
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ...extras.extending import extends, noted
from ...exceptions import Break
from ..base import Args, Frame, Named, OutputGraph, Variable
from ..classes import ClassVar
from ..constant import ConstantVar
from ..iterators import iterator_of
from .iterators import HostIterator
from ..lookup import MISSING, can_change, lookup
from ..objects import ObjectVar
from ..registry import PINNED, RESULTS


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


class EnumVar(ClassVar):
    """An enumeration."""

    def guard_members(self, tx: Frame, method: str) -> None:
        """The members of the enumeration are these, and a method of EnumType answers for them."""
        if lookup(type(self.value), method)[0] is not enum.EnumMeta:
            raise Break("class", f"{method} of the metaclass {type(self.value).__name__}")
        for name in ("_member_names_", "_member_map_", "_value2member_map_"):
            owner, found = lookup(self.value, name)
            if found is not MISSING and can_change(owner):
                source = tx.output.tree.pinned(owner).child("class_item", name)
                tx.output.guard(source, "MEMBERS", "{0} == {pin}", type(found)(found))

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        self.guard_members(tx, "__getitem__")
        return tx.fold_pinned(lambda: self.value[key.as_constant()])

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        self.guard_members(tx, "__iter__")
        return iter(self.members(tx, iter))

    def members(self, tx: Frame, walk: Callable[[Any], Iterable[Any]]) -> list[ConstantVar]:
        return [ConstantVar(member) for member in tx.run_now(lambda: [*walk(self.value)])]

    def contains(self, tx: Frame, item: Variable) -> bool:
        self.guard_members(tx, "__contains__")
        return tx.fold(lambda: item.as_constant() in self.value).value

    def length(self, tx: Frame) -> int:
        self.guard_members(tx, "__len__")
        return tx.fold(len, self.value).value

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        self.guard_members(tx, "__call__")
        return super().call(tx, args, kwargs)


def iterator_of_members(tx: Frame, enumeration: EnumVar) -> HostIterator:
    """iter() of an enumeration is a generator."""
    return HostIterator(enumeration.iterate(tx), types.GeneratorType)


iterator_of(EnumVar)(iterator_of_members)


@PINNED.rule(test=lambda value: issubclass(type(value), enum.EnumMeta), order=5)
def pinned_enumeration(builder: OutputGraph, value: Any) -> EnumVar:
    return EnumVar(value)


class MemberVar(ObjectVar):
    """A member of an enumeration, where its attributes are read; everywhere else it is a
    constant."""

    def receiver(self) -> Variable:
        return ConstantVar(self.value)


class Members(dict[int, MemberVar]):
    """Id of a member of an enumeration -> the object behind it."""


def wrap_member(builder: OutputGraph, value: Any) -> MemberVar:
    """The object behind a member, one in each attempt."""
    members = noted(builder, Members)
    known = members.get(id(value))
    if known is None:
        source = builder.tree.pinned(value)
        fields = builder.fields_of(value, source.instance_dict())
        known = members[id(value)] = MemberVar(type(value), value, fields, source=source)
    return known


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
        if isinstance(self.value, enum.Enum):
            return wrap_member(tx.output, self.value).getattr(tx, name)
        return tx.fold(getattr, self.value, name)

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
