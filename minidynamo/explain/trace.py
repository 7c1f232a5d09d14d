"""Everything that a program compiles, kept until the program ends, and then written as its page.

    MINI_TRACE=traces python train.py               # traces/train-4711.html
    python -m minidynamo explain train.py -o page.html

In:   each frame's record, when capture has finished it.   Out: one HTML file.
"""

import atexit
import contextlib
import os
import sys
import types
from pathlib import Path
from typing import Any

import miniinductor
from miniinductor.compile import CLOCK
from miniinductor.options import listen

from .. import records
from ..records import FrameRecord
from . import stepping
from .progress import Progress
from .running import Looks
from .timeline import clock
from .views import many

STARTED: "list[Trace]" = []


class Trace:
    """The records of a program.  A record holds its frame's code weakly: a trace keeps it."""

    def __init__(self, path: Path, name: str, looks: Looks) -> None:
        self.path, self.name, self.looks = path, name, looks
        self.process = os.getpid()
        self.script = os.path.abspath(name) if os.path.isfile(name) else ""
        self.records: list[FrameRecord] = []
        self.codes: list[types.CodeType | None] = []
        self.blocks = contextlib.ExitStack()

    def start(self) -> None:
        """Listen from now on; write the page when the program ends."""
        listen(self.hear)
        # until the program ends; keep_steps: of each graph pass, what it changed
        self.blocks.enter_context(miniinductor.config.patch(keep_steps=True))
        self.blocks.enter_context(CLOCK.set(clock(self.looks.measure)))
        self.blocks.enter_context(stepping.watching())
        atexit.register(self.write)

    def hear(self, what: str, record: Any, more: Any) -> None:
        if what == "remember":
            self.records.append(record)
            self.codes.append(record.code)

    def told(self) -> list[FrameRecord]:
        """The records that there is something to show of."""
        return [r for r in self.records if r.graph is not None or r.graph_breaks or r.error]

    def write(self) -> None:
        """The page.  A forked process that ends leaves it to its parent."""
        if os.getpid() != self.process:
            return
        from .explanation import Explanation

        told = self.told()
        if not told:
            return
        counters = {group: dict(found) for group, found in records.counters.items()}
        explanation = Explanation(self.name, None, told, counters)
        explanation.looks, explanation.script = self.looks, self.script
        explanation.save(str(self.path))
        frames = many(len({id(record.code) for record in told}), "frame")
        print(f"minidynamo: {frames} explained in {self.path}", file=sys.stderr)


def start(path: Path, name: str, looks: Looks = Looks()) -> None:
    """Trace this process, and say what is compiled.  The second call does nothing: the command line
    goes before MINI_TRACE."""
    if STARTED:
        return
    STARTED.append(Trace(path, name, looks))
    STARTED[0].start()
    Progress().start()


def start_in(folder: str) -> None:
    """What MINI_TRACE=folder asks for: a page named after the program and its process.  report.py
    makes an index of them."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    name = Path(sys.argv[0] if sys.argv else "").name or "python"
    start(Path(folder) / f"{Path(name).stem}-{os.getpid()}.html", name)
