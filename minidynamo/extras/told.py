"""What the user is told: frames that run as plain Python, and what MINI_DEBUG asks for.

In:   functions given to `compile`, frames that are given up, entries that are made.
Out:  warnings of the logger `minidynamo`, once for each place; texts on stderr, and of records.

    helper (model.py:12) was compiled 8 times (config.recompile_limit); it runs as plain Python ...

Mirrors what torch/_dynamo/convert_frame.py logs.
"""

import logging
import traceback
from collections.abc import Sequence
from typing import Any

from .extending import extends
from .. import config, hooks, records
from ..conversion import Conversion
from ..convert_frame import COMPILING, FrameCompiler
from ..entries import CacheEntry
from ..exceptions import Break, NoTensors, SkipFrame, Unsupported
from ..records import BreakRecord, Counters, FrameRecord, debug
from ..skipping import skip_reason

from . import guard_values, once  # noqa: F401  (what it advises is told here, so it judges first)

OURS = "minidynamo"
plain_skip = FrameCompiler.skip

# What fake tensors would log while a frame is traced is in the reason of the graph break.
logging.getLogger("torch._subclasses.fake_tensor").addFilter(
    lambda record: not getattr(COMPILING, "active", False)
)


def tell(message: str, record: FrameRecord) -> None:
    """Say, once, why frames of some code run as plain Python."""
    once.tell(message, message + record.advice)
    records.counters["skipped"][message] += 1
    record.skipped = message
    records.remember(record)


@hooks.TARGETS.append
def tell_of_target(target: Any) -> Any:
    """A function whose frames are left alone is given to `compile`."""
    code = getattr(target, "__code__", None)
    if code is not None and (reason := skip_reason(code)):
        place = f"{code.co_filename}:{code.co_firstlineno}"
        once.tell(place, f"{code.co_name} ({place}) runs as plain Python: it is {reason}")
    return target


@hooks.RECOMPILING.append
def give_up(
    record: FrameRecord, entries: Sequence[CacheEntry], function: Any, args: Sequence[Any]
) -> None:
    """Where there is to be no other entry: say so.  Unsupported under fullgraph=True."""
    if not record.skipped:
        return
    code = record.code
    assert code is not None
    place = f"{code.co_filename}:{code.co_firstlineno}"
    message = (
        f"{code.co_name} ({place}) {record.skipped}; it runs as plain Python from now on where no "
        f"entry fits. Last guard that failed: {record.recompile_reason or 'which module it is'}"
    )
    tell(message, record)
    if entries and entries[-1].compiler.fullgraph:
        raise Unsupported(message)


@extends(FrameCompiler)
def skip(
    compiler: FrameCompiler, conversion: Conversion, reason: str, error: Exception | None = None
) -> None:
    """A frame is given up, or the compiler has failed."""
    plain_skip(compiler, conversion, reason, error)
    if error is None:
        return
    if isinstance(error, (SkipFrame, RecursionError)):
        tell_skipped(conversion, error)
    else:
        note_error(error, conversion.record, OURS, user_line(conversion))


def user_line(conversion: Conversion) -> str:
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
    once.tell(
        (where, line),
        f"{where} failed at {line}; {record.function} runs eagerly. {text}\n"
        "  hint: the frame's record in minidynamo.records.frames has the traceback (`error`)",
    )


def tell_skipped(conversion: Conversion, skipped: Exception) -> None:
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
    once.tell(("skipped", record.function, line), text)


@hooks.COMPILED.append
def show(conversion: Conversion, entry: CacheEntry) -> None:
    """Print what `config.debug` asks for."""
    record = entry.record
    for found in record.graph_breaks:
        debug(1, f"graph break: {found}")
    if config.debug >= 2:  # what is printed takes a while to make
        if record.graph is not None:
            debug(2, record.graph.print_readable(print_output=False))
        debug(2, record.guard_function.source)


@extends(Counters, "__str__", "__repr__")
def text_of_counters(counters: Counters) -> str:
    lines = []
    for group, counter in counters.items():
        if counter:
            lines.append(f"{group}: {sum(counter.values())}")
            lines += [f"    {count} x {what}" for what, count in counter.most_common()]
    return "\n".join(lines)


@extends(BreakRecord, "__str__")
def text_of_break(found: BreakRecord) -> str:
    hint = f" (hint: {found.hint})" if found.hint else ""
    return f"{found.reason} at {found.file}:{found.line}{hint}"


@extends(FrameRecord, "__repr__")
def text_of_frame(record: FrameRecord) -> str:
    what = f"{len(record.guards)} guards, {len(record.graph_breaks)} graph breaks"
    if record.skipped:
        what = f"skipped: {record.skipped}"
    return f"<FrameRecord of {record.function}: {what}>"
