"""The front half on its own: trace, functionalize, optimise, lower, verify, and run with the
reference interpreter."""

import copy

import torch
import torch.utils._pytree as pytree
from torch import fx

from benchmarks.error_bound import assert_near
from miniinductor.autograd.functionalize import functionalize
from miniinductor.autograd.joint import OriginInterpreter
from miniinductor.autograd.tracer import fake_inputs, input_name, new_tracer, run_traced
from miniinductor.ir.handlers import verify_graph
from miniinductor.lowering import lower_graph
from miniinductor.lowering.decompositions import table
from miniinductor.passes.graph_passes import optimize
from miniinductor.records import CompileRecord
from miniinductor.runtime.interpreter import run_graph

torch.set_num_threads(2)


def trace(function, args, decompositions=None):
    """function(*args) as an fx.GraphModule of ATen ops whose output has the structure that
    `function` returned.  Raises as `run_traced`, and where one tensor is passed twice."""
    tracer = new_tracer(decompositions)
    fakes = fake_inputs(tracer.fake_mode, args)
    for i, fake in enumerate(fakes):
        if isinstance(fake, (torch.Tensor, torch.SymInt)):
            tracer.placeholder(input_name(function, i, fake, "arg"), fake)
    if isinstance(function, fx.GraphModule):
        function = OriginInterpreter(function, tracer).run
    with torch.no_grad():
        out = run_traced(tracer, function, fakes)
    tracer.graph.output(tracer.nodes_of(out))
    return tracer.module("AtenGraph")


def lower(function, args):
    """(ir.Graph, CompileRecord) of function(*args)."""
    record = CompileRecord()
    with torch.no_grad():
        record.aten_graph = trace(function, args, table())
        record.functional_graph, written = functionalize(record.aten_graph)
        optimize(record.functional_graph)
        graph = lower_graph(record.functional_graph, record, written)
    verify_graph(graph)
    return graph, record


def interpret(function, args):
    """(flat outputs, CompileRecord); inputs that the program writes are written."""
    graph, record = lower(function, args)
    return run_graph(graph, [a for a in args if isinstance(a, torch.Tensor)]), record


def fallbacks(record):
    return [f"{f.op}: {f.reason}" for f in record.fallbacks if f.kind == "fallback"]


def clone_input(t):
    """A copy in the same strides."""
    if not isinstance(t, torch.Tensor):
        return copy.deepcopy(t)
    out = (
        torch.empty_strided(t.size(), t.stride(), dtype=t.dtype)
        if t.numel() and 0 not in t.stride()
        else t.clone()
    )
    return out.copy_(t)


def check(function, *args, native=True, strides=True):
    """The interpreter on the lowered graph gives what eager gives: values, dtypes, shapes, strides,
    written inputs.

    native: no op may have fallen back to its eager kernel.
    """
    eager_args, our_args = [clone_input(a) for a in args], [clone_input(a) for a in args]
    state = torch.get_rng_state()
    with torch.no_grad():
        want = [x for x in pytree.tree_leaves(function(*eager_args))]
    torch.set_rng_state(state)
    got, record = interpret(function, our_args)
    assert len(got) == len(want)
    for ours, eager in zip(got, want):
        if not isinstance(eager, torch.Tensor):
            assert ours == eager
            continue
        assert_near(ours, eager)
        if strides and eager.numel():
            assert [s for n, s in zip(eager.shape, eager.stride()) if n != 1] == [
                s for n, s in zip(ours.shape, ours.stride()) if n != 1
            ], (ours.stride(), eager.stride())
    for ours, eager in zip(our_args, eager_args):
        if isinstance(eager, torch.Tensor):
            assert_near(ours, eager)
    if native:
        assert not fallbacks(record), fallbacks(record)
    return record
