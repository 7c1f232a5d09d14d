"""Sequences: list, tuple, torch.Size, named tuples, what `x.max(0)` gives; slices.

In:   lists of variables.   Out: the same methods as Python's, on variables.

    >>> ListVar([a, b]).call_method(tx, "append", [c], {})

Items of a sequence with a source are looked at when they are read, and only what was read is
guarded.  What the program writes is repeated behind the graph (`replay`).
Mirrors torch/_dynamo/variables/lists.py.
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from miniinductor.errors import ours

from ..errors import Break
from .base import Codegen, Frame, Lazy, RealVar, Variable, current, lookup
from .constant import ConstantVar
from .symbolic import SymVar

# A field of a named tuple: it knows its place, under whatever name it stands.
FIELD: Any = type(vars(collections.namedtuple("One", "field"))["field"])


def read_at(path: str) -> Any:
    """A property that gives what lies at this path of attributes."""
    return property(operator.attrgetter(path))


class Container(Variable):
    """The base of all: the special methods by name."""

    shared = True

    def hash_key(self, tx: Frame) -> Any:
        if self.cls.__hash__ is None:
            home = "collections." if self.cls.__module__ == "collections" else ""
            tx.raise_(TypeError, f"unhashable type: '{home}{self.cls.__name__}'")
        return Variable.hash_key(self, tx)

    def truth(self, tx: Frame) -> bool:
        return self.length(tx) > 0

    def method___len__(self, tx: Frame) -> Any:
        return tx.output.wrap_result(self.length(tx))

    def method___iter__(self, tx: Frame) -> Any:
        return tx.iter_of(self)

    method___getitem__, method___setitem__ = read_at("getitem"), read_at("setitem")
    method___delitem__ = read_at("delitem")

    def method___contains__(self, tx: Frame, item: Variable, /) -> Any:
        return ConstantVar(self.contains(tx, item))


class SequenceVar(Container):
    """Items in order."""

    items: list
    cls: Any  # the exact Python type
    resized: int = field(default=0, init=False)  # how often items were added or removed

    def item(self, tx: Frame, index: int) -> Variable:
        found = self.items[index]
        if type(found) is Lazy:
            found = self.items[index] = found.realize(tx)
        return found

    def is_constant(self) -> bool:
        return all(item.is_constant() for item in self.items)

    def as_constant(self) -> Any:
        values = [item.as_constant() for item in self.items]
        return self.cls(*values) if hasattr(self.cls, "_fields") else self.cls(values)

    def length(self, tx: Frame) -> int:
        return len(self.items)

    iterate = Variable.iterated

    def index_of(self, tx: Frame, key: Variable) -> Any:
        if not key.is_constant() and type(key) not in (SymVar, SliceVar):
            raise Break(
                "item", f"an index that is not a constant ({key})", "index with a Python int"
            )
        return key.as_constant()

    def getitem(self, tx: Frame, key: Variable, /) -> Variable:
        index = self.index_of(tx, key)
        try:
            self.items[index]
        except ours(IndexError, TypeError, ValueError) as error:
            # `items` is a list, whatever the sequence is
            tx.raise_(type(error), str(error).replace("list", self.cls.__name__, 1))
        if not isinstance(index, slice):
            return self.item(tx, index)
        found = self.items[index]
        if self.cls is tuple and found == self.items:
            return self  # CPython makes no copy
        return sequence_of(self.cls, found)

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        items = [part(item) for item in self.iterate(current())]
        return items if isinstance(self, ListVar) else tuple(items)

    def contents(self, cg: Codegen) -> None:
        """Push a tuple of the items."""
        cg.build("BUILD_TUPLE", self.items)

    def getattr(self, tx: Frame, name: str) -> Variable:
        owner, found = lookup(self.cls, name)
        if isinstance(found, FIELD):
            place = found.__reduce__()[1][0]
            if place < len(self.items):
                return self.item(tx, place)
        if (
            isinstance(found, types.MemberDescriptorType)
            and found.__objclass__ is self.cls is owner
        ):
            fields = getattr(self.cls, "__match_args__", ())  # of `x.max(0)`
            if found.__name__ in fields:
                return self.item(tx, fields.index(found.__name__))
        return Variable.getattr(self, tx, name)

    def method_index(self, tx: Frame, value: Variable, /) -> Any:
        for n, item in enumerate(self.iterate(tx)):
            if tx.same_or_equal(item, value):
                return ConstantVar(n)
        tx.raise_(
            ValueError,
            f"{value.as_constant()!r} is not in {self.cls.__name__}"
            if isinstance(self, ListVar)
            else "tuple.index(x): x not in tuple",
        )

    def method_count(self, tx: Frame, value: Variable, /) -> Any:
        return ConstantVar(sum(tx.same_or_equal(item, value) for item in self.iterate(tx)))

    def method_numel(self, tx: Frame) -> Any:
        product: Any = ConstantVar(1)
        for size in self.iterate(tx):
            product = tx.binary("*", product, size)
        return product


class TupleVar(SequenceVar):
    """tuple, torch.Size, namedtuple."""

    cls: Any = tuple

    def hash_key(self, tx: Frame) -> Any:
        return tuple(self.item(tx, n).hash_key(tx) for n in range(len(self.items)))

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is tuple:
            self.contents(cg)
        elif hasattr(self.cls, "_fields"):
            cg.call_object(tuple.__new__, RealVar(self.cls), self.contents)
        else:
            cg.call_object(self.cls, self.contents)

    def method__replace(self, tx: Frame, **changes: Variable) -> Any:
        if not changes.keys() <= {*self.cls._fields}:
            raise Break("arguments", f"no such field of {self.cls.__name__}")
        items = [changes.get(name, item) for name, item in zip(self.cls._fields, self.items)]
        return TupleVar(items, self.cls)

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        items = super().argument(part)
        return self.cls(*items) if hasattr(self.cls, "_fields") else items


class ListVar(SequenceVar):
    """list."""

    cls: Any = list

    def is_constant(self) -> bool:
        return False

    def _changed(self) -> None:
        self.mutated = True
        self.resized += 1

    def method_append(self, tx: Frame, value: Variable, /) -> None:
        self.items.append(value)
        self._changed()

    def reconstruct(self, cg: Codegen) -> None:
        cg.build("BUILD_LIST", self.items)

    def replay(self, cg: Codegen) -> None:
        if self.mutated:
            cg.commit_item(self, ConstantVar(slice(None)), self.reconstruct)

    def delitem(self, tx: Frame, key: Variable, /) -> None:
        tx.run_now(self.items.__delitem__, self.index_of(tx, key))
        self._changed()

    def method_insert(self, tx: Frame, index: Variable, value: Variable, /) -> None:
        self.items.insert(whole(index), value)
        self._changed()

    def method_remove(self, tx: Frame, value: Variable, /) -> Any:
        for n, item in enumerate(self.iterate(tx)):
            if tx.same_or_equal(item, value):
                del self.items[n : n + 1]
                return self._changed()
        tx.raise_(ValueError, "list.remove(x): x not in list")

    def method_reverse(self, tx: Frame) -> None:
        self.items.reverse()
        self.mutated = True

    def method_copy(self, tx: Frame) -> Any:
        return ListVar(list(self.items))

    def method_sort(
        self, tx: Frame, /, *, key: Variable | None = None, reverse: Variable = ConstantVar(False)
    ) -> None:
        # The list is empty while it is sorted: the key function may look.
        items = list(self.iterate(tx))
        self.items.clear()
        self._changed()
        resized = self.resized
        try:
            items = tx.sorted(items, key, reverse)
        finally:
            changed = self.resized != resized
            self.items[:] = items
        if changed:
            tx.raise_(ValueError, "list modified during sort")

    def setitem(self, tx: Frame, key: Variable, value: Any, /) -> None:
        index = self.index_of(tx, key)
        if isinstance(index, slice):
            before = len(self.items)
            value = tx.listed_fast(value)
            if len(self.items) != before:  # 3.13 looks where the slice lies afterwards, not before
                raise Break("item", "a list that changes while a slice of it is assigned")
        tx.run_now(self.items.__setitem__, index, value)
        self.mutated = True

    def method_extend(self, tx: Frame, values: Variable, /) -> None:
        # Each item is there before the next is asked for: the iterator may look, or raise.
        is_itself = values is self or values.payload is self  # of which a copy is walked
        for value in list(self.iterate(tx)) if is_itself else values.iterate(tx):
            self.method_append(tx, value)
        self.mutated = True

    def method_pop(self, tx: Frame, index: Variable = ConstantVar(-1), /) -> Any:
        value = tx.run_now(self.items.pop, whole(index))
        self._changed()
        return value.realize(tx)

    def method_clear(self, tx: Frame) -> None:
        self.items.clear()
        self._changed()


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


def sequence_of(cls: type, items: Iterable[Variable]) -> SequenceVar:
    """A new list, or a tuple of this class; a plain one where its items have names."""
    if cls is list:
        return ListVar(list(items))
    return TupleVar(list(items), tuple if hasattr(cls, "_fields") else cls)


def whole(index: Variable) -> int:
    """The int that C code takes as a place; plain Python complains of what is none."""
    value = index.as_constant()
    if not isinstance(value, int):
        raise Break("arguments", f"{index} as a place in a sequence")
    return value
