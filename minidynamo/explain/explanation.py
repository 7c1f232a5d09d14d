"""The explanation of one call: what capture and the compiler recorded, stage by stage.

In:   `records.FrameRecord`s and the `CompileRecord`s behind them.  Out: an `Explanation`.

    >>> e = minidynamo.explain(f)(x)        # running.py
    >>> e.frames[0].graph                   # stages of one frame; e.graph is that of the main frame
"""

import contextlib
import gc
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from miniinductor.sizes.expressions import python_code

from .. import records
from .data import range_of
from .draw import draw_graph, draw_guards, draw_joint, draw_memory
from .draw_code import draw_frames, draw_fusion, draw_replay
from .stages import disassembled, readable
from .timeline import Timeline, Work
from .views import Code, Several, Table, folded, many

Stage = Callable[[Any], Any]  # a record of a frame, or of a compilation -> what shows it


class Missing:
    """A stage that this compilation did not reach."""

    def __init__(self, why):
        self.why = why

    def __repr__(self):
        return f"({self.why})"

    def _repr_html_(self):
        return f"<i>{self.why}</i>"


# ---- stages: each is made of a frame's record when it is first asked for
def captured(build: Stage) -> Stage:
    return lambda record: (
        build(record) if record.graph is not None else Missing("nothing of this frame was captured")
    )


def compiled(build: Stage) -> Stage:
    """A stage made of miniinductor's CompileRecord."""
    return captured(
        lambda record: (
            build(record.backend_record)
            if record.backend_record is not None
            else Missing("this backend keeps no records")
        )
    )


def training(build: Stage) -> Stage:
    return compiled(
        lambda c: build(c) if c.joint_graph is not None else Missing("no gradients were needed")
    )


def of_backward(build: Stage) -> Stage:
    """A stage of the backward half, which is compiled when backward() first runs."""
    return training(
        lambda c: (
            build(c.backward) if c.backward is not None else Missing("backward() has not run yet")
        )
    )


def sources(kernels: Iterable[Any], about: Callable[[Any], str]) -> Several:
    return Several(
        [Code(k.source, k.language, f"{k.name}: {', '.join(k.nodes)}{about(k)}") for k in kernels]
    )


def symbols(record: Any) -> Table:
    """The sizes that are symbols: value in this call, what they are read from, what the guards let
    through."""
    env = record.shape_env
    rows = (
        []
        if env is None
        else [
            (
                row.name,
                "unbacked" if row.hint is None else row.hint,
                " = ".join(map(str, row.sources)) or row.created_by,
                range_of(row),
                pinned_to(env, row),
                row.bounded_at or row.line,
            )
            for row in env.table.values()
        ]
    )
    pinned = [
        ("", value, name, "", "a number, which this line needs", line)
        for name, (value, line) in record.pinned.items()
    ]
    return Table(
        ["symbol", "value here", "read from", "range", "", "user line"],
        rows + pinned,
        many(len(rows), "symbol"),
    )


def size_guards(record: Any) -> Table:
    """What is left of the guards about sizes after simplification, as Python over the inputs."""
    rows = [
        (g.kind, g.code, g.line)
        for g in record.guards
        if g.kind in ("EQUAL", "RANGE", "SIZES", "STRIDE") and isinstance(g.source, tuple)
    ]
    return Table(["kind", "assumption", "user line"], rows, "guards about sizes")


def saved(c: Any) -> Table:
    """What the forward half keeps for the backward half, and why."""
    return Table(
        ["value", "op", "shape", "bytes", "why", "user line"],
        [
            (
                s.name,
                s.op,
                s.shape,
                "an input" if s.is_input else s.bytes,
                s.reason,
                ":".join(map(str, s.line[:2])) if s.line else "",
            )
            for s in c.saved
        ],
        f"{sum(s.bytes for s in c.saved if not s.is_input):,} bytes saved for backward",
    )


def fusion(c: Any) -> Table:
    return Table(
        ["first", "second", "fused", "category", "reason", "bytes saved"],
        [
            (d.first, d.second, "yes" if d.fused else "no", d.category, d.reason, d.bytes_saved)
            for d in c.fusions
        ],
        f"{sum(d.fused for d in c.fusions)} of {len(c.fusions)} considered pairs were fused",
    )


def times(record: Any) -> Table:
    spent = {f"capture: {k}": v for k, v in record.times.items()}
    forward = record.backend_record
    if forward is not None:
        spent |= {f"miniinductor: {k}": v for k, v in forward.times.items()}
        backward = forward.backward.times if forward.backward is not None else {}
        spent |= {f"miniinductor, backward: {k}": v for k, v in backward.items()}
    return Table(
        ["stage", "milliseconds"],
        [(k, f"{v * 1e3:.1f}") for k, v in spent.items()],
        "time per stage",
    )


BREAK_COLUMNS = ["line", "kind", "reason", "hint", "called from"]


def break_row(found: Any) -> tuple:
    """A graph break under BREAK_COLUMNS: the innermost line of the user's, and those that led
    there, the outermost first."""
    *callers, (file, line, _) = found.stack
    place = f"{file.replace(os.sep, '/').rpartition('/')[2]}:{line}"
    called_from = " > ".join(f"{function}:{at}" for _, at, function in callers)
    return place, found.kind, found.reason, found.hint, called_from


def all_breaks(frame_records: Iterable[Any]) -> list[Any]:
    """The graph breaks of all frames, each place once, with its longest stack.

    One place may split several frames: that of the function called, and then, as what it calls
    runs by itself, theirs.  What follows from an earlier break of the same loop is left out."""
    found: dict[tuple, Any] = {}
    for record in frame_records:
        for each in record.graph_breaks:
            key = (each.file, each.line, each.kind, each.reason)
            if not each.is_consequence and len(each.stack) > len(
                getattr(found.get(key), "stack", ())
            ):
                found[key] = each
    return list(found.values())


def source_of(record: records.FrameRecord) -> str:
    """The user's source text."""
    try:
        return inspect.getsource(record.code)
    except (OSError, TypeError):
        return ""


def aten(c: Any) -> Any:
    if c.aten_graph is None:
        return Missing("; ".join(c.notes) or "not traced")
    text = _graph_code(c.functional_graph or c.aten_graph)
    return Code(text, "python", "the functional ATen graph as Python")


def aten_picture(c: Any) -> Any:
    if c.functional_graph is None:
        return Missing("; ".join(c.notes) or "not traced")
    return draw_graph(c.functional_graph, "functional ATen graph")


def kernels(c: Any) -> Any:
    if not c.kernels:
        notes = [*c.notes_of("runs eagerly"), *c.notes_of("runs with eager kernels")]
        return Missing("; ".join(notes) or "nothing was left for a kernel of ours")
    return sources(c.kernels, lambda k: f", from {', '.join(map(str, k.origins))}")


def eager_kernels(c: Any) -> Table:
    rows = [(f.op, f.kind, f.reason) for f in c.fallbacks]
    return Table(["op", "kind", "why"], rows, many(len(rows), "eager kernel"))


# the stages of a CompileRecord: the forward half, and the backward half, have each of them
GRAPHS = {"aten": ("ATen graph", aten), "aten_graph": (None, aten_picture)}
HALF = {
    "loop_ir": ("Loop IR", lambda c: Code(c.loop_ir, "python", "loop IR, before fusion")),
    "fused_ir": (
        "Loop IR after fusion",
        lambda c: Code(c.fused_ir, "python", "scheduler nodes, after fusion"),
    ),
    "fusion": ("Fusion decisions", fusion),
    "kernel_picture": ("Kernels", draw_fusion),
    "kernels": ("Kernel source", kernels),
    "eager_kernels": ("Eager kernels", eager_kernels),
    "wrapper": ("Wrapper", lambda c: Code(c.wrapper_source, "python", "the wrapper")),
    "memory": (
        "Memory plan",
        lambda c: Table(["buffer", "memory", "bytes"], c.memory_plan, "memory plan"),
    ),
    "memory_picture": (
        "Memory over time",
        lambda c: draw_memory(c) if c.memory_lives else Missing("no buffers of its own"),
    ),
}
BACKWARD = {"kernels": "backward"}  # the other stages are called `backward_...`
STAGES = {  # attribute -> (heading on the page, or None; how it is made)
    "source": ("Source", lambda r: Code(source_of(r), "python", r.function)),
    "bytecode": (
        "Bytecode",
        lambda r: Several(
            [
                Code(disassembled(r.code), "text", "original bytecode"),
                Code(readable(disassembled(r.replacement_code)), "text", "replacement bytecode"),
            ],
            side_by_side=True,
        ),
    ),
    "replay": (
        "Replacement as Python",
        lambda r: (
            draw_replay(r) if r.replacement_code is not None else Missing("nothing was replaced")
        ),
    ),
    "guards": (
        "Guards",
        lambda r: Table(
            ["kind", "assumption", "user line"],
            [(g.kind, g.code, g.line) for g in r.guards],
            f"{len(r.guards)} guards of {r.function}",
        ),
    ),
    "guard_tree": ("Guard tree", draw_guards),
    "guard_source": (
        "Guard function",
        lambda r: Code(
            folded(getattr(r.guard_function, "source", "")),
            "python",
            "the generated guard function",
        ),
    ),
    "symbols": ("Symbolic sizes", symbols),
    # every question about sizes that tracing and the backend asked: proved for all sizes, or a
    # guard (before simplification)
    "decisions": (
        "Questions about sizes",
        lambda r: Table(
            ["fact", "", "user line"],
            [
                (str(d).partition("    ")[0], "always so" if d.proved else "guard", d.line)
                for d in getattr(r.shape_env, "decisions", ())
            ],
            "questions about sizes",
        ),
    ),
    "size_guards": ("Guards about sizes", size_guards),
    "breaks": (
        "Graph breaks",
        lambda r: Table(
            BREAK_COLUMNS,
            [break_row(b) for b in r.graph_breaks],
            many(len(r.graph_breaks), "graph break"),
        ),
    ),
    "graph": ("FX graph", captured(lambda r: draw_graph(r.graph, f"FX graph of {r.function}"))),
    "graph_text": (
        "FX graph as Python",
        captured(lambda r: Code(_graph_code(r.graph), "python", "the captured graph as Python")),
    ),
    **{name: (heading, compiled(build)) for name, (heading, build) in GRAPHS.items()},
    "joint": ("Joint graph", training(draw_joint)),
    "saved": ("Saved for backward", training(saved)),
    **{name: (heading, compiled(build)) for name, (heading, build) in HALF.items()},
    **{
        BACKWARD.get(name, f"backward_{name}"): (
            heading and f"Backward: {heading}",
            of_backward(build),
        )
        for name, (heading, build) in {**GRAPHS, **HALF}.items()
    },
    "times": ("Times", times),
}


class FrameExplanation:
    """Every stage of one frame, as attributes."""

    SECTIONS = tuple((name, heading) for name, (heading, _) in STAGES.items() if heading)

    def __init__(self, record):
        self.record = record
        self.compiled = record.backend_record  # CompileRecord, or None with other backends

    def __getattr__(self, name):
        if name not in STAGES:
            raise AttributeError(f"{name!r} is no stage; there are {', '.join(STAGES)}")
        made = STAGES[name][1](self.record)
        # the backward half is compiled when backward() first runs: asked for again
        if not name.startswith("backward") and name != "times":
            self.__dict__[name] = made
        return made

    def __repr__(self):
        return f"<{self.record!r}; stages: {', '.join(key for key, _ in self.SECTIONS)}>"


class Explanation:
    """What happened when the function ran: `result`, `frames`, and the stages of the main frame as
    attributes.  After a series of calls `result` is that of the last one; `calls` lists them."""

    made_calls: Sequence[Any] = ()  # running.Call
    arguments: Sequence[Any] = ()  # of the last call, for `to_json`
    looks: Any = None  # running.Looks
    works: Sequence[Work] = ()  # of a GPU, meanwhile
    script: str = ""  # the file of the program that ran, if one did

    def __init__(self, name, result, frame_records, counters, compiled=None):
        self.name, self.result, self.counters, self.compiled_function = (
            name,
            result,
            counters,
            compiled,
        )
        if compiled is not None:
            self.looks, self.works = compiled.looks, compiled.works
        self.frames = [FrameExplanation(record) for record in frame_records]
        captured = [f for f in self.frames if f.record.graph is not None]
        self.main = max(
            captured,
            key=lambda f: len(f.record.graph.graph.nodes),
            default=self.frames[0] if self.frames else None,
        )

    def __getattr__(self, name):
        if name.startswith("_") or name == "main":
            raise AttributeError(name)
        if self.main is None:
            return Missing("no frame was compiled")
        return getattr(self.main, name)

    def __dir__(self):
        return sorted([*super().__dir__(), *(key for key, _ in FrameExplanation.SECTIONS)])

    @property
    def frames_picture(self) -> Any:
        """The lines of the function called, and which frame's graph, or plain Python, runs each."""
        return draw_frames(self)

    @property
    def timeline(self) -> Timeline:
        """Where time went in compiling and in the last call; `.save("trace.json")` for Perfetto."""
        return Timeline(self)

    @property
    def breaks(self) -> Table:
        """The graph breaks of all frames; `e.frames[0].breaks` are those of one."""
        found = all_breaks(frame.record for frame in self.frames)
        rows = [break_row(each) for each in found]
        return Table(BREAK_COLUMNS, rows, many(len(rows), "graph break"))

    @property
    def calls(self) -> Table:
        """Each call of the series: what it had to compile, and why no version that there was
        fitted."""
        rows = []
        for number, call in enumerate(self.made_calls):
            why = [str(r.failures[-1]) for r in call.compiled if r.failures]
            names = [r.function for r in call.compiled if r.graph is not None]
            duration = f"{call.seconds * 1e3:.1f}"
            rows.append((number, ", ".join(names) or "-", "; ".join(why), duration))
        columns = ["call", "compiled", "because", "milliseconds"]
        return Table(columns, rows, many(len(rows), "call"))

    @property
    def summary(self) -> Table:
        columns = ["frame", "operations", "guards", "breaks", "kernels", "eager kernels"]
        rows = [summary_row(frame.record, frame.compiled) for frame in self.frames]
        return Table([*columns, "not compiled because"], rows, self.name)

    def __repr__(self):
        return repr(self.summary)

    def _repr_html_(self):
        from .notebook import Embedded

        return self.summary._repr_html_() + Embedded(self)._repr_html_()

    def why_recompile(self, *args: Any, **kwargs: Any) -> Table:
        """Call the function with other arguments: a table of the frames that had to be compiled
        again, with a row for each entry that there was: its first guard that failed, the user's
        line that caused the guard, the number of the entry, what the guard expected and what it
        found.  No rows: every guard of some entry held."""
        earlier = set(records.frames)
        self.compiled_function(*args, **kwargs)
        again = [r for r in records.frames if r not in earlier and r.failures]
        rows = [
            (r.function, f.guard.kind, f.reason, f.guard.line, f.entry, f.expected, f.actual)
            for r in again
            for f in r.failures
        ]
        columns = ["frame", "kind", "first guard that failed", "user line"]
        columns += ["entry", "expected", "found"]
        return Table(columns, rows, f"compiled again: {many(len(again), 'frame')}")

    def to_json(self) -> dict[str, Any]:
        """Everything as one value for `json.dumps`; schema.json says what it looks like."""
        from .data import document

        with uncollected():
            return document(self)

    def save(self, path: str) -> str:
        """Write one self-contained HTML file; returns the path."""
        from .page import render

        with uncollected(), open(path, "w", encoding="utf-8") as file:
            file.write(render(self.to_json()))
        return path

    def pane(self, name: str) -> Any:
        """One pane of the page ("source", "stages", "kernels", "guards", "map", "fusion"...), live
        in a notebook.  Raises ValueError for one that there is not."""
        from .notebook import Embedded

        return Embedded(self, name)


def summary_row(record: records.FrameRecord, compiled: Any) -> tuple:
    graph = record.graph
    calls = [n for n in graph.graph.nodes if n.op.startswith("call")] if graph is not None else []
    made, eager, notes = "-", "-", ()
    if compiled is not None:
        made, eager = str(len(compiled.kernels)), str(len(compiled.fallbacks))
        notes = compiled.notes_of("runs eagerly")
    why = record.skipped or record.error.strip().rpartition("\n")[2] or "; ".join(notes)
    counts = len(calls), len(record.guards), len(record.graph_breaks)
    return record.function, *counts, made, eager, why


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Nothing of a document is garbage while it is built, and looking through it takes long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _graph_code(gm):
    return gm.print_readable(print_output=False) if gm is not None else ""


def pinned_to(env: Any, row: Any) -> str:
    value = env.simplify(row.symbol)
    return "" if value == row.symbol else f"is {python_code(value)}"
