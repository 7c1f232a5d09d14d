"""What capture decided, as objects: one `FrameRecord` per compiled frame, and the counters.

In:   filled by `convert_frame`.   Out: read by `explain`, notebooks, tests and messages.

    >>> minidynamo.counters["graph_breaks"]     # Counter({'the call of print() at model.py:12': 1})
    >>> records.frames[-1].guards[0].code          # "type(x) is P_Tensor"

Mirrors torch/_dynamo/utils.py (counters, CompilationMetrics).
"""

import itertools
import sys
import time
import types
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import fx

from . import config

if TYPE_CHECKING:
    from .guards import Guard
    from .messages import GuardFailure
    from .sources import Source
    from .symbolic_shapes import ShapeEnv


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
        """Does it only follow from an earlier break inside the same loop?"""
        return self.kind == "loop"

    def __str__(self) -> str:
        hint = f" (hint: {self.hint})" if self.hint else ""
        return f"{self.reason} at {self.file}:{self.line}{hint}"


@dataclass(eq=False, repr=False)
class FrameRecord:
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
    # why no earlier entry fitted: one for each whose guards are false, the oldest first
    # (messages.py); `advice` says the same, and what to do, in a message
    failures: "list[GuardFailure]" = field(default_factory=list)
    advice: str = ""
    number: int = field(default_factory=itertools.count().__next__)  # in order of compilation
    # replacement code steps it, if config.count_hits
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

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times[stage] = self.times.get(stage, 0.0) + time.perf_counter() - start


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


def debug(level: int, text: str) -> None:
    if config.debug >= level:
        print(text, file=sys.stderr)
