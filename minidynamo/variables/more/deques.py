"""collections.deque, from outside and made in the frame.

In:   items, and the most that it may hold.   Out: its methods, on variables.

    >>> DequeVar([a, b], maxlen=2).call_method(tx, "append", [c], {})      # a goes

Mirrors torch/_dynamo/variables/lists.py (DequeVariable).
"""

from __future__ import annotations

import functools
import collections
from typing import Any

from ...exceptions import Break
from ..base import Codegen, Frame, Lazy, OutputGraph, Source, Variable
from ..constant import ConstantVar
from ..iterators import SequenceIterator, iterator_of
from ..registry import SHARED
from .container_methods import ListMethods, whole
from .writing_calls import commit_call


def replace_items(target: Any, contents: Any) -> None:
    """Contents of a deque."""
    target.clear()
    target.extend(contents)


def replace_each(target: Any, contents: Any) -> None:
    """Items of a deque in their places: who walks it may go on."""
    for n, value in enumerate(contents):
        target[n] = value


class DequeVar(ListMethods):
    """A deque of at most `maxlen` items (None: as many as come)."""

    cls: type = collections.deque
    maxlen: int | None = None

    argument = Variable.argument  # no function of torch's takes one

    def as_constant(self) -> Any:
        return collections.deque(super().as_constant(), self.maxlen)

    def index_of(self, tx: Frame, key: Variable) -> Any:
        kind = key.python_type()
        if kind is slice or key.is_constant() and not hasattr(kind, "__index__"):
            tx.raise_(TypeError, f"sequence index must be integer, not '{kind.__name__}'")
        return super().index_of(tx, key)

    def getattr(self, tx: Frame, name: str) -> Variable:
        return ConstantVar(self.maxlen) if name == "maxlen" else super().getattr(tx, name)

    def _changed(self) -> None:
        super()._changed()
        if self.maxlen is not None:
            del self.items[: max(0, len(self.items) - self.maxlen)]

    def method_appendleft(self, tx: Frame, value: Variable, /) -> None:
        self.items.insert(0, value)
        if self.maxlen is not None:
            del self.items[self.maxlen :]
        self._changed()

    def method_extendleft(self, tx: Frame, values: Variable, /) -> None:
        for value in self._others(tx, values):
            self.method_appendleft(tx, value)

    def method_rotate(self, tx: Frame, n: Variable = ConstantVar(1), /) -> None:
        shift = whole(n) % len(self.items) if self.items else 0
        self.items[:] = (
            self.items[len(self.items) - shift :] + self.items[: len(self.items) - shift]
        )
        self._changed()

    def method_insert(self, tx: Frame, index: Variable, value: Variable, /) -> None:
        if self.maxlen is not None and len(self.items) >= self.maxlen:
            tx.raise_(IndexError, "deque already at its maximum size")
        super().method_insert(tx, index, value)

    def method_pop(self, tx: Frame, index: Variable = ConstantVar(-1), /) -> Any:
        if not self.items:
            tx.raise_(IndexError, "pop from an empty deque")
        return super().method_pop(tx, index)

    def method_popleft(self, tx: Frame) -> Any:
        return self.method_pop(tx, ConstantVar(0))

    def method_copy(self, tx: Frame) -> DequeVar:
        return DequeVar(list(self.items), maxlen=self.maxlen)

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(self.cls, functools.partial(self.contents, cg), ConstantVar(self.maxlen))

    def replay(self, cg: Codegen) -> None:
        if self.mutated:
            helper = replace_items if self.resized else replace_each
            commit_call(cg, helper, self, functools.partial(self.contents, cg))


class DequeIterator(SequenceIterator):
    """Over a deque that must not change meanwhile, nor behind the end."""

    def __post_init__(self) -> None:
        self.resized = self.sequence.resized

    def next(self, tx: Frame) -> Variable | None:
        if self.sequence.resized > self.resized:
            tx.raise_(RuntimeError, "deque mutated during iteration")
        at_end = not 0 <= self.index < len(self.sequence.items)
        return None if at_end else super().next(tx)

    def reconstruct(self, cg: Codegen) -> None:
        sequence = self.sequence
        if sequence.mutated and (sequence.source or sequence.resized != self.resized):
            raise Break("reconstruct", "an iterator of a deque that this frame writes")
        super().reconstruct(cg)


iterator_of(DequeVar)(lambda tx, deque: DequeIterator(deque))


@SHARED.rule(collections.deque)
def deque_of(builder: OutputGraph, value: Any, source: Source) -> DequeVar:
    builder.guard(source, "LENGTH", f"len({{0}}) == {len(value)}")
    builder.guard(source, "MAXLEN", f"{{0}}.maxlen == {value.maxlen}")
    items = [Lazy(item, source.child("item", n)) for n, item in enumerate(value)]
    return builder.replayed(DequeVar(items, maxlen=value.maxlen, source=source))
