"""Methods of generators: send, throw, close.

    >>> generator.call_method(tx, "send", [value], {})

In, out: variables; the frame of the generator runs on in the evaluator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...exceptions import Break, ObservedException
from ..base import NULL, Variable, adds_to
from ..constant import ConstantVar
from ..iterators import GeneratorVar

if TYPE_CHECKING:
    from ...symbolic_eval.evaluator import Frame


@adds_to(GeneratorVar)
def method_send(self: GeneratorVar, tx: Frame, value: Variable) -> Variable:
    if not self.started and value.identity() is not None:
        tx.raise_(TypeError, "can't send non-None value to a just-started generator")
    over, yielded = self.done, self.send(tx, value)
    if yielded is None:
        returned = self.frame.returned
        tx.raise_var(StopIteration, [] if over or returned.identity() is None else [returned])
    return yielded


@adds_to(GeneratorVar)
def method___next__(self: GeneratorVar, tx: Frame) -> Variable:
    return method_send(self, tx, ConstantVar(None))


@adds_to(GeneratorVar)
def method_close(self: GeneratorVar, tx: Frame) -> None:
    if self.started and not self.done:
        try:
            tx.raise_(GeneratorExit)
        except ObservedException as leave:
            try:
                method_throw(self, tx, leave.var)
            except ObservedException as raised:
                if not issubclass(raised.var.python_type(), (GeneratorExit, StopIteration)):
                    raise
            else:
                tx.raise_(RuntimeError, "generator ignored GeneratorExit")
    self.done = True


@adds_to(GeneratorVar)
def method_throw(self: GeneratorVar, tx: Frame, *exception: Variable) -> Variable:
    raised = exception[0]
    if len(exception) > 1 and exception[1].identity() is not None:
        raised = exception[1]
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
        frame, entry = self.frame, self.frame.info.ops[at - 1][2]
        frame.parent = tx
        frame.stack.append(NULL)
        if entry is None:
            raise frame.raised(raised)
        frame.unwind(frame.raised(raised).var, entry)
        yielded = frame.resume_generator(tx, None)
    except BaseException:
        self.done = True
        raise
    self.done = yielded is None
    if yielded is None:
        tx.raise_(StopIteration)
    return yielded
