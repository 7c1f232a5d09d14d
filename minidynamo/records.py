"""What capture decided, as objects, and what the user is told of it: one `FrameRecord` per compiled
frame, the counters, and warnings of the logger `minidynamo`, once for each place.

In:   filled by `convert_frame`: frames that are compiled or given up, guards that failed.
Out:  read by `explain`, notebooks and tests; texts on stderr (MINI_DEBUG), and of records.

    >>> minidynamo.counters["graph_breaks"]     # Counter({'the call of print() at model.py:12': 1})
    >>> records.frames[-1].guards[0].code          # "type(x) is P_Tensor"

    helper (model.py:12) was compiled 8 times (config.recompile_limit); it runs as plain Python ...

Mirrors torch/_dynamo/utils.py (counters, CompilationMetrics), and what convert_frame.py logs.
# PyTorch: TORCH_LOGS=recompiles prints what each kind of guard in C++ says of itself.
"""

import ast
import itertools
import logging
import sys
import time
import traceback
import types
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from miniinductor.errors import ours
from miniinductor.options import Timed, announce

from . import config
from .errors import Break, NoTensors, SkipFrame, Unsupported

if TYPE_CHECKING:
    from .convert.conversion import Conversion
    from .convert.entries import CacheEntry
    from .guards.guards import Guard, GuardFunction
    from .guards.sources import Source
    from .shapes.symbolic_shapes import ShapeEnv


@dataclass
class BreakRecord:
    """A graph break: `stack` is [(file, line, function), ...], outermost first; `file` and `line`
    are where it ends, perhaps in a function that the frame calls."""

    kind: str
    reason: str
    hint: str
    file: str
    line: int
    stack: list[tuple[str, int, str]]

    @property
    def is_consequence(self) -> bool:
        """Does this break only follow from an earlier one inside the same loop?"""
        return self.kind == "loop"

    def __str__(self) -> str:
        hint = f" (hint: {self.hint})" if self.hint else ""
        return f"{self.reason} at {self.file}:{self.line}{hint}"


@dataclass(eq=False, repr=False)
class FrameRecord(Timed):
    """One frame's way through capture.  Texts are printable; `guards` are `guards.Guard`
    objects."""

    # weak, because the code's cache of entries holds this record
    code_reference: "weakref.ref[types.CodeType]"
    function: str
    replacement_code: types.CodeType | None = None
    guards: "list[Guard]" = field(default_factory=list)
    guard_function: Any = None  # guards.GuardFunction
    graph_breaks: list[BreakRecord] = field(default_factory=list)
    graph: fx.GraphModule | None = None
    # sizes and ints that were met, see dynamic.SizePolicy
    sizes: list[Any] = field(default_factory=list)
    # source of a size that was a symbol at first -> (number, line that needed it)
    pinned: dict[str, tuple[float, str]] = field(default_factory=dict)
    shape_env: "ShapeEnv | None" = None
    input_sources: "list[Source]" = field(default_factory=list)
    backend: str = ""
    backend_record: Any = None
    begun: float = field(default_factory=time.perf_counter)
    times: dict[str, float] = field(default_factory=dict)
    skipped: str = ""  # why the frame runs as plain Python
    error: str = ""  # traceback of a failure of the compiler itself
    failed_guard: "Guard | None" = None  # of the entry before: the first one that was false
    recompile_reason: str = ""  # what it found
    # why no earlier entry fitted: one for each whose guards are false, the oldest first;
    # `advice` says the same, and what to do, in a message
    failures: "list[GuardFailure]" = field(default_factory=list)
    advice: str = ""
    misses: int = 0  # calls that no entry answered, while this was the last entry that was made
    walk: Any = None  # of `explain`: what lay on the stack before each instruction
    number: int = field(default_factory=itertools.count().__next__)  # in order of compilation
    # replacement code steps it
    calls: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def code(self) -> types.CodeType | None:
        """The frame's code; None once its function has died."""
        return self.code_reference()

    @property
    def hits(self) -> int:
        """Calls that an entry answered: all but the one it was compiled for."""
        calls = repr(self.calls)  # "count(2)": its next number, without a step
        return max(0, int(calls[6:-1]) - 1)

    def __repr__(self) -> str:
        what = f"{len(self.guards)} guards, {len(self.graph_breaks)} graph breaks"
        if self.skipped:
            what = f"skipped: {self.skipped}"
        return f"<FrameRecord of {self.function}: {what}>"


class Counters(defaultdict[str, Counter[str]]):
    """{"frames": Counter, "graphs": Counter, "graph_breaks": Counter by reason and line,
    "recompiles", "cache_hits", "skipped", "errors"}; a group appears when it is asked for."""

    def __getitem__(self, group: str) -> Counter[str]:
        if group == "cache_hits":  # read off the records: the hot path only steps a counter
            hits: Counter[str] = Counter()
            for record in frames:
                hits[record.function] += record.hits
            self[group] = +hits  # without those that have none
        return super().__getitem__(group)

    def __str__(self) -> str:
        lines = []
        for group, counter in self.items():
            if counter:
                lines.append(f"{group}: {sum(counter.values())}")
                lines += [f"    {count} x {what}" for what, count in counter.most_common()]
        return "\n".join(lines)

    __repr__ = __str__


counters = Counters(Counter)
frames: deque[FrameRecord] = deque(maxlen=1000)


def remember(record: FrameRecord) -> None:
    """Add a record to `frames`; those of dead functions leave (a notebook's cell, run again)."""
    for dead in [earlier for earlier in frames if earlier.code is None]:
        frames.remove(dead)
    frames.append(record)
    announce("remember", record)


def forget(record: FrameRecord) -> None:
    """Its entry is gone."""
    if record in frames:
        frames.remove(record)


def forget_all() -> None:
    """The records, the counters, and what was told."""
    TOLD.clear()
    frames.clear()
    counters.clear()


def count(group: str, what: str) -> None:
    counters[group][what] += 1


def debug(level: int, text: str) -> None:
    if config.debug >= level:
        print(text, file=sys.stderr)


LOG = logging.getLogger("minidynamo")
OURS = "minidynamo"
TOLD: set[Any] = set()  # what `warn_once` was told about; `minidynamo.reset()` forgets it


def warn_once(about: Any, text: str) -> None:
    """Warn, once for each `about`, of what costs the user speed or graphs."""
    if about not in TOLD:
        TOLD.add(about)
        LOG.warning(text)


# ---- frames that run as plain Python
def give_up(record: FrameRecord, reason: str, fullgraph: bool, about: Any) -> None:
    """Warn that a code object gets no further entry, and note that `about` was told: (compiler,
    code, reason).  Raises Unsupported under fullgraph=True."""
    TOLD.update((about, about[:2]))
    code = record.code
    assert code is not None
    message = (
        f"{code.co_name} ({code.co_filename}:{code.co_firstlineno}) {reason}; it runs as plain "
        "Python from now on where no entry fits"
    )
    warn_once(message, message + record.advice)
    count("skipped", message)
    record.skipped = message
    remember(record)
    if fullgraph:
        raise Unsupported(message + record.advice)


def explain_break(found: Break) -> str:
    """The message of `Unsupported` under fullgraph=True."""
    text = [f"graph break under fullgraph=True: {found.reason}"]
    text += [f'  File "{file}", line {line}, in {function}' for file, line, function in found.stack]
    if found.hint:
        text.append(f"  hint: {found.hint}")
    return "\n".join(text)


def warn_of_skip(conversion: "Conversion", error: Exception) -> None:
    """Warn that the compiler has failed; or where and why a frame was given up: the cause may be a
    graph break that cannot split."""
    if not isinstance(error, (SkipFrame, RecursionError)):
        note_error(error, conversion, OURS)
        return
    record, line = conversion.record, user_line(conversion)
    named = id(conversion.code) in conversion.compiler.compiled_by_name
    if isinstance(error, NoTensors) and not named:
        return
    cause, hint = error.__cause__, ""
    if isinstance(cause, Break):
        hint = f"\n  hint: {cause.hint}" if cause.hint else ""
        if cause.stack:
            line = f"{cause.stack[-1][0]}:{cause.stack[-1][1]}"
    text = f"{record.function} runs as plain Python: {error} (at {line}){hint}"
    warn_once(("skipped", record.function, line), text)


def user_line(conversion: "Conversion") -> str:
    """The line of the frame at which tracing has arrived."""
    root = conversion.attempts[-1].root if conversion.attempts else None
    line = root.line if root is not None else conversion.code.co_firstlineno
    return f"{conversion.code.co_filename}:{line}"


def note_error(error: BaseException, conversion: "Conversion", where: str) -> None:
    """Record that a compiler failed and the frame runs eagerly, and warn once."""
    record, line = conversion.record, user_line(conversion)
    record.error = "".join(traceback.format_exception(error))
    text = f"{type(error).__name__}: {error}"
    count("errors", f"{where}: {text}" if where != OURS else text)
    warn_once(
        (where, line),
        f"{where} failed at {line}; {record.function} runs eagerly. {text}\n"
        "  hint: the frame's record in minidynamo.records.frames has the traceback (`error`)",
    )


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
DYNAMIC = "mark the size with minidynamo.mark_dynamic(tensor, dim), or compile with dynamic=True"
HINTS = {  # kind of guard -> what the user can do
    **dict.fromkeys(("SHAPE", "EQUAL", "RANGE", "SIZES", "STRIDE"), DYNAMIC),
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
    if type(value) is torch.Size:
        value = tuple(value)
    items = value[:LONGEST] if type(value) in (tuple, list) else [value]
    if all(type(item) in PRINTED for item in items):
        return repr(value)[:LONGEST]
    return value.__name__ if isinstance(value, type) else f"a {type(value).__name__}"


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
) -> "list[Guard]":
    """The first guard of each entry that is false in this call goes into the record; all of the
    newest entry's are returned."""
    failed: list[Guard] = []
    for number, entry in enumerate(entries):
        guards: GuardFunction = entry.record.guard_function
        found = list(guards.failures(function, *args))
        failed = [guard for guard, _ in found]
        for guard, reason in found[:1]:
            values = first_false(guards.evaluable(guard), guards.scope(function, *args))
            hint = HINTS.get(guard.kind, OTHERWISE)
            failure = GuardFailure(number, guard, reason, *values, hint)
            record.failures.append(failure)
            record.failed_guard, record.recompile_reason = guard, reason
    lines = [f"\n  version {each.entry}: {each}" for each in record.failures]
    hints = dict.fromkeys(f"\n  hint: {each.hint}" for each in record.failures)
    record.advice = "".join([*lines, *hints])
    return failed
