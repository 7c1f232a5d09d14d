"""Methods of lists, tuples and dictionaries that few programs call.

In:   the container and the arguments, as variables.   Out: what Python's method gives.

    >>> ListVar([b, a]).call_method(tx, "sort", [], {})
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ...exceptions import Break
from ...foreign import ours
from ..base import Variable, extends
from ..constant import ConstantVar
from ..containers import DictVar, ListVar, SequenceVar, TupleVar, named, whole

if TYPE_CHECKING:
    from ...symbolic_eval.evaluator import Frame


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

    def method__asdict(self, tx: Frame) -> Any:
        return DictVar(named(dict(zip(self.cls._fields, self.items))))


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
        self,
        tx: Frame,
        /,
        *,
        key: Variable | None = None,
        reverse: Variable = ConstantVar(False),
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


@extends(DictVar)
class DictMethods(DictVar):
    def method_popitem(self, tx: Frame, last: Variable = ConstantVar(True)) -> Any:
        keys = self.keys(tx)
        if not keys:
            tx.raise_(KeyError, "popitem(): dictionary is empty")
        key = keys[-1 if last.as_constant() else 0]
        return TupleVar([key, self.method_pop(tx, key)])

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
        return DictVar(dict(self.items), self.cls, factory=self.factory)

    def method_move_to_end(
        self, tx: Frame, key: Variable, last: Variable = ConstantVar(True)
    ) -> None:
        host = key.hash_key(tx)
        self.getitem(tx, key)
        self.guard_keys(tx)
        pair = self.items.pop(host)
        self.items = (
            {**self.items, host: pair} if last.as_constant() else {host: pair, **self.items}
        )
        self.removed += 1
        self.mutated = self.rewritten = True
