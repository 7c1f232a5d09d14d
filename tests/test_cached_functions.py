"""Functions behind `functools.lru_cache`: what a miss does happens where the program has it."""

import functools

import pytest
import torch

import minidynamo


def world():
    """A program with caches of its own: (frame, what can be seen afterwards)."""
    state, log = {"k": 1}, []

    @functools.lru_cache(2)
    def reads(n):
        log.append(("miss", n))
        return state["k"] * n + torch.rand(()).item()

    class Model:
        @functools.lru_cache
        def method(self, n):
            log.append("method")
            return torch.full((2,), float(n + state["k"]))

    model = Model()

    def frame(x, n):
        log.append("begin")
        state["k"] += 1
        first = torch.rand(2)
        y = x + first + reads(n % 3)
        log.append(reads.cache_info())
        if n == 4:
            reads.cache_clear()
        return y * model.method(n % 2), torch.rand(2), model.method(n % 2) is model.method(n % 2)

    return frame, lambda: (log, reads.cache_info(), Model.method.cache_info())


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_caches_of_the_program_are_those_of_plain_python(backend):
    results = []
    for wrap in (lambda f: f, functools.partial(minidynamo.compile, backend=backend)):
        torch.manual_seed(0)
        frame, seen = world()
        called = wrap(frame)
        results.append(str(([called(torch.ones(2), n) for n in (0, 1, 0, 2, 1, 4, 1)], seen())))
    assert results[0] == results[1]


def test_a_cached_function_breaks_the_graph_unless_it_is_torchs():
    @functools.cache
    def plain(n):
        return n

    def f(x):
        return x + plain(1)

    with pytest.raises(minidynamo.Unsupported, match="is cached by functools"):
        minidynamo.compile(f, backend="eager", fullgraph=True)(torch.ones(2))

    def g(x):
        return x + torch.backends.mps.is_available()

    assert minidynamo.compile(g, backend="eager", fullgraph=True)(torch.ones(2)).sum() == 2


def test_a_logger_of_transformers_warns_once():
    """`Logger.warning_once` is a cached function in the place of a method."""
    logger = pytest.importorskip("transformers.utils.logging").get_logger("told")

    def f(x):
        logger.warning_once("once")
        return x + 1

    compiled = minidynamo.compile(f, backend="eager", fullgraph=True)
    assert all(torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0)) for _ in range(2))
