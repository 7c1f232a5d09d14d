"""The explanation of one call: what capture and the compiler recorded, stage by stage.

In:   `records.FrameRecord`s and the `CompileRecord`s behind them.  Out: an `Explanation`.

    >>> e = explain(f)(x)
    >>> e.frames[0].graph                   # stages of one frame; e.graph is that of the main frame
"""
import functools
import re

from .. import records
from ..symbolic_numbers import python_code
from ..symbolic_shapes import name_of
from .draw import draw_graph, draw_guards, draw_joint, draw_memory
from .draw_code import draw_frames, draw_fusion, draw_replay
from .views import Code, Pair, Several, Table


class Missing:
    """A stage that this compilation did not reach."""

    def __init__(self, why):
        self.why = why

    def __repr__(self):
        return f"({self.why})"

    def _repr_html_(self):
        return f"<i>{self.why}</i>"


stage = functools.cached_property       # computed when first asked for


class FrameExplanation:
    """Every stage of one frame."""

    def __init__(self, record):
        self.record = record
        self.compiled = record.backend_record       # CompileRecord, or None with other backends

    def __repr__(self):
        return f"<{self.record!r}; stages: {', '.join(key for key, _ in self.SECTIONS)}>"

    def _compiled(self, build):
        if self.record.graph is None:
            return Missing("nothing of this frame was captured")
        return build(self.compiled) if self.compiled is not None else Missing("this backend keeps no records")

    @stage
    def source(self):
        return Code(str(self.record.source), "python", self.record.function)

    @stage
    def bytecode(self):
        """The original and the replacement, side by side."""
        return Pair(Code(str(self.record.bytecode), "text", "original bytecode"),
                    Code(_readable(str(self.record.replacement_bytecode)), "text", "replacement bytecode"))

    @stage
    def replay(self):
        """The function beside its replacement code as Python: the graph, then the writes that are left."""
        return draw_replay(self.record) if self.record.replacement_code is not None else Missing("nothing was replaced")

    @stage
    def guards(self):
        return Table(["kind", "assumption", "user line"],
                     [(g.kind, g.code, g.line) for g in self.record.guards], f"{len(self.record.guards)} guards of {self.record.function}")

    @stage
    def symbols(self):
        """The sizes that are symbols: value in this call, what they are read from, what the guards let through."""
        env = self.record.shape_env
        rows = [] if env is None else [
            (row.name, "unbacked" if row.hint is None else row.hint, " = ".join(map(name_of, row.sources)) or row.created_by, row.range, pinned_to(env, row),
             row.bounded_at or row.line) for row in env.table.values()]
        pinned = [("", value, name, "", "a number, which this line needs", line) for name, (value, line) in self.record.pinned.items()]
        return Table(["symbol", "value here", "read from", "range", "", "user line"], rows + pinned, f"{len(rows)} symbols")

    @stage
    def decisions(self):
        """Every question about sizes that tracing and the backend asked: proved for all sizes, or a guard (before simplification)."""
        env = self.record.shape_env
        return Table(["fact", "", "user line"], [(str(d).partition("    ")[0], "always so" if d.proved else "guard", d.line) for d in (
            env.decisions if env is not None else ())], "questions about sizes")

    @stage
    def size_guards(self):
        """What is left of the guards about sizes after simplification, as Python over the inputs."""
        return Table(["kind", "assumption", "user line"], [(g.kind, g.code, g.line) for g in self.record.guards
                                                           if g.kind in ("EQUAL", "RANGE", "SIZES", "STRIDE") and isinstance(g.source, tuple)], "guards about sizes")

    @stage
    def guard_tree(self):
        """The guards, drawn as a tree of what they look at."""
        return draw_guards(self.record)

    @stage
    def guard_source(self):
        return Code(getattr(self.record.guard_function, "source", ""), "python", "the generated guard function")

    @stage
    def breaks(self):
        return Table(["line", "kind", "reason", "hint"],
                     [(f"{b.file.rsplit('/', 1)[-1]}:{b.line}", b.kind, b.reason, b.hint) for b in self.record.graph_breaks],
                     f"{len(self.record.graph_breaks)} graph breaks")

    @stage
    def graph(self):
        """The captured FX graph, drawn."""
        return draw_graph(self.record.graph, f"FX graph of {self.record.function}") if self.record.graph is not None else Missing(
            "nothing of this frame was captured")

    @stage
    def graph_text(self):
        return Code(_graph_code(self.record.graph), "python", "the captured graph as Python") if self.record.graph is not None \
            else Missing("nothing of this frame was captured")

    @stage
    def aten(self):
        return self._compiled(lambda c: Code(_graph_code(c.functional_graph or c.aten_graph), "python",
                                             "the functional ATen graph as Python") if c.aten_graph is not None
                              else Missing("; ".join(c.notes) or "not traced"))

    @stage
    def aten_graph(self):
        return self._compiled(lambda c: draw_graph(c.functional_graph, "functional ATen graph")
                              if c.functional_graph is not None else Missing("; ".join(c.notes) or "not traced"))

    @stage
    def joint(self):
        """Training: the joint graph with forward, backward and the cut."""
        return self._compiled(lambda c: draw_joint(c) if c.joint_graph is not None else Missing("no gradients were needed"))

    @stage
    def saved(self):
        """Training: what the forward half keeps for the backward half, and why."""
        return self._compiled(lambda c: Table(
            ["value", "op", "shape", "bytes", "why", "user line"],
            [(s.name, s.op, s.shape, "an input" if s.is_input else s.bytes, s.reason, ":".join(map(str, s.line[:2])) if s.line else "")
             for s in c.saved], f"{sum(s.bytes for s in c.saved if not s.is_input):,} bytes saved for backward")
            if c.joint_graph is not None else Missing("no gradients were needed"))

    @property
    def backward(self):
        """Training: the kernels of the backward half; compiled when backward() first runs."""
        def build(c):
            if c.joint_graph is None:
                return Missing("no gradients were needed")
            return Several([Code(k.source, k.language, f"{k.name}: {', '.join(k.nodes)}") for k in c.backward.kernels]) \
                if c.backward is not None else Missing("backward() has not run yet")
        return self._compiled(build)

    @stage
    def loop_ir(self):
        return self._compiled(lambda c: Code(c.loop_ir, "python", "loop IR, before fusion"))

    @stage
    def fused_ir(self):
        return self._compiled(lambda c: Code(c.fused_ir, "python", "scheduler nodes, after fusion"))

    @stage
    def fusion(self):
        return self._compiled(lambda c: Table(
            ["first", "second", "fused", "category", "reason", "bytes saved"],
            [(d.first, d.second, "yes" if d.fused else "no", d.category, d.reason, d.bytes_saved) for d in c.fusions],
            f"{sum(d.fused for d in c.fusions)} of {len(c.fusions)} considered pairs were fused"))

    @stage
    def kernel_picture(self):
        return self._compiled(draw_fusion)

    @stage
    def kernels(self):
        return self._compiled(lambda c: Several([
            Code(k.source, k.language, f"{k.name}: {', '.join(k.nodes)}, from {', '.join(map(str, k.origins))}") for k in c.kernels]))

    @stage
    def eager_kernels(self):
        return self._compiled(lambda c: Table(["op", "kind", "why"], [(f.op, f.kind, f.reason) for f in c.fallbacks],
                                              f"{len(c.fallbacks)} eager kernels"))

    @stage
    def wrapper(self):
        return self._compiled(lambda c: Code(c.wrapper_source, "python", "the wrapper"))

    @stage
    def memory(self):
        return self._compiled(lambda c: Table(["buffer", "memory", "bytes"], c.memory_plan, "memory plan"))

    @stage
    def memory_picture(self):
        """The buffers' bytes over the wrapper's steps."""
        return self._compiled(lambda c: draw_memory(c) if c.memory_lives else Missing("no buffers of its own"))

    @stage
    def times(self):
        spent = {f"capture: {k}": v for k, v in self.record.times.items()}
        if self.compiled is not None:
            spent |= {f"miniinductor: {k}": v for k, v in self.compiled.times.items()}
        return Table(["stage", "milliseconds"], [(k, f"{v * 1e3:.1f}") for k, v in spent.items()], "time per stage")

    SECTIONS = (("source", "Source"), ("bytecode", "Bytecode"), ("replay", "Replacement as Python"), ("guards", "Guards"), ("guard_tree", "Guard tree"), ("guard_source", "Guard function"),
                ("symbols", "Symbolic sizes"), ("decisions", "Questions about sizes"), ("size_guards", "Guards about sizes"),
                ("breaks", "Graph breaks"), ("graph", "FX graph"), ("graph_text", "FX graph as Python"),
                ("aten", "ATen graph"), ("joint", "Joint graph"), ("saved", "Saved for backward"), ("loop_ir", "Loop IR"), ("fused_ir", "Loop IR after fusion"),
                ("fusion", "Fusion decisions"), ("kernel_picture", "Kernels"), ("kernels", "Kernel source"), ("backward", "Backward kernels"),
                ("eager_kernels", "Eager kernels"), ("wrapper", "Wrapper"), ("memory", "Memory plan"),
                ("memory_picture", "Memory over time"), ("times", "Times"))


class Explanation:
    """What happened when the function ran: `result`, `frames`, and the stages of the main frame as attributes."""

    def __init__(self, name, result, frame_records, counters, compiled=None):
        self.name, self.result, self.counters, self.compiled_function = name, result, counters, compiled
        self.frames = [FrameExplanation(record) for record in frame_records]
        captured = [f for f in self.frames if f.record.graph is not None]
        self.main = max(captured, key=lambda f: len(f.record.graph.graph.nodes), default=self.frames[0] if self.frames else None)

    def __getattr__(self, name):
        if name.startswith("_") or name == "main":
            raise AttributeError(name)
        if self.main is None:
            return Missing("no frame was compiled")
        return getattr(self.main, name)

    def __dir__(self):
        return sorted([*super().__dir__(), *(key for key, _ in FrameExplanation.SECTIONS)])

    @property
    def frames_picture(self):
        """The lines of the function called, and which frame's graph, or plain Python, runs each."""
        return draw_frames(self)

    @property
    def summary(self):
        rows = []
        for frame in self.frames:
            record, compiled = frame.record, frame.compiled
            operations = len([n for n in record.graph.graph.nodes if n.op.startswith("call")]) if record.graph is not None else 0
            rows.append((record.function, operations, len(record.guards), len(record.graph_breaks),
                         len(compiled.kernels) if compiled is not None else "-",
                         len(compiled.fallbacks) if compiled is not None else "-", record.skipped or ""))
        return Table(["frame", "operations", "guards", "breaks", "kernels", "eager kernels", "skipped because"], rows, self.name)

    def __repr__(self):
        return repr(self.summary)

    def _repr_html_(self):
        return self.summary._repr_html_()

    def why_recompile(self, *args, **kwargs):
        """Call the function with other arguments: a table of the frames that had to be compiled again, each with the first guard of the last
        entry that failed, what it found, and the user's line that caused the guard.  No rows: every guard held."""
        before = len(records.frames)
        self.compiled_function(*args, **kwargs)
        rows = [(r.function, r.failed_guard.kind if r.failed_guard else "", r.recompile_reason, r.failed_guard.line if r.failed_guard else "")
                for r in list(records.frames)[before:] if r.recompile_reason]
        return Table(["frame", "kind", "first guard that failed", "user line"], rows, f"{len(rows)} frames were compiled again")

    def save(self, path):
        """Write one self-contained HTML file; returns the path."""
        from .page import render
        with open(path, "w") as file:
            file.write(render(self))
        return path


def _readable(bytecode):
    """Objects of ours that stand in the replacement code as constants, by what they are for."""
    for pattern, meaning in ((r"<method-wrapper '__next__' of itertools.count [^>]*>", "count this call"), (r"<minidynamo._frame_hook.Switched [^>]*>", "the graph"),
                             (r"functools.partial\(<bound method FrameCompiler.graph_raised .*(?=\)$)", "the graph raised: run the original")):
        bytecode = re.sub(pattern, meaning, bytecode, flags=re.M)
    return bytecode


def _graph_code(gm):
    return gm.print_readable(print_output=False) if gm is not None else ""


def pinned_to(env, row):
    value = env.simplify(row.symbol)
    return "" if value == row.symbol else f"is {python_code(value)}"


def compilations(fn, calls, **options):
    """How many graphs were compiled after each of `calls` (tuples of arguments), from scratch: [1, 2, 2, ...].  options: those of compile."""
    from .. import api
    api.reset()
    compiled, counts = api.compile(fn, **options), []
    for args in calls:
        compiled(*args)
        counts.append(records.counters["graphs"].total())
    return counts


def draw_compilations(counts, sizes, path=None):
    """A picture of `compilations` over a sweep: counts = {"static": [...], "automatic": [...]}.  The matplotlib figure; also saved to `path`."""
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    for (label, values), style in zip(counts.items(), ("-", "--", ":", "-.") * len(counts)):
        axes.step(sizes, values, style, where="post", label=f"{label}: {values[-1]}", marker="o", markersize=3)
    axes.set(xlabel="size", ylabel="compilations so far", ylim=(0, None))
    axes.legend()
    if path is not None:
        figure.savefig(path)
    return figure


def explain(fn, **options):
    """explain(fn)(*args, **kwargs): run fn compiled from scratch and return an Explanation.  options: those of compile."""
    from .. import api

    def run(*args, **kwargs):
        api.reset()
        compiled = api.compile(fn, **options)
        result = compiled(*args, **kwargs)
        name = getattr(fn, "__qualname__", type(fn).__name__)
        return Explanation(name, result, [r for n, r in enumerate(records.frames) if r.graph is not None or r.graph_breaks or n == 0],
                           {k: dict(v) for k, v in records.counters.items()}, compiled)
    return run
