"""Opcodes of texts: f"{x} {y!r} {z:.3f}".

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.
"""

from ..symbolic_eval.opcodes import pushes
from ..symbolic_eval.text import text
from ..variables.constant import ConstantVar
from ..variables.symbolic import TextVar, parts_of


def joined(parts):
    if any(type(part) is TextVar for part in parts):
        return TextVar(
            [piece for part in parts for piece in parts_of(part) or [part.as_constant()]]
        )
    return ConstantVar("".join([part.as_constant() for part in parts]))


def formatted(frame, value, specification=None):
    if specification is None:
        parts = parts_of(value)
        return (
            TextVar(parts)
            if parts is not None
            else value
            if type(value) is ConstantVar and type(value.value) is str
            else ConstantVar(text(frame, value, "format"))
        )
    parts = parts_of(value, specification.value) if type(specification) is ConstantVar else None
    return (
        TextVar(parts)
        if parts is not None
        else frame.fold(format, value.as_constant(), specification.as_constant())
    )


pushes(
    {
        "BUILD_STRING": lambda frame, n: joined(frame.popn(n)),
        "CONVERT_VALUE": lambda frame, kind: ConstantVar(
            text(frame, frame.stack.pop(), {1: "str", 2: "repr", 3: "ascii"}[kind])
        ),
        "FORMAT_WITH_SPEC": lambda frame, _: formatted(frame, *frame.popn(2)),
        "FORMAT_SIMPLE": lambda frame, _: formatted(frame, frame.stack.pop()),
    }
)
