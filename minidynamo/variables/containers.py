"""Containers: list, tuple, torch.Size, named tuples; dict, OrderedDict, defaultdict; dict views.

In:   host lists and dicts of variables.   Out: the same methods as Python's, on variables.

    >>> ListVar([a, b]).call_method(tx, "append", [c], {})        # recorded; replayed after the graph if it was the user's list

A container with a source fills itself lazily and guards only what was read: the length of a list,
one key of a dict. Mirrors torch/_dynamo/variables/lists.py and dicts.py.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from .. import runtime
from ..exceptions import Break
from ..foreign import ours
from .base import Lazy, Variable, current, peek
from .constant import ConstantVar, is_constant_value
from .symbolic import SymVar

if TYPE_CHECKING:
    from ..reconstruct import Codegen
    from ..sources import Source
    from ..symbolic_eval.evaluator import Frame


class Container(Variable):
    """What all of them have: the special methods by name, and no hash where Python gives none."""

    __slots__ = ()
    shared = True

    def hash_key(self, tx: Frame) -> Any:
        if self.cls.__hash__ is None:
            name = "collections." * (self.cls is not list and self.cls.__module__ == "collections")
            tx.raise_(TypeError, f"unhashable type: '{name}{self.cls.__name__}'")
        return super().hash_key(tx)

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

    __slots__ = ("items", "cls", "resized")

    def __init__(self, items: list, cls: type, source: Source | None = None) -> None:
        self.source = source
        self.mutated = False
        self.items = items
        self.cls = cls
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
        return self.cls(*values) if hasattr(self.cls, "_fields") else self.cls(values)

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
        """Asked at each step of a walk: it was `resized` so often when the walk began."""

    def exhausted(self) -> SequenceVar:
        """What an iterator at its end goes on with: it stays there, though the list may grow."""
        return ListVar([]) if isinstance(self, ListVar) else TupleVar([])

    def index_of(self, tx: Frame, key: Variable) -> Any:
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
            tx.raise_(
                TypeError,
                f"{self.cls.__name__} indices must be integers or slices, not {type(index).__name__}",
            )
        try:
            return self.item(tx, index)
        except ours(IndexError):
            tx.raise_(IndexError, f"{self.cls.__name__} index out of range")

    def getattr(self, tx: Frame, name: str) -> Variable:
        if self.cls.__module__ == "torch.return_types" and name in self.cls.__match_args__:
            return self.item(tx, self.cls.__match_args__.index(name))
        return super().getattr(tx, name)

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        items = [part(item) for item in self.iterate(current())]
        if hasattr(self.cls, "_fields"):
            return self.cls(*items)
        return items if isinstance(self, ListVar) else tuple(items)

    def contents(self, cg: Codegen) -> None:
        """Push a tuple of the items."""
        cg.build("BUILD_TUPLE", self.items)


class TupleVar(SequenceVar):
    """tuple, torch.Size, namedtuple."""

    __slots__ = ()

    def __init__(self, items: list, cls: type = tuple, source: Source | None = None) -> None:
        super().__init__(items, cls, source)

    def hash_key(self, tx: Frame) -> Any:
        return tuple(self.item(tx, n).hash_key(tx) for n in range(len(self.items)))

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        tx.raise_(TypeError, f"{self.cls.__name__!r} object does not support item assignment")

    def is_literal(self) -> bool:
        """May it be a constant of the replacement code?"""
        return (
            self.cls is tuple
            and not any(type(peek(item)) is Lazy for item in self.items)
            and self.is_constant()
            and all(is_constant_value(peek(item).as_constant()) for item in self.items)
        )

    @property
    def shared(self) -> bool:  # type: ignore[override]
        return not self.is_literal()

    def reconstruct(self, cg: Codegen) -> None:
        if self.is_literal():  # one object, however often it is loaded
            cg.load_const(cg.constants.setdefault(id(self), self.as_constant()))
        elif self.cls is tuple:
            self.contents(cg)
        elif hasattr(self.cls, "_fields"):
            cg.call_object(tuple.__new__, cg.constant(self.cls), cg.emitter(self.contents))
        else:
            cg.call_object(self.cls, cg.emitter(self.contents))


class ListVar(SequenceVar):
    """list."""

    __slots__ = ()

    def __init__(self, items: list, source: Source | None = None, cls: type = list) -> None:
        super().__init__(items, cls, source)

    def is_constant(self) -> bool:
        return False

    def _changed(self) -> None:
        self.mutated = True
        self.resized += 1

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        index = self.index_of(tx, key)
        if isinstance(index, slice):
            before, index = len(self.items), self._place(index)
            assigned: Any = tx.listed_fast(value)
            if index.step not in (None, 1) and len(self.items) != before:
                raise Break("item", "a list that changes while a slice of it is assigned")
        else:
            assigned = value
        try:
            self.items[index] = assigned
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

    def method_append(self, tx: Frame, value: Variable, /) -> None:
        self.items.append(value)
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

    def reconstruct(self, cg: Codegen) -> None:
        cg.build("BUILD_LIST", self.items)

    def replay(self, cg: Codegen) -> None:
        if self.mutated:
            items = functools.partial(cg.build, "BUILD_LIST", self.items)
            cg.commit_item(self, cg.constant(slice(None)), items)


def SequenceVar_of(cls: type, items: Iterable[Variable]) -> SequenceVar:
    """A new sequence of exactly this type."""
    if cls is list:
        return ListVar(list(items))
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

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        return {key.as_constant(): part(value) for key, value in self.pairs(current())}

    def contents(self, cg: Codegen) -> None:
        """Push a dict of the items."""
        cg.mapping(self.items)

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is dict:
            self.contents(cg)
        elif self.cls is collections.defaultdict:
            factory = self.factory or ConstantVar(None)
            cg.call_object(self.cls, factory, cg.emitter(self.contents))
        else:
            cg.call_object(self.cls, cg.emitter(self.contents))

    def replay(self, cg: Codegen) -> None:
        if self.rewritten:
            cg.commit_call(runtime.replace_dict, self, cg.emitter(self.contents))
            return
        for host, key in reversed(
            self.written.items()
        ):  # the last first: new keys keep their order
            cg.commit_item(self, key, self.items[host][1])


def named(values: dict[str, Any]) -> dict[Any, tuple[Variable, Any]]:
    """The items of a DictVar whose keys are these names."""
    return {name: (ConstantVar(name), value) for name, value in values.items()}


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
    shared = False
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
        if name == "mapping":
            return tx.call_class(types.MappingProxyType, [self.dict], {})
        return super().getattr(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(getattr(self.dict.cls, self.kind), self.dict)


class SliceVar(Variable):
    """A slice with parts that are not constants (x[: tensor])."""

    __slots__ = ("parts",)
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
        cg.emit("BUILD_SLICE", 3, effect=-2)
