"""How a resume function is called, so that a program does not see the call.

In:   at a graph break, the resume function and the variables that it takes.
Out:  code that calls it by `hand_over(function, arguments)`:
      a loop that breaks in each turn does not nest deeper: a resume function that is split again
      returns what is to be called next (`tail_call`);
      what the rest of the function lets go does not live on in the caller: `hand_over` in C
      (hand_over.h) leaves the arguments to the callee alone;
      an exception of the rest leaves the frame without a line of its own in the traceback.

    LOAD_CONST hand_over; <the function>; <a list of the variables>; CALL 2; RETURN_VALUE

Without this file the call is a plain one.
"""

import functools
from collections.abc import Callable
from typing import Any

from .extending import extends
from .. import _frame_hook
from ..bytecode import Instruction, emit
from ..replacement import Continuations
from ..resume import is_resume_code


def plain_hand_over(function: Callable[..., Any], arguments: list[Any]) -> Any:
    """function(*arguments).  One that returns (tail_call, function, arguments) wants that to be
    called next."""
    result = function(*arguments)
    while type(result) is tuple and len(result) == 3 and result[0] is tail_call:
        result = result[1](*result[2])
    return result


hand_over = getattr(_frame_hook, "hand_over", plain_hand_over)
tail_call = getattr(_frame_hook, "tail_call", object())
plain_instructions = Continuations.instructions


@extends(Continuations)
class HandedOver(Continuations):
    @functools.cached_property
    def passed(self) -> list[Instruction]:
        """An exception of a resume function leaves this frame, too.  The resume function's line of
        the traceback is where the program is; this frame's is taken out (`tb_next`)."""
        return [
            Instruction("COPY", 1),
            Instruction("LOAD_ATTR", "__traceback__"),
            Instruction("LOAD_ATTR", "tb_next"),
            Instruction("COPY", 2),
            Instruction("STORE_ATTR", "__traceback__"),
            Instruction("RERAISE", 0),
        ]

    def instructions(self) -> list[Instruction]:
        return plain_instructions(self) + self.passed

    def go_on(self, function: list[Instruction], names: list[str]) -> list[Instruction]:
        arguments: list[Instruction] = []
        for name in names:
            # and deleted here: the caller must not keep alive what the rest lets go
            arguments += emit.load_fast(name) + emit.delete_fast(name)
        arguments.append(Instruction("BUILD_LIST", len(names)))
        if is_resume_code(self.code):  # `hand_over` has called it, and calls what it returns
            return emit.load_const(tail_call) + function + arguments + emit.build_tuple(3)
        call = emit.call(emit.load_const(hand_over), function, arguments)
        call[-1].exc = self.passed[0], 0, False
        return call
