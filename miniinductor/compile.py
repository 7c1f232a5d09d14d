"""From a captured FX graph to a callable: every stage in order, and nothing else calls a stage.

In:   an `fx.GraphModule` over tensors (parameters as get_attr nodes, output a tuple) and example
      inputs.  Symbolic sizes: the graph's first placeholders are the symbols s0, s1, ...; their
      examples are SymInts, the tensors' are fake tensors over them; calls pass ints.
Out:  a `CompiledGraph`, called with the same tensors.

    >>> compiled = compile_fx(gm, [x])
    >>> compiled(x), compiled.record.times

    compile_fx              what cannot be compiled runs eagerly, which is recorded
      compiled              trace and functionalize; passes; in training: cut it in two
        compile_functional  layouts; lower; verify (the backward half: when it is first needed)
          build_program     schedule; write kernels; build kernels; plan memory; print the wrapper
        start               the Program's callable, perhaps replayed as a CUDA graph

Each stage takes and returns a value of its own: `Joint`, `Parts`, `Graph`, `Schedule`, the list of
steps, `MemoryPlan`, `Wrapper`, `Program`; all of them write down in `record` what they decided.  A
`CompiledGraph` looks at the inputs of each call; a front end with guards of its own calls
`compiled.function`, which looks at nothing.  Mirrors torch/_inductor/compile_fx.py and
torch/_functorch/_aot_autograd/runtime_wrappers.py.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from . import config
from . import languages as languages  # which registers C++ and Triton
from .autograd import fake_mode
from .autograd.eager_graphs import Interpreted, draws, runnable, with_eager_errors
from .autograd.joint import Joint, held_tensors, trace_forward, trace_joint
from .autograd.outputs import has_lazy_bits, needs_gradient, with_outputs
from .autograd.tracer import no_autocast, without_autocast
from .codegen.kernels import build_kernels, main_device, write_kernels
from .devices import entry_of, language_of, why_not
from .errors import NOT_COMPILED, CannotLower, CompilerError, NotCompiled, ThreadState, ours
from .ir.handlers import verify_graph
from .ir.loops import Graph
from .lowering import lower_graph
from .lowering.decompositions import table
from .lowering.extern import is_cheap
from .lowering.random import FUSED_RANDOM
from .options import Current
from .passes.graph_passes import laid_out, laid_out_joint, optimize
from .records import CompileRecord, first_line, warn_once
from .runtime.memory import Program, plan_memory
from .runtime.wrapper import print_wrapper
from .schedule.after_fusion import join_groups, overwritten_inputs
from .schedule.nodes import Schedule
from .schedule.scheduler import Scheduler
from .sizes.symbols import hints_of, is_symbolic, size_hints

if TYPE_CHECKING:
    from . import pieces
    from .autograd.partition import Parts

MODES = (None, "default", "reduce-overhead", "max-autotune")
# set by explain to measure kernels: (program, record) -> the program, which times its calls
CLOCK = Current()
MOST_CUTS = 16  # after so many cuts the rest of the graph runs eagerly


def compile_fx(
    gm: fx.GraphModule, example_inputs: Sequence[object], *, mode: str | None = None
) -> "CompiledGraph":
    """Compile `gm` for inputs like `example_inputs`: the same shapes, strides, dtypes and devices.

    mode: None or "default" | "reduce-overhead" (a CUDA graph) | "max-autotune" (every block size is
    timed); on the CPU all are the same. Returns a CompiledGraph, which raises ValueError for other
    inputs.  Raises TypeError if `gm` is no fx.GraphModule, ValueError for an unknown mode or
    another number of inputs than the graph has placeholders.
    """
    check_arguments(gm, example_inputs, mode)
    # whatever is raised, gradients are recorded and garbage is collected afterwards as before
    compiled = ThreadState().around(Compilation(gm, example_inputs, mode).run)
    compiled.expected = list(map(layout_of, example_inputs))
    return compiled


def aot_eager(gm: fx.GraphModule, example_inputs: Sequence[object]) -> "CompiledGraph":
    """The same path without code generation: the functional ATen graph, run by eager kernels."""
    check_arguments(gm, example_inputs, None)
    return ThreadState().around(Compilation(gm, example_inputs, generates=False).run)


class CompiledGraph:
    """A compiled graph: call it with the graph's tensors; `record` is its CompileRecord.
    `function` is the same without looking at the inputs: for a caller that has guards.

    expected: the layout of each input, or None; without it no call looks."""

    expected: Sequence[tuple | None] | None = None

    def __init__(self, function: Callable, record: CompileRecord):
        self.function, self.record = function, record

    def __call__(self, *inputs: object) -> object:
        if self.expected is None:
            return self.function(*inputs)
        if fake_mode.is_unusual():
            return self.record.input_graph(*inputs)
        for n, (value, expected) in enumerate(zip(inputs, self.expected)):
            if expected is not None and (found := layout_of(value)) != expected:
                raise ValueError(
                    f"input {n} of the compiled graph is {found or type(value).__name__} and was "
                    f"compiled as {expected} "
                    "(sizes, strides, dtype, device, lazily negated, lazily conjugated)"
                )
        return self.function(*inputs)

    def __repr__(self) -> str:
        kernels, eager = len(self.record.kernels), len(self.record.fallbacks)
        return f"<compiled graph: {kernels} kernels, {eager} eager kernels>"


def check_arguments(gm: fx.GraphModule, inputs: Sequence[object], mode: str | None) -> None:
    if mode not in MODES:
        raise ValueError(
            f"unknown mode {mode!r}: use None, 'default', 'reduce-overhead' or 'max-autotune'"
        )
    if not isinstance(gm, fx.GraphModule):
        raise TypeError(
            f"miniinductor compiles an fx.GraphModule, not {type(gm).__name__}: make one by "
            "torch.fx.symbolic_trace(f), or call minidynamo.compile(f)"
        )
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    if len(names) != len(inputs):
        raise ValueError(
            f"the graph takes {len(names)} inputs ({', '.join(names)}), but there are "
            f"{len(inputs)} example inputs"
        )


def layout_of(value: object) -> tuple | None:
    """What a call's input must have in common with the example: sizes, strides, dtype, device, and
    whether it is negated or conjugated lazily.  None for numbers and for symbolic sizes.

    The stride of a dimension of size 1 is of no importance, and counts as 1."""
    if not isinstance(value, torch.Tensor) or is_symbolic(value):
        return None
    shape = tuple(value.shape)
    strides = tuple([1 if n == 1 else stride for n, stride in zip(shape, value.stride())])
    return shape, strides, value.dtype, value.device, value.is_neg(), value.is_conj()


@dataclass
class Compilation:
    """The compilation of one captured graph.  generates: False to use eager kernels alone.

    cuts: how many cuts (`in_pieces`) have led to this piece; 0 for a whole graph.
    has_autocast: is autocast on where the graph begins?  (Changes inside the graph are traced.)
    clock: the value of CLOCK when the compilation began.
    step: in training, what the CUDA graphs of forward and backward share (runtime/cuda_graphs.py).
    """

    gm: fx.GraphModule
    inputs: Sequence[Any]
    mode: str | None = None
    generates: bool = True
    record: CompileRecord = field(default_factory=CompileRecord)
    cuts: int = 0
    has_autocast: bool = field(default_factory=torch._C._is_any_autocast_enabled)
    clock: Callable | None = field(default_factory=lambda: CLOCK.value)
    step: Any = None

    def run(self) -> CompiledGraph:
        """Compile the graph.  If that is refused, run it in pieces or eagerly, and record why."""
        self.record.input_graph = self.gm
        self.record.keeps_steps |= config.keep_steps
        try:
            self.check()
            run = self.in_buckets() or self.compiled()
        except NOT_COMPILED as error:
            run = self.without_refused(error) or self.eagerly(error)
        finally:
            self.inputs = ()  # the backward half is compiled later, and keeps this object alive
        return CompiledGraph(run, self.record)

    # --- every stage, in order
    def compiled(self) -> Callable:
        """The function that runs the graph, with the checks that each call makes.  Raises one of
        `NOT_COMPILED`."""
        record, held = self.record, held_tensors(self.gm)
        is_training = self.needs_gradients()
        for device in {entry_of(t.device) for t in self.tensors() if self.generates}:
            device.prepare(len(self.gm.graph.nodes))
        with record.timed("trace"):
            if is_training:
                joint = trace_joint(self.gm, self.inputs, held, self.decompositions())
            else:
                joint = trace_forward(self.gm, self.inputs, self.decompositions())
        record.aten_graph = joint.recorded
        record.keep_step("functionalization", joint.graph)
        with no_autocast():  # the traced graph holds autocast's casts: no later stage casts again
            with record.timed("graph passes"):
                optimize(joint.graph, record.keep_step)
            if is_training:
                from .autograd.runtime import inner_writes

                parts = self.cut_in_two(joint, held)
                forward, written = parts.forward, inner_writes(parts.forward, joint)
            else:
                forward, written = joint.graph, joint.written
            record.functional_graph = forward
            program = self.compile_functional(forward, record, written)
        run = (
            self.start_training(program, joint, parts, held)
            if is_training
            else self.start_inference(program, joint)
        )
        if joint.written:
            from .autograd.writes import guard_shared_memory

            return guard_shared_memory(run, self.gm, record)
        return run if draws(forward) else with_eager_errors(run, self.gm)

    def cut_in_two(self, joint: Joint, held: Sequence[torch.Tensor]) -> "Parts":
        from .autograd.partition import activations, partition

        record = self.record
        with record.timed("layouts"):
            # (`compile_functional` chooses again for each graph that is lowered)
            joint.graph = laid_out_joint(joint.graph, record) if self.generates else joint.graph
        record.keep_step("layouts", joint.graph)
        record.joint_graph = joint.graph
        with record.timed("partition"):
            parts = partition(joint, len(self.inputs) + len(held), is_cheap)
            record.saved = activations(parts)
        # how many of the forward half's outputs are results; others are for the backward half
        parts.forward.meta["results"] = joint.count
        return parts

    def compile_functional(
        self, functional: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]]
    ) -> Any:
        """A Program for one functional graph whose output is (values, new values of `written`)."""
        if not self.generates:
            return Interpreted(functional, written)
        with (
            config.patch(max_autotune=config.max_autotune or self.mode == "max-autotune"),
            size_hints(hints_of(functional.graph)),
            torch._C.DisableTorchFunction(),  # the program's default device is not the compiler's
        ):
            record.keep_step("partition", functional)
            with record.timed("layouts"):
                record.lowered_graph = laid_out(functional, record)
            with record.timed("lower"):
                record.lowered = graph = lower_graph(record.lowered_graph, record, written)
            try:
                if config.verify:
                    with record.timed("verify"):
                        verify_graph(graph)
                program = build_program(graph, record)
            # (`ours` is empty where the exception is not the compiler's, but a signal handler's)
            except ours(NotImplementedError) as reason:
                raise CannotLower(str(reason)) from reason
            record.print_stages()
            return program

    def start(self, program: Any, record: CompileRecord, is_backward: bool = False) -> Callable:
        """The callable of a Program; in mode="reduce-overhead" it is recorded and replayed, where
        its device can do that (runtime/cuda_graphs.py)."""
        if self.clock and isinstance(program, Program):
            program = self.clock(program, record)
        run = program.start()
        if self.mode != "reduce-overhead":
            return run
        if program.refused:
            record.notes.append(f"no CUDA graph: {program.refused}")
            return run
        replay = entry_of(program.device).replay
        return replay.GraphedCall(run, program, record, self.step, is_backward)

    def start_inference(self, program: Any, joint: Joint) -> Callable:
        run = self.start(program, self.record)
        if self.has_autocast:
            run = functools.partial(without_autocast, run)
        return with_outputs(joint, run)

    def start_training(
        self, program: Any, joint: Joint, parts: "Parts", held: Sequence[torch.Tensor]
    ) -> Callable:
        from .autograd.runtime import Backward, connect

        replay = entry_of(program.device).replay
        self.step = replay.Step(joint.count) if replay else None
        start_backward = functools.partial(self.start, is_backward=True)
        backward = Backward(parts, self.record, self.compile_functional, start_backward)
        return connect(joint, parts, self.start(program, self.record), backward, held)

    # --- what is not compiled
    def check(self) -> None:
        """Raise CannotLower where this graph must not be compiled."""
        given = [t for t in self.inputs if not isinstance(t, torch.SymInt)]
        if any(type(t) not in (torch.Tensor, torch.nn.Parameter, FakeTensor) for t in given):
            raise CannotLower("an input is no plain tensor")
        tensors = self.tensors()
        for device in {t.device for t in tensors} - {torch.device("cpu")}:
            if reason := why_not(device):
                raise CannotLower(reason)
        if any(t.layout != torch.strided for t in tensors):
            raise CannotLower("a tensor that is not strided (sparse, mkldnn)")
        if any(map(has_lazy_bits, tensors)):
            raise CannotLower(
                "a tensor that is negated or conjugated lazily: kernels read memory as it is"
            )
        if not torch.is_grad_enabled() and any(
            node.args[0]
            for node in self.gm.graph.find_nodes(
                op="call_function", target=torch._C._set_grad_enabled
            )
        ):
            raise CannotLower("gradients are turned on inside of it")

    def tensors(self) -> list[torch.Tensor]:
        """The tensors that the graph is given, and those that it holds."""
        given = [t for t in self.inputs if isinstance(t, torch.Tensor)]
        return [*given, *self.gm.parameters(), *self.gm.buffers()]

    def needs_gradients(self) -> bool:
        return torch.is_grad_enabled() and any(map(needs_gradient, self.tensors()))

    def decompositions(self) -> Any:
        if not self.generates:
            return None
        return table() if config.fallback_random else table() | FUSED_RANDOM

    def eagerly(self, error: Exception) -> Callable:
        """The graph run by eager kernels, with a warning: of the machine (no C++ compiler) once, of
        anything else once for each graph."""
        self.record.notes.append(f"runs eagerly: {error}")
        text = f"the graph of {first_line(self.gm)} runs eagerly: {error}"
        warn_once(text, str(error) if isinstance(error, CompilerError) else text)
        return runnable(self.gm)

    def without_refused(self, error: Exception) -> Callable | None:
        """The graph in pieces, of which the ops that caused `error` run eagerly.  None if these ops
        are not known, or the graph cannot be cut there."""
        origins = error.origins if isinstance(error, NotCompiled) else ()
        apart = [node for node in self.gm.graph.nodes if node.name in origins]
        if not apart or self.cuts == MOST_CUTS:
            return None
        from . import pieces

        run = self.in_pieces(pieces.steps_of(self.gm, apart))
        if run is None:
            return None
        names = ", ".join(node.name for node in apart)
        self.record.notes.append(f"{names} runs eagerly, between compiled pieces: {error}")
        warn_once(f"{names} in the graph of {first_line(self.gm)} is an eager kernel: {error}")
        return run

    def in_buckets(self) -> Callable | None:
        """The graph in pieces where the user wants that (`config.gradient_buckets`)."""
        limit = config.gradient_buckets
        if not limit or self.mode == "reduce-overhead" or not self.needs_gradients():
            return None
        from . import pieces

        steps = pieces.buckets(self.gm, limit)
        if len(steps) == 1:
            return None
        with config.patch(gradient_buckets=0):  # a piece is not cut again
            run = self.in_pieces(steps)
        self.record.notes.append(f"in {len(steps)} pieces: gradient_buckets")
        return run

    def in_pieces(self, steps: "Sequence[pieces.Step] | None") -> Callable | None:
        def compile_piece(gm: fx.GraphModule, inputs: list[Any]) -> CompiledGraph:
            piece = Compilation(gm, inputs, self.mode, self.generates, cuts=self.cuts + 1)
            return piece.run()

        if not steps:
            return None
        from . import pieces

        return pieces.in_pieces(self.gm, steps, compile_piece, self.record)


# --- kernels --------------------------------------------------------------------------------------
def build_program(graph: Graph, record: CompileRecord) -> Program:
    """Everything after lowering.

    Raises NotImplementedError where there is no code generator, CompilerError where its compiler is
    missing or fails."""
    device = main_device(graph)
    schedule = make_schedule(graph, record)
    with record.timed("codegen"):
        written = write_kernels(schedule, record)
    with record.timed("compile kernels"):
        steps = build_kernels(written, schedule, record)
    with record.timed("wrapper"):
        memory = plan_memory(schedule, steps, device, record)
        inference = record.joint_graph is None
        wrapper = print_wrapper(schedule, steps, memory, device, inference)
    record.wrapper_source = wrapper.source
    replay = entry_of(device).replay
    return Program(
        source=wrapper.source,
        scope=wrapper.scope,
        device=device,
        inputs=list(graph.inputs),
        constants=graph.constants,
        mutations=[name for name, _ in graph.mutations],
        refused=replay.refusal(graph) if replay else "the graph does not run on a GPU",
    )


def make_schedule(graph: Graph, record: CompileRecord) -> Schedule:
    """Which loop nests are one kernel, what they overwrite, and the order of everything."""
    language = language_of(main_device(graph))
    for rewrite in language.rewrites:
        rewrite(graph, record)
    scheduler = Scheduler(graph, record)
    schedule = scheduler.schedule
    with record.timed("dependencies"):
        nodes = scheduler.live_nodes()
    with record.timed("fusion"):
        if config.fusion:
            nodes = scheduler.fuse(nodes)
        schedule.nodes = schedule.topological(nodes)
        schedule.overwritten = overwritten_inputs(schedule.nodes, schedule, record)
        for join in [*language.joiners, join_groups]:
            schedule.nodes = schedule.topological(join(schedule, record))
    record.schedule = schedule
    return schedule
