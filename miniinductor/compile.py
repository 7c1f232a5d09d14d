"""From a captured FX graph to a callable: every stage in order.

In:   an `fx.GraphModule` over tensors (parameters as get_attr nodes, output a tuple) and example
      inputs.  Symbolic sizes: the graph's first placeholders are the symbols s0, s1, ...; their
      examples are SymInts, the tensors' are fake tensors over them; calls pass ints.
Out:  a `CompiledGraph`, called with the same tensors.

    >>> compiled = compile_fx(gm, [x])
    >>> compiled(x), compiled.record.times

A graph that needs gradients goes through autograd/: a joint graph, cut in two, each half through
the same stages. What cannot be compiled runs eagerly, which is recorded: graphs that depend on
data, writes to inputs that share memory. Mirrors torch/_inductor/compile_fx.py and
torch/_functorch/_aot_autograd/runtime_wrappers.py.
"""

import functools
import keyword
import operator
import sys

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from . import config
from .autograd.functionalize import CannotFunctionalize
from .autograd.joint import has_lazy_bits, needs_gradient, trace_forward
from .autograd.runtime import (
    Backward,
    Plan,
    compile_training,
    connect,
    held_tensors,
    with_outputs,
    written_by_data,
)
from .autograd.tracer import CannotTrace, ambient, without_autocast
from .data_dependent import compile_pieces, symbols_of, unknown_symbols
from .decompositions import table
from .foreign import ThreadState, faults, ours
from .graph_passes import (
    Constants,
    apply,
    fold_affine,
    freeze,
    optimize,
    optimize_for_cpu,
    optimize_for_gpu,
    rewrites,
)
from .sizes.ranges import multiples
from .lowering import CannotLower, lower_graph
from .lowering.extern import EXTERN
from .lowering.registry import LOWERINGS
from .records import CompileRecord, Later
from .runtime.build import CompilerError
from .runtime.cuda_graphs import GraphedCall, new_pools, refusal
from .runtime.graph_cache import Uncachable, open_entry
from .runtime.triton_build import start_workers, why_not
from .sizes.symbols import hints_of, multiples_of, size_hints

aten = torch.ops.aten
SCATTERS = {
    op
    for packet in (
        aten.index_put,
        aten.scatter,
        aten.scatter_add,
        aten.scatter_reduce,
        aten.index_add,
        aten.index_copy,
    )
    for op in (getattr(packet, name) for name in packet.overloads())
}


class CompiledGraph:
    """A compiled graph: call it with the graph's tensors; `record` is its CompileRecord.
    `function` is the same without looking at the inputs: for a caller that has guards."""

    expected = ()  # the layout of each input, or None

    def __init__(self, function, record):
        self.function, self.record = function, record

    def __call__(self, *inputs):
        for n, (value, expected) in enumerate(zip(inputs, self.expected)):
            if expected is not None and (found := layout_of(value)) != expected:
                raise ValueError(
                    f"input {n} of the compiled graph is {found or type(value).__name__} and was compiled as {expected} "
                    "(sizes, strides, dtype, device, lazily negated, lazily conjugated)"
                )
        return self.function(*inputs)

    def __repr__(self):
        return f"<compiled graph: {len(self.record.kernels)} kernels, {len(self.record.fallbacks)} eager kernels>"


def layout_of(value):
    """(sizes, strides, dtype, device, two bits) of a tensor whose sizes are numbers, else None.
    The stride of a size of 1 says nothing."""
    if not isinstance(value, torch.Tensor):
        return None
    shape, strides = tuple(value.shape), value.stride()
    if 1 in shape:
        strides = tuple([stride if size != 1 else 1 for size, stride in zip(shape, strides)])
    return (
        None
        if torch.SymInt in map(type, (*shape, *strides))
        else (shape, strides, value.dtype, value.device, value.is_neg(), value.is_conj())
    )


def compile_fx(gm, example_inputs, *, mode=None):
    """Compile `gm` for inputs like `example_inputs`: the same shapes, strides, dtypes and devices.

    mode: None or "default" | "reduce-overhead" (a CUDA graph) | "max-autotune" (every block size is
    timed); on the CPU all are the same. Returns a CompiledGraph, which raises ValueError for other
    inputs.  Raises TypeError if `gm` is no fx.GraphModule, ValueError for an unknown mode or
    another number of inputs than the graph has placeholders.
    """
    compiled = ThreadState().around(_compile, gm, example_inputs, mode, True)
    compiled.expected = [layout_of(value) for value in example_inputs]
    return compiled


def aot_eager(gm, example_inputs):
    """The same path without code generation: the functional ATen graph, run by eager kernels."""
    return ThreadState().around(_compile, gm, example_inputs, None, False)


def _compile(gm, example_inputs, mode, generate):
    if mode not in (None, "default", "reduce-overhead", "max-autotune"):
        raise ValueError(
            f"unknown mode {mode!r}: use None, 'default', 'reduce-overhead' or 'max-autotune'"
        )
    if not isinstance(gm, fx.GraphModule):
        raise TypeError(
            f"miniinductor compiles an fx.GraphModule, not {type(gm).__name__}: make one by torch.fx.symbolic_trace(f), or call "
            "minidynamo.compile(f)"
        )
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    if len(names) != len(example_inputs):
        raise ValueError(
            f"the graph takes {len(names)} inputs ({', '.join(names)}), but there are {len(example_inputs)} example inputs"
        )
    record = CompileRecord(input_graph=gm)
    eager = eager_reason(gm, example_inputs)
    if eager:
        return _run_eagerly(gm, record, eager)
    if unknown_symbols(gm).difference(*[symbols_of(value) for value in example_inputs]):
        run = compile_pieces(gm, functools.partial(_compile, mode=mode, generate=generate), record)
        return (
            CompiledGraph(run, record)
            if run
            else _run_eagerly(
                gm, record, "sizes that only the run knows, and changes of the thread's state"
            )
        )
    entry = None
    if generate and config.graph_cache:
        with record.timed("look on disk"):
            try:
                entry = open_entry(gm, example_inputs, mode)
            except Uncachable as reason:
                record.notes.append(f"not kept on disk: {reason}")
            except faults() as error:  # another torch may lack a switch that the key asks for
                if config.raise_internal_errors:
                    raise
                record.notes.append(
                    f"not kept on disk: internal error, {type(error).__name__}: {error}"
                )
    try:
        run, writes = _assemble(gm, example_inputs, mode, generate, record, entry)
    except (CannotTrace, CannotFunctionalize, CannotLower, CompilerError) as reason:
        return _run_eagerly(gm, record, str(reason))
    except ours(RuntimeError) as reason:  # of the front end's: `needs_data`
        if not getattr(reason, "needs_data", False):
            raise
        return _run_eagerly(gm, record, str(reason).split("\n")[0])
    return CompiledGraph(_guard_shared_memory(run, gm, record) if writes else run, record)


def _assemble(gm, inputs, mode, generate, record, entry):
    """(the callable, does it write to tensors?), from the plan that lies on disk, or from a new
    one."""
    with record.timed("look on disk"):
        plan = entry and record.restored(entry.load())
    if plan:
        again = functools.cache(
            ambient(functools.partial(_plan_again, gm, [like(t) for t in inputs], mode))
        )
        parts = lambda: again()[1]  # noqa: E731
        for name in ("aten_graph", "functional_graph", "loop_ir", "fused_ir") + (
            "joint_graph",
        ) * bool(plan.cut):
            setattr(record, name, Later(lambda name=name: getattr(again()[2], name)))
    else:
        if generate and any(getattr(t, "is_cuda", False) for t in [*inputs, *gm.parameters()]):
            start_workers(1 + len(gm.graph.nodes) // 8)
        plan, made = _plan(gm, inputs, mode, generate, record)
        parts = lambda: made  # noqa: E731
        record.keep(entry, plan)
    start = functools.partial(_start, mode=mode, pools=new_pools(), training=bool(plan.cut))
    run = start(plan.program, record, results=plan.joint.count)
    if plan.cut:
        compile_graph = functools.partial(_generate, mode=mode) if generate else _Interpreted
        return connect(
            plan,
            run,
            Backward(plan.cut.names, parts, record, compile_graph, start, entry),
            held_tensors(gm),
        ), plan.shared_memory
    if plan.joint.uncounted:
        run = functools.partial(_call_changed, run, written_by_data(plan.joint))
    if torch._C._is_any_autocast_enabled():
        run = functools.partial(without_autocast, run)
    return run if plan.joint.is_plain else with_outputs(plan.joint, run), plan.shared_memory


def _plan(gm, inputs, mode, generate, record):
    """(Plan, in training the Parts of the joint graph)."""
    decompositions = table() if generate else None
    compile_graph = functools.partial(_generate, mode=mode) if generate else _Interpreted
    if needs_gradients(gm, inputs):

        def passes(graph):
            optimize(graph)
            return optimize_for_gpu(graph, record, products=False) if generate else graph

        return compile_training(gm, inputs, record, decompositions, passes, compile_graph, is_cheap)
    with record.timed("trace"):
        joint = trace_forward(gm, inputs, decompositions)
    record.aten_graph, record.functional_graph = joint.recorded, joint.graph
    with record.timed("graph passes"):
        optimize(joint.graph)
    if generate:
        with record.timed("patterns"):
            apply(rewrites(), joint.graph, record, decompositions)
    return Plan(
        joint, compile_graph(joint.graph, record, joint.written), shared_memory=bool(joint.written)
    ), None


def _plan_again(gm, inputs, mode):
    """(Plan, Parts, record) of a graph that came from disk, for what is not kept there."""
    record = CompileRecord(input_graph=gm)
    return *_plan(gm, [make() for make in inputs], mode, True, record), record


def like(value):
    """A function that gives a fake tensor with everything of `value` that tracing looks at; of a
    number, or of a fake, itself."""
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return lambda: value
    about, device = (value.shape, value.stride(), value.dtype), value.device
    needs, leaf = value.requires_grad, value.is_leaf

    def make():
        with FakeTensorMode(), torch.enable_grad():
            fake = torch.empty_strided(
                *about[:2], dtype=about[2], device=device, requires_grad=needs
            )
            return fake if leaf else fake.view_as(fake)

    return make


def _generate(functional, record, written, mode=None):
    """Lower, fuse and build one functional graph whose output is (values, new values of `written`):
    a Program."""
    autotune = config.patch(max_autotune=config.max_autotune or mode == "max-autotune")
    with (
        size_hints(hints_of(functional.graph)),
        multiples(multiples_of(functional.graph)),
        autotune,
    ):
        return _generate_kernels(functional, record, written, mode)


def _generate_kernels(functional, record, written, mode):
    from .codegen.wrapper import WrapperWriter
    from .handlers import graph_text

    inference, frozen, constants = record.joint_graph is None, None, ()
    with record.timed("layouts"):  # the joint graph's convolutions have theirs
        if (
            config.freezing
            and inference
            and all(
                t.device.type == "cpu" for t in [*functional.parameters(), *functional.buffers()]
            )
        ):
            constants = Constants(functional, written)
            fold_affine(functional, constants, record)
        functional = optimize_for_gpu(functional, record, convolutions=inference)
        functional = optimize_for_cpu(functional, record, inference, constants)
        if constants:
            frozen = freeze(functional, constants, record)
    with record.timed("lower"):
        graph = lower_graph(functional, record, written)
    if config.verify:
        from .verify import verify_graph

        with record.timed("verify"):
            verify_graph(graph)
    record.loop_ir = Later(lambda: graph_text(graph))
    try:
        program = WrapperWriter(graph, record).program()
    except ours(NotImplementedError) as reason:
        raise CannotLower(str(reason)) from reason
    _print_stages(record)
    program.frozen, program.refused = (
        frozen,
        refusal(graph, program.device) if mode == "reduce-overhead" else "",
    )
    return program


def _start(program, record, mode, pools, training, results=None):
    """The callable of a Program; mode="reduce-overhead": replayed as a CUDA graph, where that is
    right.

    pools: for the CUDA graphs of a training step's halves, see runtime/cuda_graphs.py; results:
    what a forward half gives its caller."""
    run = program.start()
    if mode != "reduce-overhead":
        return run
    if program.refused:
        record.notes.append(f"no CUDA graph: {program.refused}")
        return run
    return GraphedCall(run, program, record, *[pools, results, results is None] * training)


def needs_gradients(gm, inputs):
    return torch.is_grad_enabled() and any(
        map(needs_gradient, [*inputs, *gm.parameters(), *gm.buffers()])
    )


def is_cheap(op):
    """Is `op` part of fused kernels, so that computing it again costs little?"""
    return op in LOWERINGS and op not in EXTERN and op not in SCATTERS


def eager_reason(gm, inputs):
    """Why this graph must not be compiled yet, or None."""
    inputs, held = (
        [t for t in inputs if not isinstance(t, torch.SymInt)],
        [*gm.parameters(), *gm.buffers()],
    )
    if any(type(t) not in (torch.Tensor, torch.nn.Parameter, FakeTensor) for t in inputs):
        return "an input is no plain tensor"
    if not torch.is_grad_enabled() and any(
        node.target is torch._C._set_grad_enabled and node.args[0] for node in gm.graph.nodes
    ):
        return "the graph turns gradients on"
    if any(t.layout != torch.strided for t in [*inputs, *held]):
        return "a tensor that is not strided (sparse, mkldnn)"
    if any(map(has_lazy_bits, [*inputs, *held])):
        return "a tensor that is negated or conjugated lazily: kernels read memory as it is"
    devices = {t.device for t in [*inputs, *held]} - {torch.device("cpu")}
    return next((reason for device in devices if (reason := why_not(device))), None)


def _print_stages(record):
    """What MINI_DEBUG asks for, on stderr."""
    stages = (
        (1, lambda: [record.functional_graph.graph]),
        (2, lambda: [record.loop_ir, record.fused_ir]),
        (3, lambda: record.fusions),
        (4, lambda: [kernel.source for kernel in record.kernels]),
    )
    for level, texts in stages:
        if config.debug >= level:
            print(*texts(), sep="\n", file=sys.stderr)


def _run_eagerly(gm, record, reason):
    record.notes.append(f"runs eagerly: {reason}")
    return CompiledGraph(gm.forward, record)


class _Interpreted:
    """Stands for a Program: the functional graph run by eager kernels; mutated inputs are written
    back."""

    def __init__(self, gm, record, written):
        self.gm, self.written = gm, written

    def start(self):
        gm, names = (
            runnable(self.gm),
            [n.target for n in self.gm.graph.nodes if n.op == "placeholder"],
        )

        def run(*inputs):
            recording = torch.is_grad_enabled()
            try:  # `with torch.no_grad()` could be cut short by an exception in its `__exit__`
                torch._C._set_grad_enabled(False)
                outputs, values = gm(*inputs)
                by_name = dict(zip(names, inputs))
                for (op, name), value in zip(self.written, values):
                    held = op != "placeholder"
                    holder = operator.attrgetter(name)(self.gm) if held else by_name[name]
                    holder.copy_(value)
                leaves = pytree.tree_leaves(outputs)
                # views that were made here, without autograd, could not be written by the program
                return [v.detach() if is_view(v) else v for v in leaves]
            finally:
                torch._C._set_grad_enabled(recording)

        return run


def runnable(gm):
    """`gm`, or an interpreter of it where its Python would be none: `torch.ops.aten.random.from`."""
    overloads = [getattr(node.target, "_overloadname", "") for node in gm.graph.nodes]
    if any(map(keyword.iskeyword, overloads)):
        return fx.Interpreter(gm).run
    return gm


def _call_changed(run, change, *inputs):
    return run(*change(inputs))


def is_view(value):
    return isinstance(value, torch.Tensor) and value._is_view()


def _guard_shared_memory(run, gm, record):
    """A graph that writes is only right if no two of its tensors share memory: look at every
    call."""
    record.notes.append(
        "writes to tensors: each call first checks that no two of the graph's tensors share memory"
    )
    held = [*gm.parameters(), *gm.buffers()]  # each tensor once

    def checked(*inputs):
        tensors = [*[t for t in inputs if isinstance(t, torch.Tensor)], *held]
        if len({t.untyped_storage()._cdata for t in tensors}) == len(tensors):
            return run(*inputs)
        return gm(*inputs)

    return checked
