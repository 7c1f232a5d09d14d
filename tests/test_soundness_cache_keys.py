"""A sample of tests/soundness/cache_keys.py, and the program of issue 18 that loaded the other's
graph."""

import enum

import pytest
import torch

import minidynamo
import miniinductor
from miniinductor.extras import graph_cache
from tests.soundness import cache_keys, runner


@pytest.mark.parametrize("kind, count", [("text", 500), ("part", 25), ("input", 30)])
def test_keys_differ(kind, count, monkeypatch):
    chosen = [case for case in cache_keys.cases(0, 0) if case[0] == kind]
    monkeypatch.setattr(cache_keys, "cases", lambda *_: chosen)
    assert runner.sample(cache_keys, count, "eager") == []


@pytest.mark.parametrize("kind", ["constant", "together"])
def test_constants_give_their_own_results(kind, monkeypatch):
    chosen = [case for case in cache_keys.cases(0, 0) if case[0] == kind]
    monkeypatch.setattr(cache_keys, "cases", lambda *_: chosen)
    assert runner.sample(cache_keys, 20, "eager,aot_eager") == []


class Kind(enum.IntEnum):
    ROWS, COLUMNS = 0, 1

    def __repr__(self):
        return "Kind"


def test_an_enum_that_hides_its_value_has_no_text():
    with pytest.raises(graph_cache.Uncachable):
        graph_cache.text_of(Kind.ROWS)


def test_the_second_enum_does_not_load_the_first_ones_graph(tmp_path):
    x = torch.arange(6.0).view(2, 3)
    with miniinductor.config.patch(cache_dir=str(tmp_path), graph_cache=True), torch.no_grad():
        for kind in Kind:
            minidynamo.reset()
            function = lambda x, kind=kind: x.sum(kind)  # noqa: E731
            assert torch.equal(minidynamo.compile(function)(x), function(x))


def test_backends_that_say_they_are_equal_are_two():
    class Equal:
        def __init__(self, factor):
            self.factor = factor

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 0

        def __call__(self, gm, inputs):
            return lambda *args: [result * self.factor for result in gm(*args)]

    x = torch.ones(2)
    results = [minidynamo.compile(lambda x: x + 1, backend=Equal(n))(x) for n in (1, 10)]
    assert torch.equal(results[0] * 10, results[1])


@pytest.mark.parametrize("options", [{"dynamic": 1}, {"fullgraph": 0}, {"dynamic": 1.0}])
def test_equal_to_an_option_is_not_the_option(options):
    with pytest.raises(ValueError):
        minidynamo.compile(lambda x: x, **options)
