"""A sample of the random FX graphs."""

from tests.soundness import graphs, runner


def test_random_graphs():
    assert runner.sample(graphs, 2, "inductor", first=500_000) == []


def test_random_graphs_in_tritons_interpreter():
    assert runner.sample(graphs, 2, "triton", first=600_000) == []
