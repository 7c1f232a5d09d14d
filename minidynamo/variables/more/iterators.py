"""Iterators that few programs make: enumerate, zip, map, filter, iter(function, sentinel), those of
itertools, objects with `__next__` or `__getitem__` alone.

In:   variables.   Out: as in `variables.iterators`.

    >>> RULES[map](tx, [function, values], {}).next(tx)
"""

from collections.abc import Iterator
from typing import Any

from ...exceptions import Break
from ...symbolic_eval.registry import rules
from ..base import Codegen, Frame, Variable
from ..constant import ConstantVar
from ..containers import TupleVar
from ..iterators import IteratorVar, iterator_at, iterator_of


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

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is not IteratorVar.cls:
            raise Break("reconstruct", f"a {self.cls.__name__} in the middle of a loop that breaks")
        rest = list(self.left)
        self.left = iter(rest)
        cg.value(TupleVar(rest))
        cg.emit("GET_ITER")


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
