"""set and frozenset, from outside and made in the frame.

In:   elements that have host keys.   Out: the methods of Python's sets, in the order of real ones.

    >>> SetVar.of(tx, [a, b]).call_method(tx, "add", [c], {})

Mirrors torch/_dynamo/variables/dicts.py (SetVariable).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any

from ...extras.extending import extends
from ...exceptions import Break
from ...guards import exact_key
from ...symbolic_eval.opcodes import opcode
from ...symbolic_eval.registry import rule
from ..base import Codegen, Frame, OutputGraph, Source, Variable
from ..constant import ConstantVar, is_constant_value
from ..containers import Container, DictVar, TupleVar
from ..iterators import iterator_of, KeysIterator
from ..registry import RESULTS, SHARED
from .dictionary_keys import HASHED_BY_IDENTITY
from .instances import CONTENTS
from .writing_calls import commit_call


def write_set(target: Any, writes: Any) -> None:
    """What a frame did to a set, once more: its order depends on that."""
    for name, *values in writes:
        getattr(set, name)(target, *values)


class SetVar(Container):
    """set and frozenset: host key -> key variable.

    `table` is a real set of the host keys to which all was done that the program did to its own:
    the order of a set depends on its past.  `written`: (method, its argument) of each write to a
    set from outside, to be repeated.  `walked`: the program has seen the order."""

    items: dict
    cls: type = set
    table: Any = None
    written: list[tuple] = field(default_factory=list, init=False)
    walked: bool = field(default=False, init=False)
    popped: bool = field(default=False, init=False)

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
        found.cls, found.mutated = kind, False
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
        return len([item.realize(tx) for item in self.items.values()])

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
        return iter([self.items[key].realize(tx) for key in order])

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
        for other in map(whole, others):
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
        for other in map(whole, others):
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
            for value in whole(other).iterate(tx):
                self.method_discard(tx, value)
            self.table.difference_update(())  # which makes room, as it does after the walk
            self._write("difference_update", TupleVar([]))

    def method_issubset(self, tx: Frame, other: Variable, /) -> Any:
        keys = {value.hash_key(tx) for value in whole(other).iterate(tx)}
        return ConstantVar(all(key in keys for key in self.items))

    def method_issuperset(self, tx: Frame, other: Variable, /) -> Any:
        values = whole(other).iterate(tx)
        return ConstantVar(all(value.hash_key(tx) in self.items for value in values))

    def method_isdisjoint(self, tx: Frame, other: Variable, /) -> Any:
        return ConstantVar(not any(value.hash_key(tx) in self.items for value in other.iterate(tx)))

    def contents(self, cg: Codegen) -> None:
        cg.build("BUILD_TUPLE", list(self.items.values()))

    def reconstruct(self, cg: Codegen) -> None:
        values = self.order_to_add()
        if self.cls is frozenset:
            cg.call_object(frozenset, functools.partial(cg.build, "BUILD_TUPLE", values))
        else:
            cg.build("BUILD_SET", values)

    def replay(self, cg: Codegen) -> None:
        if self.mutated:
            writes = [TupleVar([ConstantVar(name), *values]) for name, values in self.written]
            commit_call(cg, write_set, self, TupleVar(writes))

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


def whole(values: Variable) -> Any:
    """C code does not ask the `__iter__` of a class of sets: it takes what lies in its object."""
    return values.payload if isinstance(values.payload, SetVar) else values


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


def _of_one(method: Callable) -> Callable:
    """The method, which takes one set, neither none nor several."""
    return lambda self, tx, other, /: method(self, tx, other)


for _name in ("union", "intersection", "difference"):
    extends(SetVar, f"method_{_name}")(_making(_name))
_updated = _changing("symmetric_difference_update")
extends(SetVar, "method_intersection_update")(_changing("intersection_update"))
extends(SetVar, "method_symmetric_difference")(_of_one(_making("symmetric_difference")))
extends(SetVar, "method_symmetric_difference_update")(_of_one(_updated))


@SHARED.rule(set, frozenset)
def set_of(builder: OutputGraph, value: Any, source: Source) -> SetVar:
    if not all(is_constant_value(item) or isinstance(item, HASHED_BY_IDENTITY) for item in value):
        raise Break("set", "a set with elements that are not constants")
    check = "{{*map(exact_key, {0})}} == {pin}"
    builder.guard(source, "EQUALS", check, {*map(exact_key, value)})
    items = [builder.wrap_pinned(item) for item in value]
    hosts = {item.hash_key(builder.frame): item for item in items}
    return builder.replayed(SetVar(hosts, type(value), type(value)(hosts), source=source))


@RESULTS.rule(set, frozenset)
def folded_set(builder: OutputGraph, value: Any) -> SetVar:
    """A set that a folded call gave."""
    hosts = list(value)
    items = [builder.wrap_result(item) for item in value]
    if [item.hash_key(builder.frame) for item in items] == hosts:  # the order is the real one
        return SetVar(dict(zip(hosts, items)), type(value), table=value)
    return SetVar.of(builder.frame, items, type(value))


@opcode
def BUILD_SET(frame: Frame, count: int) -> None:
    frame.stack.append(SetVar.of(frame, frame.popn(count)))


@rule(set)
def _set(tx: Frame, values: Variable = TupleVar([]), /) -> SetVar:
    return SetVar.made(tx, values)


iterator_of(SetVar)(KeysIterator)
CONTENTS[set] = lambda: SetVar({})
