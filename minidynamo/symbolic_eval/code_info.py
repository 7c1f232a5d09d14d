"""What the evaluator needs to know about a code object, computed once per code object and kept
while it lives.

In:   a code object.
Out:  `CodeInfo`: `ops` (handler, argument, exception entry, line) per canonical operation, `groups`
      (operation -> first operation of its native instruction), `natives` (operation -> index of the
      native instruction where a split may start).
Mirrors torch/_dynamo/bytecode_analysis.py (liveness) and the per-frame set-up of
symbolic_convert.py.
"""

import os
import weakref

from ..bytecode import canonical, disassemble
from . import opcodes

PREFIXES = ("KW_NAMES", "PRECALL", "EXTENDED_ARG")  # belong to the CALL that follows
INTERNAL = (os.sep + "torch" + os.sep, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOOKING = {"locals", "vars", "eval", "exec", "dir"}
_CACHE = {}


class CodeInfo:
    """See the module header."""

    def __init__(self, code):
        natives = disassemble(code)
        operations, first = canonical(natives)
        for (
            operation
        ) in operations:  # generators' operations are known here, not to the canonical set
            if operation.op == "UNSUPPORTED" and operation.arg in opcodes.HANDLERS:
                arg = operation.instruction.arg
                operation.op, operation.arg = (
                    operation.arg,
                    first[id(arg)] if id(arg) in first else arg,
                )
        self.operations = operations
        index = {id(native): n for n, native in enumerate(natives)}
        self.ops, self.groups, self.natives = [], [], []
        line = code.co_firstlineno
        for n, operation in enumerate(operations):
            native = operation.instruction
            line = native.pos[0] if native.pos and native.pos[0] is not None else line
            handler = opcodes.HANDLERS.get(operation.op, opcodes.UNSUPPORTED)
            arg = (
                operation.arg
                if handler is not opcodes.UNSUPPORTED
                else (operation.op, operation.arg)
            )
            self.ops.append((handler, arg, operation.exc, line))
            first = n
            if n and operations[n - 1].instruction is native:
                first = self.groups[n - 1]
            self.groups.append(first)
            start = index[id(native)]
            while start and natives[start - 1].op in PREFIXES:
                start -= 1
            self.natives.append((start, index[id(native)]))
        self.internal = any(part in code.co_filename for part in INTERNAL)
        # zero-argument super() reads the first slot, though no instruction says so
        self.super_reads = (
            code.co_varnames[0] if "__class__" in code.co_freevars and code.co_argcount else None
        )
        self._live = None
        self.names = frozenset(code.co_varnames) if LOOKING & set(code.co_names) else None

    def live_before(self, position):
        """Names of locals that may be read from canonical operation `position` on: all, if the code
        asks for `locals()`."""
        if self.names is not None:
            return self.names
        if self._live is None:
            self._live = liveness(self.operations, self.super_reads)
        return self._live[position] if position < len(self._live) else frozenset()

    def moves(self, position):
        """Does a resume function, in front of `position`, put the value of a loop's next turn back
        on the stack, to be stored at once?"""
        ops = self.operations
        while ops[position].op == "DELETE_FAST":
            position += 1
        return ops[position].op == "JUMP" and ops[ops[position].arg].op == "STORE_FAST"

    def may_be_unbound(self, position, name):
        """May an instruction from `position` on read the cell variable `name` before it is
        written?"""
        seen, todo = set(), [position]
        while todo:
            n = todo.pop()
            if n in seen or n >= len(self.operations):
                continue
            seen.add(n)
            operation = self.operations[n]
            op, arg = operation.op, operation.arg
            if arg == name and op in ("LOAD_DEREF", "DELETE_DEREF"):
                return True
            if not (arg == name and op == "STORE_DEREF"):
                todo += successors(operation, n) + (
                    [operation.exc[0]] if operation.exc is not None else []
                )
        return False


def successors(operation, n):
    """Where control may go after operation `n` that does not raise."""
    op = operation.op
    return ([] if op in ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP") else [n + 1]) + (
        [operation.arg]
        if op == "JUMP" or op.startswith("POP_JUMP") or op in ("FOR_ITER", "SEND")
        else []
    )


def liveness(operations, super_reads=None):
    """Backward dataflow: before each operation, the fast locals that may be read later."""
    live = [frozenset()] * (len(operations) + 1)
    changed = True
    while changed:
        changed = False
        for n in range(len(operations) - 1, -1, -1):
            operation = operations[n]
            op, arg = operation.op, operation.arg
            after = set().union(*[live[m] for m in successors(operation, n)])
            if op in ("STORE_FAST", "DELETE_FAST"):
                after.discard(arg)
            if op in (
                "LOAD_FAST",
                "DELETE_FAST",
                "LOAD_FAST_AND_CLEAR",
                "MAKE_CELL",
                "LOAD_CLOSURE",
            ):
                after.add(arg)
            if super_reads and op == "LOAD_GLOBAL" and arg == "super":
                after.add(super_reads)
            if operation.exc is not None:
                after |= live[operation.exc[0]]
            after = frozenset(after)
            if after != live[n]:
                live[n], changed = after, True
    return live


def code_info(code):
    found = _CACHE.get(id(code))
    if found is None:
        found = _CACHE[id(code)] = CodeInfo(code)
        weakref.finalize(code, _CACHE.pop, id(code), None)
    return found
