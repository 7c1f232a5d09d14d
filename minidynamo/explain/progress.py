"""What the compiler is doing, said while it does it: the stage, and which kernel of how many.

    minidynamo: forward: fusion
    minidynamo: forward: codegen, kernel 7 of 23

In:   the stages that records time (`timed`), and the kernels that are written.
Out:  lines on stderr.  In a terminal they replace one another (by rich, where it is installed);
      elsewhere there is one line for each frame, once it is compiled.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from miniinductor.codegen import kernels
from miniinductor.records import CompileRecord
from miniinductor.schedule.nodes import ExternNode

from ..records import FrameRecord
from .views import many


class Line:
    """A line of a terminal that is written over."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def update(self, text: str) -> None:
        self.stream.write(f"\r\x1b[K{text}")
        self.stream.flush()

    def stop(self) -> None:
        self.update("")


class Nothing:
    """Where the output is a file or a pipe, lines cannot be replaced."""

    def update(self, text: str) -> None:
        pass

    def stop(self) -> None:
        pass


def line_for(stream: TextIO) -> Any:
    """Something with `update(text)` and `stop()`; it is made anew for each frame."""
    if not stream.isatty():
        return Nothing()
    try:
        from rich.console import Console
    except ImportError:
        return Line(stream)
    status = Console(file=stream).status("minidynamo")
    status.start()
    return status


class Progress:
    """Tells what is compiled from `start()` on."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.names: list[str] = []  # of frames that are being compiled, the innermost last
        self.line: Any = Nothing()

    def start(self) -> None:
        """Listen to the records' stages, and to the kernels' writer."""
        FrameRecord.timed = self.listening(FrameRecord.timed)  # type: ignore[method-assign]
        CompileRecord.timed = self.listening(CompileRecord.timed)  # type: ignore[method-assign]
        kernels.kernel_of = self.counting(kernels.kernel_of)

    def listening(self, timed: Callable) -> Callable:
        """`timed` of a record, which says the stage's name first."""

        @functools.wraps(timed)
        @contextmanager
        def said(record: Any, stage: str) -> Iterator[None]:
            outermost = isinstance(record, FrameRecord)
            if outermost:
                self.begin(record)
            is_late = isinstance(record, CompileRecord) and not self.names
            start = time.perf_counter()
            self.say(stage)
            try:
                with timed(record, stage):
                    yield
            finally:
                if is_late and stage == "wrapper":  # the last one
                    self.tell("backward", record)
                if outermost:
                    self.end(record, stage, time.perf_counter() - start)

        return said

    def counting(self, write: Callable) -> Callable:
        """`kernel_of`, which says the kernel's number first."""

        @functools.wraps(write)
        def said(group: Any, schedule: Any, *rest: Any) -> Any:
            groups = [node for node in schedule.nodes if not isinstance(node, ExternNode)]
            self.say(f"codegen, kernel {groups.index(group) + 1} of {len(groups)}")
            return write(group, schedule, *rest)

        return said

    def begin(self, record: FrameRecord) -> None:
        if not self.names:
            self.line = line_for(self.stream)
        self.names.append(record.function)

    def say(self, what: str) -> None:
        name = self.names[-1] if self.names else "backward"
        self.line.update(f"minidynamo: {name}: {what}")

    def end(self, record: FrameRecord, stage: str, seconds: float) -> None:
        self.names.pop()
        if not self.names:
            self.line.stop()
            self.line = Nothing()
        if stage == "backend":  # the frame is through
            self.tell(record.function, record.backend_record, f"{seconds:.1f} s")

    def tell(self, name: str, compiled: Any, *more: str) -> None:
        """A line that stays.  compiled: a CompileRecord, or None; the page has its kernels."""
        kernels = len(getattr(compiled, "kernels", ()))
        texts = [*([many(kernels, "kernel")] if kernels else []), *more]
        print(f"minidynamo: {name}: {', '.join(texts)}", file=self.stream)
