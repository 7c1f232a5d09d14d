"""Small programs as people write them, which once broke, or went wrong: descriptors that delete,
notes of exceptions, calls of methods by name."""

import operator
import random
import types

import pytest
import torch
import torch._higher_order_ops as ops

from test_capture_language import fresh, same  # noqa: F401

import minidynamo


def whole(function, *args, graphs=1):
    """Equal to plain Python, twice, in one graph."""
    compiled = minidynamo.compile(function, backend="eager")
    for _ in range(2):
        same(compiled(*args), function(*args))
    assert minidynamo.counters["graphs"].total() == graphs
    assert not minidynamo.counters["graph_breaks"]


# ---- descriptors that delete


# ---- notes, methods by name


CALLERS = {
    "named": operator.methodcaller("sum", dim=0),
    "mixed": operator.methodcaller("sum", 1, keepdim=True),
    "plain": operator.methodcaller("sum", 1),
}


@pytest.mark.parametrize("name", CALLERS)
def test_methodcaller(name):
    caller = CALLERS[name]
    whole(lambda x: caller(x * 2), torch.ones(2, 3))


# ---- torch's loops
def combine(carried, x):
    hidden = (carried["h"] * 0.5 + x[0]).tanh()
    return {"h": hidden, "n": carried["n"] + 1}, (carried["h"] * x[1], x[0].sum())


LOOPS = {
    "scan": lambda h, a, b: ops.scan(combine, {"h": h, "n": torch.zeros(())}, (a, b)),
    "backwards": lambda h, a, b: ops.scan(combine, {"h": h, "n": h.sum()}, (a, b), reverse=True),
    "a dimension": lambda h, a, b: ops.scan(lambda c, x: (c + x, c * x), b[0], a.mT, dim=1),
    "map": lambda h, a, b: ops.map(lambda x, y: {"s": x[0].sin() + y, "t": x[1].sum()}, (a, b), h),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", LOOPS)
def test_scan_and_map(name, backend):
    function, args = LOOPS[name], (torch.rand(4), torch.rand(5, 4), torch.rand(5, 4))
    same(minidynamo.compile(function, backend=backend, fullgraph=True)(*args), function(*args))


def test_gradients_through_a_scan():
    def function(h, a, b):
        carried, rows = ops.scan(combine, {"h": h, "n": torch.zeros(())}, (a, b))
        return carried["h"].sum() + rows[0].sum()

    found = []
    for called in (function, minidynamo.compile(function, backend="eager", fullgraph=True)):
        torch.manual_seed(0)
        args = [torch.rand(*size).requires_grad_() for size in ((4,), (5, 4), (5, 4))]
        called(*args).backward()
        found.append([tensor.grad for tensor in args])
    same(*found)


REFUSED = {
    "while_loop": lambda x: ops.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.zeros(()), [x])
    ),
    "scan": lambda x: ops.scan(lambda c, row: (torch.cat([c, row]), c), x[0], x),
    "map": lambda x: ops.map(lambda row: row, x[:0]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_left_to_torchs_loops_is_told(name):
    with pytest.raises(minidynamo.Unsupported, match=f"{name}\\(\\)"):
        minidynamo.compile(REFUSED[name], backend="eager", fullgraph=True)(torch.rand(3, 2))


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
