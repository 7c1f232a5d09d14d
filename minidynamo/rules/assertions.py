"""`assert torch.isfinite(x).all(), "..."`: the condition is checked in the graph.

Where it fails the graph raises, what it had written is undone, and plain Python runs the frame and
raises the program's own AssertionError, with its message, where it stands (`extras/undo.py`).
On a GPU such a check would end the process: there the assertion is a graph break.
Mirrors torch/_dynamo/symbolic_convert.py (`_detect_and_normalize_assert_statement`).
"""

from typing import Any

import torch

from ..symbolic_eval.opcodes import HANDLERS
from ..variables.tensor import TensorVar

jump = HANDLERS["POP_JUMP_IF_TRUE"]


def POP_JUMP_IF_TRUE(frame: Any, target: int) -> None:
    """Over the `raise` of an assert statement: it is not needed once the graph has checked."""
    condition = frame.stack[-1]
    if type(condition) is not TensorVar or not raises_assertion(frame):
        return jump(frame, target)
    fake = condition.fake
    if not fake.is_cpu or fake.dim() or getattr(fake, "constant", None) is not None:
        return jump(frame, target)
    frame.stack.pop()
    frame.node(torch._assert_async, [condition])
    frame.pc = target
    return None


def raises_assertion(frame: Any) -> bool:
    """Does what follows, unless it is jumped over, begin to make an AssertionError?"""
    follows = frame.info.operations[frame.pc]
    return follows.op == "LOAD_CONST" and follows.arg is AssertionError


HANDLERS["POP_JUMP_IF_TRUE"] = POP_JUMP_IF_TRUE
