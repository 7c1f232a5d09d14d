"""Methods of lists, tuples and dictionaries that few programs call.

In:   the container and the arguments, as variables.   Out: what Python's method gives.

    >>> ListVar([b, a]).call_method(tx, "sort", [], {})
"""

import collections
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from ...extras.extending import extends
from ...exceptions import Break
from ...foreign import ours
from ..base import Frame, Lazy, OutputGraph, Source, Variable
from ..constant import ConstantVar
from ..containers import Container, DictVar, ListVar, SequenceVar, TupleVar
from ..registry import SHARED
from .dictionaries import Items
from .tuples import is_plain_named_tuple


def whole(index: Variable) -> int:
    """The int that C code takes as a place; plain Python complains of what is none."""
    value = index.as_constant()
    if not isinstance(value, int):
        raise Break("arguments", f"{index} as a place in a sequence")
    return value


@extends(SequenceVar)
class SequenceMethods(SequenceVar):
    def method_index(
        self,
        tx: Frame,
        value: Variable,
        start: Variable = ConstantVar(0),
        stop: Variable = ConstantVar(sys.maxsize),
        /,
    ) -> Any:
        first, last, _ = slice(whole(start), whole(stop)).indices(len(self.items))
        for n, item in enumerate(self.iterate(tx)):
            if first <= n < last and (tx.same_or_equal(item, value)):
                return ConstantVar(n)
        tx.raise_(
            ValueError,
            f"{tx.text_of(value)!r} is not in {self.cls.__name__}"
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


@extends(TupleVar)
class TupleMethods(TupleVar):
    def method__replace(self, tx: Frame, **changes: Variable) -> Any:
        if not changes.keys() <= {*self.cls._fields}:
            raise Break("arguments", f"no such field of {self.cls.__name__}")
        items = [changes.get(name, item) for name, item in zip(self.cls._fields, self.items)]
        return TupleVar(items, self.cls)


@extends(ListVar)
class ListMethods(ListVar):
    def delitem(self, tx: Frame, key: Variable) -> None:
        try:
            del self.items[self.index_of(tx, key)]
        except ours(IndexError, TypeError) as error:
            tx.raise_(type(error), *error.args)
        self._changed()

    def method_insert(self, tx: Frame, index: Variable, value: Variable, /) -> None:
        self.items.insert(whole(index), value)
        self._changed()

    def method_remove(self, tx: Frame, value: Variable, /) -> Any:
        for n, item in enumerate(self.iterate(tx)):
            if tx.same_or_equal(item, value):
                del self.items[n : n + 1]
                return self._changed()
        if self.cls is not list:  # whose words change from version to version
            raise Break("arguments", "deque.remove() of what is not in it")
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

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        index = self.index_of(tx, key)
        if isinstance(index, slice):
            before = len(self.items)
            assigned: Any = tx.listed_fast(value)
            if len(self.items) != before:  # 3.13 looks where the slice lies afterwards, not before
                raise Break("item", "a list that changes while a slice of it is assigned")
        else:
            assigned = value
        try:
            self.items[index] = assigned
        except ours(IndexError, TypeError, ValueError) as error:
            tx.raise_(type(error), *error.args)
        self.mutated = True

    def method_extend(self, tx: Frame, values: Variable, /) -> None:
        # Each item is there before the next is asked for: the iterator may look, or raise.
        for value in self._others(tx, values):
            self.method_append(tx, value)
        if self.cls is list:
            self.mutated = True

    def _others(self, tx: Frame, values: Variable) -> Iterable[Variable]:
        """What to walk when this list takes `values`: a copy, if that is the list itself."""
        if values is self or getattr(values, "payload", None) is self:
            return list(self.iterate(tx))
        walk = values.iterate(tx)
        if self.cls is list:
            tx.length_hint(values)
        return walk

    def method_pop(self, tx: Frame, index: Variable = ConstantVar(-1), /) -> Any:
        place = whole(index)
        if not self.items:
            tx.raise_(IndexError, "pop from empty list")
        if not -len(self.items) <= place < len(self.items):
            tx.raise_(IndexError, "pop index out of range")
        value = self.item(tx, place)
        del self.items[place]
        self._changed()
        return value

    def method_clear(self, tx: Frame) -> None:
        self.items.clear()
        self._changed()


@extends(DictVar)
class DictMethods(Items):
    def method_popitem(self, tx: Frame) -> Any:
        keys = self.keys(tx)
        if not keys:
            tx.raise_(KeyError, "popitem(): dictionary is empty")
        return TupleVar([keys[-1], self.method_pop(tx, keys[-1])])

    def method_setdefault(
        self, tx: Frame, key: Variable, default: Variable = ConstantVar(None), /
    ) -> Any:
        value = self.get(tx, key)
        if value is None:
            self.store(tx, key, default)
            value = default
        return value

    def method_copy(self, tx: Frame) -> Any:
        self.guard_keys(tx)
        made: Any = DictVar(dict(self.items), self.cls)
        made.factory = self.factory
        return made

    def remove(self, tx: Frame, key: Variable) -> None:
        self.guard_keys(tx)  # replay writes all that are left
        self.items.pop(key.hash_key(tx))
        self.written[key.hash_key(tx)] = True
        self.removed += 1
        self.mutated = self.rewritten = True

    def delitem(self, tx: Frame, key: Variable) -> None:
        if self.get(tx, key) is None:
            tx.raise_var(KeyError, [key])
        self.remove(tx, key)

    def method_pop(self, tx: Frame, key: Variable, default: Variable | None = None, /) -> Any:
        value = self.get(tx, key)
        if value is None:
            if default is not None:
                return default
            tx.raise_var(KeyError, [key])
        self.remove(tx, key)
        return value

    def method_update(self, tx: Frame, other: Variable | None = None, /, **named: Variable) -> None:
        ordered = self.cls is collections.OrderedDict and not isinstance(other, DictVar)
        if ordered and other is not None and tx.has_attr(other, "items"):
            raise Break("dictionary", "an OrderedDict of a mapping that is no dictionary")
        for key, value in dict_pairs(tx, other) if other is not None else ():
            self.store(tx, key, value)
        for name, value in named.items():
            self.store(tx, ConstantVar(name), value)

    def method_clear(self, tx: Frame) -> None:
        self.guard_keys(tx)
        self.items.clear()
        self.mutated = self.rewritten = True


@extends(Container)
class ContainerMethods(Container):
    def hash_key(self, tx: Frame) -> Any:
        if self.cls.__hash__ is None:
            home = "collections." if self.cls.__module__ == "collections" else ""
            tx.raise_(TypeError, f"unhashable type: '{home}{self.cls.__name__}'")
        return Variable.hash_key(self, tx)

    def method___len__(self, tx: Frame) -> Any:
        return tx.output.wrap_result(self.length(tx))

    def method___iter__(self, tx: Frame) -> Any:
        return tx.iter_of(self)

    def method___getitem__(self, tx: Frame, key: Variable, /) -> Any:
        return self.getitem(tx, key)

    def method___setitem__(self, tx: Frame, key: Variable, value: Variable, /) -> None:
        self.setitem(tx, key, value)

    def method___delitem__(self, tx: Frame, key: Variable, /) -> None:
        self.delitem(tx, key)

    def method___contains__(self, tx: Frame, item: Variable, /) -> Any:
        return ConstantVar(self.contains(tx, item))


def dict_pairs(tx: Frame, other: Variable) -> Iterator[Any]:
    """(key, value) variables of a mapping or of an iterable of pairs, one after the other: what
    walks them stores each before it asks for the next."""
    payload = getattr(other, "payload", None)
    if isinstance(other, DictVar):
        yield from other.pairs(tx)
    elif isinstance(payload, DictVar) and other.cls.__iter__ in (
        dict.__iter__,
        collections.OrderedDict.__iter__,
    ):
        yield from payload.pairs(tx)
    elif tx.has_attr(other, "keys"):
        keys = other.call_method(tx, "keys", [], {})
        for key in tx.listed_fast(keys):
            yield key, other.getitem(tx, key)
    else:
        for pair in other.iterate(tx):
            items = tx.listed_fast(pair) if hasattr(pair.python_type(), "__iter__") else ()
            if len(items) != 2:
                raise Break("arguments", "an item of a dictionary's update that is no pair")
            yield items


def is_named_tuple(value: Any) -> bool:
    return issubclass(type(value), tuple) and is_plain_named_tuple(type(value))


@SHARED.rule(test=is_named_tuple)
def wrap_named_tuple(builder: OutputGraph, value: Any, source: Source) -> TupleVar:
    items = enumerate(tuple.__iter__(value))
    return TupleVar(
        [Lazy(item, source.child("tuple_item", n)) for n, item in items], type(value), source=source
    )
