"""What the user is told: frames that run as plain Python, guards that failed, and what MINI_DEBUG
asks for.

In:   functions given to `compile`, frames that are given up, entries that are made.
Out:  warnings of the logger `minidynamo`, once for each place; texts on stderr, and of records.

    helper (model.py:12) was compiled 8 times (config.recompile_limit); it runs as plain Python ...

Mirrors what torch/_dynamo/convert_frame.py logs.
# PyTorch: TORCH_LOGS=recompiles prints what each kind of guard in C++ says of itself.
"""

import ast
import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from . import config, records
from .exceptions import Break, NoTensors, SkipFrame, Unsupported
from .foreign import ours
from .records import FrameRecord, debug

if TYPE_CHECKING:
    from .conversion import Conversion
    from .entries import CacheEntry
    from .guards import Guard

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
PRINTED = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)
SIZES = "mark the size with minidynamo.mark_dynamic(tensor, dim), or compile with dynamic=True"
HINTS = {  # kind of guard -> what the user can do
    **dict.fromkeys(("SHAPE", "EQUAL", "RANGE", "SIZES", "STRIDE"), SIZES),
    "EQUALS": "pass what changes as a tensor, or keep it out of the compiled function",
}
OTHERWISE = "make it the same in each call, or raise minidynamo.config.recompile_limit"


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
    """A value of Python's own types as a text of at most `LONGEST` characters; of another object
    its class, for none of the program's code runs here."""
    kind = type(value)
    if kind is torch.Size:
        return shown(tuple(value))
    is_huge = kind is int and value.bit_length() > 1000
    if kind in (tuple, list) and all(type(item) in PRINTED for item in value[:LONGEST]):
        text = repr(value[:LONGEST])
    elif kind in PRINTED and not is_huge:
        text = repr(value)
    elif isinstance(value, type):
        text = type.__getattribute__(value, "__qualname__")
    else:
        text = f"a {type.__getattribute__(kind, '__name__')}"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def first_false(text: str, scope: Mapping[str, Any]) -> tuple[str, str]:
    """What the first part of a guard that is false expects, and what the call has instead.

    >>> first_false("x.dtype is P_float32 and x.shape == (2,)", scope)
    ('(2,)', '(3,)')
    """

    def value(node: ast.expr) -> Any:
        whole = ast.fix_missing_locations(ast.Expression(node))
        return eval(compile(whole, "<minidynamo guard>", "eval"), dict(scope))

    body = ast.parse(text, mode="eval").body
    parts = body.values if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And) else [body]
    try:
        part = next((part for part in parts if not value(part)), parts[-1])
        if not isinstance(part, ast.Compare):
            return "True", "False"
        expected = [shown(value(side)) for side in part.comparators]
        return " and ".join(expected), shown(value(part.left))
    except ours(Exception) as error:  # what the guard looks at is not there
        return text, f"{type(error).__name__}: {error}"


def judge_entries(
    record: FrameRecord, entries: "Sequence[CacheEntry]", function: Any, args: Sequence[Any]
) -> None:
    """The first guard of each entry that is false in this call."""
    for number, entry in enumerate(entries):
        guards: Any = entry.record.guard_function
        for guard, reason in guards.failures(function, *args):
            text, scope = guard.text(guards.evaluable), guards.scope(function, *args)
            hint = HINTS.get(guard.kind, OTHERWISE)
            values = GuardFailure(number, guard, reason, *first_false(text, scope), hint)
            record.failures.append(values)
            break
    lines = [f"\n  version {each.entry}: {each}" for each in record.failures]
    hints = dict.fromkeys(f"\n  hint: {each.hint}" for each in record.failures)
    record.advice = "".join([*lines, *hints])
