"""Checks of notebook 02: FX graphs."""

import operator

import torch

from . import close, exercise, row


def captured(function, *inputs):
    """The graph that minidynamo captures of `function`."""
    import minidynamo

    graphs = []
    minidynamo.compile(function, backend=lambda gm, _: graphs.append(gm) or gm.forward)(*inputs)
    minidynamo.reset()
    return graphs[0]


def calls(gm):
    return [n for n in gm.graph.nodes if n.op.startswith("call")]


@exercise("02.1", "the largest value")
def _(answer):
    def outer(a, b):
        return torch.relu(a[:, None] * b[None, :]).sum()

    gm = captured(outer, torch.ones(3), torch.ones(4))
    sizes = {n.name: n.meta["example_value"].numel() for n in calls(gm)}
    yield row("it has 12 elements", lambda: sizes[answer(gm)], 12)
    gm = captured(lambda x: torch.cat([x, x]) + 1, torch.ones(5))
    yield row("a call, not an input", lambda: answer(gm) in {n.name for n in calls(gm)})


@exercise("02.2", "common subexpressions")
def _(answer):
    from torch.nn.functional import dropout

    def twice(x):
        return torch.sin(x) * 2 + torch.sin(x) * 2

    x = torch.randn(5)
    gm = captured(twice, x)
    yield row(
        "sin(x) * 2 + sin(x) * 2 has three operations left", lambda: len(calls(answer(gm))), 3
    )
    yield row("the numbers are the same", lambda: run(gm, x), twice(x), same=close, after=True)
    noise = captured(lambda x: torch.rand_like(x) + torch.rand_like(x), x)
    yield row(
        "two random tensors stay two",
        lambda: sum(n.target is torch.rand_like for n in calls(answer(noise))),
        2,
    )
    dropped = captured(lambda x: dropout(x, 0.5, True) + dropout(x, 0.5, True), x)
    yield row(
        "two dropouts stay two", lambda: sum(n.target is dropout for n in calls(answer(dropped))), 2
    )
    lists = captured(lambda x: torch.cat([x, x]) + 1, x)
    yield row("a call with a list does not crash it", lambda: len(calls(answer(lists))), 2)
    for label, program in HARD_TO_MERGE.items():
        yield row(label, lambda program=program: treated_alike(answer, program), after=True)


def one_is_not_one_point_zero(x):
    return (x * 1).abs(), (x * 1.0).abs()


def written_between(x):
    a = torch.relu(x)
    x.add_(1)
    return a + torch.relu(x)


def one_of_two_is_written(x):
    a, b = torch.relu(x), torch.relu(x)
    a.add_(1)
    return a + b


def two_results(x):
    return torch.relu(x), torch.relu(x)


HARD_TO_MERGE = {
    "x * 1 and x * 1.0 stay two": one_is_not_one_point_zero,
    "a write between two equal calls": written_between,
    "one of two equal values is written to": one_of_two_is_written,
    "two results stay two tensors": two_results,
}


def run(gm, *inputs):
    result = gm(*inputs)
    return result[0] if isinstance(result, tuple) and len(result) == 1 else result


def treated_alike(answer, program):
    """Does the graph behind the pass give the numbers, the dtypes and the tensors of `program`?"""
    x = torch.tensor([1, -2, 3])
    expected = program(x.clone())
    got = run(answer(captured(program, x.clone())), x.clone())
    if isinstance(expected, tuple):
        assert len({t.data_ptr() for t in got}) == len(expected), "the results share memory"
    return close(got, expected)


@exercise("02.3", "a safe x * 1")
def _(answer):
    def left(function, x):
        return sum(n.target is operator.mul for n in calls(answer(captured(function, x))))

    yield row(
        "float x times 1 is removed",
        lambda: left(lambda x: torch.relu(x * 1) + 1, torch.ones(3)),
        0,
    )
    yield row(
        "int x times 1 is removed", lambda: left(lambda x: (x * 1) + 1, torch.tensor([1, 2])), 0
    )
    yield row(
        "int x times 1.0 stays: the dtype changes",
        lambda: left(lambda x: (x * 1.0) + 1, torch.tensor([1, 2])),
        1,
    )
    yield row("x times 2 stays", lambda: left(lambda x: x * 2 + 1, torch.ones(3)), 1)
    yield row("x times True is removed", lambda: left(lambda x: x * True + 1, torch.ones(3)), 0)
    yield row("x times y stays", lambda: left(lambda x: x * x + 1, torch.ones(3)), 1)


@exercise("02.4", "dead code", level="core")
def _(answer):
    def chain(x):
        y = torch.sin(x)
        z = torch.cos(y)  # nobody reads it
        torch.exp(z)
        return x + 1

    def written(x):
        y = x * 1
        y.add_(1)
        torch.relu(x)
        return y

    def written_by_operators(x):
        y = x * 1
        y += 1
        z = x * 2
        z[0] = 3
        torch.relu(x)
        return y + z

    def drawn(x):
        torch.rand_like(x)
        torch.relu(x)
        return torch.rand_like(x)

    def left(program):
        gm = answer(torch.fx.symbolic_trace(program))
        return [
            node.target if isinstance(node.target, str) else node.target.__name__
            for node in gm.graph.nodes
            if node.op.startswith("call")
        ]

    yield row("a chain that nobody reads", lambda: left(chain), ["add"])
    yield row("a write stays", lambda: left(written), ["mul", "add_"])
    gm = captured(written_by_operators, torch.ones(3))
    yield row(
        "so do += and x[0] = ...",
        lambda: run(answer(gm), torch.ones(3)),
        torch.tensor([5.0, 4, 4]),
        same=close,
    )
    yield row("a draw from the generator stays", lambda: left(drawn), ["rand_like", "rand_like"])
