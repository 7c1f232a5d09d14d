"""From a captured FX graph to a callable: every stage in order, and nothing else calls a stage.

In:   an `fx.GraphModule` over tensors (parameters as get_attr nodes, output a tuple) and example
      inputs.  Symbolic sizes: the graph's first placeholders are the symbols s0, s1, ...; their
      examples are SymInts, the tensors' are fake tensors over them; calls pass ints.
Out:  a `CompiledGraph`, called with the same tensors.

    >>> compiled = compile_fx(gm, [x])
    >>> compiled(x), compiled.record.times

    compile_captured        what runs eagerly, is cut in pieces, or lies on disk already
      plan_inference        trace and functionalize; passes
      plan_training         trace the joint graph; passes; cut it in two
        generate            layouts; lower; verify (the backward half: when it is first needed)
          build_program     schedule; write kernels; build kernels; plan memory; print the wrapper
      start                 the Program's callable, perhaps replayed as a CUDA graph

Each stage takes and returns a value of its own: `Joint`, `Parts`, `Graph`, `Schedule`, the list of
steps, `MemoryPlan`, `Wrapper`, `Program`, `Plan`; all of them write down in `record` what they
decided.  What cannot be compiled runs eagerly, which is recorded: graphs that depend on data,
writes to inputs that share memory. Mirrors torch/_inductor/compile_fx.py and
torch/_functorch/_aot_autograd/runtime_wrappers.py.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from . import config, coverage
from .autograd.joint import has_lazy_bits, needs_gradient, trace_forward, trace_joint
from .autograd.partition import Parts, partition
from .autograd.runtime import (
    Backward,
    Plan,
    connect,
    cut_of,
    held_tensors,
    inner_writes,
    with_outputs,
    written_by_data,
)
from .autograd.tracer import without_autocast
from .checks import may_raise
from .decompositions import table
from .devices import Half, about, language_of, why_not, with_layouts
from .exceptions import NOT_COMPILED, CannotLower
from .foreign import ThreadState, ours
from .graph_passes import Context, in_layouts, optimize, rewritten
from .handlers import graph_text
from .hooks import CUTTERS, JOINERS, PLAN_CACHES, Entry
from .in_place import overwritten_inputs
from .ir import Graph
from .kernels import (
    build_kernels,
    functions_of,
    kernel_table,
    main_device,
    write_kernels,
)
from .lowering import lower_graph
from .lowering.cheap import is_cheap
from .memory import are_owned, plan_memory
from .nodes import Schedule
from .records import CompileRecord, Later
from .runtime.eager import Interpreted, guard_shared_memory, with_eager_errors
from .runtime.program import Program
from .scheduler import Scheduler
from .sizes.ranges import multiples
from .sizes.symbols import hints_of, multiples_of, size_hints
from .unknown_sizes import symbols_of, unknown_symbols
from .verify import verify_graph
from .wrapper import print_wrapper

MODES = (None, "default", "reduce-overhead", "max-autotune")


@dataclass(frozen=True)
class Options:
    """How a graph is to be compiled."""

    mode: str | None = None
    generate: bool = True  # False: the functional graph is run by eager kernels (aot_eager)


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
    compiled = ThreadState().around(compile_captured, gm, example_inputs, Options(mode))
    compiled.expected = [layout_of(value) for value in example_inputs]
    return compiled


def aot_eager(gm: fx.GraphModule, example_inputs: Sequence[object]) -> "CompiledGraph":
    """The same path without code generation: the functional ATen graph, run by eager kernels."""
    coverage.load()
    return ThreadState().around(compile_captured, gm, example_inputs, Options(generate=False))


class CompiledGraph:
    """A compiled graph: call it with the graph's tensors; `record` is its CompileRecord.
    `function` is the same without looking at the inputs: for a caller that has guards."""

    expected: Sequence[tuple | None] = ()  # the layout of each input, or None

    def __init__(self, function: Callable, record: CompileRecord):
        self.function, self.record = function, record

    def __call__(self, *inputs: object) -> object:
        for n, (value, expected) in enumerate(zip(inputs, self.expected)):
            if expected is not None and (found := layout_of(value)) != expected:
                raise ValueError(
                    f"input {n} of the compiled graph is {found or type(value).__name__} and was "
                    f"compiled as {expected} "
                    "(sizes, strides, dtype, device, lazily negated, lazily conjugated)"
                )
        return self.function(*inputs)

    def __repr__(self) -> str:
        record = self.record
        kernels, eager = len(record.kernels), len(record.fallbacks)
        return f"<compiled graph: {kernels} kernels, {eager} eager kernels>"


def compile_captured(
    gm: fx.GraphModule, inputs: Sequence[object], options: Options
) -> CompiledGraph:
    """The graph compiled; where that cannot be, eagerly, and the record says why."""
    check_arguments(gm, inputs, options.mode)
    record = CompileRecord(input_graph=gm)
    eager = eager_reason(gm, inputs)
    if eager:
        return run_eagerly(gm, record, eager)
    if unknown_symbols(gm).difference(*[symbols_of(value) for value in inputs]):
        return compile_in_pieces(gm, options, record)
    entry = entry_on_disk(gm, inputs, options, record)
    try:
        return assemble(gm, inputs, options, record, entry)
    except NOT_COMPILED as reason:
        return run_eagerly(gm, record, str(reason))
    except ours(RuntimeError) as reason:  # of the front end's: `needs_data`
        if not getattr(reason, "needs_data", False):
            raise
        return run_eagerly(gm, record, str(reason).split("\n")[0])


def assemble(
    gm: fx.GraphModule,
    inputs: Sequence[object],
    options: Options,
    record: CompileRecord,
    entry: Entry | None,
) -> CompiledGraph:
    """The graph's plan, from disk or a new one, started."""
    with record.timed("look on disk"):
        plan = record.restored(entry.load()) if entry else None
    if plan is not None:
        parts = parts_again(gm, inputs, options, record, plan)
    else:
        if options.generate:
            expect_kernels(gm, inputs)
        plan, made = make_plan(gm, inputs, options, record)
        record.keep(entry, plan)
        parts = lambda: made  # noqa: E731
    if plan.cut:
        run = start_training(gm, plan, parts, options, record, entry)
    else:
        run = start_inference(plan, options, record)
    if plan.shared_memory:
        run = guard_shared_memory(run, gm, record)
    elif plan.may_refuse:
        run = with_eager_errors(run, gm)
    return CompiledGraph(run, record)


# --- the stages: graphs ---------------------------------------------------------------------------
def make_plan(
    gm: fx.GraphModule, inputs: Sequence[object], options: Options, record: CompileRecord
) -> tuple[Plan, Parts | None]:
    """The plan; in training the parts of the joint graph, too: the backward half is compiled
    later."""
    if needs_gradients(gm, inputs):
        return plan_training(gm, inputs, record, options)
    return plan_inference(gm, inputs, record, options), None


def plan_inference(
    gm: fx.GraphModule, inputs: Sequence[object], record: CompileRecord, options: Options
) -> Plan:
    decompositions = table() if options.generate else None
    with record.timed("trace"):
        joint = trace_forward(gm, inputs, decompositions)
    record.aten_graph, record.functional_graph = joint.recorded, joint.graph
    with record.timed("graph passes"):
        optimize(joint.graph)
    if options.generate:
        with record.timed("patterns"):
            context = Context(record, inference=True, decompositions=decompositions)
            joint.graph = rewritten(joint.graph, context)
    program = compile_functional(joint.graph, record, joint.written, options)
    return Plan(
        joint,
        program,
        shared_memory=bool(joint.written),
        may_refuse=options.generate and may_refuse(joint.graph),
    )


def plan_training(
    gm: fx.GraphModule, inputs: Sequence[object], record: CompileRecord, options: Options
) -> tuple[Plan, Parts]:
    """Raises CannotTrace, CannotFunctionalize, CannotLower or CompilerError: run it eagerly
    then."""
    held = held_tensors(gm)
    with record.timed("trace"):
        joint = trace_joint(gm, inputs, held, table() if options.generate else None)
    record.aten_graph = joint.recorded
    with record.timed("graph passes"):
        optimize(joint.graph)
        if options.generate:
            joint.graph = with_layouts(joint.graph, record, products=False)
        record.joint_graph = joint.graph
    with record.timed("partition"):
        parts = partition(joint, len(inputs) + len(held), is_cheap)
    record.saved = parts.activations
    record.functional_graph = parts.forward
    parts.forward.meta["results"] = joint.count  # what follows is kept for the backward half
    written = [("placeholder", f"primal{w.primal}") for w in joint.writes if w.result is None]
    forward = inner_writes(parts.forward, joint)
    program = compile_functional(forward, record, written, options)
    plan = Plan(
        joint,
        program,
        cut_of(joint, parts),
        shared_memory=bool(joint.written),
        may_refuse=options.generate and may_refuse(parts.forward),
    )
    return plan, parts


def may_refuse(functional: fx.GraphModule) -> bool:
    """May a kernel raise for what it reads, and could the program run again then?"""
    tags = [getattr(n.target, "tags", ()) for n in functional.graph.nodes]
    if any(torch.Tag.nondeterministic_seeded in one for one in tags):
        return False
    return any(map(may_raise, functional.graph.nodes))


def compile_functional(
    functional: fx.GraphModule,
    record: CompileRecord,
    written: Sequence[tuple[str, str]],
    options: Options,
) -> Program | Interpreted:
    """A Program for one functional graph whose output is (values, new values of `written`)."""
    if not options.generate:
        return Interpreted(functional, written)
    max_autotune = config.max_autotune or options.mode == "max-autotune"
    with (
        size_hints(hints_of(functional.graph)),
        multiples(multiples_of(functional.graph)),
        config.patch(max_autotune=max_autotune),
    ):
        return generate(functional, record, written, options)


def generate(
    functional: fx.GraphModule,
    record: CompileRecord,
    written: Sequence[tuple[str, str]],
    options: Options,
) -> Program:
    """Lower, fuse and build one functional graph."""
    with record.timed("layouts"):
        context = Context(record, inference=record.joint_graph is None, written=written)
        functional = in_layouts(functional, context)
    with record.timed("lower"):
        graph = lower_graph(functional, record, written)
    if config.verify:
        with record.timed("verify"):
            verify_graph(graph)
    record.loop_ir = Later(lambda: graph_text(graph))
    try:
        program = build_program(graph, record)
    except ours(NotImplementedError) as reason:
        raise CannotLower(str(reason)) from reason
    print_stages(record)
    program.frozen = context.frozen
    if options.mode == "reduce-overhead":
        program.refused = replay_refusal(graph, program.device) or ""
    return program


# --- the stages: kernels --------------------------------------------------------------------------
def build_program(graph: Graph, record: CompileRecord) -> Program:
    """Everything after lowering.

    Raises NotImplementedError where there is no code generator, CompilerError where its compiler is
    missing or fails."""
    device = main_device(graph)
    language_of(device).prepare(graph, record)
    schedule = make_schedule(graph, record)
    with record.timed("codegen"):
        written = write_kernels(schedule, record)
    with record.timed("compile kernels"):
        steps = build_kernels(written, schedule, device, record)
    with record.timed("wrapper"):
        memory = plan_memory(schedule, steps, device, record)
        inference = record.joint_graph is None
        wrapper = print_wrapper(schedule, steps, memory, device, are_owned(record), inference)
    record.wrapper_source = wrapper.source
    return Program(
        source=wrapper.source,
        scope=wrapper.scope,
        kernels=kernel_table(steps),
        device=device,
        inputs=list(graph.inputs),
        constants=graph.constants,
        mutations=[name for name, _ in graph.mutations],
        functions=functions_of(steps),
    )


def make_schedule(graph: Graph, record: CompileRecord) -> Schedule:
    """Which loop nests are one kernel, what they overwrite, and the order of everything."""
    scheduler = Scheduler(graph, record)
    order = scheduler.order
    with record.timed("dependencies"):
        nodes = scheduler.live_nodes()
    with record.timed("fusion"):
        if config.fusion:
            nodes = scheduler.fuse(nodes)
        nodes = order.topological(nodes)
        overwritten = overwritten_inputs(nodes, order, record)
        schedule = Schedule(order, nodes, overwritten)
        device = main_device(graph)
        schedule.nodes = language_of(device).arrange(schedule, device, record)
        for join in JOINERS:
            schedule.nodes = order.topological(join(schedule, record))
    record.fused_ir = Later(lambda: str(schedule))
    return schedule


# --- the stages: a callable -----------------------------------------------------------------------
def replay_refusal(graph: Graph, device: torch.device) -> str | None:
    """Why the calls of a lowered graph must not be recorded and replayed, or None."""
    replay = about(device).replay
    return replay.refusal(graph, device) if replay else "the graph does not run on a GPU"


def start(
    program: Program, record: CompileRecord, mode: str | None, half: Half | None = None
) -> Callable:
    """The callable of a Program; mode="reduce-overhead": replayed as a CUDA graph, where that is
    right."""
    run = program.start()
    replay = about(program.device).replay
    if mode != "reduce-overhead":
        return run
    if program.refused or replay is None:
        record.notes.append(f"no CUDA graph: {program.refused}")
        return run
    return replay.record(run, program, record, half)


def start_inference(plan: Plan, options: Options, record: CompileRecord) -> Callable:
    run = start(plan.program, record, options.mode)
    if plan.joint.uncounted:
        run = functools.partial(call_changed, run, written_by_data(plan.joint))
    if torch._C._is_any_autocast_enabled():
        run = functools.partial(without_autocast, run)
    return run if plan.joint.is_plain else with_outputs(plan.joint, run)


def call_changed(run: Callable, change: Callable, *inputs: object) -> object:
    return run(*change(inputs))


def start_training(
    gm: fx.GraphModule,
    plan: Plan,
    parts: Callable[[], Any],
    options: Options,
    record: CompileRecord,
    entry: Entry | None,
) -> Callable:
    replay = about(plan.program.device).replay
    pools = replay.new_pools() if replay else None
    run = start(plan.program, record, options.mode, Half(pools, plan.joint.count, False))

    def start_backward(program: Program, half: CompileRecord) -> Callable:
        return start(program, half, options.mode, Half(pools, None, True))

    compile_graph = functools.partial(compile_functional, options=options)
    backward = Backward(plan.cut.names, parts, record, compile_graph, start_backward, entry)
    return connect(plan, run, backward, held_tensors(gm))


# --- what lies on disk ----------------------------------------------------------------------------
def entry_on_disk(
    gm: fx.GraphModule, inputs: Sequence[object], options: Options, record: CompileRecord
) -> Entry | None:
    """Where the graph's plan lies, or would lie; None where nothing is kept."""
    if not (options.generate and config.graph_cache and PLAN_CACHES):
        return None
    with record.timed("look on disk"):
        return PLAN_CACHES[0].entry(gm, inputs, options.mode, record)


def parts_again(
    gm: fx.GraphModule,
    inputs: Sequence[object],
    options: Options,
    record: CompileRecord,
    plan: Plan,
) -> Callable[[], Parts | None]:
    """Of a graph that came from disk: what gives the parts of its joint graph, traced again."""

    def again(gm: fx.GraphModule, inputs: Sequence[object], record: CompileRecord) -> tuple:
        return make_plan(gm, inputs, options, record)

    return PLAN_CACHES[0].parts_again(gm, inputs, again, record, plan.cut is not None)


# --- what is not compiled, or not whole -----------------------------------------------------------
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


def run_eagerly(gm: fx.GraphModule, record: CompileRecord, reason: str) -> CompiledGraph:
    record.notes.append(f"runs eagerly: {reason}")
    return CompiledGraph(gm.forward, record)


def compile_in_pieces(gm: fx.GraphModule, options: Options, record: CompileRecord) -> CompiledGraph:
    """A graph with sizes that only the run knows: cut where they are made."""
    for cut in CUTTERS:
        run = cut(gm, functools.partial(compile_captured, options=options), record)
        if run is not None:
            return CompiledGraph(run, record)
    reason = "sizes that only the run knows, and changes of the thread's state"
    return run_eagerly(gm, record, reason)


def expect_kernels(gm: fx.GraphModule, inputs: Sequence[object]) -> None:
    """Tell the devices of the graph that there will be kernels to build."""
    tensors = [t for t in [*inputs, *gm.parameters()] if isinstance(t, torch.Tensor)]
    for kind in {t.device.type: t.device for t in tensors}.values():
        about(kind).expect(len(gm.graph.nodes))


def needs_gradients(gm: fx.GraphModule, inputs: Sequence[object]) -> bool:
    return torch.is_grad_enabled() and any(
        map(needs_gradient, [*inputs, *gm.parameters(), *gm.buffers()])
    )


def eager_reason(gm: fx.GraphModule, inputs: Sequence[Any]) -> str | None:
    """Why this graph must not be compiled yet, or None."""
    given = [t for t in inputs if not isinstance(t, torch.SymInt)]
    if any(type(t) not in (torch.Tensor, torch.nn.Parameter, FakeTensor) for t in given):
        return "an input is no plain tensor"
    if not torch.is_grad_enabled() and any(map(turns_gradients_on, gm.graph.nodes)):
        return "the graph turns gradients on"
    tensors = [*given, *gm.parameters(), *gm.buffers()]
    if any(t.layout != torch.strided for t in tensors):
        return "a tensor that is not strided (sparse, mkldnn)"
    if any(map(has_lazy_bits, tensors)):
        return "a tensor that is negated or conjugated lazily: kernels read memory as it is"
    devices = {t.device for t in tensors} - {torch.device("cpu")}
    return next((reason for device in devices if (reason := why_not(device))), None)


def turns_gradients_on(node: fx.Node) -> bool:
    return node.target is torch._C._set_grad_enabled and bool(node.args[0])


def layout_of(value: object) -> tuple | None:
    """(sizes, strides, dtype, device, two bits) of a tensor whose sizes are numbers, else None.
    The stride of a size of 1 says nothing."""
    if not isinstance(value, torch.Tensor):
        return None
    shape, strides = tuple(value.shape), value.stride()
    if 1 in shape:
        strides = tuple([stride if size != 1 else 1 for size, stride in zip(shape, strides)])
    if torch.SymInt in map(type, (*shape, *strides)):
        return None
    return shape, strides, value.dtype, value.device, value.is_neg(), value.is_conj()


def print_stages(record: CompileRecord) -> None:
    """What MINI_DEBUG asks for, on stderr."""
    stages: tuple[tuple[int, Callable[[], list]], ...] = (
        (1, lambda: [getattr(record.functional_graph, "graph", None)]),
        (2, lambda: [record.loop_ir, record.fused_ir]),
        (3, lambda: record.fusions),
        (4, lambda: [kernel.source for kernel in record.kernels]),
    )
    for level, texts in stages:
        if config.debug >= level:
            print(*texts(), sep="\n", file=sys.stderr)
