"""Iterators: each keeps what is left, so that a loop that breaks in the middle can go on after the
break.

In:   variables.   Out: `next(tx)` -> variable or None at the end; `reconstruct` rebuilds the rest.

    >>> SequenceIterator(list_variable).next(tx)
Mirrors torch/_dynamo/variables/iter.py.
"""

import builtins
import collections
import types
from typing import Any

from .. import runtime
from ..exceptions import Break, ObservedException, SkipFrame
from .base import Variable
from .constant import ConstantVar
from .containers import ListVar, SetVar, TupleVar
from .functions import CallableVar


class IteratorVar(Variable):
    """Something with __next__."""

    __slots__ = ()
    shared = True
    cls: Any = type(iter(()))

    def next(self, tx):
        raise NotImplementedError

    def rest(self, tx):
        """What is left, for who has asked for this iterator."""
        while (value := self.next(tx)) is not None:
            yield value

    iterate = rest

    def method___next__(self, tx):
        value = self.next(tx)
        if value is None:
            tx.raise_(StopIteration)
        return value

    def method___iter__(self, tx):
        return self


class SequenceIterator(IteratorVar):
    """Over a list or tuple variable (live: the list may grow), from its first item up or (step -1)
    from its last down."""

    __slots__ = ("sequence", "index", "step", "resized")

    def __init__(self, sequence, index=0, step=1):
        self.source, self.mutated, self.sequence, self.index, self.step, self.resized = (
            None,
            False,
            sequence,
            index,
            step,
            sequence.resized,
        )

    def next(self, tx):
        self.sequence.check_unchanged(tx, self.resized)
        if (
            not 0 <= self.index < len(self.sequence.items)
        ):  # exhausted for good, though the list may grow
            if self.sequence.cls is not collections.deque:  # whose change is still noticed
                self.sequence = (
                    ListVar([], self.sequence.cls)
                    if isinstance(self.sequence, ListVar)
                    else TupleVar([])
                )
            self.index = min(self.step, 0)
            return None
        self.index += self.step
        return self.sequence.item(tx, self.index - self.step)

    def python_type(self):
        return type(
            (iter if self.step > 0 else reversed)(self.sequence.cls.__new__(self.sequence.cls))
        )

    def reconstruct(self, cg):
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
    cls = type(iter(type("Items", (), {"__getitem__": None})()))

    def next(self, tx):
        try:
            value = self.object.getitem(tx, ConstantVar(self.index))
        except ObservedException as raised:
            if not issubclass(raised.var.python_type(), (IndexError, StopIteration)):
                raise
            self.object, self.index = TupleVar([]), 0  # exhausted for good
            return None
        self.index += 1
        return value

    def reconstruct(self, cg):
        cg.call_object(runtime.iterator_at, self.object, ConstantVar(self.index), ConstantVar(1))


class HostIterator(IteratorVar):
    """Over values that are known: of text, a reversed dictionary.  What is left is rebuilt as an
    iterator of the same class, where `runtime.LIKE` knows how, else as a tuple's."""

    __slots__ = ("left", "cls")

    def next(self, tx):
        return next(self.left, None)

    def reconstruct(self, cg):
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

    def __init__(self, tx, walked):
        self.source, self.mutated, self.walked, self.taken = None, False, walked, 0
        self.left, self.size = iter(list(walked.iterate(tx))), len(self.owner().items)
        self.removed = getattr(self.owner(), "removed", 0)
        self.cls = type(iter(self.empty()))

    def empty(self):
        """An object of the kind that is walked, without items."""
        if isinstance(self.walked, SetVar):
            return set()
        like = collections.OrderedDict() if self.owner().cls is collections.OrderedDict else {}
        kind = getattr(self.walked, "kind", "keys")
        return getattr(like, kind)()

    def owner(self):
        return getattr(self.walked, "dict", self.walked)

    def next(self, tx):
        if self.walked is None:
            return None
        resized, replaced = (
            self.size != len(self.owner().items),
            self.removed != getattr(self.owner(), "removed", 0),
        )
        if self.owner().cls is collections.OrderedDict:
            if (resized or replaced) and self.taken < self.size:  # its end is known before
                self.walked = None
                tx.raise_(RuntimeError, "OrderedDict mutated during iteration")
        elif resized:
            self.size = -1
            tx.raise_(
                RuntimeError,
                f"{'Set' if isinstance(self.walked, SetVar) else 'dictionary'} changed size during iteration",
            )
        elif replaced:
            raise SkipFrame("a dictionary whose keys are replaced while it is walked")
        value = next(self.left, None)
        self.taken += 1
        if value is None:
            self.walked = None
        return value

    def reconstruct(self, cg):
        owner = self.owner()
        if self.walked is None:
            cg.call_object(runtime.iterator_like, ConstantVar(self.cls.__name__), TupleVar([]))
        elif owner.mutated and (
            owner.source is not None
            and getattr(owner, "rewritten", True)
            or owner.source is None
            and (self.size != len(owner.items) or self.removed != getattr(owner, "removed", 0))
        ):
            raise SkipFrame(
                "a dictionary or set that is written while it is walked, across a graph break"
            )
        else:
            cg.call_object(runtime.advanced, self.walked, ConstantVar(self.taken))


class LibraryIterator(IteratorVar):
    """One of itertools' own, run on variables; `made` says where, for there plain Python must make
    it if it outlives the trace."""

    __slots__ = ("steps", "made", "cls")

    def next(self, tx):
        value = tx.run_c(next, self.steps, None)
        return (
            TupleVar([*value])
            if type(value) is tuple
            else value
            if value is None or isinstance(value, Variable)
            else ConstantVar(value)
        )

    def reconstruct(self, cg):
        raise Break(
            "iterator",
            f"an itertools.{self.cls.__name__} that lives across a graph break or leaves the frame",
            "consume it before",
            *self.made,
        )


class RangeIterator(IteratorVar):
    __slots__ = ("left",)
    cls = type(iter(range(0)))

    def next(self, tx):
        if not self.left:
            return None
        value, self.left = self.left[0], self.left[1:]
        return ConstantVar(value)

    def reconstruct(self, cg):
        cg.load_const(self.left)
        cg.emit("GET_ITER", effect=0)


class EnumerateVar(IteratorVar):
    __slots__ = ("inner", "count")
    cls = enumerate

    def next(self, tx):
        value = self.inner.next(tx)
        if value is None:
            return None
        self.count += 1
        return TupleVar([ConstantVar(self.count - 1), value])

    def reconstruct(self, cg):
        cg.call_object(enumerate, self.inner, ConstantVar(self.count))


class ZipVar(IteratorVar):
    __slots__ = ("inners", "strict")
    cls = zip

    def next(self, tx):
        values = []
        for n, inner in enumerate(self.inners):
            value = inner.next(tx)
            if value is None:
                if self.strict:
                    self._check(tx, n)
                return None
            values.append(value)
        return TupleVar(values) if values else None

    def _check(self, tx, n):
        if n:
            tx.raise_(
                ValueError,
                f"zip() argument {n + 1} is shorter than argument{'s 1-' + str(n) if n > 1 else ' 1'}",
            )
        for m, inner in enumerate(self.inners[1:], 1):
            if inner.next(tx) is not None:
                tx.raise_(
                    ValueError,
                    f"zip() argument {m + 1} is longer than argument{'s 1-' + str(m) if m > 1 else ' 1'}",
                )

    def reconstruct(self, cg):
        if self.strict:
            raise Break("reconstruct", "zip(strict=True) in the middle of a loop that breaks")
        cg.call_object(zip, *self.inners)


class MapVar(IteratorVar):
    __slots__ = ("function", "rows")  # rows: a ZipVar
    cls = map

    def next(self, tx):
        row = self.rows.next(tx)
        return row and self.function.call(tx, row.items, {})

    def reconstruct(self, cg):
        cg.call_object(map, self.function, *self.rows.inners)


class FilterVar(IteratorVar):
    __slots__ = ("function", "inner")
    cls = filter

    def next(self, tx):
        while (value := self.inner.next(tx)) is not None:
            if (
                value if self.function.identity() is None else self.function.call(tx, [value], {})
            ).truth(tx):
                return value

    def reconstruct(self, cg):
        cg.call_object(filter, self.function, self.inner)


class CallIterator(IteratorVar):
    """iter(function, sentinel)."""

    __slots__ = ("function", "sentinel")
    cls = type(iter(int, 0))

    def next(self, tx):
        if self.function is None:
            return None
        value = self.function.call(tx, [], {})
        if not tx.same_or_equal(value, self.sentinel):
            return value
        self.function = None

    def reconstruct(self, cg):
        if self.function is None:  # exhausted for good
            cg.call_object(iter, CallableVar(int), ConstantVar(0))
        else:
            cg.call_object(iter, self.function, self.sentinel)


class SentinelVar(IteratorVar):
    """Objects with a Python __next__."""

    __slots__ = ("object",)

    def next(self, tx):
        try:
            return self.object.call_method(tx, "__next__", [], {})
        except ObservedException as raised:
            if issubclass(raised.var.python_type(), StopIteration):
                return None
            raise

    def iterate(self, tx):
        return tx.iter_of(self).rest(tx)

    def method___next__(self, tx):
        return self.object.call_method(tx, "__next__", [], {})

    def identity(self):
        return self.object.identity()

    def getattr(self, tx, name):
        return self.object.getattr(tx, name)

    def python_type(self):
        return self.object.python_type()

    def reconstruct(self, cg):
        cg.value(self.object)


IMPLICIT_HANDLERS = ("CALL_INTRINSIC_1", "STOPITERATION_ERROR", "CLEANUP_THROW")  # no `try`


class GeneratorVar(IteratorVar):
    """A generator function's frame, run on demand by the evaluator."""

    __slots__ = ("frame", "made", "done", "started", "running")
    cls = types.GeneratorType

    def __init__(self, frame, made):
        self.source, self.mutated, self.frame, self.made, self.done, self.started = (
            None,
            False,
            frame,
            made,
            False,
            False,
        )
        self.running = False

    def next(self, tx):
        return self.send(tx, ConstantVar(None))

    def send(self, tx, value):
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

    def must_be_closed(self):
        """Would closing it run more of its body?"""
        if not self.started or self.done:
            return False
        operations, (_, _, entry, _) = (
            self.frame.info.operations,
            self.frame.info.ops[self.frame.pc - 1],
        )
        if entry is None or operations[entry[0]].op in IMPLICIT_HANDLERS:
            return False
        return not self.passes_by(operations, entry[0])

    def passes_by(self, operations, place):
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

    def method_send(self, tx, value):
        if not self.started and value.identity() is not None:
            tx.raise_(TypeError, "can't send non-None value to a just-started generator")
        over, yielded = self.done, self.send(tx, value)
        if yielded is None:
            tx.raise_var(
                StopIteration,
                [] if over or self.frame.returned.identity() is None else [self.frame.returned],
            )
        return yielded

    def method___next__(self, tx):
        return self.method_send(tx, ConstantVar(None))

    def method_close(self, tx):
        if self.started and not self.done:
            try:
                tx.raise_(GeneratorExit)
            except ObservedException as leave:
                try:
                    self.method_throw(tx, leave.var)
                except ObservedException as raised:
                    if not issubclass(raised.var.python_type(), (GeneratorExit, StopIteration)):
                        raise
                else:
                    tx.raise_(RuntimeError, "generator ignored GeneratorExit")
        self.done = True

    def method_throw(self, tx, *exception):
        raised = (
            exception[1]
            if len(exception) > 1 and exception[1].identity() is not None
            else exception[0]
        )
        if isinstance(raised.identity(), type):
            raised = raised.call(tx, [], {})
        if not self.started or self.done:
            self.done = True
            raise tx.raised(raised)
        operations, at = self.frame.info.operations, self.frame.pc
        if operations[at].op == "JUMP" and operations[operations[at].arg].op == "SEND":
            raise Break(
                "generator", "throwing into a generator that waits for another one (yield from)"
            )
        try:
            yielded = self.frame.resume_generator(tx, None, throw=raised)
        except BaseException:
            self.done = True
            raise
        self.done = yielded is None
        if yielded is None:
            tx.raise_(StopIteration)
        return yielded

    def reconstruct(self, cg):
        raise Break(
            "generator",
            f"the generator {self.frame.code.co_name} lives across a graph break or leaves the frame",
            "consume it before",
            *self.made,
        )
