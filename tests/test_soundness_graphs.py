"""A sample of the random FX graphs."""

import pytest
import torch

import miniinductor
from tests.soundness import graphs, runner


def test_random_graphs():
    assert runner.sample(graphs, 2, "inductor", first=500_000) == []


def test_random_graphs_in_tritons_interpreter():
    assert runner.sample(graphs, 2, "triton", first=600_000) == []


def stack_and_view(x):
    stacked = torch.stack([x, x], 0)
    return stacked, stacked.flatten(0, 1)


def stack_view_and_write(x):
    stacked = torch.stack([x, x], 0)
    flat = stacked.flatten(0, 1)
    stacked.add_(1)
    return stacked, flat


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("function", [stack_and_view, stack_view_and_write])
def test_a_result_of_a_decomposition_is_no_view(function, records):
    """`stack` is decomposed into a view of `cat`; eager's result is a view of nothing."""
    graph = torch.fx.symbolic_trace(function)
    x = torch.randn(2, 3, requires_grad=records)
    with torch.set_grad_enabled(records):
        compiled = miniinductor.compile_fx(graph, [x])
        ours = compiled(x)
        eager = function(x)
    assert compiled.record.notes_of("runs eagerly") == []
    assert [t._is_view() for t in ours] == [t._is_view() for t in eager] == [False, True]
    assert ours[1]._base is ours[0]
    torch.testing.assert_close(ours, eager, rtol=0, atol=0)
