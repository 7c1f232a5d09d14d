"""Dictionaries (dict, OrderedDict, defaultdict, and their views) and sets.  (Lists and tuples:
sequences.py.)

In:   keys and values as variables.   Out: the same methods as Python's, on variables.

    >>> DictVar(named({"a": x})).getitem(tx, ConstantVar("a"))      # x

Items of a dict with a source are looked at when they are read, and only what was read is guarded:
one key, or all of them once the program walks it.  What the program writes is repeated behind the
graph (`replay`).  A set from outside is read, not written; all are walked in the order of real
ones.  Mirrors torch/_dynamo/variables/dicts.py.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any, cast

from ..errors import Break
from ..guards.checks import exact_key, keys_check
from .base import Codegen, Frame, Lazy, Variable, current
from .constant import ConstantVar
from .sequences import Container, TupleVar, read_at
from .sequences import ListVar as ListVar
from .sequences import SequenceVar as SequenceVar


class DictVar(Container):
    """A dict, OrderedDict or defaultdict.

    With a source, what was asked of its keys is guarded.  The replay stores those in `written`."""

    items: dict  # host key -> (key variable, value variable)
    cls: type = dict
    # host key -> the key as the program first wrote it; True: it has removed the key
    written: dict[Any, Any] = field(default_factory=dict, init=False)
    real_keys: list = field(default_factory=list, kw_only=True)  # of one with a source
    keys_text = "{0}"  # how a guard reads the keys
    factory = cast(Any, ConstantVar(None))  # of a defaultdict
    rewritten = False  # does the replay store everything?
    removed = 0  # how often a key was removed

    def guard_keys(self, tx: Frame) -> None:
        """The keys are these, in this order.  An OrderedDict's table has the same keys, and must
        have them later: dict.__setitem__() writes to the table alone, and len() asks the table."""
        if self.source is None:
            return
        check = keys_check(self.real_keys, self.keys_text)
        tx.output.guard(self.source, "KEYS", *check)
        if issubclass(self.cls, collections.OrderedDict):
            table = f"{tx.output.tree.pinned(dict).key}.keys({{0}})"
            same = f"{{{{*map(exact_key, {table})}}}} == {{pin}}"
            tx.output.guard(self.source, "TABLE", same, {*map(exact_key, self.real_keys)})

    def guard_key(self, tx: Frame, kind: str, host: Any) -> None:
        """A key that was read is guarded alone, where a guard can name it; walking the dictionary
        or asking its length guards all keys."""
        if isinstance(host, (Variable, tuple)):
            self.guard_keys(tx)
        elif "KEYS" in self.source.guards:
            return
        elif kind == "ABSENT" and type(host) is str and self.keys_text == "{0}":
            tx.output.guard_absent(self.source, host)
        else:
            word = "in" if kind == "PRESENT" else "not in"
            check = f"{{pin}} {word} {self.keys_text}"
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
            guarded = read.guards or read.children or read.alias_of is not None
            if self.source is not None and not guarded:  # a guard on the value implies the key
                self.guard_key(tx, "PRESENT", host)
        return value

    def store(self, tx: Frame, key: Variable, value: Variable, /) -> None:
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

    setitem = store

    def keys(self, tx: Frame) -> list[Variable]:
        self.guard_keys(tx)
        return [pair[0].realize(tx) for pair in self.items.values()]

    def pairs(self, tx: Frame) -> list[tuple[Variable, Any]]:
        return [(key, self.get(tx, key)) for key in self.keys(tx)]

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        return iter(self.keys(tx))

    def as_constant(self) -> Any:
        if self.cls is collections.defaultdict:
            raise Break("constant", "a defaultdict where a constant is needed")
        pairs = self.pairs(current())
        return self.cls([(key.as_constant(), value.as_constant()) for key, value in pairs])

    def view(self, kind: str, tx: Frame) -> Any:
        return DictViewVar(self, kind)

    method_keys = functools.partialmethod(view, "keys")
    method_values = functools.partialmethod(view, "values")
    method_items = functools.partialmethod(view, "items")

    def replay(self, cg: Codegen) -> None:
        if self.rewritten:
            cg.commit_call(replace_dict, self, self.contents)
            return
        # What is pushed last is stored first: so new keys come in their order.
        for host, key in reversed(self.written.items()):
            cg.commit_item(self, key, self.items[host][1])

    def length(self, tx: Frame) -> int:
        return len(self.keys(tx))

    def getitem(self, tx: Frame, key: Variable, /) -> Variable:
        value = self.get(tx, key)
        if value is None:
            factory = self.factory.realize(tx)
            if factory.identity() is not None:
                value = factory.call(tx, [], {})
                self.store(tx, key, value)
                return value
            tx.raise_var(KeyError, [key])
        return value

    def method_get(self, tx: Frame, key: Variable, default: Variable = ConstantVar(None), /) -> Any:
        value = self.get(tx, key)
        return default if value is None else value

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        return {key.as_constant(): part(value) for key, value in self.pairs(current())}

    def contents(self, cg: Codegen) -> None:
        """Push a dict of the items."""
        for key, value in self.items.values():
            cg.push(key, value)
        cg.emit("BUILD_MAP", len(self.items))

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is dict:
            self.contents(cg)
        elif self.cls is collections.defaultdict:
            cg.call_object(self.cls, self.factory, self.contents)
        else:
            cg.call_object(self.cls, self.contents)

    def contains(self, tx: Frame, key: Variable) -> bool:
        found = self.items.get(key.hash_key(tx))
        if found is not None and type(found[1]) is Lazy and self.source is not None:
            self.guard_key(tx, "PRESENT", key.hash_key(tx))
            return True
        return found is not None or self.get(tx, key) is not None

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

    def delitem(self, tx: Frame, key: Variable, /) -> None:
        self.method_pop(tx, key)

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
        self.removed += 1
        self.mutated = self.rewritten = True


def named(values: dict[str, Any]) -> dict[Any, tuple[Variable, Any]]:
    """The items of a DictVar whose keys are these names."""
    return {name: (ConstantVar(name), value) for name, value in values.items()}


def of_the_dict(name: str) -> Any:
    return read_at(f"dict.{name}")


class ProxyVar(Container):
    """types.MappingProxyType: reads of the dict behind it."""

    dict: Any
    cls = types.MappingProxyType
    shared = False
    length, iterate = map(of_the_dict, ("length", "iterate"))
    getitem, get, contains = map(of_the_dict, ("getitem", "get", "contains"))
    method_get, method_keys = map(of_the_dict, ("method_get", "method_keys"))
    method_values, method_items = map(of_the_dict, ("method_values", "method_items"))

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(types.MappingProxyType, self.dict)


class DictViewVar(Container):
    """dict.keys(), .values() or .items(): reads through to the dict."""

    shared = False
    dict: DictVar
    kind: str
    length = of_the_dict("length")

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        keys = self.dict.keys(tx)
        if self.kind == "keys":
            return iter(keys)
        values = (self.dict.get(tx, key) for key in keys)
        if self.kind == "values":
            return values
        return (TupleVar([key, value]) for key, value in zip(keys, values))

    @property
    def cls(self) -> type:
        return type(getattr({}, self.kind)())

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(getattr(self.dict.cls, self.kind), self.dict)

    def contains(self, tx: Frame, item: Variable) -> bool:
        held = self.dict.contains if self.kind == "keys" else super().contains
        return held(tx, item)


def replace_dict(target: Any, contents: dict) -> None:
    """Give a dict these contents, without a method that its class may have overridden."""
    kind = collections.OrderedDict if isinstance(target, collections.OrderedDict) else dict
    kind.clear(target)
    for key, value in contents.items():
        kind.__setitem__(target, key, value)


def dict_pairs(tx: Frame, other: Variable) -> Iterator[Any]:
    """(key, value) variables of a mapping or of an iterable of pairs, one after the other: what
    walks them stores each before it asks for the next."""
    if isinstance(other, DictVar):
        yield from other.pairs(tx)
    elif isinstance(other.payload, DictVar) and other.cls.__iter__ in (
        dict.__iter__,
        collections.OrderedDict.__iter__,
    ):
        yield from other.payload.pairs(tx)
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


# ---- sets
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

    def method_update(self, tx: Frame, other: Variable, /) -> None:
        self.written()
        if isinstance(whole_set(other), SetVar):
            self.items = self.combined("update", tx, other).items
        elif other.python_type() is dict:
            raise Break("set", "a set that takes the keys of a dictionary, in an order of its own")
        else:
            for value in other.iterate(tx):
                self.method_add(tx, value)

    def combined(self, name: str, tx: Frame, other: Variable, /) -> SetVar:
        """What the method of real sets makes of them: it knows the order."""
        self.iterate(tx)  # guards its order
        values = list(whole_set(other).iterate(tx))
        found = {value.hash_key(tx): value for value in values}
        own = dict(zip(self.items, self.items))
        if any(type(own.get(host, host)) is not type(host) for host in found):
            raise Break("set", "equal elements of several types")
        hosts: Any = other.table if isinstance(other, SetVar) else list(found)
        table = getattr(self.table, name)(hosts)
        table = self.table if table is None else table
        known = found | self.items
        return SetVar({host: known[host] for host in table}, self.cls, table)

    def method_copy(self, tx: Frame) -> SetVar:
        return self if self.cls is frozenset else self.combined("union", tx, self)

    method_union = functools.partialmethod(combined, "union")
    method_intersection = functools.partialmethod(combined, "intersection")
    method_difference = functools.partialmethod(combined, "difference")

    def contents(self, cg: Codegen) -> None:
        cg.build("BUILD_TUPLE", [self.items[host] for host in self.table])

    def reconstruct(self, cg: Codegen) -> None:
        """Adding the elements in this order must make a set that is walked like this one."""
        values = list(self.items.values())
        if list(added(self.items)) != list(self.table):
            raise Break("reconstruct", "a set whose order comes from how it was made")
        if self.cls is frozenset:
            cg.call_object(frozenset, TupleVar(values).contents)
        else:
            cg.build("BUILD_SET", values)


def added(keys: Iterable) -> set:
    """A set to which the keys were added one after the other."""
    made = set()
    for key in keys:
        made.add(key)
    return made


def whole_set(values: Variable) -> Any:
    """C code does not ask the `__iter__` of a class of sets: it takes what lies in its object."""
    return values.payload if isinstance(values.payload, SetVar) else values
