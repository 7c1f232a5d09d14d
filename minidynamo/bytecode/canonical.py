"""One canonical operation set for all CPython versions.

In:   native instructions.
Out:  `CanonicalOp`s, named as in CPython 3.13; the argument of a jump is an index in their list.
      Each knows the native instruction that it came from, where a resume function may start.

    >>> ops, first = canonical(disassemble((lambda a, b: a or b).__code__))
    >>> [op.op for op in ops]
    ['LOAD_FAST', 'COPY', 'POP_JUMP_IF_TRUE', 'POP_TOP', 'LOAD_FAST', 'RETURN_VALUE']

Mirrors the version checks spread through torch/_dynamo/symbolic_convert.py; here the evaluator
never asks for a version.  Generators' operations are CPython's own: an exhausted SEND leaves the
result on the stack (3.12+: above the receiver, which END_SEND removes) and jumps.  Left out:
coroutines and exception groups (such frames run as plain Python).
"""

import dis
from collections.abc import Callable, Sequence
from typing import Any

from .assembler import VERSION, Instruction


class CanonicalOp:
    """op, arg: the operation.  instruction: the native one that it belongs to.  exc: the handler of
    what it raises, or None: (index, stack depth, push the last instruction's offset)."""

    __slots__ = ("op", "arg", "instruction", "exc")

    def __init__(self, op: str, arg: Any, instruction: Instruction) -> None:
        self.op = op
        self.arg = arg
        self.instruction = instruction
        self.exc: Any = instruction.exc

    def __repr__(self) -> str:
        return self.op if self.arg is None else f"{self.op} {self.arg!r}"


# What the evaluator need not do: it has the free variables from the start, and asks for a truth
# itself.
DROPPED = {"RESUME", "NOP", "PRECALL", "COPY_FREE_VARS", "TO_BOOL", "CACHE"}
RENAMED = {
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
}
BINARY_SYMBOLS = [symbol for _, symbol in getattr(dis, "_nb_ops")]
# So many low bits of COMPARE_OP's argument do not say which comparison it is.
COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4}.get(VERSION, 5)
# Where a loop ends, FOR_ITER jumps to END_FOR (in 3.13 with a POP_TOP), which drops the iterator.
# Here FOR_ITER has dropped it, and goes on behind so many instructions.
END_FOR_OPS = {(3, 11): 0, (3, 12): 1}.get(VERSION, 2)


def translate(ins: Instruction) -> list[tuple[str, Any]]:
    """Canonical (op, arg) pairs of one native instruction; most are the instruction itself."""
    op = RENAMED.get(ins.op, ins.op)
    if op in DROPPED:
        return []
    if op.startswith("POP_JUMP_"):  # 3.11 has the direction in the name
        return [(op.replace("_FORWARD", "").replace("_BACKWARD", ""), ins.arg)]
    if op in RULES:
        return RULES[op](ins)
    return [(op, ins.arg)]


def _load_global(ins: Instruction) -> list[tuple[str, Any]]:
    """Its flag pushes the NULL of a call, too: before the function until 3.12, after it since."""
    load = ("LOAD_GLOBAL", ins.arg)
    if not ins.flags:
        return [load]
    null = ("PUSH_NULL", None)
    return [null, load] if VERSION < (3, 13) else [load, null]


def _make_function(ins: Instruction) -> list[tuple[str, Any]]:
    """Until 3.12 its flags say which parts of the function lie below the code, the closure (8) on
    top; since then an instruction of its own sets each."""
    flags = ins.arg or 0
    parts = [("SET_FUNCTION_ATTRIBUTE", bit) for bit in (8, 4, 2, 1) if flags & bit]
    return [("MAKE_FUNCTION", None), *parts]


UNARY = {"UNARY_NEGATIVE": "-", "UNARY_INVERT": "~", "UNARY_NOT": "not", "UNARY_POSITIVE": "+"}
INTRINSICS: dict[int, tuple[str, Any]] = {
    3: ("STOPITERATION_ERROR", None),
    5: ("UNARY_OP", "+"),
    6: ("LIST_TO_TUPLE", None),
}  # CALL_INTRINSIC_1 of 3.12+


def _jump_or_pop(ins: Instruction) -> list[tuple[str, Any]]:
    """3.11's `a and b`: the value stays on the stack where it jumps."""
    jump = "POP_" + ins.op.removesuffix("_OR_POP")
    return [("COPY", 1), (jump, ins.arg), ("POP_TOP", None)]


def _format_value(ins: Instruction) -> list[tuple[str, Any]]:
    """3.11 and 3.12: the conversion (`!r`) in the lowest two bits, bit 2: a format lies on top."""
    conversion = ins.arg & 3
    has_format = bool(ins.arg & 4)
    convert: list[tuple[str, Any]] = [("CONVERT_VALUE", conversion)] if conversion else []
    if has_format and convert:  # value, format: convert the value below the format
        convert = [("SWAP", 2), *convert, ("SWAP", 2)]
    return [*convert, ("FORMAT_WITH_SPEC" if has_format else "FORMAT_SIMPLE", None)]


# native name -> what stands for it in the canonical set, where that is not the instruction itself
RULES: dict[str, Callable[[Instruction], list[tuple[str, Any]]]] = {
    "LOAD_GLOBAL": _load_global,
    "LOAD_ATTR": lambda ins: [("LOAD_METHOD" if ins.flags else "LOAD_ATTR", ins.arg)],
    "MAKE_FUNCTION": _make_function,
    "RETURN_CONST": lambda ins: [("LOAD_CONST", ins.arg), ("RETURN_VALUE", None)],
    "BINARY_OP": lambda ins: [("BINARY_OP", BINARY_SYMBOLS[ins.arg])],
    "COMPARE_OP": lambda ins: [("COMPARE_OP", dis.cmp_op[ins.arg >> COMPARE_SHIFT])],
    "JUMP_IF_TRUE_OR_POP": _jump_or_pop,
    "JUMP_IF_FALSE_OR_POP": _jump_or_pop,
    "FORMAT_VALUE": _format_value,
    "BINARY_SLICE": lambda ins: [("BUILD_SLICE", 2), ("BINARY_SUBSCR", None)],
    "STORE_SLICE": lambda ins: [("BUILD_SLICE", 2), ("STORE_SUBSCR", None)],
    "CALL_INTRINSIC_1": lambda ins: [INTRINSICS.get(ins.arg, (ins.op, ins.arg))],
    "LOAD_SUPER_ATTR": lambda ins: [("LOAD_SUPER_ATTR", (ins.arg, ins.flags))],
    "LOAD_ASSERTION_ERROR": lambda ins: [("LOAD_CONST", AssertionError)],
    **{op: lambda ins: [("UNARY_OP", UNARY[ins.op])] for op in UNARY},
}


def canonical(instructions: Sequence[Instruction]) -> tuple[list[CanonicalOp], dict[int, int]]:
    """(canonical operations, {id(native instruction): index of its first canonical operation})."""
    result: list[CanonicalOp] = []
    first: dict[int, int] = {}
    keyword_names = None
    for ins in instructions:
        first[id(ins)] = len(result)
        if ins.op == "KW_NAMES":  # 3.11, 3.12: a prefix of CALL
            keyword_names = ins.arg
        elif ins.op == "CALL" and keyword_names is not None:
            result.append(CanonicalOp("LOAD_CONST", keyword_names, ins))
            result.append(CanonicalOp("CALL_KW", ins.arg, ins))
            keyword_names = None
        else:
            result += [CanonicalOp(op, arg, ins) for op, arg in translate(ins)]
    position = {id(ins): n for n, ins in enumerate(instructions)}
    for op in result:
        if isinstance(op.arg, Instruction):  # a jump's target
            target = position[id(op.arg)]
            if op.op == "FOR_ITER":
                target += END_FOR_OPS
            op.arg = first[id(instructions[target])]
        if op.exc:
            op.exc = first[id(op.exc[0])], *op.exc[1:]
    return result, first


def successors(operation: CanonicalOp, n: int) -> list[int]:
    """Where control may go behind operation `n`, if that does not raise."""
    op = operation.op
    after = []
    if op not in ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP"):
        after.append(n + 1)
    if op in ("JUMP", "FOR_ITER", "SEND") or op.startswith("POP_JUMP"):
        after.append(operation.arg)
    return after


READS = {"LOAD_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR", "MAKE_CELL", "LOAD_CLOSURE"}
WRITES = {"STORE_FAST", "DELETE_FAST"}


def liveness(operations: Sequence[CanonicalOp]) -> list[frozenset[str]]:
    """Before each operation: the locals that may be read later, with no write in between.

    It goes backwards through the code, and again until nothing changes: loops jump back."""
    live: list[frozenset[str]] = [frozenset()] * (len(operations) + 1)
    changed = True
    while changed:
        changed = False
        for n in range(len(operations) - 1, -1, -1):
            operation = operations[n]
            names = set().union(*[live[after] for after in successors(operation, n)])
            if operation.op in WRITES:
                names.discard(operation.arg)
            if operation.op in READS:
                names.add(operation.arg)
            if operation.exc is not None:
                names |= live[operation.exc[0]]
            if names != live[n]:
                live[n] = frozenset(names)
                changed = True
    return live
