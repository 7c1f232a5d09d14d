"""A sample of `tests/soundness/endless.py`: what iterates for ever while it is traced ends."""

import pytest
import torch

import minidynamo
from tests.soundness import endless, runner


def test_sample():
    assert not runner.sample(endless, 60, "eager")


@pytest.mark.parametrize("number", range(-len(endless.OTHERS), -len(endless.OTHERS) + 3))
def test_containers_fed_from_themselves(number, monkeypatch):
    monkeypatch.setattr(endless, "cases", lambda count, first: [len(endless.programs()) + number])
    assert not runner.sample(endless, 1, "eager")


def test_a_refusal_says_what_the_limit_was():
    def f(x):
        return x + 1, "a" * 10**8

    minidynamo.reset()
    result = minidynamo.compile(f, backend="eager")(torch.ones(2))
    assert len(result[1]) == 10**8
    assert any("step_limit" in reason for reason in minidynamo.counters["graph_breaks"])
