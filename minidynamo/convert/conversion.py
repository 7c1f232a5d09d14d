"""One frame on its way to a cache entry: attempts, the backend, the replacement code, the guards.

In:   the frame's function, code and arguments, and what earlier compilations of it have met.
Out:  a `CacheEntry`, or None where there is nothing to compile.

    >>> Conversion(compiler, fn, fn.__code__, args, record, policy).run()

The frame is traced until it returns or until a place where it must be split.  An attempt may find
out too late how it should have gone: that a value cannot be rebuilt behind the graph, or that the
number of a symbolic size is needed.  What was learned is kept (`forced`, `policy.pinned`), and
tracing starts over.  Mirrors `compile_inner` and `transform` in torch/_dynamo/convert_frame.py
(paper section 3.4); its "speculation log" is what is learned here.
"""

import contextlib
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch

from miniinductor.errors import faults, ours

from .. import backends, config, records
from ..bytecode.assembler import parameter_count
from ..errors import BackendError, Break, NoTensors, Restart, SkipFrame, Unsupported
from ..evaluate.evaluator import RootFrame
from ..frame import frame_hook
from ..graph import thread_state
from ..graph.output_graph import OutputGraph
from ..guards.guards import Guard
from ..rebuild.replacement import Tail, rebuild, replacement
from ..records import BreakRecord, FrameRecord
from ..shapes.dynamic import SizePolicy
from ..variables.base import Lazy, Variable, forget_lookups
from ..variables.functions import CellVar, FunctionVar
from . import graph_errors
from .entries import CacheEntry, owner_of
from .entry_guards import entry_guards

if TYPE_CHECKING:
    from .convert_frame import FrameCompiler


@dataclass(eq=False)
class Conversion:
    """The way of one frame to its entry, with what one attempt learns and the next one knows."""

    compiler: "FrameCompiler"
    function: Any
    code: types.CodeType
    args: Sequence[Any]
    record: FrameRecord
    policy: SizePolicy
    # step of the frame (how many instructions it has run) -> why the graph ends there
    forced: dict[int, Break] = field(default_factory=dict)
    attempts: list[OutputGraph] = field(default_factory=list)

    def run(self) -> CacheEntry | None:
        tail = self.traced()
        frame, record, output = tail.frame, self.record, tail.output
        if not self.is_worth_it(frame):
            return None
        if frame.split is not None:
            found = frame.split[1]
            file, line, _ = found.stack[-1]
            record.graph_breaks = [
                BreakRecord(found.kind, found.reason, found.hint, file, line, found.stack)
            ]
        record.input_sources = [variable.source for variable in output.inputs]
        record.sizes = self.policy.met
        record.pinned = self.policy.pinned
        record.shape_env = output.shape_env if output.shape_env.table else None
        graph = self.compile_graph(output, tail.outputs)
        tick = record.calls.__next__ if config.count_hits else None
        record.replacement_code = replacement(tail, graph, tick)
        with record.timed("guards"):
            record.guard_function = entry_guards(output, self.code)
        record.guards = record.guard_function.guards
        count_breaks(record)
        check, owner = record.guard_function.check, owner_of(self.args)
        if owner is not None and output.tree.local(self.code.co_varnames[0]) in output.of_any:
            owner = None
        return CacheEntry(check, record.replacement_code, self.compiler, record, owner, [])

    # ---- attempts
    def traced(self) -> Tail:
        """The frame, traced with all that had to be learned: the code that runs behind its
        graph."""
        for _ in range(config.attempt_limit):
            found = self.attempt()
            if found is not None:
                return found
            if self.forced and self.compiler.fullgraph:
                raise Unsupported(explain_break(next(iter(self.forced.values()))))
        raise SkipFrame(f"gave up after {config.attempt_limit} attempts")

    def attempt(self) -> Tail | None:
        """One try.  None: something was learned by which the next one will come further."""
        frame = None
        try:
            with self.record.timed("trace"):
                frame = self.trace()
                tail = rebuild(frame)
                graph_errors.refuse(frame.output)
            if self.policy.pin(frame.output.shape_env.pinned()):
                return None  # with those sizes as numbers
        except Restart:
            return None
        except Break as broken:  # of `rebuild`: while tracing, a Break becomes a Restart
            self.split_before(broken, frame)
            return None
        return tail

    def split_before(self, broken: Break, frame: RootFrame | None) -> None:
        """A value cannot be rebuilt (a generator that has started): the next try ends before the
        step at which it is made, for plain Python to make it."""
        if broken.step is None or broken.step in self.forced:
            raise SkipFrame(str(broken)) from broken
        if frame is not None and frame.split is not None:
            found = frame.split[1]
            broken.reason = f"{broken.reason}: {found.reason}"
            broken.hint = found.hint or broken.hint
        self.forced[broken.step] = broken.with_traceback(None)

    def trace(self) -> RootFrame:
        """Evaluate the frame on variables; the thread's state is as before afterwards."""
        self.policy.met = []
        compiler, code = self.compiler, self.code
        output = OutputGraph(compiler.backend_name != "eager", self.policy)
        self.attempts.append(output)
        forget_lookups()
        names = code.co_varnames[: parameter_count(code)]
        bound = {n: Lazy(value, output.tree.local(n)) for n, value in zip(names, self.args)}
        closure = closure_of(self.function, code, output)
        # None: nobody loads this function again, so that it needs no source and no guard
        function = FunctionVar(
            None, code, self.function.__globals__, self.function.__qualname__, closure=closure
        )
        frame = RootFrame(output, function, bound, self.forced)
        with thread_state.put_back(output), contextlib.ExitStack() as around:
            for within in records.TRACING:
                around.enter_context(within(output))
            frame.run()
        return frame

    # ---- what was traced
    def is_worth_it(self, frame: RootFrame) -> bool:
        """Is there something to compile?  A SkipFrame if there is nothing before a graph break, and
        no hope that something follows."""
        output = frame.output
        if frame.split is None:
            return bool(output.calls)
        if output.calls or output.inputs or self.may_meet_tensors():
            return True
        raise NoTensors(f"no tensor before a graph break: {frame.split[1].reason}")

    def may_meet_tensors(self) -> bool:
        """Behind a graph break before which there was no tensor (`x = load(path)`)?

        Yes for a function that was given to `compile` itself, and where an argument is or holds a
        tensor: all that another one does may be NumPy's."""
        place = self.code.co_filename, self.code.co_firstlineno
        own = self.compiler.compiled_by_name.values()
        if place in [(compiled.co_filename, compiled.co_firstlineno) for compiled in own]:
            return True
        return any(issubclass(type(value), torch.Tensor) for value in with_items(self.args))

    def compile_graph(self, output: OutputGraph, results: list[Variable]) -> Callable | None:
        """The backend's work on the captured graph; None if there is no graph."""
        if not output.calls:
            return None
        record = self.record
        with record.timed("graph"):
            gm, example_inputs = output.finish(results)
        record.graph = gm
        output.errors = graph_errors.GraphErrors(output, gm)
        records.counters["graphs"][record.function] += 1
        with record.timed("backend"):
            compiled = self.ask_backend(gm, example_inputs, bool(output.written))
        record.backend_record = getattr(compiled, "record", None)
        if record.backend_record is not None:
            # miniinductor's `CompiledGraph` looks at its inputs first; the guards did that already
            compiled = getattr(compiled, "function", compiled)
        if output.state.before:
            compiled = thread_state.restoring(compiled, dict(output.state.before))
        compiled = output.errors.around(compiled)
        return frame_hook.disabled(compiled)

    def ask_backend(
        self, gm: torch.fx.GraphModule, example_inputs: list[Any], writes: bool
    ) -> Callable:
        """What the backend makes of the graph; the graph itself where it fails, or BackendError.
        writes: does that change tensors?
        """
        backend = self.compiler.backend
        if writes and backends.is_torchs(backend):  # which relies on guards of shared memory
            records.tell(self.code, f"{self.record.function} writes: torch's backend is not asked")
            return gm.forward
        count = len(cast(Sequence[Any], gm.graph.output_node().args[0]))
        own = self.compiler.backend
        is_ours = getattr(own, "__module__", None) == backends.__name__
        try:
            compiled = backend(gm, example_inputs, **self.compiler.options)
            if not callable(compiled):
                raise TypeError(
                    f"the backend returned {type(compiled).__name__}, nothing that can be called"
                )
        # what looks like a fault of a compiler; of the user's backend, all but signals
        except faults() if is_ours else ours(Exception) as error:
            self.note_backend_error(error, is_ours)
            return gm.forward
        if hasattr(compiled, "record") or is_ours or backends.is_torchs(own):
            return compiled
        if compiled is gm:
            return gm.forward  # which runs no hooks that the program has set for all modules
        if getattr(compiled, "__self__", None) is gm:
            return compiled
        return self.with_results(compiled, count)

    def note_backend_error(self, error: Exception, is_ours: bool) -> None:
        """The backend failed.  Raises BackendError where it is the user's, unless they want it
        otherwise; the tests want ours raised."""
        name, line = self.compiler.backend_name, records.user_line(self)
        if is_ours and config.raise_internal_errors:
            raise error
        if is_ours or config.suppress_backend_errors:
            records.note_error(error, self.record, f"backend {name}", line)
            return
        raise BackendError(
            f"the backend {name!r} failed for {self.record.function} at {line}: "
            f"{type(error).__name__}: {error}\n"
            "  hint: minidynamo.config.suppress_backend_errors = True runs the frame eagerly"
        ) from error

    def with_results(self, compiled: Callable[..., Any], count: int) -> Callable[..., Any]:
        """The user's callable, which must give so many results.  Of a tensor in place of a tuple,
        the rows would be taken for them."""
        name, function = self.compiler.backend_name, self.record.function

        def run(*inputs: Any) -> Any:
            found = compiled(*inputs)
            if isinstance(found, (tuple, list)) and len(found) == count:
                return found
            seen = type(found).__name__
            if isinstance(found, (tuple, list)):
                seen += f" of {len(found)}"
            raise BackendError(
                f"what the backend {name!r} made of {function} gives a {seen}, where the graph "
                f"gives a tuple of {count}\n  hint: a graph's results are a tuple, also where it "
                "has one: return (result,)"
            )

        return run


def with_items(args: Sequence[Any]) -> list[Any]:
    """The arguments, with the items of a list, tuple or dict in its place."""
    found: list[Any] = []
    for value in args:
        if type(value) in (list, tuple):
            found += value
        elif type(value) is dict:
            found += value.values()
        else:
            found.append(value)
    return found


def closure_of(function: Any, code: types.CodeType, output: OutputGraph) -> tuple[CellVar, ...]:
    """Variables of the function's cells, of which some may be empty."""
    closure = []
    for n, (name, cell) in enumerate(zip(code.co_freevars, function.__closure__ or ())):
        try:
            content = Lazy(cell.cell_contents, output.tree.free(n, name))
        except ours(ValueError):
            check = f"this_function.__closure__[{n}] == EMPTY"
            output.pair_guards.append(Guard("EMPTY", (), check, {"EMPTY": types.CellType()}))
            content = None
        variable = CellVar(content, name)
        output.memo[id(cell)] = (variable, cell)
        closure.append(variable)
    return tuple(closure)


def count_breaks(record: FrameRecord) -> None:
    for found in record.graph_breaks:
        group = "loop_splits" if found.is_consequence else "graph_breaks"
        records.counters[group][f"{found.reason} at {found.file}:{found.line}"] += 1


def explain_break(found: Break) -> str:
    """What the user is told under fullgraph=True."""
    text = [f"graph break under fullgraph=True: {found.reason}"]
    text += [f'  File "{file}", line {line}, in {function}' for file, line, function in found.stack]
    if found.hint:
        text.append(f"  hint: {found.hint}")
    return "\n".join(text)
