"""What the compiler decided, as objects: one `CompileRecord` per compiled graph, and texts of
stages whose lines know what they show.

In:   every stage of `compile_fx` fills the record.  Out: `explain`, notebooks, tests and error
      messages read it, so that they all say the same thing.

    >>> compiled = miniinductor.compile_fx(gm, inputs)
    >>> print(compiled.record.kernels[0].source)        # the C++ that runs
    >>> [d.reason for d in compiled.record.fusions if not d.fused]

Whoever writes a line of a kernel, of loop IR or of a wrapper says what it computes (`Marked.of`),
while it writes it: texts are never parsed.  A `Listing` is a whole text; explain follows its
`about` from a kernel to the source.

    >>> line = Marked.of("const float tmp1 = tmp0 + 1;", marks=["buf0.2"])
    >>> Listing.of(["int64_t n = 3;", *indent([line])]).about
    [('', (), '', ''), ('', ('buf0.2',), '', '')]

Names.  "mul_3" is an FX node, "buf0" a buffer, "buf0.2" the value that instruction 2 of its body
makes, "buf0:2" line 2 of it before fusion, "group:buf0+buf1" what becomes one kernel.
Mirrors torch/_inductor/debug.py, whose provenance tracking finds it out afterwards.
"""

import functools
import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from torch import fx

from . import config
from .options import Timed

About: TypeAlias = tuple[str, tuple[str, ...], str, str]  # name, marks, reason, op
NOTHING: About = ("", (), "", "")


class Text(str):
    """A text of a stage, or a part of one, and what is known `about` it."""

    about: Any

    def written(self, text: str) -> Self:
        """Another text (such as the indented one) with the same `about`."""
        changed = type(self)(text)
        changed.about = self.about
        return changed


class Marked(Text):
    """A line of a stage's text, and what it shows.

    name: the object that it defines ("buf0.3", statement 3 of buf0), or "".  marks: the names of
    what it came from: an FX node, statements, buffers.  reason: why it came from nothing.  op: what
    is computed."""

    about: About

    @staticmethod
    def of(
        text: str, name: str = "", marks: Sequence[str] = (), reason: str = "", op: str = ""
    ) -> "Marked":
        line = Marked(text)
        line.about = name, tuple(marks), reason, op
        return line


def indent(lines: Iterable[str], depth: int = 1) -> list[str]:
    """The lines, further to the right; marks stay."""
    space = "    " * depth

    def moved(line: str) -> str:
        if isinstance(line, Marked):
            return line.written(space + line)
        return space + line if line else line

    return [moved(line) for line in lines]


class Listing(Text):
    """A stage's whole text; `about`: for each line its name, marks, reason and op."""

    about: list[About]

    @staticmethod
    def of(lines: Iterable[str]) -> "Listing":
        parts = list(lines)
        text = Listing("\n".join(parts))
        text.about = [getattr(line, "about", NOTHING) for line in parts]
        return text


@functools.singledispatch
def lines_of(stage: Any) -> list[str]:
    """A stage of the compiler, or a part of one, as text.  (ir/handlers.py and schedule/nodes.py
    know how.)"""
    return [object.__repr__(stage)]


def listing_of(stage: Any) -> Listing:
    return Listing.of(lines_of(stage))


LOG = logging.getLogger("miniinductor")
TOLD: set[str] = set()


def warn_once(text: str, reason: str = "") -> None:
    """Warn of what costs the user speed: once in these words, or for this reason."""
    if (key := reason or text) not in TOLD:
        TOLD.add(key)
        LOG.warning(text)


@dataclass
class Fallback:
    """An op that runs as an eager kernel: `kind` is "extern" (by choice: mm, convolution) or
    "fallback" (no lowering)."""

    op: str
    kind: str
    reason: str
    line: str = ""
    node: str = field(default="", repr=False)  # of the graph that is lowered


@dataclass
class SavedActivation:
    """A value that the forward half keeps for the backward half.  is_input: it is an input, or a
    view of one, which costs nothing, since that is in memory anyway."""

    name: str
    op: str
    shape: str
    bytes: int
    is_input: bool
    reason: str  # why it was not computed again (partition.why_saved), or "smallest cut"
    line: str = ""


@dataclass
class FusionDecision:
    """Two scheduler nodes that were considered together; `reason` is a sentence for a student."""

    first: str
    second: str
    fused: bool
    category: str  # "vertical" | "horizontal" | "epilogue" | ...
    reason: str
    bytes_saved: int = 0


@dataclass(repr=False)
class KernelRecord:
    """One generated kernel: `nodes` are the names of the buffers it computes, `origins` the FX
    nodes they came from."""

    name: str
    language: str  # "cpp" | "triton"
    source: str
    nodes: list[str]
    origins: list[str]
    bytes_read: int = 0
    bytes_written: int = 0
    about: list[About] = field(default_factory=list)  # of each line, see Listing
    kernel: Any = None  # as code generation left it: a `codegen.kernels.Kernel`

    def __repr__(self) -> str:
        moved = f"reads {self.bytes_read:,} and writes {self.bytes_written:,} bytes"
        return f"<{self.language} kernel {self.name}: computes {', '.join(self.nodes)}, {moved}>"


def first_line(gm: Any) -> str:
    """Where the graph's code begins in the user's program: "model.py:12"."""
    lines = [node.meta["source_line"] for node in gm.graph.nodes if "source_line" in node.meta]
    return f"{lines[0][0]}:{lines[0][1]}" if lines else "unknown lines"


@dataclass(repr=False)
class CompileRecord(Timed):
    """Every stage of one graph's way through miniinductor.  Texts are printable, graphs are
    `fx.Graph`/`GraphModule`."""

    input_graph: Any = None  # as it came from the front end
    aten_graph: Any = None  # after tracing with decompositions
    functional_graph: Any = None  # after functionalization and graph passes
    joint_graph: Any = None  # training: forward and backward in one functional graph
    saved: list[SavedActivation] = field(default_factory=list)  # training: the cut
    # training: the CompileRecord of the backward half; this one is the forward half's
    backward: object = None
    lowered_graph: Any = None  # after the passes that choose layouts
    lowered: Any = None  # every buffer's loop body, before fusion: `loop_ir` is its text
    schedule: Any = None  # scheduler nodes after fusion: `fused_ir` is their text
    fusions: list[FusionDecision] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    kernels: list[KernelRecord] = field(default_factory=list)
    wrapper_source: str = ""
    # (buffer, "new" | "reuse of X" | "in place of X", bytes)
    memory_plan: list = field(default_factory=list)
    # (buffer, offset in the arena or None, bytes, first step, last step)
    memory_lives: list = field(default_factory=list)
    memory_steps: list = field(default_factory=list)  # what each step of the wrapper calls
    peak_live_bytes: int = 0  # the most that lives at one step, of what the call itself makes
    # config.keep_steps: (name of a pass, the graph after it as a Listing), from the functional one
    steps: list[tuple[str, Listing]] = field(default_factory=list)
    keeps_steps: bool = False
    notes: list[str] = field(default_factory=list)  # anything else a stage decided, as sentences
    times: dict[str, float] = field(default_factory=dict)  # stage -> seconds

    @property
    def loop_ir(self) -> str:
        return listing_of(self.lowered) if self.lowered else ""

    @property
    def fused_ir(self) -> str:
        return listing_of(self.schedule) if self.schedule else ""

    def __repr__(self) -> str:
        kernels = f"{len(self.kernels)} kernels, {len(self.fallbacks)} eager kernels"
        return f"<CompileRecord: {kernels}, {len(self.notes)} notes>"

    def keep_step(self, name: str, gm: fx.GraphModule) -> None:
        """Keep the graph as it is after a pass, if that has changed something."""
        if self.keeps_steps:
            listing = listing_of(gm.graph)
            if not self.steps or self.steps[-1][1] != listing:
                self.steps.append((name, listing))

    def notes_of(self, text: str) -> list[str]:
        """Notes that contain `text`."""
        return [note for note in self.notes if text in note]

    def print_stages(self) -> None:
        """What MINI_DEBUG asks for, on stderr."""
        if config.debug >= 1:
            print(getattr(self.functional_graph, "graph", None), file=sys.stderr)
        if config.debug >= 2:
            print(self.loop_ir, self.fused_ir, sep="\n", file=sys.stderr)
        if config.debug >= 3:
            print(*self.fusions, sep="\n", file=sys.stderr)
        if config.debug >= 4:
            print(*[kernel.source for kernel in self.kernels], sep="\n", file=sys.stderr)
