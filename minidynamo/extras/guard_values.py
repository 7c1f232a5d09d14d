"""What a guard expects, and what a call has instead: two texts for tables and messages.

In:   the text of a guard, and the values of a call.  Out: a `Reading` of the part that is false.

    >>> scope = {"x": torch.ones(3), "P_float32": torch.float32}
    >>> first_reading("x.dtype is P_float32 and x.shape == (2,)", scope, {"x"})
    Reading(what='x.shape', expected='(2,)', actual='(3,)', holds=False)

A guard is Python, so it is taken apart as Python: by its `and`s, and each comparison into the side
that the call brings and the side that was written down.  No code of the program's runs: only values
of Python's own types are printed, of another object its class.

PyTorch: TORCH_LOGS=recompiles prints what each kind of guard in C++ says of itself.
"""

import ast
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from .. import hooks
from ..entries import CacheEntry
from ..foreign import ours
from ..guards import Guard, GuardFunction
from ..records import FrameRecord

LONGEST = 120  # characters of a value
NUMBERS = (int, float, complex, str, bytes, bool, type(None), type(...), type(NotImplemented))
OF_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
SYMBOLS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
SIZES = "mark the size with minidynamo.mark_dynamic(tensor, dim), or compile with dynamic=True"
HINTS = {  # kind of guard -> what the user can do
    **dict.fromkeys(("SHAPE", "EQUAL", "RANGE", "SIZES", "STRIDE"), SIZES),
    "EQUALS": "pass what changes as a tensor, or keep it out of the compiled function",
    "LENGTH": "a container of another length takes another graph: pass one tensor instead",
    "GRAD": "call it always with gradients on, or always with gradients off",
}
OTHERWISE = "make it the same in each call, or raise minidynamo.config.recompile_limit"


class Reading(NamedTuple):
    """One comparison of a guard.  what: the expression that reads the call's value.  holds: None
    where it could not be computed."""

    what: str
    expected: str
    actual: str
    holds: bool | None


@dataclass
class GuardFailure:
    """The first guard of an earlier entry that a call did not fulfil.

    entry: its number, the oldest is 0.  reason: the guard as Python.  expected, actual, hint: the
    value that was written down, the call's, and what the user can do."""

    entry: int
    guard: Guard
    reason: str
    expected: str
    actual: str
    hint: str

    def __str__(self) -> str:
        return f"{self.reason} (expected {self.expected}; found {self.actual})"


def shown(value: Any) -> str:
    """A value as a text of at most about `LONGEST` characters."""
    kind = type(value)
    if kind in (tuple, list, torch.Size):
        items = ", ".join(map(shown, value[:20])) + (", ..." if len(value) > 20 else "")
        comma = "," if len(value) == 1 and kind is not list else ""
        text = f"[{items}]" if kind is list else f"({items}{comma})"
    elif kind in NUMBERS or kind in OF_TORCH:
        is_huge = kind is int and value.bit_length() > 1000
        text = f"an int of {value.bit_length()} bits" if is_huge else repr(value)
    elif isinstance(value, type):
        text = type.__getattribute__(value, "__qualname__")
    elif isinstance(value, types.FunctionType):
        code = value.__code__
        text = f"the function {code.co_name} ({code.co_filename}:{code.co_firstlineno})"
    else:
        text = f"a {type.__getattribute__(kind, '__name__')} at {id(value):#x}"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


class GuardReader:
    """Reads the comparisons of one guard, and like Python stops at the first that does not hold:
    what comes behind `type(n) is int and` is not asked of anything else.

    parameters: the names that each call brings."""

    def __init__(self, scope: Mapping[str, Any], parameters: Collection[str]) -> None:
        self.scope, self.parameters = dict(scope), parameters

    def readings(self, text: str) -> list[Reading]:
        """The comparisons that `text` joins by `and`, in order, up to the first that is false."""
        found = []
        for reading in self.read(ast.parse(text, mode="eval").body):
            found.append(reading)
            if not reading.holds:
                break
        return found

    def read(self, node: ast.expr) -> Iterator[Reading]:
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for part in node.values:
                yield from self.read(part)
        elif isinstance(node, ast.BoolOp):
            yield self.either(node.values)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, op, right in zip(sides, node.ops, sides[1:]):
                yield self.compare(left, op, right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield Reading(*self.texts(node.operand, "False"), self.holds(node))
        else:
            yield Reading(*self.texts(node, "True"), self.holds(node))

    def either(self, parts: Sequence[ast.expr]) -> Reading:
        """One of several must hold."""
        readings: list[Reading] = []
        while len(readings) < len(parts) and not any(reading.holds for reading in readings):
            readings.append(self.readings(ast.unparse(parts[len(readings)]))[-1])
        expected = " or ".join(dict.fromkeys(reading.expected for reading in readings))
        holds = any(reading.holds for reading in readings)
        return readings[0]._replace(expected=expected, holds=holds)

    def compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Reading:
        holds = self.holds(ast.Compare(left, [op], [right]))
        symbol = SYMBOLS[type(op)]
        if self.is_pinned(left) and not self.is_pinned(right):
            left, right, symbol = right, left, FLIPPED.get(symbol, symbol)
        expected = self.text(right)
        if not self.is_pinned(right):  # both come with the call
            expected = f"{ast.unparse(right)}, which is {expected}"
        if symbol not in ("==", "is"):
            expected = f"{symbol} {expected}"
        return Reading(*self.texts(left, expected), holds)

    def is_pinned(self, node: ast.expr) -> bool:
        """Does it mean the same in each call?"""
        names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        return not any(name in self.parameters for name in names)

    def texts(self, node: ast.expr, expected: str) -> tuple[str, str, str]:
        return ast.unparse(node), expected, self.text(node)

    def value(self, node: ast.expr) -> Any:
        whole = ast.fix_missing_locations(ast.Expression(node))
        return eval(compile(whole, "<minidynamo guard>", "eval"), self.scope)

    def holds(self, node: ast.expr) -> bool | None:
        try:
            return bool(self.value(node))
        except ours(Exception):
            return None

    def text(self, node: ast.expr) -> str:
        """The value of an expression, or the error that reading it raises."""
        try:
            return shown(self.value(node))
        except ours(Exception) as error:
            return f"{type(error).__name__}: {error}"


def first_reading(text: str, scope: Mapping[str, Any], parameters: Collection[str]) -> Reading:
    """The first comparison of a guard that does not hold; the last one, where all hold."""
    return GuardReader(scope, parameters).readings(text)[-1]


def readings_of(function: GuardFunction, guard: Guard, scope: Mapping[str, Any]) -> list[Reading]:
    """What a guard of an entry expects of each value, and what those of this call are.

    scope: `function.scope(...)` of a call."""
    text = guard.text(function.evaluable)
    return GuardReader(scope, ["this_function", *function.parameters]).readings(text)


def judge_entries(
    record: FrameRecord, entries: Sequence[CacheEntry], function: Any, args: Sequence[Any]
) -> None:
    """For `hooks.RECOMPILING`: the first guard of each entry that is false in this call."""
    for number, entry in enumerate(entries):
        guards: GuardFunction = entry.record.guard_function
        failure = guards.first_failure(function, *args)
        if failure is not None:
            guard, reason = failure
            reading = readings_of(guards, guard, guards.scope(function, *args))[-1]
            hint = HINTS.get(guard.kind, OTHERWISE)
            values = reading.expected, reading.actual, hint
            record.failures.append(GuardFailure(number, guard, reason, *values))
    lines = [f"\n  version {each.entry}: {each}" for each in record.failures]
    hints = dict.fromkeys(f"\n  hint: {each.hint}" for each in record.failures)
    record.advice = "".join([*lines, *hints])


hooks.RECOMPILING.append(judge_entries)
