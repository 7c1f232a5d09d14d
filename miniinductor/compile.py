"""From a captured FX graph to a callable: every stage in order.

In:   an `fx.GraphModule` over tensors (parameters as get_attr nodes, output a tuple) and example inputs.
Out:  a `CompiledGraph`, called with the same tensors.

    >>> compiled = compile_fx(gm, [x])
    >>> compiled(x), compiled.record.times

A graph that needs gradients goes through autograd/: a joint graph, cut in two, each half through the same stages.
What cannot be compiled runs eagerly, which is recorded: graphs that depend on data, writes to inputs that share memory.
Mirrors torch/_inductor/compile_fx.py and torch/_functorch/_aot_autograd/runtime_wrappers.py.
"""
import operator
import sys

import torch
import torch.utils._pytree as pytree
from torch import fx

from . import config
from .autograd.functionalize import CannotFunctionalize, functionalize, is_needed
from .autograd.runtime import compile_training
from .autograd.tracer import CannotTrace, no_autocast, trace
from .decompositions import table
from .graph_passes import optimize
from .lowering import CannotLower, lower_graph
from .lowering.extern import EXTERN
from .lowering.registry import LOWERINGS
from .records import CompileRecord
from .runtime.build import CompilerError
from .runtime.triton_build import why_not

aten = torch.ops.aten
ALIASES = {         # an output made from an input by these is a view of it, and is made again from the real input
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.squeeze.default, aten.t.default, aten.transpose.int, aten.permute.default, aten.slice.Tensor,
    aten.select.int, aten.diagonal.default, aten.as_strided.default, aten.expand.default,
}

SCATTERS = {op for packet in (aten.index_put, aten.scatter, aten.scatter_add, aten.scatter_reduce, aten.index_add)
            for op in (getattr(packet, name) for name in packet.overloads())}


class CompiledGraph:
    """A compiled graph: call it with the graph's tensors; `record` is its CompileRecord."""

    def __init__(self, function, record):
        self.function, self.record = function, record

    def __call__(self, *inputs):
        return self.function(*inputs)


def compile_fx(gm, example_inputs, *, mode=None):
    """Compile `gm` for inputs like `example_inputs` (same shapes, strides, dtypes, devices: the caller guards that).

    mode: None or "default" | "reduce-overhead" | "max-autotune" (no effect on the CPU yet).
    Returns a CompiledGraph.  Raises TypeError if `gm` is no fx.GraphModule, ValueError for an unknown mode or another number of inputs than
    the graph has placeholders.
    """
    return _compile(gm, example_inputs, mode, generate=True)


def aot_eager(gm, example_inputs):
    """The same path without code generation: the functional ATen graph, run by eager kernels."""
    return _compile(gm, example_inputs, None, generate=False)


def _compile(gm, example_inputs, mode, generate):
    if mode not in (None, "default", "reduce-overhead", "max-autotune"):
        raise ValueError(f"unknown mode {mode!r}: use None, 'default', 'reduce-overhead' or 'max-autotune'")
    if not isinstance(gm, fx.GraphModule):
        raise TypeError(f"miniinductor compiles an fx.GraphModule, not {type(gm).__name__}: make one by torch.fx.symbolic_trace(f), or call "
                        "minidynamo.compile(f)")
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    if len(names) != len(example_inputs):
        raise ValueError(f"the graph takes {len(names)} inputs ({', '.join(names)}), but there are {len(example_inputs)} example inputs")
    record = CompileRecord(input_graph=gm)
    eager = eager_reason(gm, example_inputs)
    if eager:
        return _run_eagerly(gm, record, eager)
    decompositions = table() if generate else None
    compile_graph = _generate if generate else _interpret
    try:
        if needs_gradients(gm, example_inputs):
            run = compile_training(gm, example_inputs, record, decompositions, optimize, compile_graph, is_cheap)
            written = record.joint_graph.meta["written"]
        else:
            with record.timed("trace"):
                record.aten_graph = trace(gm, example_inputs, decompositions)
            with record.timed("functionalize"):
                record.functional_graph, written = functionalize(record.aten_graph)
                record.functional_graph.meta["written"] = written
            with record.timed("graph passes"):
                optimize(record.functional_graph)
            outputs = OutputPlan(record.functional_graph)
            run = outputs.wrap(compile_graph(outputs.computed, record, written))
            if torch.is_autocast_enabled("cpu"):
                run = no_autocast()(run)
    except (CannotTrace, CannotFunctionalize, CannotLower, CompilerError) as reason:
        return _run_eagerly(gm, record, str(reason))
    if written:
        run = _guard_shared_memory(run, gm, record)
    return CompiledGraph(run, record)


def _generate(functional, record, written):
    """Lower, fuse and build one functional graph whose output is (values, new values of `written`); the callable that runs it."""
    from .codegen.wrapper import build
    from .handlers import graph_text
    with record.timed("lower"):
        graph = lower_graph(functional, record, written)
    if config.verify:
        from .verify import verify_graph
        with record.timed("verify"):
            verify_graph(graph)
    record.loop_ir = lambda: graph_text(graph)
    try:
        run = build(graph, record)
    except NotImplementedError as reason:
        raise CannotLower(str(reason)) from reason
    _print_stages(record)
    return run


def needs_gradients(gm, inputs):
    return torch.is_grad_enabled() and any(t.requires_grad for t in [*inputs, *gm.parameters(), *gm.buffers()])


def is_cheap(op):
    """Is `op` part of fused kernels, so that computing it again costs little?"""
    return op in LOWERINGS and op not in EXTERN and op not in SCATTERS


def eager_reason(gm, inputs):
    """Why this graph must not be compiled yet, or None."""
    if any(type(t) not in (torch.Tensor, torch.nn.Parameter) for t in inputs):
        return "an input is no plain tensor"
    if not torch.is_grad_enabled() and any(node.target is torch._C._set_grad_enabled and node.args[0] for node in gm.graph.nodes):
        return "the graph turns gradients on"
    if any(t.layout != torch.strided for t in [*inputs, *gm.parameters(), *gm.buffers()]):
        return "a tensor that is not strided (sparse, mkldnn)"
    devices = {t.device for t in [*inputs, *gm.parameters(), *gm.buffers()]} - {torch.device("cpu")}
    return next((reason for device in devices if (reason := why_not(device))), None)


def _print_stages(record):
    """What MINI_DEBUG asks for, on stderr."""
    stages = ((1, lambda: [record.functional_graph.graph]), (2, lambda: [record.loop_ir, record.fused_ir]),
              (3, lambda: record.fusions), (4, lambda: [kernel.source for kernel in record.kernels]))
    for level, texts in stages:
        if config.debug >= level:
            print(*texts(), sep="\n", file=sys.stderr)


def _run_eagerly(gm, record, reason):
    record.notes.append(f"runs eagerly: {reason}")
    return CompiledGraph(gm.forward, record)


def _interpret(gm, record, written):
    """Run the functional graph with eager kernels and write mutated inputs back."""
    names = [n.target for n in gm.graph.nodes if n.op == "placeholder"]

    def run(*inputs):
        outputs, values = gm(*inputs)
        by_name = dict(zip(names, inputs))
        for (op, name), value in zip(written, values):
            (by_name[name] if op == "placeholder" else operator.attrgetter(name)(gm)).copy_(value)
        return pytree.tree_leaves(outputs)
    return torch.no_grad()(run)


def _guard_shared_memory(run, gm, record):
    """A graph that writes is only right if no two of its tensors share memory: look at every call."""
    record.notes.append("writes to tensors: each call first checks that no two of the graph's tensors share memory")
    held = [*gm.parameters(), *gm.buffers()]        # each tensor once

    def checked(*inputs):
        tensors = [*inputs, *held]
        if len({t.untyped_storage()._cdata for t in tensors}) == len(tensors):
            return run(*inputs)
        return gm(*inputs)
    return checked


class OutputPlan:
    """Which outputs of a functional graph are computed, and which are inputs or views of inputs.

    computed: the graph that returns only what must be computed.  wrap(run): a callable that returns all outputs in the
    original structure: an input as the same object, a view of an input as a view of it, one tensor returned twice as one.
    """

    def __init__(self, gm):
        output = next(n for n in gm.graph.nodes if n.op == "output")
        tree, written = output.args[0]
        leaves, self.structure = pytree.tree_flatten(tree, is_leaf=lambda x: isinstance(x, fx.Node))
        self.inputs = {n: i for i, n in enumerate(n for n in gm.graph.nodes if n.op == "placeholder")}
        replaced = {node: self._root(gm, origin) for node, origin in zip(written, gm.meta["written"])}
        self.plan, needed = [], []
        for leaf in leaves:
            if not isinstance(leaf, fx.Node):
                self.plan.append(("value", leaf))
            elif leaf in replaced:                      # the new value of a written input *is* that input
                self.plan.append(("input", replaced[leaf], ()))
            elif (path := self._alias(gm, leaf, replaced)) is not None:
                self.plan.append(path)
            else:
                if leaf not in needed:
                    needed.append(leaf)
                self.plan.append(("computed", needed.index(leaf)))
        graph = fx.Graph()
        copied = {}
        graph.graph_copy(gm.graph, copied)
        graph.output(([copied[n] for n in needed], [copied[n] for n in written]))
        graph.eliminate_dead_code(is_impure_node=is_needed)
        self.computed = fx.GraphModule(gm, graph, "ComputedGraph")
        self.computed.meta.update(gm.meta)

    def _root(self, gm, origin):
        """The position of an input, or the tensor that the graph holds."""
        op, target = origin
        if op == "placeholder":
            return next(i for n, i in self.inputs.items() if n.target == target)
        return operator.attrgetter(target)(gm)

    def _alias(self, gm, leaf, replaced):
        """("input", index or constant, view calls) if the output is an input seen through views, else None."""
        calls, node = [], leaf
        while node.op == "call_function" and node.target in ALIASES and node not in replaced:
            calls.append((node.target, node.args[1:], node.kwargs))
            node = node.args[0]
        if node in replaced:
            root = replaced[node]
        elif node.op in ("placeholder", "get_attr"):
            root = self._root(gm, (node.op, node.target))
            if any(root is r for r in replaced.values()):
                return None         # the value from before the write
        else:
            return None
        return "input", root, tuple(reversed(calls))

    def wrap(self, run):
        plan, structure = self.plan, self.structure
        if all(kind[0] == "computed" for kind in plan) and [k[1] for k in plan] == list(range(len(plan))) and (
                structure.type in (tuple, list) and all(c.is_leaf() for c in structure.children())):
            return run              # nothing to rebuild: the common case pays nothing

        def call(*inputs):
            computed = run(*inputs)
            leaves = []
            for kind, *rest in plan:
                if kind == "value":
                    leaves.append(rest[0])
                elif kind == "computed":
                    leaves.append(computed[rest[0]])
                else:
                    tensor = rest[0] if isinstance(rest[0], torch.Tensor) else inputs[rest[0]]
                    for view, args, kwargs in rest[1]:
                        tensor = view(tensor, *args, **kwargs)
                    leaves.append(tensor)
            return pytree.tree_unflatten(leaves, structure)
        return call
