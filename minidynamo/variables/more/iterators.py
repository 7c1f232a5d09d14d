"""Iterators that few programs make: enumerate, zip, map, filter, iter(function, sentinel), those of
itertools, objects with `__next__` or `__getitem__` alone.

In:   variables.   Out: as in `variables.iterators`.

    >>> RULES[map](tx, [function, values], {}).next(tx)
"""

import collections
from collections.abc import Callable, Iterator
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
from ..functions import CallableVar
from ..iterators import iterator_of, IteratorVar, KeysIterator, SequenceIterator
from ..registry import SHARED
from .tuples import sequence_of

KINDS["walked"] = "{p}.__reduce__()[1][0]"
next_up = SequenceIterator.next


def iterator_at(sequence: Any, index: int | None, step: int) -> Any:
    """iter(sequence), or reversed(sequence) for step -1, with item `index` to come next; it goes on
    to look at the live sequence.  index None: `more/iterators.py` positions it later."""
    made: Any = iter(sequence) if step > 0 else reversed(sequence)
    if index is not None and hasattr(made, "__setstate__"):
        made.__setstate__(index)
    elif index is not None:  # a deque's
        for _ in range(index if step > 0 else len(sequence) - 1 - index):
            next(made, None)
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


class ItemIterator(IteratorVar):
    """Over an object that has __getitem__ alone."""

    object: Variable
    index: int
    cls = type(iter(type("Items", (), {"__getitem__": None})()))

    def next(self, tx: Frame) -> Variable | None:
        try:
            value = self.object.getitem(tx, ConstantVar(self.index))
        except ObservedException as raised:
            if not issubclass(raised.var.python_type(), (IndexError, StopIteration)):
                raise
            self.object, self.index = TupleVar([]), 0  # exhausted for good
            return None
        self.index += 1
        return value

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(iterator_at, self.object, ConstantVar(self.index), ConstantVar(1))


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
                if self.strict:
                    self._check(tx, n)
                return None
            values.append(value)
        return TupleVar(values) if values else None

    def _check(self, tx: Frame, n: int) -> None:
        """strict=True, and the argument number `n` has come to its end."""
        if n:
            before = f"arguments 1-{n}" if n > 1 else "argument 1"
            tx.raise_(ValueError, f"zip() argument {n + 1} is shorter than {before}")
        for m, inner in enumerate(self.inners[1:], 1):
            if inner.next(tx) is not None:
                before = f"arguments 1-{m}" if m > 1 else "argument 1"
                tx.raise_(ValueError, f"zip() argument {m + 1} is longer than {before}")

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


@extends(EnumerateVar, "length")
@extends(ZipVar, "length")
@extends(MapVar, "length")
@extends(FilterVar, "length")
def no_length(self: Any, tx: Frame) -> None:
    """len(self): heapq's functions ask for it in a `try`."""
    tx.raise_(TypeError, f"object of type '{self.cls.__name__}' has no len()")


class CallIterator(IteratorVar):
    """iter(function, sentinel)."""

    function: Variable | None
    sentinel: Variable
    cls = type(iter(int, 0))

    def next(self, tx: Frame) -> Variable | None:
        if self.function is None:
            return None
        value = self.function.call(tx, [], {})
        if not tx.same_or_equal(value, self.sentinel):
            return value
        self.function = None
        return None

    def reconstruct(self, cg: Codegen) -> None:
        if self.function is None:  # exhausted for good
            cg.call_object(iter, CallableVar(int), ConstantVar(0))
        else:
            cg.call_object(iter, self.function, self.sentinel)


rules(
    {
        iter: lambda tx, values, *sentinel: (
            CallIterator(values, *sentinel) if sentinel else tx.iter_of(values)
        ),
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


LIKE: dict[str, Callable[[Any], Any]] = {  # of the class of that name over these values
    type(iter("a")).__name__: lambda values: advanced("a" + "".join(values), 1),
    type(iter("\u00e9")).__name__: lambda values: advanced("\u00e9" + "".join(values), 1),
    "bytes_iterator": lambda values: iter(bytes(values)),
    "generator": lambda values: (value for value in values),
    "set_iterator": lambda values: iter({*values}),
    "dict_keyiterator": lambda values: iter(dict.fromkeys(values)),
    "dict_valueiterator": lambda values: iter(dict(enumerate(values)).values()),
    "dict_itemiterator": lambda values: iter(dict(values).items()),
    "odict_iterator": lambda values: iter(collections.OrderedDict(enumerate(values)).values()),
    "reversed": lambda values: reversed(values[::-1]),  # of text
    "dict_reversekeyiterator": lambda values: reversed(dict.fromkeys(values[::-1])),
    "dict_reversevalueiterator": lambda values: reversed(dict(enumerate(values[::-1])).values()),
    "dict_reverseitemiterator": lambda values: reversed(dict(values[::-1]).items()),
}


def iterator_like(kind: str, values: Any) -> Any:
    """An iterator over `values` whose class is called `kind`."""
    return LIKE[kind](values)


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
            self.changed(tx)
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

    def changed(self, tx: Frame) -> None:
        kind, size = self.owner().cls, self.before[0]
        if kind is collections.OrderedDict:
            if self.taken < size:  # its end is known before
                self.ended = True
                tx.raise_(RuntimeError, "OrderedDict mutated during iteration")
        elif len(self.owner().items) != size:
            self.before = -1, 0
            name = "Set" if kind in (set, frozenset) else "dictionary"
            tx.raise_(RuntimeError, f"{name} changed size during iteration")
        else:
            raise SkipFrame("a dictionary whose keys are replaced while it is walked")

    def reconstruct(self, cg: Codegen) -> None:
        owner = self.owner()
        if self.ended:
            cg.call_object(iterator_like, ConstantVar(self.cls.__name__), TupleVar([]))
            return
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
        rest = list(self.left)
        self.left = iter(rest)
        kind = self.cls.__name__
        if kind in LIKE:
            cg.call_object(iterator_like, ConstantVar(kind), TupleVar(rest))
        else:
            cg.value(TupleVar(rest))
            cg.emit("GET_ITER")
