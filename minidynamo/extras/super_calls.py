"""`super()` in the rest of a method behind a graph break.

In:   the body of a code object that has the `__class__` cell, registered in `resume.SUPER_CALLS`.
Out:  the same with `super(__class__, self)`: without arguments it looks at the first local, which
      is another variable in a resume function.  (variables/more/super.py has that local carried
      over, though no instruction says that it is read.)

        def forward(self, x):
            print("hello")                      <- graph break
            return super().forward(x)           <- super(__class__, self).forward(x)
"""

import types
from collections.abc import Sequence

from ..bytecode import Instruction
from ..resume import SUPER_CALLS, CannotSplit


def explicit_super(
    code: types.CodeType, body: list[Instruction], free: Sequence[str], params: Sequence[str]
) -> list[Instruction]:
    """The body of a resume function, in which each `super()` is `super(__class__, self)`."""
    for ins in body:
        # from 3.12 on one instruction, whose arguments lie on the stack; without this bit it does
        # not look at them
        if ins.op == "LOAD_SUPER_ATTR":
            ins.flags |= 2
    if not any(map(is_super_call, body, body[1:])):
        return body
    first = code.co_varnames[0] if code.co_argcount else ""
    if first not in params and first not in free:
        raise CannotSplit(f"super() needs the first parameter, {first}, which is not carried over")
    load_first = "LOAD_DEREF" if first in free else "LOAD_FAST"
    result = []
    for n, ins in enumerate(body):
        result.append(ins)
        if n + 1 < len(body) and is_super_call(ins, body[n + 1]):
            for call in body[n + 1 : n + 3]:
                if call.op in ("PRECALL", "CALL"):
                    call.arg = 2
            result.append(Instruction("LOAD_DEREF", "__class__", pos=ins.pos, exc=ins.exc))
            result.append(Instruction(load_first, first, pos=ins.pos, exc=ins.exc))
    return result


def is_super_call(ins: Instruction, call: Instruction) -> bool:
    """Is it the `LOAD_GLOBAL super` whose call without arguments follows at once?"""
    loads = ins.op == "LOAD_GLOBAL" and ins.arg == "super" and ins.flags
    return bool(loads) and call.op in ("PRECALL", "CALL") and call.arg == 0


SUPER_CALLS.append(explicit_super)
