"""Graph breaks inside of `try`, `with` and `except`.

In:   the frame at its split.
Out:  a call of what follows in the handler around the instruction; a stack that is kept in locals
      while an exception is handled.

    with lock:
        print("hello")      # what follows has two beginnings: behind the call, and in the handler

An exception that is being handled belongs to the thread: see `resume.py`.
"""

import functools
from collections.abc import Callable
from typing import Any

from .extending import extends
from ..bytecode import Instruction
from ..replacement import Continuations, Tail
from ..resume import VALUE
from ..variables import base

from .handled_slots import HANDLED, LASTI


plain_kinds = Continuations.kinds_behind


@extends(Continuations)
class HandledContinuations(Continuations):
    """Continuations where there is a handler."""

    def kinds_behind(self, jump: bool = False) -> list[str]:
        kinds = plain_kinds(self, jump)
        if self.untraced[-1].op == "BEFORE_WITH":  # the bound `__exit__` below its result
            kinds[-2] = VALUE
        return kinds

    def caught(self) -> list[Instruction]:
        exc = self.untraced[-1].exc
        if not exc or self.leaves(exc):
            return []
        handler, depth, lasti = exc
        kinds = self.kinds[:depth] + [LASTI] * lasti + [VALUE]
        call = self.call(self.index[id(handler)], kinds)
        for instruction in call:
            instruction.pos = self.untraced[-1].pos
        for instruction in self.untraced:
            instruction.exc = call[0], depth, lasti
        return call

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
