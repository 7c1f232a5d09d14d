"""Where no resume function can start: between instructions that belong together.

In:   a code object, its instructions and the index of one.   Out: nothing, or `CannotSplit`.

    >>> check_splittable(f.__code__, disassemble(f.__code__), 0)
    CannotSplit: the function has not begun

The evaluator splits at whole instructions, and behind their beginnings: it meets few of these.
"""

import inspect
import types

from ..bytecode import Instruction
from ..bytecode.assembler import VERSION
from ..resume import CHECKS, CannotSplit, origins

GENERATOR_LIKE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def check_splittable(code: types.CodeType, body: list[Instruction], k: int) -> None:
    """Raise CannotSplit unless a resume function of `code` may start at instruction k."""
    if code.co_flags & GENERATOR_LIKE:
        raise CannotSplit(f"{code.co_name} is a generator or coroutine")
    if not 0 <= k < len(body):
        raise CannotSplit(f"{code.co_name} has no instruction {k}")
    if id(code) in origins and origins[id(code)][1][k] is None:
        raise CannotSplit("before the place where a resume function goes on")
    if is_jumped_past(body, k):
        raise CannotSplit("a specialised FOR_ITER jumps past this instruction")
    if k and body[k - 1].op in ("PRECALL", "KW_NAMES"):
        raise CannotSplit("between the parts of a call")
    if k and body[k - 1].arg == "super" and body[k].op in ("PRECALL", "CALL"):
        raise CannotSplit("between super and its call")
    begun = any(ins.op == "RESUME" for ins in body[:k])
    if not begun or body[k].op in ("COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR"):
        raise CannotSplit("the function has not begun")


def is_jumped_past(body: list[Instruction], k: int) -> bool:
    """Does a loop that ends go on behind instruction k?  END_FOR, and 3.13's POP_TOP after it."""
    if body[k].op in ("END_FOR", "END_SEND"):
        return True
    follows = k > 0 and body[k - 1].op == "END_FOR"
    return follows and body[k].op == "POP_TOP" and VERSION >= (3, 13)


CHECKS.append(check_splittable)
