"""explain(f): runs f without disturbing what else is compiled, shows what a compiled object holds,
explains a series of calls."""

import gc

import pytest
import torch

import minidynamo
from minidynamo import records
from minidynamo.convert.entries import CODES
from minidynamo.frame import frame_hook

pytestmark = pytest.mark.usefixtures("anew")


def plain(x):
    return x.sin() + 1


def helper(x):
    x = x + 1
    print("in the helper")
    return x * 2


def breaks(x):
    x = x.cos()
    x = helper(x)
    return x.exp()


def given_up(x):
    for _ in range(60):
        x = x + 1
    return x


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def everything():
    """Functions and modules, compiled and run once, with what runs each of them."""
    found = [(minidynamo.compile(f, backend="eager"), f) for f in (plain, breaks)]
    found += [(minidynamo.compile(plain), plain), (minidynamo.compile(breaks), breaks)]
    module = Scale(3)
    found += [(minidynamo.compile(module), module), (minidynamo.compile(module.forward), module)]
    with minidynamo.config.patch(step_limit=100):
        found.append((minidynamo.compile(given_up), given_up))
        for compiled, _ in found:
            compiled(torch.ones(2))
    return found


def caches():
    found = {}
    for code in CODES.values():
        cache = frame_hook.get_cache(code)
        # the hook puts what was used last in front
        found[id(code)] = {id(entry) for entry in cache} if isinstance(cache, list) else cache
    return found


def test_explaining_compiles_nothing_else_again():
    found = everything()
    before, frames = caches(), set(records.frames)
    explained = []
    for compiled, original in found:
        explained += [minidynamo.explain(original)(torch.ones(2)), minidynamo.explain(compiled)]
        explained[-1] = explained[-1](torch.ones(3))
        explained[-2].why_recompile(torch.ones(4))
    counted = {group: dict(counter) for group, counter in minidynamo.counters.items()}
    for compiled, original in found:
        assert torch.equal(compiled(torch.ones(2)), original(torch.ones(2)))
    for group in ("frames", "graphs", "recompiles", "skipped", "errors"):
        assert dict(minidynamo.counters[group]) == counted.get(group, {}), group
    # with the explanations goes all that they have left behind
    del explained
    gc.collect()
    after = caches()
    assert {key: after[key] for key in before} == before
    assert all(not after[key] for key in after if key not in before)
    assert set(records.frames) == frames


def test_what_is_explained_is_compiled_from_scratch_and_counted_alone():
    everything()
    for function in (plain, breaks, given_up):
        e = minidynamo.explain(function, backend="eager")(torch.ones(2))
        assert e.main.record.graph is not None, function  # `given_up` had another limit
        assert e.counters["graphs"][function.__name__] == 1 and "recompiles" not in e.counters
    assert [row[0].split(":")[0] for row in e.breaks.rows] == []
    e = minidynamo.explain(breaks)(torch.ones(2))
    assert len(e.breaks.rows) == 1 and sum(e.counters["graph_breaks"].values()) == 2


def test_entries_are_what_a_compiled_object_holds_and_nothing_runs():
    ran = []

    @minidynamo.disable
    def note():
        ran.append(1)

    def f(x):
        x = x + 1
        note()
        return x * 2

    compiled = minidynamo.compile(f, backend="eager", dynamic=False)
    explainer = minidynamo.explain(compiled)
    assert explainer.entries == []
    compiled(torch.ones(2)), compiled(torch.ones(3)), compiled(torch.ones(3))
    graphs, frames = dict(minidynamo.counters["graphs"]), list(records.frames)
    held = explainer.entries
    assert len(ran) == 3 and graphs == minidynamo.counters["graphs"]
    assert frames == list(records.frames)
    assert [entry.record.code for entry in held[:2]] == [f.__code__] * 2
    assert all(entry.record.function.startswith("<resume of f") for entry in held[2:])
    assert len(held) == 4 and {entry.record for entry in held} == {*frames}
    assert "add" in repr(held[0].graph) and "mul" in repr(held[2].graph)
    assert [entry.record.hits for entry in held[:2]] == [0, 1]
    assert minidynamo.explain(f).entries != []  # of whoever has compiled it
