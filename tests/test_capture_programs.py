"""Methods by name, torch's loops, Python's random numbers, namespaces."""

import random
import types

import pytest
import torch
from test_capture_language import same

import minidynamo

pytestmark = pytest.mark.usefixtures("anew")


def whole(function, *args, graphs=1):
    """Equal to plain Python, twice, in one graph."""
    compiled = minidynamo.compile(function, backend="eager")
    for _ in range(2):
        same(compiled(*args), function(*args))
    assert minidynamo.counters["graphs"].total() == graphs
    assert not minidynamo.counters["graph_breaks"]


# ---- random numbers of Python
def test_what_other_generators_draw_is_left_to_python():
    outside = random.Random(1)

    def function(x):
        return x + outside.random(), x * random.random(), random.Random().random() < 1

    found = []
    for called in (function, minidynamo.compile(function, backend="eager")):
        outside.seed(1)
        random.seed(2)
        results = called(torch.ones(2)), called(torch.ones(2))
        found.append((results, outside.random(), random.random()))
    same(*found)


# ---- namespaces
def test_a_namespace_that_is_made_in_the_frame():
    def function(x):
        options = types.SimpleNamespace(scale=2, inner=types.SimpleNamespace(rows=[1, 2]))
        options.shift = x
        options.inner.rows.append(3)
        del options.scale
        has = hasattr(options, "scale"), getattr(options, "missing", 4), sorted(vars(options))
        return x * sum(options.inner.rows) + options.shift, has, options

    whole(function, torch.ones(2))
