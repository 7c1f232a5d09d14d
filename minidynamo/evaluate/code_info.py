"""What the evaluator needs to know about a code object, computed once per code object and kept
while it lives.

In:   a code object.
Out:  `CodeInfo`, whose lists have one entry for each canonical operation, and questions about which
      variables are read later.

    >>> code_info(f.__code__).live_before(0)        # frozenset({"x"}): `y` is written first

Mirrors torch/_dynamo/bytecode_analysis.py (liveness) and the per-frame set-up of
symbolic_convert.py.
"""

import os
import types
import weakref
from typing import Any

from ..bytecode import canonical, disassemble
from ..bytecode.canonical import liveness
from . import opcodes

# Paths of torch's files and of ours: a graph break names the line of the program that called them.
INTERNAL = (os.sep + "torch" + os.sep, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_CACHE: dict[int, "CodeInfo"] = {}


class CodeInfo:
    """See the module header."""

    def __init__(self, code: types.CodeType) -> None:
        natives = disassemble(code)
        self.operations, first = canonical(natives)
        # of each native instruction: the operation that it begins with
        self.beginnings = [first[id(native)] for native in natives]
        # of each operation, by the native instruction that it belongs to: the operation with which
        # that begins, and its number
        index = {id(native): n for n, native in enumerate(natives)}
        self.groups = [first[id(operation.instruction)] for operation in self.operations]
        self.native_numbers = [index[id(operation.instruction)] for operation in self.operations]
        # the operations, ready to be run: handler, argument, exception entry, line
        self.ops: list[tuple[Any, Any, Any, int]] = []
        line = code.co_firstlineno
        for operation in self.operations:
            pos = operation.instruction.pos
            if pos and pos[0] is not None:
                line = pos[0]
            handler = opcodes.HANDLERS.get(operation.op)
            # what no handler knows is refused by its name
            run = (
                (opcodes.unsupported, operation.op) if handler is None else (handler, operation.arg)
            )
            self.ops.append((*run, operation.exc, line))
        self.internal = any(part in code.co_filename for part in INTERNAL)
        self._live: list[frozenset[str]] | None = None

    def live_before(self, position: int) -> frozenset[str]:
        """Names of locals that may be read from canonical operation `position` on."""
        if self._live is None:
            self._live = liveness(self.operations, LOCAL_READS, LOCAL_WRITES)
        return self._live[position]


LOCAL_READS = {"LOAD_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR", "MAKE_CELL", "LOAD_CLOSURE"}
LOCAL_WRITES = {"STORE_FAST", "DELETE_FAST"}


def code_info(code: types.CodeType) -> CodeInfo:
    found = _CACHE.get(id(code))
    if found is None:
        found = _CACHE[id(code)] = CodeInfo(code)
        weakref.finalize(code, _CACHE.pop, id(code), None)
    return found
