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

from .base import Frame, Variable, refusal
from .constant import ConstantVar
from .containers import DictVar, DictViewVar, ListVar, SequenceVar, TupleVar
from .objects import ObjectVar
from .registry import ByClass

iterator_of = ByClass()  # handler(tx, variable) -> an iterator


class IteratorVar(Variable):
    """Something with __next__."""

    shared = True
    cls = cast(Any, type(iter(())))

    next = refusal("iteration", "the next item of {self}")

    def rest(self, tx: Frame) -> Iterator[Variable]:
        """What is left, for who has asked for this iterator."""
        while (value := self.next(tx)) is not None:
            tx.output.count_step()
            yield value

    iterate = rest


class SequenceIterator(IteratorVar):
    """Over a list or tuple variable (live: the list may grow)."""

    sequence: SequenceVar
    index: int = 0  # of the item that comes next

    def next(self, tx: Frame) -> Variable | None:
        if self.index >= len(self.sequence.items):
            # at the end, where it stays though the list may grow
            empty = ListVar if self.sequence.cls is list else TupleVar
            self.sequence, self.index = empty([]), 0
            return None
        self.index += 1
        return self.sequence.item(tx, self.index - 1)


class KeysIterator(IteratorVar):
    """Over a dict, one of its views or a set; more/iterators.py looks whether these change."""

    cls = cast(Any, None)

    def __init__(self, tx: Frame, walked: Any) -> None:
        self.walked = walked
        self.left = iter(list(walked.iterate(tx)))

    def next(self, tx: Frame) -> Variable | None:
        return next(self.left, None)


iterator_of(IteratorVar)(lambda tx, iterator: iterator)
iterator_of(SequenceVar)(lambda tx, sequence: SequenceIterator(sequence))
iterator_of(ObjectVar)(lambda tx, instance: tx.iter_of_object(instance))
iterator_of(DictVar, DictViewVar)(KeysIterator)


class GeneratorVar(IteratorVar):
    """A generator function's frame, run on demand by the evaluator."""

    cls = types.GeneratorType
    frame: Any
    done: bool = field(default=False, init=False)
    started: bool = field(default=False, init=False)

    def next(self, tx: Frame) -> Variable | None:
        return self.send(tx, ConstantVar(None))

    def send(self, tx: Frame, value: Variable) -> Variable | None:
        """The next yielded variable, or None; the return value is then in `frame.returned`."""
        if self.done:
            return None
        yielded = self.frame.resume_generator(tx, value if self.started else None)
        self.started = True
        self.done = yielded is None
        return yielded
