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
def test_without_gradients_the_call_stays_whole(kind):
    torch.manual_seed(0)
    for bidirectional, batch_first, layers in FORMS:
        options = dict(bidirectional=bidirectional, batch_first=batch_first, num_layers=layers)
        minidynamo.reset()
        model, x = kind(4, 5, **options), torch.randn(6, 3, 4)
        with torch.no_grad():
            got = minidynamo.compile(lambda x, model=model: model(x * 2), fullgraph=True)(x)
            assert_same(got, model(x * 2))
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
    torch.testing.assert_close(gradients(minidynamo.compile(loss, fullgraph=True)), gradients(loss))


def test_where_cudnn_would_learn_the_graph_breaks(monkeypatch):
    monkeypatch.setattr(rule, "on_gpu", lambda tensor: True)
    model, x = nn.LSTM(4, 5), torch.randn(6, 3, 4)
    minidynamo.reset()
    run = minidynamo.compile(lambda x: model(x * 2)[0].sin())
    torch.testing.assert_close(run(x), model(x * 2)[0].sin())
    frames = minidynamo.records.frames
    reasons = [found.reason for frame in frames for found in frame.graph_breaks]
    assert reasons and all("cuDNN" in reason for reason in reasons)
