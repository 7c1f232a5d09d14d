"""Where time goes: in compiling, stage by stage, and in one call, line by line of its wrapper.

In:   programs of miniinductor's and the stages that records time, while something is explained.
Out:  a `Timeline`: slices, and `save`, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

    >>> e = minidynamo.explain(lambda x: torch.relu(x) + 1)(torch.ones(8))
    >>> [one.name for one in e.timeline.slices if one.track == "compiling"][:2]
    ['<lambda>', 'trace']
    >>> [one.kind for one in e.timeline.slices if one.kind == "kernel"]
    ['kernel']
    >>> e.timeline.save("/dev/null")        # or "trace.json"
    '/dev/null'

A stage is listened to while records time it.  A wrapper says the time before each of its lines
(`ticked`), so its slices follow one another without a gap; those of its last call are kept.  Where
kernels are measured (`measure=True`) a slice is as long as was measured.  Elsewhere CUPTI, through
torch.profiler, tells what a GPU did while the explained function ran: each stream is a track.
"""

import ast
import bisect
import contextlib
import dataclasses
import functools
import itertools
import json
import re
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from miniinductor.options import listen
from miniinductor.records import CompileRecord
from miniinductor.runtime.memory import Program

from .measure import is_eager_kernel, sheet_of, with_clock

KINDS = {  # of a line of a wrapper that calls no kernel: what it says
    "copy": re.compile(r"\.copy_\(|\bclone\("),
    "allocation": re.compile(r"\bnew_workspace\(|\bempty_\w+\(|\bworkspaces\b"),
}
COPIES = ("Memcpy", "Memset")  # how CUPTI calls them
CALLED = re.compile(r"[A-Za-z_]\w*(?=\()")


@dataclass
class Slice:
    """seconds: from when to when, of `time.perf_counter`.  source: lines of the program."""

    name: str
    kind: str  # "stage", "kernel", "library", "copy", "allocation", "wrapper", "launch", "wait"
    track: str
    start: float
    end: float
    source: str = ""


@dataclass
class Ticks:
    """The last call of one wrapper: before which line it was when."""

    libraries: set[str]  # names of operations of torch's in its scope
    last: list[tuple[int, float]] = field(default_factory=list)

    def __call__(self, line: int, is_first: bool) -> None:
        if is_first:
            self.last = []
        self.last.append((line, time.perf_counter()))


@dataclass(frozen=True)
class Work:
    """What a stream of a GPU did; without a stream: what the host asked of it, or waited for.
    number: that of the launch, which both have."""

    name: str
    start: float  # of `time.perf_counter`
    end: float
    stream: str  # "cuda:0, stream 7"
    number: int

    @property
    def kind(self) -> str:
        """ "" of a kernel, and of what the host asks for besides."""
        if self.stream:
            return "copy" if self.name.startswith(COPIES) else ""
        if any(word in self.name for word in ("Launch", *COPIES)):
            return "launch"
        return "wait" if "Synchronize" in self.name else ""


STAGES: dict[int, list[tuple[str, float, float]]] = {}  # id of a record -> its stages
STARTS: dict[int, list[float]] = {}  # of stages that have not ended
TICKS: dict[int, Ticks] = {}  # id of a CompileRecord -> of its program


def kept(table: dict[int, Any], record: Any, value: Any) -> Any:
    """What the table has of a record, or from now on, while the record lives, this."""
    if id(record) not in table:
        table[id(record)] = value
        weakref.finalize(record, table.pop, id(record), None).atexit = False
    return table[id(record)]


# --- listening ------------------------------------------------------------------------------------
@functools.cache
def keep_stages() -> None:
    """From now on the stages of all records are kept."""
    listen(hear)


def hear(what: str, record: Any, more: Any) -> None:
    starts = kept(STARTS, record, []) if what in ("begin", "end") else []
    if what == "begin":
        starts.append(time.perf_counter())
    elif what == "end" and starts:
        kept(STAGES, record, []).append((more, starts.pop(), time.perf_counter()))


def clock(measures: bool) -> Callable[[Program, CompileRecord], Program]:
    """For CLOCK of miniinductor: programs tick; measures: their kernels are measured, too."""
    keep_stages()

    def with_ticks(program: Program, record: CompileRecord) -> Program:
        libraries = {name for name, value in program.scope.items() if is_eager_kernel(name, value)}
        program = with_clock(program, record) if measures else program
        tick = TICKS[id(record)] = Ticks(libraries)
        weakref.finalize(record, TICKS.pop, id(record), None).atexit = False
        scope = program.scope | {"_tick": tick}
        return dataclasses.replace(program, source=ticked(program.source), scope=scope)

    return with_ticks


def ticked(source: str) -> str:
    """The wrapper, which says the number of each line before it runs that line.  Lines keep their
    numbers."""
    lines = source.split("\n")
    for function in [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]:
        simple = [n for n in ast.walk(function) if isinstance(n, ast.stmt)]
        numbers = sorted({(n.lineno, n.col_offset) for n in simple if not hasattr(n, "body")})
        for number, column in numbers:
            text = lines[number - 1]
            if not text[:column].strip():  # the statement begins its line
                call = f"_tick({number}, {(number, column) == numbers[0]}); "
                lines[number - 1] = text[:column] + call + text[column:]
    return "\n".join(lines)


@contextlib.contextmanager
def watched_gpu(found: list[Work], measures: bool) -> Iterator[None]:
    """Adds what a GPU does meanwhile; not where kernels are measured, the program has no GPU, or
    somebody is profiling it already."""
    if measures or not torch.cuda.is_initialized() or torch.autograd._profiler_enabled():
        yield
        return
    cupti = {"use_device": "cuda", "use_cpu": False, "use_kineto": True}
    with torch.autograd.profiler.profile(**cupti) as profile:
        yield
    found += works(profile.kineto_results.events(), time.time_ns() - time.perf_counter_ns())


def works(events: Iterable[Any], epoch: int) -> Iterator[Work]:
    """Of events of torch.profiler.  epoch: nanoseconds, at which `time.perf_counter` was 0."""
    for event in events:
        is_host = event.device_type() == torch.profiler.DeviceType.CPU
        stream = f"cuda:{event.device_index()}, stream {event.device_resource_id()}"
        start, end = ((ns - epoch) / 1e9 for ns in (event.start_ns(), event.end_ns()))
        yield Work(event.name(), start, end, "" if is_host else stream, event.correlation_id())


# --- slices ---------------------------------------------------------------------------------------
class Timeline:
    """slices: all of an explanation, in their order."""

    def __init__(self, explanation: Any) -> None:
        from .data import Origins

        document = explanation.to_json()
        self.origins = Origins(document)
        self.paths = {file["id"]: file["path"] for file in document["files"]}
        self.slices: list[Slice] = []
        self.works: Sequence[Work] = explanation.works
        seen: dict[int, str] = {}  # id of a code object -> id of its frame in the document
        frames = {frame["id"]: frame for frame in document["frames"]}
        entries = {name: iter(frame["entries"]) for name, frame in frames.items()}
        for one in explanation.frames:
            name = seen.setdefault(id(one.record.code), f"f{len(seen)}")
            frame = frames[name]
            file = self.paths.get(frame["file"], "")
            self.add_frame(one.record, f"{file}:{frame['first_line']}" if file else "")
            if one.record.replacement_code is not None:
                self.add_calls(one.record, next(entries[name]))
        self.slices.sort(key=lambda one: (one.start, -one.end))

    def add_frame(self, record: Any, source: str) -> None:
        stages, forward = [*STAGES.get(id(record), ())], record.backend_record
        halves = [forward, getattr(forward, "backward", None)]
        within = [stage for half in halves for stage in STAGES.get(id(half), ())]
        if stages:
            start, end = min(s for _, s, _ in stages), max(e for *_, e in stages)
            self.slices.append(Slice(record.function, "stage", "compiling", start, end, source))
        for name, start, end in stages + within:
            self.slices.append(Slice(name, "stage", "compiling", start, end, source))

    def add_calls(self, record: Any, entry: dict[str, Any]) -> None:
        """The last call of each half."""
        forward = record.backend_record
        halves = {"forward": forward, "backward": getattr(forward, "backward", None)}
        for direction, half in halves.items():
            ticks = TICKS.get(id(half))
            name = f"{entry['id']}/{direction}/wrapper"
            stage = next((one for one in entry["stages"] if one["id"] == name), None)
            if ticks is None or stage is None or not ticks.last:
                continue
            kernels = {kernel.name for kernel in half.kernels}
            self.add_lines(ticks, kernels, stage, f"call of {record.function}, {direction}", half)

    def add_lines(
        self, ticks: Ticks, kernels: set[str], stage: dict[str, Any], track: str, half: Any
    ) -> None:
        texts, sheet = stage["text"].split("\n"), sheet_of(half)
        measured = sheet.steps if sheet is not None else {}
        now = ticks.last[0][1]
        for (line, start), (_, end) in itertools.pairwise(ticks.last):
            seconds = measured[line].seconds if line in measured else end - start
            name, kind = about(texts[line - 1], kernels, ticks.libraries)
            source = ", ".join(map(self.place, self.origins.own_lines(f"{stage['id']}/{line}")))
            self.slices.append(Slice(name, kind, track, now, now + seconds, source))
            now += seconds
        if self.works:
            self.add_works([one for one in self.slices if one.track == track])

    def add_works(self, lines: Sequence[Slice]) -> None:
        """What the lines of one call launched or waited for, and what streams made of it."""
        starts, asked = (
            [one.start for one in lines],
            {w.number: w for w in self.works if not w.stream},
        )
        for work in self.works:
            at = asked.get(work.number, work).start
            line = lines[max(0, bisect.bisect_right(starts, at) - 1)]
            if not line.start <= at < line.end:
                continue
            kind = work.kind or (line.kind if work.stream else "")
            if kind:
                where = work.stream or line.track
                self.slices.append(Slice(work.name, kind, where, work.start, work.end, line.source))

    def place(self, line: str) -> str:
        """file0:12 -> model.py:12"""
        file, _, number = line.partition(":")
        return f"{self.paths[file]}:{number}"

    def to_json(self) -> dict[str, Any]:
        """The format of Chrome's traces: microseconds; a process for each track."""
        begin = min((one.start for one in self.slices), default=0.0)
        names = dict.fromkeys(one.track for one in self.slices)
        tracks = {track: n for n, track in enumerate(names, 1)}
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": n, "tid": 1, "args": {"name": track}}
            for track, n in tracks.items()
        ]
        for one in self.slices:
            event = {"name": one.name, "cat": one.kind, "ph": "X", "pid": tracks[one.track]}
            event |= {"tid": 1, "ts": (one.start - begin) * 1e6, "dur": (one.end - one.start) * 1e6}
            events.append(event | {"args": {"source": one.source} if one.source else {}})
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save(self, path: str) -> str:
        """Write the trace; returns the path."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.to_json(), file)
        return path

    def __repr__(self) -> str:
        rows = [((o.end - o.start) * 1e6, o.track, o.name, o.source) for o in self.slices]
        return "\n".join(
            f"{row[0]:12.1f} us  {row[1]}: {row[2]}  {row[3]}".rstrip() for row in rows
        )


def about(text: str, kernels: set[str], libraries: set[str]) -> tuple[str, str]:
    """What a line of a wrapper calls, and of which kind that is."""
    called = CALLED.findall(text)
    for kind, names in (("kernel", kernels), ("library", libraries)):
        found = [name for name in called if name in names]
        if found:
            return found[0], kind
    short = text.partition("#")[0].strip()
    return short, next((kind for kind, says in KINDS.items() if says.search(text)), "wrapper")
