"""The ATen tracer: what it records, what it names, what it refuses."""

import pytest
import torch
import torch.nn.functional as F
from front_helpers import trace
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import make_fx

from miniinductor.errors import CannotTrace, DataDependent

aten = torch.ops.aten


def targets(gm):
    return [n.target for n in gm.graph.nodes if n.op == "call_function"]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, x):
        return self.norm(x + self.second(F.gelu(self.first(x)))) * self.scale


PROGRAMS = {
    "mlp": lambda: (Block(), [torch.randn(3, 8)]),
    "convolution": lambda: (
        torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
        ).eval(),
        [torch.randn(2, 3, 8, 8)],
    ),
    "pad": lambda: (
        lambda x: F.interpolate(F.pad(x, (1, 2)), scale_factor=2),
        [torch.randn(1, 2, 3, 3)],
    ),
    "einsum": lambda: (
        lambda a, b: torch.einsum("bij,kj->bik", a, b),
        [torch.randn(2, 3, 4), torch.randn(5, 4)],
    ),
    "in place": lambda: (lambda x: x.clone().add_(1)[1:].mul_(2), [torch.randn(4)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_ops_as_make_fx(name):
    program, args = PROGRAMS[name]()
    with torch.no_grad(), enable_python_dispatcher():
        ours = targets(trace(program, args))
        theirs = targets(make_fx(program, tracing_mode="fake", _allow_non_fake_inputs=True)(*args))
    skip = (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
    assert [t for t in ours if t not in skip] == [t for t in theirs if t not in skip]


def test_the_trace_runs_and_agrees():
    module, x = Block(), torch.randn(3, 8)
    gm = trace(module, [x])
    with torch.no_grad():
        torch.testing.assert_close(gm(x), module(x))


def test_parameters_keep_their_names_and_identity():
    module = Block()
    gm = trace(fx.symbolic_trace(module), [torch.randn(3, 8)])
    constants = {n.target for n in gm.graph.nodes if n.op == "get_attr"}
    assert "self_scale" in constants and len(constants) == 7
    assert gm.self_scale is module.scale
    assert any(t is module.first.weight for t in gm.parameters())


def test_origins_lead_back_to_the_captured_graph():
    gm = fx.symbolic_trace(lambda x: F.gelu(x) * 2)
    for node in gm.graph.nodes:
        node.meta["source_line"] = f"line of {node.name}"
    traced = trace(gm, [torch.randn(3)])
    found = {
        str(n.target): (n.meta["origins"], n.meta["source_line"])
        for n in traced.graph.nodes
        if n.op == "call_function"
    }
    assert found["aten.gelu.default"] == (frozenset(["gelu"]), "line of gelu")
    assert found["aten.mul.Tensor"] == (frozenset(["mul"]), "line of mul")


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x + 1 if x.sum() > 0 else x,
        lambda x: torch.equal(x, x + 1),
    ],
    ids=["item", "mask", "nonzero", "branch", "equal"],
)
def test_programs_that_ask_for_values_are_refused(program):
    with pytest.raises(DataDependent):
        trace(program, [torch.randn(4)])


def test_one_tensor_for_two_inputs_is_refused():
    x = torch.randn(4)
    with pytest.raises(CannotTrace):
        trace(lambda a, b: a.add_(1) + b, [x, x])


def test_literal_tensors_fold():
    gm = trace(lambda x: x * torch.tensor(3.0).item(), [torch.randn(4)])
    assert [n.args[1] for n in gm.graph.nodes if n.target is aten.mul.Tensor] == [3.0]


def test_tracing_draws_no_random_numbers():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    trace(lambda x: F.dropout(x, 0.5) + torch.rand(3), [torch.randn(3)])
    torch.manual_seed(5)
    assert torch.equal(before, torch.get_rng_state())
    state = torch.get_rng_state()
    trace(lambda x: F.dropout(x, 0.5) + torch.rand(3), [torch.ones(3)])
    assert torch.equal(state, torch.get_rng_state())
