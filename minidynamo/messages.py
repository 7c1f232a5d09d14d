"""What the user is told: frames that run as plain Python, guards that failed, and what MINI_DEBUG
asks for.

In:   functions given to `compile`, frames that are given up, entries that are made.
Out:  warnings of the logger `minidynamo`, once for each place; texts on stderr, and of records.

    helper (model.py:12) was compiled 8 times (config.recompile_limit); it runs as plain Python ...

A guard is Python, so it is taken apart as Python: by its `and`s, and each comparison into the side
that the call brings and the side that was written down.  No code of the program's runs: only values
of Python's own types are printed, of another object its class.

    >>> scope = {"x": torch.ones(3), "P_float32": torch.float32}
    >>> first_reading("x.dtype is P_float32 and x.shape == (2,)", scope, {"x"})
    Reading(what='x.shape', expected='(2,)', actual='(3,)', holds=False)

Mirrors what torch/_dynamo/convert_frame.py logs.
# PyTorch: TORCH_LOGS=recompiles prints what each kind of guard in C++ says of itself.
"""

import ast
import logging
import traceback
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from . import config, records
from .exceptions import Break, NoTensors, SkipFrame, Unsupported
from .foreign import ours
from .records import FrameRecord, debug

if TYPE_CHECKING:
    from .conversion import Conversion
    from .entries import CacheEntry
    from .guards import Guard, GuardFunction

LOG = logging.getLogger("minidynamo")
OURS = "minidynamo"
TOLD: set[Any] = set()  # what `tell` was told about; `minidynamo.reset()` forgets it


def tell(about: Any, text: str) -> None:
    """Warn, once for each `about`, of what costs the user speed or graphs."""
    if about not in TOLD:
        TOLD.add(about)
        LOG.warning(text)


# ---- frames that run as plain Python
def tell_given_up(message: str, record: FrameRecord) -> None:
    """Say, once, why frames of some code run as plain Python."""
    tell(message, message + record.advice)
    records.counters["skipped"][message] += 1
    record.skipped = message
    records.remember(record)


def give_up(record: FrameRecord, entries: "Sequence[CacheEntry]") -> None:
    """Where there is to be no other entry: say so.  Unsupported under fullgraph=True."""
    code = record.code
    assert code is not None
    place = f"{code.co_filename}:{code.co_firstlineno}"
    message = (
        f"{code.co_name} ({place}) {record.skipped}; it runs as plain Python from now on where no "
        f"entry fits. Last guard that failed: {record.recompile_reason or 'which module it is'}"
    )
    tell_given_up(message, record)
    if entries and entries[-1].compiler.fullgraph:
        raise Unsupported(message)


def tell_skipped(conversion: "Conversion", error: Exception) -> None:
    """A frame is given up, or the compiler has failed."""
    if isinstance(error, (SkipFrame, RecursionError)):
        tell_plain(conversion, error)
    else:
        note_error(error, conversion.record, OURS, user_line(conversion))


def user_line(conversion: "Conversion") -> str:
    """The line of the frame at which tracing has arrived."""
    root = conversion.attempts[-1].root if conversion.attempts else None
    line = root.line if root is not None else conversion.code.co_firstlineno
    return f"{conversion.code.co_filename}:{line}"


def internal_error(error: BaseException, record: FrameRecord, where: str, line: str) -> None:
    """Write a fault of the compiler's own down, or raise it where the tests want that.

    where: the part of the compiler; line: of the user's."""
    if config.raise_internal_errors:
        raise error
    note_error(error, record, where, line)


def note_error(error: BaseException, record: FrameRecord, where: str, line: str) -> None:
    """Write down, and tell, that a compiler failed and the frame runs eagerly."""
    record.error = "".join(traceback.format_exception(error))
    text = f"{type(error).__name__}: {error}"
    records.counters["errors"][f"{where}: {text}" if where != OURS else text] += 1
    tell(
        (where, line),
        f"{where} failed at {line}; {record.function} runs eagerly. {text}\n"
        "  hint: the frame's record in minidynamo.records.frames has the traceback (`error`)",
    )


def tell_plain(conversion: "Conversion", skipped: Exception) -> None:
    """A frame is given up: say where and why.  What made it unsplittable may be a graph break."""
    record, line = conversion.record, user_line(conversion)
    named = id(conversion.code) in conversion.compiler.compiled_by_name
    if isinstance(skipped, NoTensors) and not named:
        return
    cause, hint = skipped.__cause__, ""
    if isinstance(cause, Break):
        hint = f"\n  hint: {cause.hint}" if cause.hint else ""
        if cause.stack:
            line = f"{cause.stack[-1][0]}:{cause.stack[-1][1]}"
    text = f"{record.function} runs as plain Python: {skipped} (at {line}){hint}"
    tell(("skipped", record.function, line), text)


def show(entry: "CacheEntry") -> None:
    """Print what `config.debug` asks for."""
    record = entry.record
    for found in record.graph_breaks:
        debug(1, f"graph break: {found}")
    if config.debug >= 2:  # what is printed takes a while to make
        if record.graph is not None:
            debug(2, record.graph.print_readable(print_output=False))
        debug(2, record.guard_function.source)


# ---- guards that failed
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
    guard: "Guard"
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


def readings_of(
    function: "GuardFunction", guard: "Guard", scope: Mapping[str, Any]
) -> list[Reading]:
    """What a guard of an entry expects of each value, and what those of this call are.

    scope: `function.scope(...)` of a call."""
    text = guard.text(function.evaluable)
    return GuardReader(scope, ["this_function", *function.parameters]).readings(text)


def judge_entries(
    record: FrameRecord, entries: "Sequence[CacheEntry]", function: Any, args: Sequence[Any]
) -> None:
    """The first guard of each entry that is false in this call."""
    for number, entry in enumerate(entries):
        guards: Any = entry.record.guard_function
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
