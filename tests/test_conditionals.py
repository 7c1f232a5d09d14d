"""torch.cond: both branches are in the graph, and the run chooses one."""

import pytest
import torch
from torch._higher_order_ops import while_loop

import minidynamo

LAYERS = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
PROGRAMS = {
    "one tensor": lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) * 2,
    "nested results": lambda x: torch.cond(
        x.sum() > 0, lambda a, b: (a + b, (a * 2,)), lambda a, b: (a - b, (b * 2,)), (x, x + 1)
    ),
    "a closure": lambda x: torch.cond(x.sum() > 0, lambda: x * 2, lambda: x.exp()),
    "modules": lambda x: torch.cond(x.sum() > 0, *LAYERS, (x * 2,)).relu(),
    "one in another": lambda x: torch.cond(
        x.sum() > 0,
        lambda a: torch.cond(a.max() > 2, lambda b: b + 1, lambda b: b - 1, (a,)),
        lambda a: a * 3,
        (x,),
    ),
    "written behind": lambda x: torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: -a, (x,)).mul_(
        3
    ),
    "sizes": lambda x: torch.cond(
        x.sum() > 0, lambda a: a * a.shape[0], lambda a: a + a.shape[0], (x,)
    ),
    "a size decides": lambda x: torch.cond(x.shape[0] > 3, lambda a: a + 1, lambda a: a - 1, [x]),
}


def rows(count, sign):
    return (sign * torch.arange(1.0, count * 4 + 1).reshape(count, 4) / 9).requires_grad_()


def learned(function, x):
    """The result, and all gradients."""
    for layer in LAYERS:
        layer.zero_grad(set_to_none=True)
    result = function(x)
    sum(t.sum() for t in torch.utils._pytree.tree_leaves(result)).backward()
    gradients = [p.grad for layer in LAYERS for p in layer.parameters()]
    return result, x.grad, [gradient for gradient in gradients if gradient is not None]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_graph_is_whole_and_the_run_chooses(name, backend):
    if backend == "inductor" and name not in ("modules", "sizes"):
        pytest.skip("kernels are built for two of them")
    minidynamo.reset()
    compiled = minidynamo.compile(PROGRAMS[name], backend=backend, fullgraph=True)
    for count, sign in ((3, 1), (3, -1), (5, 1), (6, -1)):
        want = learned(PROGRAMS[name], rows(count, sign))
        torch.testing.assert_close(learned(compiled, rows(count, sign)), want)
    assert minidynamo.counters["graphs"].total() <= (3 if name == "a size decides" else 2)


def test_a_branch_that_draws_breaks_the_graph():
    def f(x):
        return torch.cond(x.sum() > 0, lambda a: a + torch.rand_like(a), torch.cos, (x,))

    def drawn(function):
        torch.manual_seed(0)
        return function(torch.ones(2))

    assert torch.equal(drawn(minidynamo.compile(f, backend="eager")), drawn(f))
    assert "writes or draws" in str(minidynamo.counters["graph_breaks"])


def test_a_branch_that_writes_is_refused():
    """Eager refuses it, too (and leaves torch.compile's hook installed: it is not run here)."""

    def f(x):
        seen = []

        def yes(a):
            seen.append(1)
            return a + 1

        return torch.cond(x.sum() > 0, yes, torch.cos, (x,))

    with pytest.raises(minidynamo.Unsupported, match="writes or draws"):
        minidynamo.compile(f, backend="eager", fullgraph=True)(torch.ones(2))


# ---- torch.while_loop
WEIGHTS = torch.linspace(-1, 1, 16).reshape(4, 4)


def count():
    return torch.tensor(0)


def turns(x):
    return while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 1.5), (count(), x))


def no_turn(x):
    return while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, a * 1.5), (count(), x))[1].mul_(2), x


def until_it_is_large(x):
    i, a = while_loop(
        lambda i, a: a.sum() < 100, lambda i, a: (i + 1, a + x.abs() + 1), (count(), x)
    )
    return a * i


def both_change(x):
    return while_loop(lambda a, b: a.sum() < 50, lambda a, b: (b + 1, a + 2), (x, x))


def one_in_another(x):
    def body(i, a):
        inner = while_loop(lambda j, c: j < 2, lambda j, c: (j + 1, (c @ WEIGHTS).sin()), (i, a))
        return i + 1, inner[1]

    return while_loop(lambda i, a: i < 3, body, (count(), x))


def with_a_cond(x):
    def body(i, a):
        return i + 1, torch.cond(a.sum() > 0, lambda b: b - 1, lambda b: b + 2, (a,))

    return while_loop(lambda i, a: i < 3, body, (count(), x))[1] * 2


def of_its_size(x):
    return while_loop(lambda i, a: i < a.shape[0], lambda i, a: (i + 1, a * 2), (count(), x))


def plain_loop(condition, body, carried):
    """As torch says of it (which in eager mode compiles it)."""
    carried = tuple(tensor.clone() for tensor in carried)
    while condition(*carried):
        carried = tuple(body(*carried))
    return carried


LOOPS = (turns, no_turn, until_it_is_large, both_change, one_in_another, with_a_cond, of_its_size)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", LOOPS)
def test_a_loop_is_in_the_graph_and_the_run_counts(function, backend, monkeypatch):
    minidynamo.reset()
    compiled = minidynamo.compile(function, backend=backend, fullgraph=True)
    inputs = [rows(number, sign).detach() for number, sign in ((3, 1), (3, -1), (5, 1), (6, -1))]
    found = [compiled(x.clone()) for x in inputs]
    assert minidynamo.counters["graphs"].total() <= 2
    monkeypatch.setitem(globals(), "while_loop", plain_loop)
    for x, result in zip(inputs, found):
        torch.testing.assert_close(result, function(x.clone()))


REFUSED = {
    "decides by a number": (
        lambda i, a: (i + 1, a + 1 if i < 1 else a * 1),
        "data-dependent|branch",
    ),
    "gives what it was given": (lambda i, a: (i + 1, a), "gives what it was given"),
    "another kind": (lambda i, a: (i + 1, a.double()), "another kind"),
    "draws": (lambda i, a: (i + 1, a + torch.rand_like(a)), "draws"),
    "writes": (lambda i, a: (i + 1, a.mul_(2) + 1), "writes"),
    "one tensor": (lambda i, a: a * 2, "no tuple"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bodies_that_do_not_fit_break_the_graph(name):
    body, reason = REFUSED[name]

    def f(x):
        return while_loop(lambda i, a: i < 3, body, (count(), x))

    with pytest.raises(minidynamo.Unsupported, match=reason):
        minidynamo.compile(f, backend="eager", fullgraph=True)(torch.ones(2, 2))
