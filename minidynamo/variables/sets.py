"""set and frozenset, from outside and made in the frame.

In:   elements that have host keys.   Out: the methods of Python's sets, in the order of real ones.

    >>> SetVar.of(tx, [a, b]).call_method(tx, "add", [c], {})

A set from outside is read, not written.  Mirrors torch/_dynamo/variables/dicts.py (SetVariable).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any

from ..errors import Break
from ..guards.guards import exact_key
from .base import Codegen, Frame, OutputGraph, Source, Variable
from .constant import HASHED_BY_IDENTITY, ConstantVar, is_constant_value
from .dicts import Container, TupleVar
from .iterators import KeysIterator, iterator_of
from .registry import RESULTS, SHARED, rule


class SetVar(Container):
    """set and frozenset: host key -> key variable.

    `table` is a real set of the host keys to which all was done that the program did to its own:
    the order of a set depends on its past."""

    items: dict
    cls: type = set
    table: Any = None
    removed: int = field(default=0, init=False)  # how often a key was removed

    def __post_init__(self) -> None:
        if self.table is None:
            self.table = added(self.items)

    @classmethod
    def of(cls, tx: Frame, values: Iterable[Variable], kind: type = set) -> SetVar:
        """Of values that are added one after the other."""
        items: dict[Any, Variable] = {}
        for value in values:  # the first of equal keys stays
            items.setdefault(value.hash_key(tx), value)
        return cls(items, kind)

    @classmethod
    def made(cls, tx: Frame, values: Variable, kind: type = set) -> SetVar:
        """kind(values)."""
        found = cls({})
        found.method_update(tx, values)
        found.cls = kind
        return found

    def is_constant(self) -> bool:
        return self.cls is frozenset and all(item.is_constant() for item in self.items.values())

    def as_constant(self) -> Any:
        return self.cls(item.as_constant() for item in self.items.values())

    def hash_key(self, tx: Frame) -> Any:
        return frozenset(self.items) if self.cls is frozenset else super().hash_key(tx)

    def truth(self, tx: Frame) -> bool:
        return self.length(tx) > 0

    def length(self, tx: Frame) -> int:
        return len(self.items)

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        order = self.table
        if self.source is not None:
            order = list(self.items)
            tx.output.guard(self.source, "ORDER", "[*{0}] == {pin}", order)
        return iter([self.items[key].realize(tx) for key in order])

    def contains(self, tx: Frame, item: Variable) -> bool:
        return item.hash_key(tx) in self.items

    def written(self) -> None:
        if self.source is not None or self.cls is frozenset:
            raise Break("set", "writing to a set from outside")
        self.mutated = True

    def method_add(self, tx: Frame, value: Variable, /) -> None:
        self.written()
        host = value.hash_key(tx)
        self.items.setdefault(host, value)
        self.table.add(host)

    def method_discard(self, tx: Frame, value: Variable, /) -> None:
        self.written()
        host = value.hash_key(tx)
        if self.items.pop(host, None) is not None:
            self.table.discard(host)
            self.removed += 1

    def method_remove(self, tx: Frame, value: Variable, /) -> None:
        if value.hash_key(tx) not in self.items:
            tx.raise_var(KeyError, [value])
        self.method_discard(tx, value)

    def method_update(self, tx: Frame, *others: Variable) -> None:
        self.written()
        for other in others:
            if isinstance(whole(other), SetVar) or other.python_type() is dict:
                self.items = self.combined(tx, "update", other).items
            else:
                for value in other.iterate(tx):
                    self.method_add(tx, value)

    def method_copy(self, tx: Frame) -> SetVar:
        return self if self.cls is frozenset else self.combined(tx, "copy")

    def method_clear(self, tx: Frame) -> None:
        self.written()
        self.items.clear()
        self.table.clear()
        self.removed += 1

    def combined(self, tx: Frame, name: str, *others: Variable) -> SetVar:
        """What the method of real sets makes of them: it knows the order."""
        self.iterate(tx)  # guards its order
        known, keys = dict(self.items), []
        for other in map(whole, others):
            found = {value.hash_key(tx): value for value in other.iterate(tx)}
            for host, value in found.items():
                if type(known.setdefault(host, value).hash_key(tx)) is not type(host):
                    raise Break("set", "equal elements of several types")
            hosts = dict.fromkeys(found) if other.python_type() is dict else list(found)
            keys.append(other.table if isinstance(other, SetVar) else hosts)
        table = getattr(self.table, name)(*keys)
        table = self.table if table is None else table
        return SetVar({host: known[host] for host in table}, self.cls, table)

    def method_union(self, tx: Frame, *others: Variable) -> SetVar:
        return self.combined(tx, "union", *others)

    def method_intersection(self, tx: Frame, *others: Variable) -> SetVar:
        return self.combined(tx, "intersection", *others)

    def method_difference(self, tx: Frame, *others: Variable) -> SetVar:
        return self.combined(tx, "difference", *others)

    def method_symmetric_difference(self, tx: Frame, other: Variable, /) -> SetVar:
        return self.combined(tx, "symmetric_difference", other)

    def method_issubset(self, tx: Frame, other: Variable, /) -> Any:
        keys = {value.hash_key(tx) for value in other.iterate(tx)}
        return ConstantVar(all(key in keys for key in self.items))

    def contents(self, cg: Codegen) -> None:
        cg.build("BUILD_TUPLE", [self.items[host] for host in self.table])

    def reconstruct(self, cg: Codegen) -> None:
        """Adding the elements in this order must make a set that is walked like this one."""
        order = list(self.table)
        for hosts in (list(self.items), order):
            if list(added(hosts)) == order:
                values = [self.items[host] for host in hosts]
                break
        else:
            raise Break("reconstruct", "a set whose order comes from how it was made")
        if self.cls is frozenset:
            cg.call_object(frozenset, functools.partial(cg.build, "BUILD_TUPLE", values))
        else:
            cg.build("BUILD_SET", values)


def added(keys: Iterable) -> set:
    """A set to which the keys were added one after the other."""
    made = set()
    for key in keys:
        made.add(key)
    return made


def whole(values: Variable) -> Any:
    """C code does not ask the `__iter__` of a class of sets: it takes what lies in its object."""
    return values.payload if isinstance(values.payload, SetVar) else values


@SHARED(set, frozenset)
def set_of(builder: OutputGraph, value: Any, source: Source) -> SetVar:
    if not all(is_constant_value(item) or isinstance(item, HASHED_BY_IDENTITY) for item in value):
        raise Break("set", "a set with elements that are not constants")
    check = "{{*map(exact_key, {0})}} == {pin}"
    builder.guard(source, "EQUALS", check, {*map(exact_key, value)})
    items = {item: builder.wrap_pinned(item) for item in value}
    return builder.replayed(SetVar(items, type(value), value, source=source))


@RESULTS(set, frozenset)
def folded_set(builder: OutputGraph, value: Any) -> SetVar:
    """A set that a folded call gave."""
    return SetVar({item: builder.wrap_result(item) for item in value}, type(value), value)


@rule(set)
def _set(tx: Frame, values: Variable = TupleVar([]), /) -> SetVar:
    return SetVar.made(tx, values)


iterator_of(SetVar)(KeysIterator)
