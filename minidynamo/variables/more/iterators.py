"""Iterators that few programs make: map, filter, iter(function, sentinel), those of itertools.

In:   variables.   Out: as in `variables.iterators`.

    >>> RULES[map](tx, [function, values], {}).next(tx)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...exceptions import Break
from ...symbolic_eval.registry import rules
from ..base import Variable
from ..constant import ConstantVar
from ..containers import TupleVar
from ..functions import CallableVar
from ..iterators import IteratorVar, ZipVar

if TYPE_CHECKING:
    from ...reconstruct import Codegen
    from ...symbolic_eval.evaluator import Frame


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
