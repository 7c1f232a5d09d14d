"""Methods of generators: send, throw, close; and one that is left at the end.

    >>> generator.call_method(tx, "send", [value], {})

In, out: variables; the frame of the generator runs on in the evaluator.
"""

import builtins
from typing import Any, cast

from ...extras.extending import extends, noted
from ... import hooks
from ...exceptions import Break, ObservedException
from ...symbolic_eval.evaluator import Frame
from ..base import NULL, Codegen, Variable
from ..constant import ConstantVar
from ..iterators import GeneratorVar

# Handlers that the compiler puts around every generator's body, without a `try`.
IMPLICIT_HANDLERS = ("CALL_INTRINSIC_1", "STOPITERATION_ERROR", "CLEANUP_THROW")


plain_init, plain_send = GeneratorVar.__init__, GeneratorVar.send


class Generators(list["GeneratorMethods"]):
    """Those that were made in this attempt."""


@extends(GeneratorVar, "__init__")
def noted_generator(generator: Any, frame: Frame) -> None:
    plain_init(generator, frame)
    generator.made = cast(Frame, frame.parent).user_stack(), frame.output.root.group_step
    noted(frame.output, Generators).append(generator)


@extends(GeneratorVar)
class GeneratorMethods(GeneratorVar):
    running = False
    made: tuple = ()  # where: the lines of the program, the step of the root

    def send(self, tx: Frame, value: Variable) -> Variable | None:
        """One that raises is done; one that runs cannot be asked for more."""
        if self.running:
            tx.raise_(ValueError, "generator already executing")
        self.running = True
        try:
            return plain_send(self, tx, value)
        except BaseException:
            self.done = True
            raise
        finally:
            self.running = False

    def method_send(self, tx: Frame, value: Variable) -> Variable:
        if not self.started and value.identity() is not None:
            tx.raise_(TypeError, "can't send non-None value to a just-started generator")
        over, yielded = self.done, self.send(tx, value)
        if yielded is None:
            returned = self.frame.returned
            return tx.raise_var(
                StopIteration, [] if over or returned.identity() is None else [returned]
            )
        return yielded

    def method___next__(self, tx: Frame) -> Variable:
        return self.method_send(tx, ConstantVar(None))

    def method_close(self, tx: Frame) -> None:
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

    def method_throw(self, tx: Frame, *exception: Variable) -> Variable:
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

    def must_be_closed(self) -> bool:
        """Would closing it run more of its body?"""
        if not self.started or self.done:
            return False
        operations, entries = self.frame.info.operations, self.frame.info.ops
        entry = entries[self.frame.pc - 1][2]
        while entry is not None and is_end_of_handler(operations, entry[0]):
            entry = entries[entry[0] + 2][2]  # its RERAISE goes on to the next one
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
            f"the generator {self.frame.code.co_name} lives across a graph break or leaves "
            "the frame",
            "consume it before",
            *self.made,
        )


def is_end_of_handler(operations: list, place: int) -> bool:
    """Only the cleanup that CPython puts around a handler, which runs nothing of the program's?"""
    steps = [operation.op for operation in operations[place : place + 3]]
    return steps == ["COPY", "POP_EXCEPT", "RERAISE"]


def check_generators(cg: Codegen) -> None:
    """One that was left inside a `try` or `with` runs its end when plain Python lets it go."""
    for generator in noted(cg.output, Generators):
        if generator.must_be_closed():
            raise Break(
                "generator",
                f"the generator {generator.frame.code.co_name} is left inside a try or with",
                "consume it, or close it",
                *generator.made,
            )


hooks.BEFORE_VALUES.append(check_generators)
