"""Graph breaks inside of `try`, `with` and `except`.

In:   the frame at its split.
Out:  a call of what follows in the handler around the instruction; a stack that is kept in locals
      while an exception is handled.  Where a graph raises, the part in front of the break is
      repeated by its original instructions, which leave the stack as our own code leaves it.

    with lock:
        print("hello")      # what follows has two beginnings: behind the call, and in the handler

An exception that is being handled belongs to the thread: see `resume.py`.
"""

import functools
from collections.abc import Callable
from typing import Any

from ..bytecode import Instruction
from ..bytecode.assembler import VERSION
from ..replacement import Continuations, Tail
from ..resume import VALUE
from ..variables import base
from ..variables.base import extends
from .handled_slots import HANDLED, LASTI


@extends(Continuations)
class HandledContinuations(Continuations):
    """Continuations where there is a handler."""

    def caught(self) -> list[Instruction]:
        exc = self.natives[self.end].exc
        if not exc or self.leaves(exc):
            return []
        handler, depth, lasti = exc
        kinds = self.kinds[:depth] + [LASTI] * lasti + [VALUE]
        call = self.call(self.index[id(handler)], kinds, self.natives[self.end].pos)
        for instruction in self.natives[self.begin : self.end + 1]:
            instruction.exc = call[0], depth, lasti
        return call

    def repeatable(self, body: list[Instruction], start: int) -> list[Instruction]:
        """The handler of a graph's error repeats the part in front of the break by its original
        instructions: their stack must be what the resume functions take."""
        repeated = {id(native) for native in self.natives[start : self.begin]}
        return with_bound_methods(body, repeated)

    def leaves(self, exc: Any) -> bool:
        """Does an exception leave the frame through this handler?  That of an `except` block, for
        what is raised in the block, only restores the exception that was handled before, and raises
        again."""
        while exc is not None and exc[0].op != "PUSH_EXC_INFO":
            n = self.index[id(exc[0])]
            while self.natives[n].op != "RERAISE":
                n += 1
            exc = self.natives[n].exc
        return exc is None


def with_bound_methods(body: list[Instruction], repeated: set[int]) -> list[Instruction]:
    """`body`, in which no instruction whose id is in `repeated` leaves a method and its object on
    the stack.  What begins a call there is a callable with CPython's mark NULL beside it, as in the
    code that we generate, so that a resume function need not ask which of the two it is."""
    out = []
    for instruction in body:
        out.append(instruction)
        op, flags = instruction.op, instruction.flags
        if id(instruction) not in repeated or not (op == "LOAD_METHOD" or is_method(op, flags)):
            continue
        instruction.op, instruction.flags = op.replace("METHOD", "ATTR"), flags & ~1
        behind = [Instruction("PUSH_NULL")]
        if VERSION < (3, 13):  # where the mark stands in front of the callable
            behind.append(Instruction("SWAP", 2))
        for added in behind:
            added.pos, added.exc = instruction.pos, instruction.exc
        out += behind
    return out


def is_method(op: str, flags: int) -> bool:
    """Does it load a method for a call, from 3.12 on?"""
    return op in ("LOAD_ATTR", "LOAD_SUPER_ATTR") and bool(flags & 1)


push_plain_stack = Tail.push_stack


@extends(Tail)
class StackBeside(Tail):
    def push_stack(self) -> Callable[[], None]:
        """Where exceptions are handled from then on: rebuild the stack, but into locals.  Gives
        what pushes it, to be called where nothing can raise any more: from then on the frame is
        inside of its `except` block again."""
        if all(item.stack_kind != HANDLED for item in self.frame.stack):
            return push_plain_stack(self)
        slots: list[str] = []
        for item in self.frame.stack:
            if item is not base.NULL:
                self.value(item.exception if item.stack_kind == HANDLED else item)
                slots.append(self.temp())
                self.store_fast(slots[-1])
        return functools.partial(begin_handling, self, slots)


def begin_handling(tail: Tail, slots: list[str]) -> None:
    """Push the stack from the locals `slots`, and tell the thread which exception is handled."""
    remaining = iter(slots)
    for item in tail.frame.stack:
        if item is base.NULL:
            tail.emit("PUSH_NULL")
            continue
        tail.load_fast(next(remaining))
        if item.stack_kind == HANDLED:
            tail.emit("PUSH_EXC_INFO")
            tail.emit("POP_TOP")
