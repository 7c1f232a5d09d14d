"""Opcodes of texts: f"{x} {y!r} {z:.3f}".

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.
"""

from typing import Any

from ..symbolic_eval.opcodes import pushes
from ..symbolic_eval.text import text
from ..variables.constant import ConstantVar
from ..variables.more.texts import TextVar, parts_of


def joined(parts: list[Any]) -> Any:
    if all(type(part) is not TextVar for part in parts):
        return ConstantVar("".join([part.as_constant() for part in parts]))
    return TextVar([piece for part in parts for piece in parts_of(part) or [part.as_constant()]])


def formatted(frame: Any, value: Any, *specification: Any) -> Any:
    if all(type(part) is ConstantVar for part in specification):
        parts = parts_of(value, *[part.value for part in specification])
        if parts is not None:
            return TextVar(parts)
    if specification:
        return frame.fold(format, value.as_constant(), specification[0].as_constant())
    if type(value) is ConstantVar and type(value.value) is str:
        return value
    return ConstantVar(text(frame, value, "format"))


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
