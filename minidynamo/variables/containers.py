"""Containers: list, tuple, torch.Size, named tuples, deque; dict, OrderedDict, defaultdict, set,
frozenset; dict views and proxies.

In:   host lists and dicts of variables.   Out: the same methods as Python's, on variables.

    >>> ListVar([a, b]).call_method(tx, "append", [c], {})        # recorded; replayed after the graph if it was the user's list

A container with a source fills itself lazily and guards only what was read: the length of a list,
one key of a dict. Mirrors torch/_dynamo/variables/lists.py and dicts.py.
"""

from __future__ import annotations

import collections
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..exceptions import Break
from ..foreign import ours
from .base import Lazy, Variable, current
from .constant import ConstantVar
from .symbolic import SymVar

if TYPE_CHECKING:
    from ..reconstruct import Codegen
    from ..sources import Source
    from ..symbolic_eval.evaluator import Frame


class Container(Variable):
    """What all of them have: the special methods by name, and no hash where Python gives none."""

    __slots__ = ()

    def hash_key(self, tx: Frame) -> Any:
        if self.cls.__hash__ is None:
            name = "collections." * (self.cls is not list and self.cls.__module__ == "collections")
            tx.raise_(TypeError, f"unhashable type: '{name}{self.cls.__name__}'")
        return super().hash_key(tx)

    def getattr(self, tx: Frame, name: str) -> Variable:
        return tx.method_of(self, name)

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


def whole(index: Variable) -> int:
    """The int that C code takes as a place; plain Python complains of what is none."""
    value = index.as_constant()
    if not isinstance(value, int):
        raise Break("arguments", f"{index} as a place in a sequence")
    return value


class SequenceVar(Container):
    """Items in order; `cls` is the exact Python type, `resized` counts the changes that were more
    than another item in a place."""

    __slots__ = ("items", "cls", "extra", "resized")

    def __init__(self, items: list, cls: type, source: Source | None = None) -> None:
        self.source = source
        self.mutated = False
        self.items = items
        self.cls = cls
        self.extra: Any = None  # the maximum of a deque
        self.resized = 0

    def item(self, tx: Frame, index: int) -> Variable:
        found = self.items[index]
        if type(found) is Lazy:
            found = self.items[index] = found.realize(tx)
        return found

    def is_constant(self) -> bool:
        return all(item.is_constant() for item in self.items)

    def as_constant(self) -> Any:
        values = [
            (item.realize(current()) if type(item) is Lazy else item).as_constant()
            for item in self.items
        ]
        return (
            self.cls(*values)
            if hasattr(self.cls, "_fields")
            else self.cls(values, self.extra)
            if self.cls is collections.deque
            else self.cls(values)
        )

    def truth(self, tx: Frame) -> bool:
        return bool(self.items)

    def length(self, tx: Frame) -> int:
        return len(self.items)

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        index, resized = 0, self.resized
        while index < len(self.items):  # the list may grow while it is walked, as in Python
            yield self.item(tx, index)
            index += 1
            self.check_unchanged(tx, resized)

    def check_unchanged(self, tx: Frame, resized: int) -> None:
        """A deque that was `resized` so often when its walk began."""
        if self.cls is collections.deque and self.resized > resized:
            tx.raise_(RuntimeError, "deque mutated during iteration")

    def index_of(self, tx: Frame, key: Variable) -> Any:
        if self.cls is collections.deque and key.python_type() is slice:
            tx.raise_(TypeError, "sequence index must be integer, not 'slice'")
        if not key.is_constant() and not isinstance(key, (SymVar, SliceVar)):
            raise Break(
                "item", f"an index that is not a constant ({key})", "index with a Python int"
            )
        return key.as_constant()

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        index = self.index_of(tx, key)
        if isinstance(index, slice):
            if index.step == 0:
                tx.raise_(ValueError, "slice step cannot be zero")
            whole = self.cls is tuple and range(len(self.items))[index] == range(
                len(self.items)
            )  # CPython makes no copy
            return self if whole else SequenceVar_of(self.cls, self.items[index])
        if not hasattr(index, "__index__"):
            if self.cls is collections.deque:
                kind = type(index).__name__
                tx.raise_(TypeError, f"sequence index must be integer, not '{kind}'")
            tx.raise_(
                TypeError,
                f"{self.cls.__name__} indices must be integers or slices, not {type(index).__name__}",
            )
        try:
            return self.item(tx, index)
        except ours(IndexError):
            tx.raise_(IndexError, f"{self.cls.__name__} index out of range")

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "maxlen" and self.cls is collections.deque:
            return ConstantVar(self.extra)
        if self.cls.__module__ == "torch.return_types" and name in self.cls.__match_args__:
            return self.item(tx, self.cls.__match_args__.index(name))
        return super().getattr(tx, name)

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

    def reconstruct(self, cg: Codegen) -> None:
        cg.sequence(self)


class TupleVar(SequenceVar):
    """tuple, torch.Size, namedtuple."""

    __slots__ = ()

    def __init__(self, items: list, cls: type = tuple, source: Source | None = None) -> None:
        super().__init__(items, cls, source)

    def hash_key(self, tx: Frame) -> Any:
        return tuple(self.item(tx, n).hash_key(tx) for n in range(len(self.items)))

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        tx.raise_(TypeError, f"{self.cls.__name__!r} object does not support item assignment")

    def method__replace(self, tx: Frame, **changes: Variable) -> Any:
        if not changes.keys() <= {*self.cls._fields}:
            raise Break("arguments", f"no such field of {self.cls.__name__}")
        items = [changes.get(name, item) for name, item in zip(self.cls._fields, self.items)]
        return TupleVar(items, self.cls)

    def method__asdict(self, tx: Frame) -> Any:
        return DictVar(
            {name: (ConstantVar(name), item) for name, item in zip(self.cls._fields, self.items)}
        )


class ListVar(SequenceVar):
    """list and collections.deque (`extra` is its maxlen)."""

    __slots__ = ()

    def __init__(self, items: list, cls: type = list, source: Source | None = None) -> None:
        super().__init__(items, cls, source)

    def is_constant(self) -> bool:
        return False

    def _changed(self) -> None:
        self.mutated, self.resized = True, self.resized + 1
        if self.extra is not None:
            del self.items[: max(0, len(self.items) - self.extra)]

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        index = self.index_of(tx, key)
        if isinstance(index, slice):
            before, index, value = len(self.items), self._place(index), tx.listed_fast(value)
            if index.step not in (None, 1) and len(self.items) != before:
                raise Break("item", "a list that changes while a slice of it is assigned")
        try:
            self.items[index] = value
        except ours(IndexError, TypeError, ValueError) as error:
            tx.raise_(type(error), *error.args)
        self.mutated = True

    def _place(self, index: slice) -> slice:
        """Where a slice lies: CPython looks before it walks the values, which may change the
        list."""
        if index.step not in (None, 1):
            return index
        start, stop, _ = index.indices(len(self.items))
        return slice(start, max(start, stop))

    def delitem(self, tx: Frame, key: Variable) -> None:
        try:
            del self.items[self.index_of(tx, key)]
        except ours(IndexError, TypeError) as error:
            tx.raise_(type(error), *error.args)
        self._changed()

    def method_append(self, tx: Frame, value: Variable, /) -> None:
        self.items.append(value)
        self._changed()

    def method_appendleft(self, tx: Frame, value: Variable, /) -> None:
        self.items.insert(0, value)
        self.mutated, self.resized = True, self.resized + 1
        if self.extra is not None:
            del self.items[self.extra :]

    def method_extendleft(self, tx: Frame, values: Variable, /) -> None:
        for value in self._others(tx, values):
            self.method_appendleft(tx, value)

    def method_rotate(self, tx: Frame, n: Variable = ConstantVar(1), /) -> None:
        shift = whole(n) % len(self.items) if self.items else 0
        self.items[:] = (
            self.items[len(self.items) - shift :] + self.items[: len(self.items) - shift]
        )
        self._changed()

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

    def method_insert(self, tx: Frame, index: Variable, value: Variable, /) -> None:
        if self.extra is not None and len(self.items) >= self.extra:
            tx.raise_(IndexError, "deque already at its maximum size")
        self.items.insert(whole(index), value)
        self._changed()

    def method_pop(self, tx: Frame, index: Variable = ConstantVar(-1), /) -> Any:
        place = whole(index)
        if not self.items:
            tx.raise_(
                IndexError, "pop from empty list" if self.cls is list else "pop from an empty deque"
            )
        if not -len(self.items) <= place < len(self.items):
            tx.raise_(IndexError, "pop index out of range")
        value = self.item(tx, place)
        del self.items[place]
        self._changed()
        return value

    def method_popleft(self, tx: Frame) -> Any:
        return self.method_pop(tx, ConstantVar(0))

    def method_remove(self, tx: Frame, value: Variable, /) -> Any:
        for n, item in enumerate(self.iterate(tx)):
            if tx.same_or_equal(item, value):
                del self.items[n : n + 1]
                return self._changed()
        if self.cls is not list:  # whose words change from version to version
            raise Break("arguments", "deque.remove() of what is not in it")
        tx.raise_(ValueError, "list.remove(x): x not in list")

    def method_clear(self, tx: Frame) -> None:
        self.items.clear()
        self._changed()

    def method_reverse(self, tx: Frame) -> None:
        self.items.reverse()
        self.mutated = True

    def method_copy(self, tx: Frame) -> Any:
        made = ListVar(list(self.items), self.cls)
        made.extra = self.extra
        return made

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


def SequenceVar_of(cls: type, items: Iterable[Variable]) -> SequenceVar:
    """A new sequence of exactly this type."""
    if cls is list or cls is collections.deque:
        return ListVar(list(items), cls)
    return TupleVar(list(items), tuple if hasattr(cls, "_fields") else cls)


class DictVar(Container):
    """`items`: host key -> (key variable, value variable).  `cls`: dict, OrderedDict or defaultdict
    (with `factory`).

    With a source, a key that was read is guarded alone; walking the dict or asking its length
    guards all keys.  Writes are kept in `written` and `deleted`, so that replay can store just the
    keys that changed."""

    __slots__ = ("items", "cls", "factory", "written", "rewritten", "real_keys", "removed", "base")

    def __init__(
        self,
        items: dict,
        cls: type = dict,
        source: Source | None = None,
        factory: Variable | None = None,
    ) -> None:
        self.source = source
        self.mutated = False
        self.items = items
        self.cls = cls
        self.factory: Any = factory
        self.written: dict[Any, Any] = {}
        self.rewritten = False
        self.real_keys: Any = list(items) if source is not None else ()
        self.removed = 0  # how often a key was removed or moved
        self.base: Any = None  # of an instance of a subclass: the class whose methods answer for it

    def keys_check(self, tx: Frame) -> str:
        """How a guard reads the keys: the methods of a user's subclass are not asked."""
        if self.base is None:
            return "{0}"
        return tx.output.tree.pinned(self.base).key + ".keys({0})"

    def guard_keys(self, tx: Frame) -> None:
        if self.source is not None and "KEYS" not in self.source.guards:
            keys = self.keys_check(tx)
            if any(isinstance(key, torch.Tensor) for key in self.real_keys):
                tx.output.guard(
                    self.source,
                    "KEYS",
                    f"[*map(id, {keys})] == {{pin}}",
                    [id(key) for key in self.real_keys],
                )
            else:
                tx.output.guard(self.source, "KEYS", f"[*{keys}] == {{pin}}", self.real_keys)

    def guard_key(self, tx: Frame, kind: str, host: Any) -> None:
        """That `host` is among the keys (PRESENT) or is not (ABSENT).

        Where it is no real key: that the keys are these.
        """
        if isinstance(host, (Variable, tuple)):
            self.guard_keys(tx)
        elif "KEYS" in self.source.guards:
            return
        elif kind == "PRESENT":
            check = f"{{key}} in {self.keys_check(tx)}"
            tx.output.guard(self.source, (kind, host), check, host)
        elif type(host) is str and self.base is None:
            tx.output.guard_absent(self.source, host)
        else:
            check = f"{{key}} not in {self.keys_check(tx)}"
            tx.output.guard(self.source, (kind, host), check, host)

    def get(self, tx: Frame, key: Variable) -> Any:
        """The value under `key`, or None; guarded either way."""
        host = key.hash_key(tx)
        pair = self.items.get(host)
        if pair is None:
            if self.source is not None and host not in self.written:
                self.guard_key(tx, "ABSENT", host)
            return None
        value = pair[1]
        if type(value) is Lazy:
            read, value = value.source, value.realize(tx)
            self.items[host] = (pair[0], value)
            if (
                self.source is not None
                and not read.guards
                and not read.children
                and read.alias_of is None
            ):
                self.guard_key(tx, "PRESENT", host)
        return value

    def store(self, tx: Frame, key: Variable, value: Variable) -> None:
        host = key.hash_key(tx)
        old = self.items.get(host)
        self.items[host] = (old[0] if old else key, value)
        if (
            self.written.get(host, True) is True
        ):  # the first key stays: 1.0, perhaps, where 1 is written later, or where the dict has 1
            self.written[host] = key  # (the next one that this entry meets may not have it)
        self.mutated = True

    def remove(self, tx: Frame, key: Variable) -> None:
        self.guard_keys(tx)  # replay writes all that are left
        self.items.pop(key.hash_key(tx))
        self.written[key.hash_key(tx)] = True
        self.removed += 1
        self.mutated = self.rewritten = True

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.factory.realize(tx) if self.factory is not None else ConstantVar(None)
        return super().getattr(tx, name)

    def truth(self, tx: Frame) -> bool:
        return self.length(tx) > 0

    def length(self, tx: Frame) -> int:
        self.guard_keys(tx)
        return len(self.items)

    def keys(self, tx: Frame) -> list[Variable]:
        self.guard_keys(tx)
        return [pair[0].realize(tx) for pair in self.items.values()]

    def pairs(self, tx: Frame) -> list[tuple[Variable, Any]]:
        return [(key, self.get(tx, key)) for key in self.keys(tx)]

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        return iter(self.keys(tx))

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        value = self.get(tx, key)
        if value is None:
            if self.factory is not None and self.factory.realize(tx).identity() is not None:
                value = self.factory.realize(tx).call(tx, [], {})
                self.store(tx, key, value)
                return value
            tx.raise_var(KeyError, [key])
        return value

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        self.store(tx, key, value)

    def delitem(self, tx: Frame, key: Variable) -> None:
        if self.get(tx, key) is None:
            tx.raise_var(KeyError, [key])
        self.remove(tx, key)

    def contains(self, tx: Frame, key: Variable) -> bool:
        found = self.items.get(key.hash_key(tx))
        if found is not None and type(found[1]) is Lazy and self.source is not None:
            self.guard_key(tx, "PRESENT", key.hash_key(tx))
            return True
        return found is not None or self.get(tx, key) is not None

    def as_constant(self) -> Any:
        pairs = [(key.as_constant(), value.as_constant()) for key, value in self.pairs(current())]
        if self.cls is not collections.defaultdict:
            return self.cls(pairs)
        factory: Any = self.factory and self.factory.as_constant()
        return self.cls(factory, pairs)

    def method_get(self, tx: Frame, key: Variable, default: Variable = ConstantVar(None), /) -> Any:
        value = self.get(tx, key)
        return default if value is None else value

    def method_keys(self, tx: Frame) -> Any:
        return DictViewVar(self, "keys")

    def method_values(self, tx: Frame) -> Any:
        return DictViewVar(self, "values")

    def method_items(self, tx: Frame) -> Any:
        return DictViewVar(self, "items")

    def method_pop(self, tx: Frame, key: Variable, default: Variable | None = None, /) -> Any:
        value = self.get(tx, key)
        if value is None:
            if default is not None:
                return default
            tx.raise_var(KeyError, [key])
        self.remove(tx, key)
        return value

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

    def method_update(self, tx: Frame, other: Variable | None = None, /, **named: Variable) -> None:
        live = self.cls is collections.OrderedDict
        for key, value in dict_pairs(tx, other, live) if other is not None else ():
            self.store(tx, key, value)
        for name, value in named.items():
            self.store(tx, ConstantVar(name), value)

    def method_clear(self, tx: Frame) -> None:
        self.guard_keys(tx)
        self.items.clear()
        self.mutated = self.rewritten = True

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

    def reconstruct(self, cg: Codegen) -> None:
        cg.dictionary(self)


def dict_pairs(tx: Frame, other: Variable, live: bool = False) -> Iterator[Any]:
    """(key, value) variables of a mapping or of an iterable of pairs, one after the other: what
    walks them stores each before it asks for the next.  `live`: of an OrderedDict, which makes no
    list of a mapping's keys first."""
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
        for key in keys.iterate(tx) if live else tx.listed_fast(keys):
            yield key, other.getitem(tx, key)
    else:
        if live and tx.has_attr(other, "items"):
            other = other.call_method(tx, "items", [], {})
        for n, pair in enumerate(other.iterate(tx)):
            yield _pair(tx, pair, n, live)


def _pair(tx: Frame, pair: Variable, n: int, live: bool) -> list[Variable]:
    items = tx.listed_fast(pair) if hasattr(pair.python_type(), "__iter__") else None
    if items is None or live and len(items) != 2:
        raise Break("arguments", f"the element #{n} of a dictionary's update is no pair")
    if len(items) != 2:
        tx.raise_(
            ValueError,
            f"dictionary update sequence element #{n} has length {len(items)}; 2 is required",
        )
    return items


class DictViewVar(Container):
    """dict.keys(), .values() or .items(): reads through to the dict."""

    __slots__ = ("dict", "kind")
    dict: DictVar
    kind: str

    @property
    def cls(self) -> type:
        return type(getattr({}, self.kind)())

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        if self.kind == "keys":
            return iter(self.dict.keys(tx))
        pairs = ((key, self.dict.get(tx, key)) for key in self.dict.keys(tx))
        return (
            (value for _, value in pairs)
            if self.kind == "values"
            else (TupleVar([k, v]) for k, v in pairs)
        )

    def length(self, tx: Frame) -> int:
        return self.dict.length(tx)

    def truth(self, tx: Frame) -> bool:
        return self.dict.truth(tx)

    def contains(self, tx: Frame, item: Variable) -> bool:
        return self.dict.contains(tx, item) if self.kind == "keys" else super().contains(tx, item)

    def getattr(self, tx: Frame, name: str) -> Variable:
        return ProxyVar(self.dict) if name == "mapping" else super().getattr(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(getattr(self.dict.cls, self.kind), self.dict)


class ProxyVar(Container):
    """types.MappingProxyType: reads of the dict behind it."""

    __slots__ = ("dict",)
    dict: Any
    cls = types.MappingProxyType

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(types.MappingProxyType, self.dict)


for _name in (
    "truth",
    "length",
    "iterate",
    "getitem",
    "get",
    "contains",
    "method_get",
    "method_keys",
    "method_values",
    "method_items",
    "method_copy",
):
    setattr(ProxyVar, _name, property(operator.attrgetter(f"dict.{_name}")))


class SetVar(Container):
    """set and frozenset: host key -> key variable.

    `table` is a real set of the host keys to which all was done that the program did to its own:
    the order of a set depends on its past.  `written`: (method, its argument) of each write to a
    set from outside, to be repeated.  `walked`: the program has seen the order."""

    __slots__ = ("items", "cls", "table", "written", "walked", "popped")

    def __init__(
        self, items: dict, cls: type = set, source: Source | None = None, table: set | None = None
    ) -> None:
        self.source, self.mutated, self.items, self.cls = source, False, items, cls
        self.table = added(items) if table is None else table
        self.written: list[tuple] = []
        self.walked = False
        self.popped = False

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
        found.cls, found.mutated = kind, False
        return found

    def is_constant(self) -> bool:
        return self.cls is frozenset and all(item.is_constant() for item in self.items.values())

    def as_constant(self) -> Any:
        return self.cls(item.as_constant() for item in self.items.values())

    def hash_key(self, tx: Frame) -> Any:
        return frozenset(self.items) if self.cls is frozenset else super().hash_key(tx)

    def truth(self, tx: Frame) -> bool:
        return bool(self.items)

    def length(self, tx: Frame) -> int:
        return len(self.items)

    def ordered(self, tx: Frame) -> set:
        """`table`, where the order of the keys matters."""
        if self.source is not None:
            if self.mutated and len(self.items) > 1:
                raise Break("iteration", "the order of a set from outside that was written")
            tx.output.guard(self.source, "ORDER", "[*{0}] == {pin}", list(self.items))
        return self.table

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        table, self.walked = self.ordered(tx), True
        order = self.items if self.source is not None else table
        return iter([self.items[key] for key in order])

    def contains(self, tx: Frame, item: Variable) -> bool:
        return item.hash_key(tx) in self.items

    def method_add(self, tx: Frame, value: Variable, /) -> None:
        host = value.hash_key(tx)
        self.items.setdefault(host, value)
        self.table.add(host)
        self._write("add", value)

    def method_discard(self, tx: Frame, value: Variable, /) -> None:
        host = value.hash_key(tx)
        if self.items.pop(host, None) is not None:
            self.table.discard(host)
            self._write("discard", value)

    def method_remove(self, tx: Frame, value: Variable, /) -> None:
        if value.hash_key(tx) not in self.items:
            tx.raise_var(KeyError, [value])
        self.method_discard(tx, value)

    def method_update(self, tx: Frame, *others: Variable) -> None:
        for other in others:
            if hosts_of(tx, other) is not None:
                self._change(tx, "update", [other])
                continue
            for value in other.iterate(tx):
                self.method_add(tx, value)
        self.mutated = True

    def method_clear(self, tx: Frame) -> None:
        self.items.clear()
        self.table.clear()
        self._write("clear")

    def method_copy(self, tx: Frame) -> Any:
        return self if self.cls is frozenset else self.call_method(tx, "union", [], {})

    def method_pop(self, tx: Frame) -> Any:
        if not self.items:
            tx.raise_(KeyError, "pop from an empty set")
        if self.source is not None:
            raise Break("set", "pop() of a set from outside")
        self.popped = True
        return self.items.pop(self.table.pop())

    def by_c(self, tx: Frame, name: str, others: Any) -> tuple[dict, set]:
        """(items, table) as the method of real sets makes them: it knows the order, and which of
        equal keys stays."""
        table, keys, before = self.ordered(tx), [], list(self.items.items())
        pairs = list(before)
        for other in others:
            hosts = hosts_of(tx, other)
            if hosts is None:
                values = [(value.hash_key(tx), value) for value in other.iterate(tx)]
                hosts = [host for host, _ in values]
            elif isinstance(other, SetVar):
                values = list(other.items.items())
            else:
                values = [(host, pair[0].realize(tx)) for host, pair in other.items.items()]
            keys.append(hosts)
            pairs += values
        if list(self.items.items()) != before:
            raise Break("set", f"{name}() of a set that changes meanwhile")
        found = getattr(table, name)(*keys)
        table = table if found is None else found
        kept = set(map(id, table))
        items: dict[Any, Variable] = {}
        for host, value in pairs:
            if id(host) in kept:
                items.setdefault(host, value)
        return items, table

    def _change(self, tx: Frame, name: str, others: Any) -> None:
        if self.source is not None:  # its table is larger than that of a copy, perhaps
            raise Break("set", f"{name}() of a set from outside")
        self.items, self.table = self.by_c(tx, name, others)
        self.mutated = True

    def _write(self, name: str, *values: Variable) -> None:
        self.mutated = True
        if self.source is not None:
            self.written.append((name, values))

    def method_difference_update(self, tx: Frame, *others: Variable) -> None:
        for other in others:
            for value in other.iterate(tx):
                self.method_discard(tx, value)
            self.table.difference_update(())  # which makes room, as it does after the walk
            self._write("difference_update", TupleVar([]))

    def method_issubset(self, tx: Frame, other: Variable, /) -> Any:
        keys = {value.hash_key(tx) for value in other.iterate(tx)}
        return ConstantVar(all(key in keys for key in self.items))

    def method_issuperset(self, tx: Frame, other: Variable, /) -> Any:
        return ConstantVar(all(value.hash_key(tx) in self.items for value in other.iterate(tx)))

    def method_isdisjoint(self, tx: Frame, other: Variable, /) -> Any:
        return ConstantVar(not any(value.hash_key(tx) in self.items for value in other.iterate(tx)))

    def reconstruct(self, cg: Codegen) -> None:
        cg.set(self)

    def order_to_add(self) -> list[Variable]:
        """The variables in an order in which adding them makes a set that is walked like this
        one."""
        order = list(self.table)
        candidates = [list(self.items), order]
        for candidate in candidates:
            if list(added(candidate)) == order and not (self.popped and order):
                return [self.items[host] for host in candidate]
        if self.walked or self.popped or all(map(lies_fixed, order)):
            raise Break("reconstruct", "a set whose order comes from keys that were removed")
        return list(self.items.values())  # the order of text differs from run to run anyway


def lies_fixed(key: Any) -> bool:
    """Is its place in a set the same in every run?  That of text, or of an address, is not."""
    if type(key) is tuple:
        return all(map(lies_fixed, key))
    return isinstance(key, (int, float, complex))


def added(keys: Iterable) -> set:
    """A set to which the keys were added one after the other."""
    made = set()
    for key in keys:
        made.add(key)
    return made


def hosts_of(tx: Frame, values: Variable) -> Any:
    """The host keys of what a set takes whole, in one step: a set or a dict; else None."""
    if isinstance(values, SetVar):
        return values.ordered(tx)
    if type(values) is DictVar and values.cls is dict:
        values.guard_keys(tx)
        return dict.fromkeys(values.items)
    return None


def _making(name: str) -> Callable:
    def method(self: Any, tx: Frame, *others: Variable) -> Variable:
        items, table = self.by_c(tx, name, others)
        return SetVar(items, self.cls, table=table)

    return method


def _changing(name: str) -> Callable:
    return lambda self, tx, *others: self._change(tx, name, others)


for _name in ("union", "intersection", "difference", "symmetric_difference"):
    setattr(SetVar, f"method_{_name}", _making(_name))
for _name in ("intersection_update", "symmetric_difference_update"):
    setattr(SetVar, f"method_{_name}", _changing(_name))


class SliceVar(Variable):
    """A slice with parts that are not constants (x[: tensor])."""

    __slots__ = ("parts",)
    parts: list[Variable]
    cls = slice

    def as_constant(self) -> Any:
        return slice(*[part.as_constant() for part in self.parts])

    def reconstruct(self, cg: Codegen) -> None:
        for part in self.parts:
            cg.value(part)
        cg.emit("BUILD_SLICE", 3, effect=-2)
