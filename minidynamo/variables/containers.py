"""Containers: list, tuple, torch.Size, named tuples; dict, OrderedDict, defaultdict; dict views.

In:   lists and dicts of variables.   Out: the same methods as Python's, on variables.

    >>> ListVar([a, b]).call_method(tx, "append", [c], {})

Items of a container with a source are looked at when they are read, and only what was read is
guarded: the length of a list, one key of a dict.  What the program writes is repeated behind the
graph (`replay`).  Mirrors torch/_dynamo/variables/lists.py and dicts.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from ..exceptions import Break
from ..foreign import ours
from ..guards import keys_check
from .base import Codegen, Frame, Lazy, Variable, current
from .constant import ConstantVar
from .symbolic import SymVar

INDICES: set[type[Variable]] = {SymVar}  # what may be taken as a constant index


class Container(Variable):
    """The base of all: more/container_methods.py gives it the special methods by name."""

    shared = True


class SequenceVar(Container):
    """Items in order."""

    items: list
    cls: Any  # the exact Python type
    resized: int = field(default=0, init=False)  # how often items were added, removed or moved

    def item(self, tx: Frame, index: int) -> Variable:
        found = self.items[index]
        if type(found) is Lazy:
            found = self.items[index] = found.realize(tx)
        return found

    def is_constant(self) -> bool:
        return all(item.is_constant() for item in self.items)

    def as_constant(self) -> Any:
        return self.cls([item.as_constant() for item in self.items])

    def truth(self, tx: Frame) -> bool:
        return bool(self.items)

    def length(self, tx: Frame) -> int:
        return len(self.items)

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        return tx.iter_of(self).rest(tx)

    def index_of(self, tx: Frame, key: Variable) -> Any:
        if not key.is_constant() and type(key) not in INDICES:
            raise Break(
                "item", f"an index that is not a constant ({key})", "index with a Python int"
            )
        return key.as_constant()

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        index = self.index_of(tx, key)
        try:
            self.items[index]
        except ours(IndexError, TypeError, ValueError) as error:
            # `items` is a list, whatever the sequence is
            tx.raise_(type(error), str(error).replace("list", self.cls.__name__, 1))
        return self.item_or_items(tx, index)

    def item_or_items(self, tx: Frame, index: Any) -> Variable:
        """What lies at an index that there is; more/slices.py knows slices, too."""
        return self.item(tx, index)

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        items = [part(item) for item in self.iterate(current())]
        return items if isinstance(self, ListVar) else tuple(items)

    def contents(self, cg: Codegen) -> None:
        """Push a tuple of the items."""
        cg.build("BUILD_TUPLE", self.items)


class TupleVar(SequenceVar):
    """tuple, torch.Size, namedtuple."""

    cls: Any = tuple

    def hash_key(self, tx: Frame) -> Any:
        return tuple(self.item(tx, n).hash_key(tx) for n in range(len(self.items)))

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is tuple:
            self.contents(cg)
        else:  # more/tuples.py makes those again
            super().reconstruct(cg)


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
            items = functools.partial(cg.build, "BUILD_LIST", self.items)
            cg.commit_item(self, ConstantVar(slice(None)), items)


class DictVar(Container):
    """A dict, OrderedDict or defaultdict.

    With a source, what was asked of its keys is guarded.  The replay stores those in `written`."""

    items: dict  # host key -> (key variable, value variable)
    cls: type = dict
    # host key -> the key as the program first wrote it; True: it has removed the key (coverage)
    written: dict[Any, Any] = field(default_factory=dict, init=False)
    real_keys: list = field(default_factory=list, kw_only=True)  # of one with a source
    keys_text: str = field(default="{0}", kw_only=True)  # how a guard reads the keys

    def guard_keys(self, tx: Frame) -> None:
        if self.source is not None:
            check = keys_check(self.real_keys, self.keys_text)
            tx.output.guard(self.source, "KEYS", *check)

    def guard_key(self, tx: Frame, kind: str, host: Any) -> None:
        """Guard that `host` is among the keys (PRESENT) or is not (ABSENT): that the keys are all
        the same.  (more/dictionary_keys.py guards the one key.)"""
        self.guard_keys(tx)

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
            guarded = read.guards or read.children or read.alias_of is not None
            if self.source is not None and not guarded:  # a guard on the value implies the key
                self.guard_key(tx, "PRESENT", host)
        return value

    def store(self, tx: Frame, key: Variable, value: Variable) -> None:
        host = key.hash_key(tx)
        if host in self.items:  # `d[1.0] = 0` behind `d[1] = 0` leaves the key 1, as in Python
            self.items[host] = (self.items[host][0], value)
        else:
            self.items[host] = (key, value)
        # The replay writes with the program's key, though this dict may have an equal one: in a
        # later call it may have none.
        if self.written.get(host, True) is True:
            self.written[host] = key
        self.mutated = True

    def keys(self, tx: Frame) -> list[Variable]:
        self.guard_keys(tx)
        return [pair[0].realize(tx) for pair in self.items.values()]

    def pairs(self, tx: Frame) -> list[tuple[Variable, Any]]:
        return [(key, self.get(tx, key)) for key in self.keys(tx)]

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        return iter(self.keys(tx))

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        self.store(tx, key, value)

    def as_constant(self) -> Any:
        pairs = self.pairs(current())
        return self.cls([(key.as_constant(), value.as_constant()) for key, value in pairs])

    def method_values(self, tx: Frame) -> Any:
        return DictViewVar(self, "values")

    def replay(self, cg: Codegen) -> None:
        # What is pushed last is stored first: so new keys come in their order.
        for host, key in reversed(self.written.items()):
            cg.commit_item(self, key, self.items[host][1])


def named(values: dict[str, Any]) -> dict[Any, tuple[Variable, Any]]:
    """The items of a DictVar whose keys are these names."""
    return {name: (ConstantVar(name), value) for name, value in values.items()}


class DictViewVar(Container):
    """dict.keys(), .values() or .items(): reads through to the dict."""

    shared = False
    dict: DictVar
    kind: str

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        """Those of `values()`; more/dictionaries.py knows the others."""
        return (self.dict.get(tx, key) for key in self.dict.keys(tx))
