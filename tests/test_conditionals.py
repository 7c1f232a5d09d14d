"""torch.cond: both branches are in the graph, and the run chooses one."""

import pytest
import torch

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


@pytest.mark.parametrize(
    "yes", [lambda a: a, lambda a: a.sum(), lambda a: (a + 1, a + 2), lambda a: torch.rand(3)]
)
def test_branches_that_do_not_fit_break_the_graph(yes):
    with pytest.raises(minidynamo.Unsupported, match="torch.cond"):
        compiled = minidynamo.compile(
            lambda x: torch.cond(x.sum() > 0, yes, torch.cos, (x,)), backend="eager", fullgraph=True
        )
        compiled(torch.ones(3))
