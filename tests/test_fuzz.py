"""Random programs, plain against compiled; and graphs that raise: what is told, and what is never
run again.

`make fuzz` runs 10,000 programs.
"""

import contextlib
import sys
import warnings

import pytest
import torch
from fuzz.compare import Describer, difference, outcome
from fuzz.programs import program
from fuzz.run_programs import check, function_text

import minidynamo
from minidynamo import config


@pytest.fixture(autouse=True)
def fresh():
    minidynamo.reset()
    with config.patch(raise_internal_errors=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    minidynamo.reset()


@pytest.mark.parametrize("first", range(0, 90, 45))
def test_random_programs(first):
    for seed in range(first, first + 45):
        found = check(program(seed), seed)
        assert not found, f"seed {seed}\n{function_text(program(seed))}\n{found}"


def test_random_programs_with_kernels():
    for seed in range(5000, 5005):
        with config.patch(raise_internal_errors=False):
            found = check(program(seed), seed, "inductor", digits=4)
        assert not found, f"seed {seed}\n{function_text(program(seed))}\n{found}"


def test_the_comparison_sees_differences():
    a = torch.ones(2)
    same = lambda x, y: Describer()(x) == Describer()(y)
    assert same([a, a], [a, a]) and not same([a, a], [a, a.clone()])
    assert not same(a, a.double()) and not same(a, a.clone().requires_grad_())
    assert not same([a, a[:1]], [a, a[:1].clone()]) and not same({1: 2, 3: 4}, {3: 4, 1: 2})
    assert not same(0.0, -0.0) and not same(1, True)
    one, two = [outcome(f, (), {}, [], __file__) for f in (lambda: 1 / 0, lambda: int("x"))]
    assert "ZeroDivisionError" in difference(one, two) and not difference(one, one)


def both(function, *calls, backend="eager"):
    """Each call plain and compiled: the same outcome."""
    minidynamo.reset()
    compiled = minidynamo.compile(function, backend=backend)
    for make in calls:
        plain, ours = (outcome(f, make(), {}, [], __file__) for f in (function, compiled))
        assert not difference(plain, ours), difference(plain, ours)


# ---- found by random programs
@pytest.mark.parametrize("walk", ["keys", "values", "items", "__iter__"])
def test_a_dictionary_that_grew_is_walked_across_a_break(walk):
    def grown(x, d):
        d["new"] = 1
        left = iter(getattr(d, walk)())
        return x + 1, next(left), minidynamo.graph_break(), [*left], next(iter(d))

    both(grown, *[lambda: (torch.ones(2), {"old": 2})] * 2)


@contextlib.contextmanager
def managed(log):
    log.append("in")
    yield len(log)
    log.append("out")


def raises_at_run_time(x, index, log):
    log.append(x + 1)
    with torch.no_grad():
        y = x * 2
        try:
            return y[index]
        except IndexError as error:
            return y, torch.is_grad_enabled(), str(error)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_error_of_the_graph_is_the_programs(backend):
    """Fake tensors cannot foresee it: the frame runs again as plain Python, from before its first
    effect."""
    with config.patch(raise_internal_errors=False):
        both(
            raises_at_run_time,
            *[lambda i=i: (torch.ones(2), torch.tensor([i]), []) for i in (1, 7, 0, 9)],
            backend=backend,
        )
    assert sum(minidynamo.counters["raised"].values()) == 2 and sys.exc_info() == (None, None, None)


WRITES = {
    "add_": lambda x: x.add_(1),
    "a view": lambda x: x[1:].add_(1),
    "data": lambda x: x.data.add_(1),
    "out": lambda x: torch.add(x, 1, out=x),
    "rand": lambda x: torch.rand(3),
}
REFUSES = {
    "index": lambda x, i: x[i],
    "gather": lambda x, i: x.gather(0, i),
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x[:, None]),
    "one_hot": lambda x, i: torch.nn.functional.one_hot(i, 4) * x[0],
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("refuses", REFUSES)
@pytest.mark.parametrize("writes", WRITES)
def test_a_graph_that_wrote_or_drew_is_not_run_again(writes, refuses, backend):
    """Its error goes to the caller, past the `try` of the frame."""

    def f(x, index):
        drawn = WRITES[writes](x)
        try:
            return REFUSES[refuses](x, index), drawn
        except (IndexError, RuntimeError):
            return x, drawn

    x, index = torch.ones(3), torch.tensor([9])
    torch.manual_seed(0)
    states = [torch.get_rng_state(), (torch.rand(3), torch.get_rng_state())[1]]
    torch.manual_seed(0)
    with config.patch(raise_internal_errors=False), pytest.raises((IndexError, RuntimeError)):
        minidynamo.compile(f, backend=backend)(x, index)
    assert minidynamo.counters["raised_after_write"] and not minidynamo.counters["raised"]
    assert x.sum() <= 6 and (writes == "rand") == (x.sum() == 3) or backend == "inductor"
    assert any(torch.equal(torch.get_rng_state(), state) for state in states)


@pytest.mark.parametrize("inlined", [False, True])
def test_an_empty_cell_is_guarded(inlined):
    def f(x):
        try:
            return x + v
        except NameError:
            return x - 1

    def g(x):
        return f(x) * 2

    compiled = minidynamo.compile(g if inlined else f, backend="eager")
    results = [compiled(torch.ones(1)).item()]
    v = 5
    results.append(compiled(torch.ones(1)).item())
    del v
    results.append(compiled(torch.ones(1)).item())
    assert results == ([0, 12, 0] if inlined else [0, 6, 0])
