"""Iterators: each keeps what is left, so that a loop that breaks in the middle can go on after the
break.

In:   variables.   Out: `next(tx)` -> variable or None at the end; `reconstruct` rebuilds the rest.

    >>> SequenceIterator(list_variable).next(tx)

Mirrors torch/_dynamo/variables/iter.py.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import field
from typing import Any, cast

from ..errors import Break, SkipFrame
from .base import Codegen, Frame, Variable, refusal
from .constant import ConstantVar
from .dicts import DictVar, DictViewVar, ListVar, ProxyVar, SequenceVar, SetVar, TupleVar
from .objects import ObjectVar
from .registry import ByClass

iterator_of = ByClass()  # handler(tx, variable) -> an iterator


class IteratorVar(Variable):
    """Something with __next__."""

    shared = True
    cls = cast(Any, type(iter(())))

    next = refusal("iteration", "the next item of {self}")

    def rest(self, tx: Frame) -> Iterator[Variable]:
        """The items that are left, one by one."""
        while (value := self.next(tx)) is not None:
            tx.output.count_step()
            yield value

    iterate = rest

    def method___next__(self, tx: Frame) -> Variable:
        value = self.next(tx)
        if value is None:
            tx.raise_(StopIteration)
        return value

    def method___iter__(self, tx: Frame) -> Variable:
        return self


class SequenceIterator(IteratorVar):
    """Over a list or tuple variable (live: the list may grow)."""

    sequence: SequenceVar
    index: int = 0  # of the item that comes next
    step = 1  # -1: from the last item down

    def next(self, tx: Frame) -> Variable | None:
        if not 0 <= self.index < len(self.sequence.items):
            # at the end, where it stays though the list may grow
            empty = ListVar if self.sequence.cls is list else TupleVar
            self.sequence, self.index = empty([]), min(self.step, 0)
            return None
        self.index += self.step
        return self.sequence.item(tx, self.index - self.step)

    def python_type(self) -> type:
        empty: Any = () if isinstance(self.sequence, TupleVar) else self.sequence.cls()
        return type(iter(empty) if self.step > 0 else reversed(empty))

    def reconstruct(self, cg: Codegen) -> None:
        if self.sequence.resized and self.sequence.source is not None:
            raise Break("reconstruct", "an iterator of a list from outside that grew or shrank")
        cg.call_object(iterator_at, self.sequence, ConstantVar(self.index), ConstantVar(self.step))


class KeysIterator(IteratorVar):
    """Over a dict, one of its views or a set; these must not change meanwhile."""

    cls = None  # one of many
    before: tuple[int, int]
    ended = False
    taken = 0

    def __init__(self, tx: Frame, walked: Any) -> None:
        self.walked = walked
        self.left = iter(list(walked.iterate(tx)))
        self.before = self.state()

    def next(self, tx: Frame) -> Variable | None:
        if self.ended:
            return None
        if self.state() != self.before:
            raise SkipFrame("a dictionary or set whose keys change while it is walked")
        value = next(self.left, None)
        self.taken += 1
        self.ended = value is None
        return value

    def owner(self) -> Any:
        return getattr(self.walked, "dict", self.walked)

    def python_type(self) -> type:
        walk = getattr(self.owner().cls(), getattr(self.walked, "kind", "__iter__"))
        return type(iter(walk()))

    def state(self) -> tuple[int, int]:
        """What stays while nothing is added or removed: the size, and how often keys went."""
        return len(self.owner().items), self.owner().removed

    def reconstruct(self, cg: Codegen) -> None:
        owner = self.owner()
        if self.ended:
            raise Break("reconstruct", "an iterator of a dictionary or set at its end")
        if owner.source is not None:
            # (new keys are stored later)
            differs = getattr(owner, "rewritten", True) or len(owner.items) > len(owner.real_keys)
        else:
            differs = self.state() != self.before
        if owner.mutated and differs:
            raise SkipFrame(
                "a dictionary or set that is written while a loop with a break walks it"
            )
        cg.call_object(advanced, self.walked, ConstantVar(self.taken))


iterator_of(IteratorVar)(lambda tx, iterator: iterator)
iterator_of(SequenceVar)(lambda tx, sequence: SequenceIterator(sequence))
iterator_of(ObjectVar)(lambda tx, instance: tx.iter_of_object(instance))
iterator_of(DictVar, DictViewVar, ProxyVar, SetVar)(KeysIterator)


class GeneratorVar(IteratorVar):
    """A generator function's frame, run on demand by the evaluator."""

    cls = types.GeneratorType
    frame: Any
    done: bool = field(default=False, init=False)
    started: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        # where: the lines of the program, the step of the root
        self.made = self.frame.parent.user_stack(), self.frame.output.root.group_step
        self.frame.output.generators.append(self)

    running = False

    def next(self, tx: Frame) -> Variable | None:
        return self.send(tx, ConstantVar(None))

    def send(self, tx: Frame, value: Variable) -> Variable | None:
        """The next yielded variable, or None; the return value is then in `frame.returned`.  One
        that raises is done; one that runs cannot be asked for more."""
        if self.running:
            tx.raise_(ValueError, "generator already executing")
        if self.done:
            return None
        self.running, done = True, True
        try:
            yielded = self.frame.resume_generator(tx, value if self.started else None)
            done = yielded is None
        finally:
            self.running, self.started, self.done = False, True, done
        return yielded

    def method___next__(self, tx: Frame) -> Variable:
        yielded = self.next(tx)
        if yielded is None and self.frame.returned.identity() is not None:
            raise Break("generator", "what a generator returns, in a StopIteration")
        return super().method___next__(tx) if yielded is None else yielded

    def method_close(self, tx: Frame) -> None:
        if self.must_be_closed():
            raise Break("generator", "closing a generator inside a try or with")
        self.done = True

    def must_be_closed(self) -> bool:
        """Would closing it run more of its body?"""
        scope = self.frame.globals.values.get("__name__")
        if not self.started or self.done or scope == "collections.abc":  # it waits for IndexError
            return False
        operations, entries = self.frame.info.operations, self.frame.info.ops
        entry = entries[self.frame.pc - 1][2]
        return entry is not None and operations[entry[0]].op not in IMPLICIT_HANDLERS

    def check_left(self) -> None:
        """Break if the generator is left inside a `try` or `with`, whose end plain Python would run
        when it frees the generator."""
        if self.must_be_closed():
            text = f"the generator {self.frame.code.co_name} is left inside a try or with"
            raise Break("generator", text, "consume it, or close it", *self.made)

    def reconstruct(self, cg: Codegen) -> None:
        raise Break(
            "generator",
            f"the generator {self.frame.code.co_name} lives across a graph break or leaves "
            "the frame",
            "consume it before",
            *self.made,
        )


def iterator_at(sequence: Any, index: int, step: int) -> Any:
    """iter(sequence), or reversed(sequence) for step -1, with item `index` to come next; it goes on
    to look at the live sequence."""
    made: Any = iter(sequence) if step > 0 else reversed(sequence)
    made.__setstate__(index)
    return made


def advanced(values: Any, taken: int) -> Iterator[Any]:
    """iter(values), `taken` steps on."""
    made = iter(values)
    for _ in range(taken):
        next(made)
    return made


# Handlers that the compiler puts around every generator's body, without a `try`.
IMPLICIT_HANDLERS = ("CALL_INTRINSIC_1", "STOPITERATION_ERROR", "CLEANUP_THROW")


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


@iterator_of(ConstantVar)
def iterator_of_constant(tx: Frame, constant: ConstantVar) -> IteratorVar:
    if not hasattr(type(constant.value), "__iter__"):
        tx.raise_(TypeError, f"{type(constant.value).__name__!r} object is not iterable")
    if not isinstance(constant.value, (str, bytes, range)):
        raise Break("iteration", f"iterating over a {type(constant.value).__name__}")
    return ConstantIterator(constant.value)


@iterator_of(Variable)  # where no nearer class of the variable says
def over_values(tx: Frame, variable: Variable) -> SequenceIterator:
    return SequenceIterator(TupleVar([*variable.iterate(tx)]))


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


class MapVar(IteratorVar):
    function: Variable
    rows: ZipVar
    cls = map

    def next(self, tx: Frame) -> Variable | None:
        row: Any = self.rows.next(tx)
        return None if row is None else self.function.call(tx, row.items, {})


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
