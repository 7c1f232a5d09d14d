"""One frame on its way to a cache entry: attempts, the backend, the replacement code, the guards.

In:   the frame's function, code and arguments, and what earlier compilations of it have met.
Out:  a `CacheEntry`, or None where there is nothing to compile.

    >>> Conversion(compiler, fn, fn.__code__, args, record, policy).run()

`FrameCompiler.convert` (convert_frame.py) calls `run`; `RootFrame.run` (evaluate/evaluator.py)
traces.  The frame is traced until it returns or until a place where it must be split.  An attempt
may learn too late that the graph must end earlier, or that a symbolic size is needed as a number.
What it has learned is kept (`forced`, `policy.pinned`), and tracing starts over.

Where the graph raises, plain Python runs the frame from the start (`GraphErrors`), up to the error
with its own message and line, or to the program's own handler:

    try:
        y = x[index]        # out of range: plain Python runs, and the handler gets the error
    except IndexError: ...

Once a graph that writes to the program's tensors or draws random numbers has started, its error
goes to the user, whatever `try` stands around the operation; what was written stays.
Mirrors `compile_inner` and `transform` in torch/_dynamo/convert_frame.py (paper section 3.4); its
"speculation log" is what is learned here.
# PyTorch: every error of a graph leaves the frame.
"""

import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

from miniinductor.errors import faults, is_foreign, ours
from miniinductor.options import announce

from .. import backends, config, records
from ..bytecode import Instruction
from ..errors import BackendError, Break, NoTensors, Restart, SkipFrame, Unsupported
from ..evaluate.evaluator import RootFrame
from ..frame import frame_hook
from ..functions.torch_state import put_back, set_all
from ..graph.graph_module import draws, storage
from ..graph.output_graph import OutputGraph
from ..rebuild.replacement import Codegen, Epilogue, rebuild, replacement
from ..records import BreakRecord, FrameRecord
from ..shapes.dynamic import SizePolicy
from ..variables.base import Lazy, Variable, forget_lookups
from ..variables.floats import floats_as_tensors
from ..variables.functions import FunctionVar
from ..variables.containers import closure_of
from .entries import CacheEntry, entry_guards, owner_of

if TYPE_CHECKING:
    from .convert_frame import FrameCompiler


@dataclass(eq=False)
class Conversion:
    """One frame, and what failed attempts to trace it have learned."""

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
        epilogue = self.traced()
        frame, record, output = epilogue.frame, self.record, epilogue.output
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
        graph = self.compile_graph(output, epilogue.outputs)
        record.replacement_code = replacement(epilogue, graph, record.calls.__next__)
        with record.timed("guards"):
            record.guard_function = entry_guards(output, self.code)
        record.guards = record.guard_function.guards
        for each in record.graph_breaks:
            kind = "loop_splits" if each.is_consequence else "graph_breaks"
            records.count(kind, f"{each.reason} at {each.file}:{each.line}")
        check = record.guard_function.check
        owner = None if self.policy.fresh_modules else owner_of(self.args)
        return CacheEntry(check, record.replacement_code, self.compiler, record, owner, [])

    # ---- attempts
    def traced(self) -> Epilogue:
        """Trace the frame, as often as attempts learn something.  Returns the epilogue: the code
        that runs after the graph."""
        for _ in range(config.attempt_limit):
            found = self.attempt()
            if found is not None:
                return found
            if self.forced and self.compiler.fullgraph:
                raise Unsupported(records.explain_break(next(iter(self.forced.values()))))
        raise SkipFrame(f"gave up after {config.attempt_limit} attempts")

    def attempt(self) -> Epilogue | None:
        """Trace once.  None: the attempt failed, and has learned what the next one needs."""
        try:
            with self.record.timed("trace"):
                frame = self.trace()
                epilogue = rebuild(frame)
                refuse(frame.output)
            if self.policy.pin(frame.output.shape_env.pinned()):
                return None  # with those sizes as numbers
        except Restart:
            return None
        except Break as broken:  # a value cannot be rebuilt: a generator that has started
            raise SkipFrame(str(broken)) from broken
        return epilogue

    def trace(self) -> RootFrame:
        """Evaluate the frame on variables; the thread's state is as before afterwards."""
        self.policy.met = []
        compiler, code = self.compiler, self.code
        output = OutputGraph(compiler.backend_name != "eager", self.policy)
        self.attempts.append(output)
        forget_lookups()
        given = zip(code.co_varnames, self.args)
        bound = {name: Lazy(value, output.tree.local(name)) for name, value in given}
        closure = closure_of(output, self.function, code)
        # None: nobody loads this function again, so that it needs no source and no guard
        function = FunctionVar(
            None, code, self.function.__globals__, self.function.__qualname__, closure=closure
        )
        frame = RootFrame(output, function, bound, self.forced)
        announce("evaluate", self.record, frame)
        with put_back(output):
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
        """May tensors appear after a graph break, though there was none before (`x = load(path)`)?

        Yes in a function that was given to `compile` itself, and where an argument is a tensor.
        Any other function may compute with NumPy alone."""
        place = self.code.co_filename, self.code.co_firstlineno
        own = self.compiler.compiled_by_name.values()
        if place in [(compiled.co_filename, compiled.co_firstlineno) for compiled in own]:
            return True
        return any(issubclass(type(value), torch.Tensor) for value in self.args)

    def compile_graph(self, output: OutputGraph, results: list[Variable]) -> Callable | None:
        """The backend's work on the captured graph; None if there is no graph."""
        if not output.calls:
            return None
        record = self.record
        with record.timed("graph"):
            gm, example_inputs = output.finish(results)
        record.graph = gm
        output.errors = GraphErrors(output, record.function)
        records.count("graphs", record.function)
        with record.timed("backend"):
            compiled = self.ask_backend(gm, example_inputs, bool(output.written))
        return frame_hook.disabled(floats_as_tensors(compiled, output))

    def ask_backend(
        self, gm: torch.fx.GraphModule, example_inputs: list[Any], writes: bool
    ) -> Callable:
        """What the backend makes of the graph; the graph itself if the backend fails.  Raises
        BackendError where it is the user's.  writes: does the graph change tensors?
        """
        backend, record = self.compiler.backend, self.record
        if writes and backends.is_torchs(backend):  # which relies on guards of shared memory
            records.warn_once(self.code, f"{record.function} writes: torch's backend is not asked")
            return gm.forward
        is_ours = getattr(backend, "__module__", None) == backends.__name__
        try:
            compiled = backend(gm, example_inputs, **self.compiler.options)
            if not callable(compiled):
                raise TypeError(f"the backend returned {type(compiled).__name__}, no callable")
        # of our backend only its own faults, of the user's every exception but those of signal
        # handlers (miniinductor/errors.py explains both functions)
        except faults() if is_ours else ours(Exception) as error:
            backends.note_failure(self, error, is_ours)
            return gm.forward
        record.backend_record = getattr(compiled, "record", None)
        if record.backend_record is not None:
            # miniinductor's `CompiledGraph` looks at its inputs first; the guards did that already
            return getattr(compiled, "function", compiled)
        if compiled is gm:
            return gm.forward  # which runs no hooks that the program has set for all modules
        return compiled if is_ours else backends.tuple_of(compiled, self.compiler.backend_name)


# What torch.utils.checkpoint's hooks raise once they have recomputed all that backward needs: no
# error of the graph's, and what was written stays, as in eager.
STOPPED = getattr(torch.utils.checkpoint, "_StopRecomputationError", None)


class GraphErrors:
    """What happens when one graph raises.  changes: does the graph write to the program's tensors,
    or draw random numbers?  Then plain Python cannot run the frame again."""

    def __init__(self, output: OutputGraph, function: str) -> None:
        self.function = function
        self.changes = bool(changed_inputs(output)) or any(map(draws, output.graph.nodes))
        self.state = dict(output.state.before)

    def handler(self, frame: RootFrame, call: list[Instruction]) -> list[Instruction]:
        """The code to which an error of the instructions `call` jumps: it calls `raised`, and goes
        on to the original body, which plain Python runs from its start."""
        handler = Codegen(frame)
        handler.emit("PUSH_EXC_INFO")
        handler.call_object(frame_hook.disabled(self.raised))
        # `raised` raises: no longer handled
        cleanup = [Instruction("COPY", 3), Instruction("POP_EXCEPT"), Instruction("RERAISE", 1)]
        for instruction in handler.instructions:
            instruction.exc = cleanup[0], 1, True
        for op in ("POP_TOP", "POP_TOP", "POP_EXCEPT"):
            handler.emit(op)
        for instruction in call:
            instruction.exc = handler.instructions[0], 0, False
        return cleanup + handler.instructions

    def raised(self) -> None:
        """Called when the graph has raised.  Returns if the frame may run as plain Python, else
        raises again."""
        set_all(self.state)  # grad mode and the like: the graph may have changed it
        error: Any = sys.exc_info()[1]
        if type(error) is STOPPED or isinstance(error, BackendError) or is_foreign(error):
            raise
        group = "raised_after_write" if self.changes else "raised"
        records.count(group, f"{self.function}: {type(error).__name__}: {error}")
        if self.changes:
            raise


def changed_inputs(output: OutputGraph) -> list[torch.fx.Node]:
    """The inputs and parameters that the graph writes, perhaps through a view."""
    written = {storage(fake) for _, fake in output.written}
    given = [node for node in output.graph.nodes if node.op in ("placeholder", "get_attr")]
    fakes = [(node, node.meta["example_value"]) for node in given]
    return [n for n, fake in fakes if isinstance(fake, torch.Tensor) and storage(fake) in written]


def refuse(output: OutputGraph) -> None:
    """Raise SkipFrame for what plain Python refuses and a generated kernel would not: outside of
    inference mode, a write to a tensor that was made in it."""
    changed = changed_inputs(output)
    for variable in output.inputs:
        made_there = variable.node in changed and variable.value.is_inference()
        if made_there and not torch.is_inference_mode_enabled():
            raise SkipFrame("a write to what was made in inference mode, outside of it")
