"""What capture decided, as objects: one `FrameRecord` per compiled frame, and the counters.

In:   filled by `convert_frame`.   Out: read by `explain`, notebooks, tests and messages.

    >>> minidynamo.counters["graph_breaks"]        # Counter({'the call of print() at model.py:12': 1})
    >>> records.frames[-1].guards[0].code          # "type(x) is P_Tensor"

Mirrors torch/_dynamo/utils.py (counters, CompilationMetrics).
"""

import collections
import inspect
import itertools
import time
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field

from .foreign import ours


@dataclass
class BreakRecord:
    """A graph break: `stack` is [(file, line, function), ...], outermost first."""

    kind: str
    reason: str
    hint: str
    file: str
    line: int
    stack: list

    def __str__(self):
        return f"{self.reason} at {self.file}:{self.line}" + (
            f" (hint: {self.hint})" if self.hint else ""
        )


@dataclass(eq=False, repr=False)
class FrameRecord:
    """One frame's way through capture.  Texts are printable; `guards` are `guards.Guard`
    objects."""

    code_reference: weakref.ref  # the code's cache of entries holds this record: see `remember`
    function: str
    replacement_code: object = None
    guards: list = field(default_factory=list)
    guard_function: object = None  # guards.GuardFunction
    graph_breaks: list = field(default_factory=list)
    graph: object = None  # fx.GraphModule, or None
    sizes: list = field(
        default_factory=list
    )  # sizes and ints that were met, see dynamic.SizePolicy
    pinned: dict = field(
        default_factory=dict
    )  # source of a size that was a symbol at first -> (number, line that needed it)
    shape_env: object = None  # symbolic_shapes.ShapeEnv
    input_sources: list = field(default_factory=list)
    backend: str = ""
    backend_record: object = None
    times: dict = field(default_factory=dict)
    skipped: str = ""  # why the frame runs as plain Python
    error: str = ""  # traceback of a failure of the compiler itself
    recompile_reason: str = ""  # what the first failing guard of the entry before found
    failed_guard: object = None  # that guards.Guard
    calls: object = field(
        default_factory=itertools.count
    )  # replacement code steps it; see config.count_hits

    def __repr__(self):
        what = (
            f"skipped: {self.skipped}"
            if self.skipped
            else f"{len(self.guards)} guards, {len(self.graph_breaks)} graph breaks"
        )
        return f"<FrameRecord of {self.function}: {what}>"

    @property
    def code(self):
        """The frame's code; None once its function has died."""
        return self.code_reference()

    @property
    def source(self):
        """The user's source text."""
        try:
            return inspect.getsource(self.code)
        except ours(OSError, TypeError):
            return ""

    @property
    def hits(self):
        """Calls that an entry answered: all but the one it was compiled for."""
        return max(0, self.calls.__reduce__()[1][0] - 1)

    @contextmanager
    def timed(self, stage):
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times[stage] = self.times.get(stage, 0.0) + time.perf_counter() - start


class Counters(dict):
    """{"frames": Counter, "graphs": Counter, "graph_breaks": Counter by reason and line,
    "recompiles", "cache_hits", "skipped", "errors"}; a group appears when it is asked for."""

    def __getitem__(self, group):
        if group == "cache_hits":  # read off the records: the hot path only steps a counter
            hits = self[group] = collections.Counter()
            for record in frames:
                if record.hits:
                    hits[record.function] += record.hits
        return super().__getitem__(group)

    def __missing__(self, group):
        self[group] = collections.Counter()
        return self[group]

    def __str__(self):
        return "\n".join(
            f"{group}: {sum(counter.values())}"
            + "".join(f"\n    {count} x {what}" for what, count in counter.most_common())
            for group, counter in self.items()
            if counter
        )

    __repr__ = __str__


counters = Counters()
frames = collections.deque(maxlen=1000)


def remember(record):
    """Add a record to `frames`; those of dead functions leave (a notebook's cell that ran again)."""
    for dead in [earlier for earlier in frames if earlier.code is None]:
        frames.remove(dead)
    frames.append(record)
