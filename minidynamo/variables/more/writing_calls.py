"""Writes that only a call can repeat: `object.__setattr__(config, "size", 3)`.

In:   a fixed function, and what it is called with.
Out:  the function and its arguments on the stack; the call is one of the writes behind the graph.

    >>> commit_call(cg, object.__delattr__, variable, ConstantVar(name))
"""

from typing import Any

from ...bytecode import emit
from ..base import Codegen


def commit_call(cg: Codegen, function: Any, *args: Any) -> None:
    """Push a call that writes, and note it."""
    cg.add(emit.callee(emit.load_const(function)))
    for arg in args:
        cg.push(arg)
    for instruction in reversed(emit.call_n(len(args)) + emit.pop_top()):
        cg.commit(instruction.op, instruction.arg)
