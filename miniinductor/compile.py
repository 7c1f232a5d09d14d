"""From a captured FX graph to a callable: every stage in order, and nothing else calls a stage.

In:   an `fx.GraphModule` over tensors (parameters as get_attr nodes, output a tuple) and example
      inputs.  Symbolic sizes: the graph's first placeholders are the symbols s0, s1, ...; their
      examples are SymInts, the tensors' are fake tensors over them; calls pass ints.
Out:  a `CompiledGraph`, called with the same tensors.

    >>> compiled = compile_fx(gm, [x])
    >>> compiled(x), compiled.record.times

    Compilation.run         what cannot be compiled runs eagerly, which is recorded
      plan_inference        trace and functionalize; passes
      plan_training         trace the joint graph; passes; cut it in two
        generate            layouts; lower; verify (the backward half: when it is first needed)
          build_program     schedule; write kernels; build kernels; plan memory; print the wrapper
      start                 the Program's callable, perhaps replayed as a CUDA graph

Each stage takes and returns a value of its own: `Joint`, `Parts`, `Graph`, `Schedule`, the list of
steps, `MemoryPlan`, `Wrapper`, `Program`, `Plan`; all of them write down in `record` what they
decided.  A `CompiledGraph` looks at the inputs of each call; a front end with guards of its own
calls `compiled.function`, which looks at nothing.  Mirrors torch/_inductor/compile_fx.py and
torch/_functorch/_aot_autograd/runtime_wrappers.py.
"""

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from . import config, coverage, pieces
from .autograd import fake_mode
from .autograd.eager_graphs import Interpreted, may_refuse, runnable, with_eager_errors
from .autograd.joint import Joint, trace_forward, trace_joint
from .autograd.outputs import has_lazy_bits, needs_gradient, with_outputs
from .autograd.partition import activations, partition
from .autograd.runtime import (
    Backward,
    Plan,
    at_the_start,
    by_data,
    connect,
    cut_of,
    held_tensors,
    inner_writes,
)
from .autograd.tracer import no_autocast, without_autocast
from .codegen.kernels import build_kernels, main_device, write_kernels
from .devices import about, language_of, why_not
from .errors import NOT_COMPILED, CannotLower, CompilerError, ThreadState, ours
from .ir.handlers import verify_graph
from .ir.loops import Graph
from .lowering import lower_graph
from .lowering.decompositions import FUSED_RANDOM, table
from .lowering.extern import is_cheap
from .options import Current
from .passes.graph_passes import laid_out, laid_out_joint, optimize
from .records import CompileRecord, Later, first_line, listing_of, tell
from .runtime.memory import plan_memory
from .runtime.program import Program, guard_shared_memory
from .runtime.wrapper import print_wrapper
from .schedule.after_fusion import join_groups, overwritten_inputs
from .schedule.nodes import Schedule
from .schedule.scheduler import Scheduler
from .sizes.symbols import hints_of, is_symbolic, size_hints

MODES = (None, "default", "reduce-overhead", "max-autotune")
# explain measures kernels: (program, record) -> the program with a clock around each of its calls
CLOCK = Current()
MOST_CUTS = 16  # behind so many ops that cannot be compiled the rest of the graph runs eagerly


def compile_fx(
    gm: fx.GraphModule, example_inputs: Sequence[object], *, mode: str | None = None
) -> "CompiledGraph":
    """Compile `gm` for inputs like `example_inputs`: the same shapes, strides, dtypes and devices.

    mode: None or "default" | "reduce-overhead" (a CUDA graph) | "max-autotune" (every block size is
    timed); on the CPU all are the same. Returns a CompiledGraph, which raises ValueError for other
    inputs.  Raises TypeError if `gm` is no fx.GraphModule, ValueError for an unknown mode or
    another number of inputs than the graph has placeholders.
    """
    coverage.load()
    compilation = Compilation(gm, example_inputs, mode)
    # whatever is raised, gradients are recorded and garbage is collected afterwards as before
    return ThreadState().around(compilation.for_caller)


def aot_eager(gm: fx.GraphModule, example_inputs: Sequence[object]) -> "CompiledGraph":
    """The same path without code generation: the functional ATen graph, run by eager kernels."""
    coverage.load()
    compilation = Compilation(gm, example_inputs, generates=False)
    return ThreadState().around(compilation.run)


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
    """One captured graph on its way.  generates: kernels; else eager ones are wanted.

    parts: in training, a function that gives both halves of the joint graph (`Parts`), since the
      backward half is compiled later.
    cuts: how often a graph was cut of which this one is a piece.
    step: in training, what recordings of both halves share (runtime/cuda_graphs.py).
    clock: what was in CLOCK when this began."""

    gm: fx.GraphModule
    inputs: Sequence[Any]
    mode: str | None = None
    generates: bool = True
    record: CompileRecord = field(default_factory=CompileRecord)
    parts: Any = field(default=None, init=False)
    cuts: int = field(default=0, init=False)
    # as the graph begins: what it sets is set while it is traced, too
    has_autocast: bool = field(default_factory=torch._C._is_any_autocast_enabled, init=False)
    step: Any = field(default=None, init=False)
    clock: Callable | None = field(default_factory=lambda: CLOCK.value, init=False)

    def for_caller(self) -> CompiledGraph:
        """What `compile_fx` gives, which looks at its inputs."""
        inputs = self.inputs
        compiled = self.run()
        compiled.expected = [layout_of(value) for value in inputs]
        return compiled

    def run(self) -> CompiledGraph:
        """The graph compiled; where that cannot be, eagerly, and the record says why."""
        check_arguments(self.gm, self.inputs, self.mode)
        self.record.input_graph = self.gm
        self.record.keeps_steps |= config.keep_steps
        of_machine = False  # no compiler is there, say: told once, not again for each graph
        try:
            if refused := self.eager_reason():
                raise CannotLower(refused)
            if run := self.cut():
                return CompiledGraph(run, self.record)
            return CompiledGraph(self.compiled(), self.record)
        except NOT_COMPILED as error:
            reason, of_machine = str(error), isinstance(error, CompilerError)
            origins = getattr(error, "origins", ())
            if not of_machine and (run := self.around(origins, reason)):
                return CompiledGraph(run, self.record)
        finally:
            self.inputs = ()  # the backward half is compiled later, and keeps this object alive
        self.record.notes.append(f"runs eagerly: {reason}")
        text = f"the graph of {first_line(self.gm)} runs eagerly: {reason}"
        tell(text, reason if of_machine else text)
        return CompiledGraph(runnable(self.gm), self.record)

    def cut(self) -> Callable | None:
        """The graph in pieces where the program or the user wants that; else None."""
        gm = self.gm
        apart = list(filter(pieces.runs_apart, gm.graph.nodes))
        if apart or turns_gradients_on(gm):
            run = self.in_pieces(pieces.steps_of(gm, apart))
            if run is None:
                raise CannotLower("a program of its own, or gradients that are turned on")
            self.record.notes.append(
                f"cut at {', '.join(n.name for n in apart)}, which runs eagerly"
            )
            return run
        limit = config.gradient_buckets
        if not limit or self.mode == "reduce-overhead" or not needs_gradients(gm, self.inputs):
            return None
        steps = pieces.buckets(gm, limit)
        if len(steps) == 1 or pieces.changes_state(gm):
            return None
        with config.patch(gradient_buckets=0):  # a piece is not cut again
            run = self.in_pieces(steps)
        self.record.notes.append(f"in {len(steps)} pieces: gradient_buckets")
        return run

    def around(self, origins: Collection[str], reason: str) -> Callable | None:
        """The graph in pieces, without the ops that are to blame (nodes of these names); None where
        it cannot be cut there."""
        apart = [node for node in self.gm.graph.nodes if node.name in origins]
        may_cut = apart and self.cuts < MOST_CUTS
        run = self.in_pieces(pieces.steps_of(self.gm, apart)) if may_cut else None
        if run is None and self.cuts and apart == list(filter(is_call, self.gm.graph.nodes)):
            run = runnable(self.gm)  # the piece is this op
        if run:
            names = ", ".join(node.name for node in apart)
            where = first_line(self.gm)
            self.record.notes.append(f"{names} runs eagerly, between compiled pieces: {reason}")
            tell(f"{names} in the graph of {where} is an eager kernel: {reason}")
        return run

    def in_pieces(self, steps: Sequence[pieces.Step] | None) -> Callable | None:
        if not steps or all(step.is_eager or step.is_made_of_numbers() for step in steps):
            return None
        return ThreadState().around(
            pieces.in_pieces, self.gm, steps, self.compile_piece, self.record
        )

    def compile_piece(self, gm: fx.GraphModule, inputs: list[Any]) -> CompiledGraph:
        piece = Compilation(gm, inputs, self.mode, self.generates)
        piece.cuts = self.cuts + 1
        return piece.run()

    def compiled(self) -> Callable:
        """What runs the graph.  Raises one of `NOT_COMPILED`."""
        return self.started(self.plan())

    def eager_reason(self) -> str | None:
        """Why this graph must not be compiled, or None."""
        given = [t for t in self.inputs if not isinstance(t, torch.SymInt)]
        if any(type(t) not in (torch.Tensor, torch.nn.Parameter, FakeTensor) for t in given):
            return "an input is no plain tensor"
        tensors = self.tensors()
        for device in {t.device for t in tensors} - {torch.device("cpu")}:
            if reason := why_not(device):
                return reason
        if any(t.layout != torch.strided for t in tensors):
            return "a tensor that is not strided (sparse, mkldnn)"
        if any(map(has_lazy_bits, tensors)):
            return "a tensor that is negated or conjugated lazily: kernels read memory as it is"
        return None

    def tensors(self) -> list[torch.Tensor]:
        """The tensors that the graph is given, and those that it holds."""
        given = [t for t in self.inputs if isinstance(t, torch.Tensor)]
        return [*given, *self.gm.parameters(), *self.gm.buffers()]

    def plan(self) -> Plan:
        """The plan of the graph, whose forward part is compiled."""
        if self.generates:
            for device in {about(t.device) for t in self.tensors()}:
                device.expect(len(self.gm.graph.nodes))
        is_training = needs_gradients(self.gm, self.inputs)
        return self.plan_training() if is_training else self.plan_inference()

    # --- the stages: graphs
    def plan_inference(self) -> Plan:
        record = self.record
        with record.timed("trace"):
            joint = trace_forward(self.gm, self.inputs, self.decompositions())
        record.functional_graph = joint.graph
        with no_autocast():  # the traced graph holds autocast's casts: no later stage casts again
            self.clean(joint)
            program = self.compile_functional(joint.graph, record, joint.written)
            return self.plan_of(joint, program, joint.graph)

    def plan_training(self) -> Plan:
        record, held = self.record, held_tensors(self.gm)
        with record.timed("trace"):
            joint = trace_joint(self.gm, self.inputs, held, self.decompositions())
        with no_autocast():
            self.clean(joint)
            with record.timed("layouts"):
                joint.graph = self.laid_out(joint.graph)
            record.keep_step("layouts", joint.graph)
            record.joint_graph = joint.graph
            with record.timed("partition"):
                parts = partition(joint, len(self.inputs) + len(held), is_cheap)
                record.saved = activations(joint, parts)
            record.functional_graph = parts.forward
            # how many of the forward half's outputs are results; others are for the backward half
            parts.forward.meta["results"] = joint.count
            inner = inner_writes(parts.forward, joint)
            program = self.compile_functional(parts.forward, record, inner)
            plan = self.plan_of(joint, program, parts.forward)
        plan.cut = cut_of(joint, parts)
        self.parts = lambda: parts  # a function: from disk, they are made when they are needed
        return plan

    def clean(self, joint: Joint) -> None:
        record = self.record
        record.aten_graph = joint.recorded
        record.keep_step("functionalization", joint.graph)
        with record.timed("graph passes"):
            optimize(joint.graph, record.keep_step)

    def decompositions(self) -> Any:
        if not self.generates:
            return None
        return table() if config.fallback_random else table() | FUSED_RANDOM

    def laid_out(self, joint: fx.GraphModule) -> fx.GraphModule:
        """The joint graph with its tensors in other layouts, before it is cut in two.  (`generate`
        chooses again for each graph that is lowered.)"""
        if not self.generates:
            return joint
        return laid_out_joint(joint, self.record)

    def plan_of(self, joint: Joint, program: Any, forward: fx.GraphModule) -> Plan:
        """forward: the functional graph that the program computes."""
        return Plan(joint, program, may_refuse=self.generates and may_refuse(forward))

    def compile_functional(
        self, functional: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]]
    ) -> Any:
        """A Program for one functional graph whose output is (values, new values of `written`)."""
        if not self.generates:
            return Interpreted(functional, written)
        max_autotune = config.max_autotune or self.mode == "max-autotune"
        with (
            config.patch(max_autotune=max_autotune),
            size_hints(hints_of(functional.graph)),
            torch._C.DisableTorchFunction(),  # the program's default device is not the compiler's
        ):
            return self.generate(functional, record, written)

    def generate(
        self, functional: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]]
    ) -> Program:
        """Choose layouts, lower, fuse and build one functional graph."""
        record.keep_step("partition", functional)
        with record.timed("layouts"):
            functional = laid_out(functional, record)
        record.lowered_graph = functional
        with record.timed("lower"):
            graph = lower_graph(functional, record, written)
        record.loop_ir = Later(lambda: listing_of(graph))
        try:
            if config.verify:
                with record.timed("verify"):
                    verify_graph(graph)
            program = build_program(graph, record)
        # (`ours` is empty where the exception is not the compiler's, but a signal handler's, say)
        except ours(NotImplementedError) as reason:
            raise CannotLower(str(reason)) from reason
        record.print_stages()
        return program

    # --- the stages: a callable
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
        replay = about(program.device).replay
        return replay.GraphedCall(run, program, record, self.step, is_backward)

    def started(self, plan: Plan) -> Callable:
        """What runs the graph, with what each call of it looks at."""
        run = self.start_training(plan) if plan.cut else self.start_inference(plan)
        if plan.joint.written:
            return guard_shared_memory(run, self.gm, self.record)
        return with_eager_errors(run, self.gm) if plan.may_refuse else run

    def start_forward(self, plan: Plan) -> Callable:
        run = self.start(plan.program, self.record)
        return at_the_start(plan.joint, by_data(plan.joint, run))

    def start_inference(self, plan: Plan) -> Callable:
        run = self.start_forward(plan)
        if self.has_autocast:
            run = functools.partial(without_autocast, run)
        return with_outputs(plan.joint, run)

    def start_training(self, plan: Plan) -> Callable:
        replay = about(plan.program.device).replay
        self.step = replay.Step(plan.joint.count) if replay else None
        start_backward = functools.partial(self.start, is_backward=True)
        backward = Backward(
            plan.cut, self.parts, self.record, self.compile_functional, start_backward
        )
        return connect(plan, self.start_forward(plan), backward, held_tensors(self.gm))


# --- the stages: kernels --------------------------------------------------------------------------
def build_program(graph: Graph, record: CompileRecord) -> Program:
    """Everything after lowering.

    Raises NotImplementedError where there is no code generator, CompilerError where its compiler is
    missing or fails."""
    device = main_device(graph)
    schedule = make_schedule(graph, record)
    with record.timed("codegen"):
        written = write_kernels(schedule, record)
    with record.timed("compile kernels"):
        steps = build_kernels(written, schedule, device, record)
    with record.timed("wrapper"):
        memory = plan_memory(schedule, steps, device, record)
        inference = record.joint_graph is None
        wrapper = print_wrapper(schedule, steps, memory, device, inference)
    record.wrapper_source = wrapper.source
    replay = about(device).replay
    return Program(
        source=wrapper.source,
        scope=wrapper.scope,
        device=device,
        inputs=list(graph.inputs),
        constants=graph.constants,
        mutations=[name for name, _ in graph.mutations],
        refused=replay.refusal(graph, device) if replay else "the graph does not run on a GPU",
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
    record.fused_ir = Later(lambda: listing_of(schedule))
    return schedule


def is_call(node: fx.Node) -> bool:
    return node.op.startswith("call")


def turns_gradients_on(gm: fx.GraphModule) -> bool:
    """Does the graph turn gradients on where none are recorded?"""
    setters = gm.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
    return not torch.is_grad_enabled() and any(node.args[0] for node in setters)


def needs_gradients(gm: fx.GraphModule, inputs: Sequence[object]) -> bool:
    return torch.is_grad_enabled() and any(
        map(needs_gradient, [*inputs, *gm.parameters(), *gm.buffers()])
    )
