"""What the compiler is doing, said while it does it: the stage, and which kernel of how many.

    minidynamo: forward: fusion
    minidynamo: forward: codegen, kernel 7 of 23

In:   the stages that records time (`timed`), and the kernels that are written.
Out:  lines on stderr.  In a terminal they replace one another (by rich, where it is installed);
      elsewhere there is one line for each frame, once it is compiled.
"""

import sys
import time
from typing import Any, TextIO

from miniinductor.options import listen

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
        self.starts: list[float] = []  # when their stages began
        self.line: Any = Nothing()

    def start(self) -> None:
        """Listen to the records' stages, and to the kernels' writer."""
        listen(self.hear)

    def hear(self, what: str, record: Any, more: Any) -> None:
        """A stage of a record begins or ends, or a kernel is about to be written."""
        is_frame = isinstance(record, FrameRecord)
        if what == "begin":
            if is_frame:
                self.begin(record)
            self.say(more)
        elif what == "end" and is_frame:
            self.end(record, more)
        elif what == "end" and more == "wrapper" and not self.names:  # its last one
            self.tell("backward", record)
        elif what == "kernel":
            self.say(f"codegen, kernel {more}")

    def begin(self, record: FrameRecord) -> None:
        if not self.names:
            self.line = line_for(self.stream)
        self.names.append(record.function)
        self.starts.append(time.perf_counter())

    def say(self, what: str) -> None:
        name = self.names[-1] if self.names else "backward"
        self.line.update(f"minidynamo: {name}: {what}")

    def end(self, record: FrameRecord, stage: str) -> None:
        self.names.pop()
        seconds = time.perf_counter() - self.starts.pop()
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
