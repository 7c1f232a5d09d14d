"""Enumerations: the class as a container of its members, and members as objects.

In:   an enumeration, or a member whose attributes the program reads.
Out:  members as constants, once it is guarded that there are these; attributes guarded one by one.

    >>> EnumVar(Color).getitem(tx, ConstantVar("RED")).getattr(tx, "value")
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from ..base import Args, Frame, Named, OutputGraph, Variable
from ..classes import ClassVar
from ..constant import MEMBERS, ConstantVar
from ..lookup import MISSING, can_change, lookup
from ..objects import ObjectVar
from ..registry import PINNED


class EnumVar(ClassVar):
    """An enumeration."""

    def guard_members(self, tx: Frame) -> None:
        """The members of the enumeration are these."""
        for name in ("_member_names_", "_member_map_", "_value2member_map_"):
            owner, found = lookup(self.value, name)
            if found is not MISSING and can_change(owner):
                source = tx.output.tree.pinned(owner).child("class_item", name)
                tx.output.guard(source, "MEMBERS", "{0} == {pin}", type(found)(found))

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        self.guard_members(tx)
        return tx.fold_pinned(lambda: self.value[key.as_constant()])

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        self.guard_members(tx)
        return (ConstantVar(member) for member in tx.run_now(list, self.value))

    def contains(self, tx: Frame, item: Variable) -> bool:
        self.guard_members(tx)
        return tx.fold(lambda: item.as_constant() in self.value).value

    def length(self, tx: Frame) -> int:
        self.guard_members(tx)
        return tx.fold(len, self.value).value

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        self.guard_members(tx)
        return super().call(tx, args, kwargs)


@PINNED.rule(test=lambda value: isinstance(value, enum.EnumMeta), order=5)
def pinned_enumeration(builder: OutputGraph, value: Any) -> EnumVar:
    return EnumVar(value)


class MemberVar(ObjectVar):
    """A member of an enumeration, where its attributes are read; everywhere else it is a
    constant."""

    def receiver(self) -> Variable:
        return ConstantVar(self.value)


@MEMBERS.rule(test=lambda value: True)
def wrap_member(builder: OutputGraph, value: Any) -> MemberVar:
    """The object behind a member, one in each attempt."""
    known = builder.members.get(id(value))
    if known is None:
        source = builder.tree.pinned(value)
        fields = builder.fields_of(value, source.instance_dict())
        known = builder.members[id(value)] = MemberVar(type(value), value, fields, source=source)
    return known
