"""Recurrent networks: one call of the library's, between compiled pieces; where cuDNN would learn,
a break.  There the CPU is taken for a GPU; tests/test_gpu.py runs the real one."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import minidynamo
import minidynamo.functions.torch_functions as rule

KINDS = [nn.LSTM, nn.GRU, nn.RNN, lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)]
FORMS = list(itertools.product(*[(False, True)] * 2, (1, 2)))


@pytest.fixture(autouse=True)
def errors_are_raised():
    with minidynamo.config.patch(raise_internal_errors=True):
        yield


def assert_same(got, want):
    for ours, eager in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
        torch.testing.assert_close(ours, eager)
        assert ours.stride() == eager.stride()


@pytest.mark.parametrize("kind", KINDS)
def test_without_gradients_it_gives_what_eager_gives(kind):
    """(The modules look at weak references, which break the graph.)"""
    torch.manual_seed(0)
    for bidirectional, batch_first, layers in FORMS:
        options = dict(bidirectional=bidirectional, batch_first=batch_first, num_layers=layers)
        minidynamo.reset()
        model, x = kind(4, 5, **options), torch.randn(6, 3, 4)
        with torch.no_grad():
            assert_same(minidynamo.compile(lambda x, model=model: model(x * 2))(x), model(x * 2))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_the_call_stays_whole(fullgraph):
    """As a function, without a module around it."""
    model, x = nn.LSTM(4, 5), torch.randn(6, 3, 4)
    state = [torch.zeros(1, 3, 5)] * 2

    def f(x, *weights):
        return torch._VF.lstm(x * 2, state, weights, True, 1, 0.0, False, False, False)[0].sin()

    minidynamo.reset()
    with torch.no_grad():
        compiled = minidynamo.compile(f, fullgraph=fullgraph)
        torch.testing.assert_close(compiled(x, *model.parameters()), f(x, *model.parameters()))
    (note,) = minidynamo.records.frames[-1].backend_record.notes_of("between compiled pieces")
    assert "recurrent" in note


@pytest.mark.parametrize("kind", KINDS)
def test_with_gradients_it_learns_as_in_eager(kind):
    torch.manual_seed(0)
    model, x = kind(4, 5), torch.randn(6, 3, 4)

    def gradients(run):
        model.zero_grad()
        run(x).square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    def loss(x):
        return model(x * 2)[0].sin()

    minidynamo.reset()
    torch.testing.assert_close(gradients(minidynamo.compile(loss)), gradients(loss))


def test_where_cudnn_would_learn_the_graph_breaks(monkeypatch):
    monkeypatch.setattr(rule, "on_gpu", lambda tensor: True)
    model, x = nn.LSTM(4, 5), torch.randn(6, 3, 4)
    minidynamo.reset()
    run = minidynamo.compile(lambda x: model(x * 2)[0].sin())
    torch.testing.assert_close(run(x), model(x * 2)[0].sin())
    frames = minidynamo.records.frames
    reasons = [found.reason for frame in frames for found in frame.graph_breaks]
    assert any("cuDNN" in reason for reason in reasons)
