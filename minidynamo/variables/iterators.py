"""Iterators: each keeps what is left, so that a loop that breaks in the middle can go on after the
break.

In:   variables.   Out: `next(tx)` -> variable or None at the end; `reconstruct` rebuilds the rest.

    >>> SequenceIterator(list_variable).next(tx)
Mirrors torch/_dynamo/variables/iter.py.
"""

from __future__ import annotations

import builtins
import collections
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .. import runtime
from ..exceptions import Break, ObservedException, SkipFrame
from .base import Variable
from .constant import ConstantVar
from .containers import DictVar, DictViewVar, SequenceVar, TupleVar
from .objects import ObjectVar

if TYPE_CHECKING:
    from ..reconstruct import Codegen
    from ..symbolic_eval.evaluator import Frame

ITERATORS: dict[type, Callable[..., Any]] = {}  # class of a variable -> (tx, variable) -> iterator


def iterator_of(tx: Frame, variable: Variable) -> Variable:
    """iter(variable): as the nearest class of the variable says."""
    for kind in type(variable).__mro__:
        made = ITERATORS.get(kind)
        if made is not None:
            return made(tx, variable)
    return HostIterator(variable.iterate(tx), IteratorVar.cls)


class IteratorVar(Variable):
    """Something with __next__."""

    __slots__ = ()
    shared = True
    cls: Any = type(iter(()))

    def next(self, tx: Frame) -> Variable | None:
        raise NotImplementedError

    def rest(self, tx: Frame) -> Iterator[Variable]:
        """What is left, for who has asked for this iterator."""
        while (value := self.next(tx)) is not None:
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
    """Over a list or tuple variable (live: the list may grow), from its first item up or (step -1)
    from its last down."""

    __slots__ = ("sequence", "index", "step", "resized")
    sequence: SequenceVar
    index: int
    step: int
    resized: int

    def __init__(self, sequence: SequenceVar, index: int = 0, step: int = 1) -> None:
        super().__init__(sequence, index, step, sequence.resized)

    def next(self, tx: Frame) -> Variable | None:
        self.sequence.check_unchanged(tx, self.resized)
        if not 0 <= self.index < len(self.sequence.items):
            self.sequence = self.sequence.exhausted()
            self.index = min(self.step, 0)
            return None
        self.index += self.step
        return self.sequence.item(tx, self.index - self.step)

    def python_type(self) -> type:
        empty = self.sequence.cls.__new__(self.sequence.cls)
        return type(iter(empty) if self.step > 0 else reversed(empty))

    def reconstruct(self, cg: Codegen) -> None:
        late = self.sequence.mutated and (
            self.sequence.source is not None
            or self.sequence.cls is not list
            and self.sequence.resized != self.resized
        )
        if late:
            if self.sequence.cls is not list:
                raise Break(
                    "reconstruct", "an iterator of a deque that is written in the same frame"
                )
            cg.late.append(self)
        cg.call_object(
            runtime.iterator_at,
            self.sequence,
            ConstantVar(None if late else self.index),
            ConstantVar(self.step),
        )


class ItemIterator(IteratorVar):
    """Over an object that has __getitem__ alone."""

    __slots__ = ("object", "index")
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
        cg.call_object(runtime.iterator_at, self.object, ConstantVar(self.index), ConstantVar(1))


class HostIterator(IteratorVar):
    """Over values that are known: of text, a reversed dictionary.  What is left is rebuilt as an
    iterator of the same class, where `runtime.LIKE` knows how, else as a tuple's."""

    __slots__ = ("left", "cls")
    left: Iterator[Variable]

    def next(self, tx: Frame) -> Variable | None:
        return next(self.left, None)

    def reconstruct(self, cg: Codegen) -> None:
        rest = list(self.left)
        self.left = iter(rest)
        kind = self.cls.__name__
        if kind in runtime.LIKE:
            cg.call_object(runtime.iterator_like, ConstantVar(kind), TupleVar(rest))
        else:
            cg.value(TupleVar(rest))
            cg.emit("GET_ITER", effect=0)


class KeysIterator(IteratorVar):
    """Over a dict, one of its views or a set, whose length must stay."""

    __slots__ = ("walked", "left", "size", "taken", "removed", "cls")

    def __init__(self, tx: Frame, walked: Any) -> None:
        self.source = None
        self.mutated = False
        self.walked = walked
        self.taken = 0
        self.left = iter(list(walked.iterate(tx)))
        self.size = len(self.owner().items)
        self.removed = getattr(self.owner(), "removed", 0)
        self.cls = type(iter(self.empty()))

    def empty(self) -> Any:
        """An object of the kind that is walked, without items."""
        if self.owner().cls in (set, frozenset):
            return set()
        like: Any = collections.OrderedDict() if self.owner().cls is collections.OrderedDict else {}
        kind = getattr(self.walked, "kind", "keys")
        return getattr(like, kind)()

    def owner(self) -> Any:
        return getattr(self.walked, "dict", self.walked)

    def next(self, tx: Frame) -> Variable | None:
        if self.walked is None:
            return None
        resized = self.size != len(self.owner().items)
        replaced = self.removed != getattr(self.owner(), "removed", 0)
        kind = self.owner().cls
        if kind is collections.OrderedDict:
            if (resized or replaced) and self.taken < self.size:  # its end is known before
                self.walked = None
                tx.raise_(RuntimeError, "OrderedDict mutated during iteration")
        elif resized:
            self.size = -1
            name = "Set" if kind in (set, frozenset) else "dictionary"
            tx.raise_(RuntimeError, f"{name} changed size during iteration")
        elif replaced:
            raise SkipFrame("a dictionary whose keys are replaced while it is walked")
        value = next(self.left, None)
        self.taken += 1
        if value is None:
            self.walked = None
        return value

    def reconstruct(self, cg: Codegen) -> None:
        owner = self.owner()
        if self.walked is None:
            cg.call_object(runtime.iterator_like, ConstantVar(self.cls.__name__), TupleVar([]))
            return
        if owner.source is not None:
            differs = getattr(owner, "rewritten", True)
        else:
            differs = self.size != len(owner.items) or self.removed != getattr(owner, "removed", 0)
        if owner.mutated and differs:
            raise SkipFrame(
                "a dictionary or set that is written while it is walked, across a graph break"
            )
        cg.call_object(runtime.advanced, self.walked, ConstantVar(self.taken))


class RangeIterator(IteratorVar):
    __slots__ = ("left",)
    left: range
    cls = type(iter(range(0)))

    def next(self, tx: Frame) -> Variable | None:
        if not self.left:
            return None
        value, self.left = self.left[0], self.left[1:]
        return ConstantVar(value)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.left)
        cg.emit("GET_ITER", effect=0)


class EnumerateVar(IteratorVar):
    __slots__ = ("inner", "count")
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
    __slots__ = ("inners", "strict")
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

    __slots__ = ("object",)
    object: Variable

    def next(self, tx: Frame) -> Variable | None:
        try:
            return self.object.call_method(tx, "__next__", [], {})
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


def _iterator_of_constant(tx: Frame, variable: ConstantVar) -> IteratorVar:
    if type(variable.value) is range:
        return RangeIterator(variable.value)
    items = variable.iterate(tx)
    return HostIterator(items, type(iter(variable.value)))


ITERATORS.update(
    {
        IteratorVar: lambda tx, iterator: iterator,
        SentinelVar: lambda tx, made: tx.iter_of_object(made.object),  # as often as Python asks
        SequenceVar: lambda tx, sequence: SequenceIterator(sequence),
        ConstantVar: _iterator_of_constant,
        ObjectVar: lambda tx, instance: tx.iter_of_object(instance),
        DictVar: KeysIterator,
        DictViewVar: KeysIterator,
    }
)
IMPLICIT_HANDLERS = ("CALL_INTRINSIC_1", "STOPITERATION_ERROR", "CLEANUP_THROW")  # no `try`


class GeneratorVar(IteratorVar):
    """A generator function's frame, run on demand by the evaluator."""

    __slots__ = ("frame", "made", "done", "started", "running")
    frame: Any
    made: tuple
    done: bool
    started: bool
    running: bool
    cls = types.GeneratorType

    def __init__(self, frame: Frame, made: tuple) -> None:
        super().__init__(frame, made, False, False, False)

    def next(self, tx: Frame) -> Variable | None:
        return self.send(tx, ConstantVar(None))

    def send(self, tx: Frame, value: Variable) -> Variable | None:
        """The next yielded variable, or None; the return value is then in `frame.returned`."""
        if self.done:
            return None
        if self.running:
            tx.raise_(ValueError, "generator already executing")
        self.running = True
        try:
            yielded = self.frame.resume_generator(tx, value if self.started else None)
        except BaseException:
            self.done = True
            raise
        finally:
            self.running = False
        self.started = True
        self.done = yielded is None
        return yielded

    def must_be_closed(self) -> bool:
        """Would closing it run more of its body?"""
        if not self.started or self.done:
            return False
        operations = self.frame.info.operations
        entry = self.frame.info.ops[self.frame.pc - 1][2]
        if entry is None or operations[entry[0]].op in IMPLICIT_HANDLERS:
            return False
        return not self.passes_by(operations, entry[0])

    def passes_by(self, operations: list, place: int) -> bool:
        """Does the handler at `place` ask for other exceptions alone (`except IndexError:`)?

        GeneratorExit, which closing raises, runs none of it then."""
        if operations[place].op != "PUSH_EXC_INFO":
            return False
        place += 1
        while (
            operations[place].op == "LOAD_GLOBAL" and operations[place + 1].op == "CHECK_EXC_MATCH"
        ):
            caught = vars(builtins).get(operations[place].arg)
            if not isinstance(caught, type) or issubclass(GeneratorExit, caught):
                return False
            if operations[place + 2].op != "POP_JUMP_IF_FALSE":
                return False
            place = operations[place + 2].arg
        return operations[place].op == "RERAISE"

    def reconstruct(self, cg: Codegen) -> None:
        raise Break(
            "generator",
            f"the generator {self.frame.code.co_name} lives across a graph break or leaves the frame",
            "consume it before",
            *self.made,
        )
