"""Native instructions that few programs have, as canonical ones: `not a`, slices, texts, `assert`,
`super()`, `a and b` of CPython 3.11, intrinsics of 3.12.

In, out: as in `bytecode.canonical`, whose table these rows join.  It imports without torch.

    >>> ops, first = canonical(disassemble((lambda a: not a).__code__))
    >>> [op.op for op in ops]
    ['LOAD_FAST', 'UNARY_OP', 'RETURN_VALUE']

Mirrors the opcode methods of torch/_dynamo/symbolic_convert.py for each version of CPython.
"""

from typing import Any

from ..bytecode.assembler import Instruction
from ..bytecode.canonical import RULES

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


RULES.update(
    {
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
)
