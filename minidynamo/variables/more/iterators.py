"""Iterators that few programs make: enumerate, zip, map, filter, iter(function, sentinel), those of
itertools, objects with `__next__` or `__getitem__` alone.

In:   variables.   Out: as in `variables.iterators`.

    >>> RULES[map](tx, [function, values], {}).next(tx)
"""

import collections
from collections.abc import Iterator
from typing import Any

from ...extras.extending import extends, noted
from ... import hooks
from ...exceptions import Break, ObservedException, SkipFrame
from ...symbolic_eval.registry import rules
from ...resume import is_resume_code
from ...sources import KINDS
from ..base import Codegen, Frame, OutputGraph, Source, Variable
from ..constant import ConstantVar
from ..containers import SequenceVar, TupleVar
from ..iterators import iterator_of, IteratorVar, KeysIterator, SequenceIterator
from ..registry import SHARED
from .tuples import sequence_of

KINDS["walked"] = "{p}.__reduce__()[1][0]"
next_up = SequenceIterator.next


def iterator_at(sequence: Any, index: int | None, step: int) -> Any:
    """iter(sequence), or reversed(sequence) for step -1, with item `index` to come next; it goes on
    to look at the live sequence.  index None: it is positioned later."""
    made: Any = iter(sequence) if step > 0 else reversed(sequence)
    if index is not None:
        made.__setstate__(index)
    return made


class ConstantIterator(IteratorVar):
    """Over text, bytes or a range: `index` comes next."""

    values: Any
    index: int = 0

    def next(self, tx: Frame) -> Variable | None:
        found = self.values[self.index : self.index + 1]
        if not found:
            return None
        self.index += 1
        return ConstantVar(found[0])

    def python_type(self) -> type:
        return type(iter(self.values))

    def reconstruct(self, cg: Codegen) -> None:
        parts = self.values, self.index, 1
        cg.call_object(iterator_at, *map(ConstantVar, parts))


def iterator_of_constant(tx: Frame, constant: ConstantVar) -> IteratorVar:
    if not hasattr(type(constant.value), "__iter__"):
        tx.raise_(TypeError, f"{type(constant.value).__name__!r} object is not iterable")
    if not isinstance(constant.value, (str, bytes, range)):
        raise Break("iteration", f"iterating over a {type(constant.value).__name__}")
    return ConstantIterator(constant.value)


iterator_of(ConstantVar)(iterator_of_constant)


class HostIterator(IteratorVar):
    """Over values that are known: those of a tensor, of a reversed dictionary (`more/iterators.py`
    rebuilds what is left)."""

    left: Iterator[Variable]
    cls: type

    def next(self, tx: Frame) -> Variable | None:
        return next(self.left, None)


def over_values(tx: Frame, variable: Variable) -> HostIterator:
    return HostIterator(variable.iterate(tx), IteratorVar.cls)


iterator_of(Variable)(over_values)  # where no nearer class of the variable says


class EnumerateVar(IteratorVar):
    inner: Any
    count: int
    cls = enumerate

    def next(self, tx: Frame) -> Variable | None:
        value = self.inner.next(tx)
        if value is None:
            return None
        self.count += 1
        return TupleVar([ConstantVar(self.count - 1), value])

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(enumerate, self.inner, ConstantVar(self.count))


class ZipVar(IteratorVar):
    inners: list
    strict: bool
    cls = zip

    def next(self, tx: Frame) -> Variable | None:
        values = []
        for n, inner in enumerate(self.inners):
            value = inner.next(tx)
            if value is None:
                if self.strict and (n or any(o.next(tx) is not None for o in self.inners[1:])):
                    raise Break("iteration", "zip(strict=True) of unequal lengths")
                return None
            values.append(value)
        return TupleVar(values) if values else None

    def reconstruct(self, cg: Codegen) -> None:
        if self.strict:
            raise Break("reconstruct", "zip(strict=True) in the middle of a loop that breaks")
        cg.call_object(zip, *self.inners)


class SentinelVar(IteratorVar):
    """Objects with a Python __next__."""

    object: Variable

    def next(self, tx: Frame) -> Variable | None:
        try:
            return self.method___next__(tx)
        except ObservedException as raised:
            if issubclass(raised.var.python_type(), StopIteration):
                return None
            raise

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        return tx.iter_of(self).rest(tx)

    def method___next__(self, tx: Frame) -> Variable:
        return self.object.call_method(tx, "__next__", [], {})

    def identity(self) -> Any:
        return self.object.identity()

    def getattr(self, tx: Frame, name: str) -> Variable:
        return self.object.getattr(tx, name)

    def python_type(self) -> type:
        return self.object.python_type()

    def reconstruct(self, cg: Codegen) -> None:
        cg.value(self.object)


class LibraryIterator(IteratorVar):
    """One of itertools' own, run on variables; `made` says where, for there plain Python must make
    it if it outlives the trace."""

    steps: Iterator
    made: tuple
    cls: type

    def next(self, tx: Frame) -> Variable | None:
        value = tx.run_c(next, self.steps, None)
        if type(value) is tuple:
            return TupleVar([*value])
        return value if value is None or isinstance(value, Variable) else ConstantVar(value)

    def reconstruct(self, cg: Codegen) -> None:
        raise Break(
            "iterator",
            f"an itertools.{self.cls.__name__} that lives across a graph break or leaves the frame",
            "consume it before",
            *self.made,
        )


class MapVar(IteratorVar):
    function: Variable
    rows: ZipVar
    cls = map

    def next(self, tx: Frame) -> Variable | None:
        row: Any = self.rows.next(tx)
        return None if row is None else self.function.call(tx, row.items, {})

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(map, self.function, *self.rows.inners)


class FilterVar(IteratorVar):
    function: Variable
    inner: IteratorVar
    cls = filter

    def next(self, tx: Frame) -> Variable | None:
        for value in self.inner.rest(tx):
            kept = value
            if self.function.identity() is not None:
                kept = self.function.call(tx, [value], {})
            if kept.truth(tx):
                return value
        return None

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(filter, self.function, self.inner)


rules(
    {
        iter: lambda tx, values, /: tx.iter_of(values),
        map: lambda tx, function, first, /, *others: MapVar(
            function, ZipVar([tx.iter_of(values) for values in (first, *others)], False)
        ),
        filter: lambda tx, function, values, /: FilterVar(function, tx.iter_of(values)),
    }
)
# As often as Python asks it.
iterator_of(SentinelVar)(lambda tx, made: tx.iter_of_object(made.object))


def advanced(values: Any, taken: int) -> Iterator[Any]:
    """iter(values), `taken` steps on."""
    made = iter(values)
    for _ in range(taken):
        next(made)
    return made


class Late(list):
    """Iterators to be positioned once the lists that they walk are written."""


def position(iterator: Any, index: int | None) -> None:
    """`index` comes next, now that the list has been written: it would be cut to the list's old
    length before.  None: nothing comes any more."""
    if index is None:
        collections.deque(iterator, 0)
    else:
        iterator.__setstate__(index)


def position_late(cg: Codegen) -> None:
    for iterator in noted(cg.output, Late):
        over = iterator.sequence.source is None and iterator.source is not None
        cg.call_object(position, iterator, ConstantVar(None if over else iterator.index))
        cg.emit("POP_TOP")


hooks.AFTER_WRITES.append(position_late)


@extends(IteratorVar)
class IteratorMethods(IteratorVar):
    def method___next__(self, tx: Frame) -> Variable:
        value = self.next(tx)
        if value is None:
            tx.raise_(StopIteration)
        return value

    def method___iter__(self, tx: Frame) -> Variable:
        return self


begin_plainly, next_plainly = KeysIterator.__init__, KeysIterator.next


@extends(KeysIterator, "__init__")
def begin(keys: Any, tx: Frame, walked: Any) -> None:
    begin_plainly(keys, tx, walked)
    keys.before = keys.state()


@extends(KeysIterator)
class KeysWalking(KeysIterator):
    """What is walked must keep its length."""

    before: tuple[int, int]
    ended = False
    taken = 0

    def owner(self) -> Any:
        return getattr(self.walked, "dict", self.walked)

    def state(self) -> tuple[int, int]:
        """What stays while nothing is added or removed: the size, and how often keys went."""
        return len(self.owner().items), getattr(self.owner(), "removed", 0)

    def next(self, tx: Frame) -> Variable | None:
        if self.ended:
            return None
        if self.state() != self.before:
            raise SkipFrame("a dictionary or set whose keys change while it is walked")
        value = next_plainly(self, tx)
        self.taken += 1
        self.ended = value is None
        return value

    @property
    def cls(self) -> type:
        return type(iter(self.empty()))

    def empty(self) -> Any:
        """An object of the kind that is walked, without items."""
        if self.owner().cls in (set, frozenset):
            return set()
        like: Any = collections.OrderedDict() if self.owner().cls is collections.OrderedDict else {}
        kind = getattr(self.walked, "kind", "keys")
        return getattr(like, kind)()

    def reconstruct(self, cg: Codegen) -> None:
        owner = self.owner()
        if self.ended:
            raise Break("reconstruct", "an iterator of a dictionary or set at its end")
        if owner.source is not None:
            differs = getattr(owner, "rewritten", True)
        else:
            differs = self.state() != self.before
        if owner.mutated and differs:
            raise SkipFrame(
                "a dictionary or set that is written while a loop with a break walks it"
            )
        cg.call_object(advanced, self.walked, ConstantVar(self.taken))


@extends(SequenceIterator)
class SequenceWalking(SequenceIterator):
    step = 1  # -1: from the last item down

    def next(self, tx: Frame) -> Variable | None:
        self.mutated = True
        if self.step > 0:
            return next_up(self, tx)
        if not 0 <= self.index < len(self.sequence.items):
            self.sequence, self.index = sequence_of(self.sequence.cls, []), -1
            return None
        self.index -= 1
        return self.sequence.item(tx, self.index + 1)

    def python_type(self) -> type:
        empty: Any = () if isinstance(self.sequence, TupleVar) else self.sequence.cls()
        return type(iter(empty) if self.step > 0 else reversed(empty))

    def replay(self, cg: Codegen) -> None:
        """Of one from outside: it goes on where this frame has left it."""
        if self.mutated:
            noted(cg.output, Late).append(self)

    def reconstruct(self, cg: Codegen) -> None:
        late = self.sequence.mutated and self.sequence.source is not None
        if late:
            noted(cg.output, Late).append(self)
        cg.call_object(
            iterator_at,
            self.sequence,
            ConstantVar(None if late else self.index),
            ConstantVar(self.step),
        )


@SHARED.rule(*map(type, (iter([]), iter(()), reversed([]))))
def wrap_iterator(builder: OutputGraph, value: Any, source: Source) -> SequenceIterator:
    """One that was made in front of a graph break, and is used behind it.  (Others are at another
    place in each call, and a loop that breaks would be compiled for each turn.)"""
    if source.kind != "local" or source.key[0] == "." or not is_resume_code(builder.root.code):
        raise Break("iterator", f"a {type(value).__name__} that was made before this frame")
    made_by, (over, *_), *place = value.__reduce__()
    builder.guard(source, "PLACE", f"{{0}}.__reduce__()[2:] == {tuple(place)!r}")
    sequence: Any = builder.wrap(over, source.child("walked")) if place else TupleVar([])
    if not isinstance(sequence, SequenceVar):
        raise Break("iterator", f"an iterator over a {type(over).__name__}")
    made: Any = SequenceIterator(sequence, *place or [0], source=source)
    made.step = 1 if made_by is iter else -1
    return builder.replayed(made)


@extends(HostIterator)
class HostWalking(HostIterator):
    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is not IteratorVar.cls:
            raise Break("reconstruct", f"a {self.cls.__name__} in the middle of a loop that breaks")
        rest = list(self.left)
        self.left = iter(rest)
        cg.value(TupleVar(rest))
        cg.emit("GET_ITER")
