"""Methods of generators: send, throw, close; and one that is left at the end.

    >>> generator.call_method(tx, "send", [value], {})

In, out: variables; the frame of the generator runs on in the evaluator.
"""

from typing import Any, NoReturn, cast

from ...extras.extending import extends, noted
from ... import hooks
from ...exceptions import Break
from ...symbolic_eval.evaluator import Frame
from ..base import Codegen, Variable
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
        if self.must_be_closed():
            raise Break("generator", "closing a generator inside a try or with")
        self.done = True

    def method_throw(self, tx: Frame, *exception: Variable) -> NoReturn:
        raise Break("generator", "throwing into a generator")

    def must_be_closed(self) -> bool:
        """Would closing it run more of its body?"""
        if not self.started or self.done:
            return False
        entry = self.frame.info.ops[self.frame.pc - 1][2]
        operations = self.frame.info.operations
        return entry is not None and operations[entry[0]].op not in IMPLICIT_HANDLERS

    def reconstruct(self, cg: Codegen) -> None:
        raise Break(
            "generator",
            f"the generator {self.frame.code.co_name} lives across a graph break or leaves "
            "the frame",
            "consume it before",
            *self.made,
        )


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
