"""Checks of notebook 00: the tour."""

import torch

from . import close, exercise, row


@exercise("00.1", "how many kernels")
def _(answer):
    x = torch.randn(4, 8)
    yield row(
        "a chain of pointwise operations is one",
        lambda: answer(lambda x: torch.relu(x * 2) + 1, x),
        1,
    )
    yield row("a product alone is a library call", lambda: answer(lambda x: x @ x.t(), x), 0)
    yield row(
        "work before and after a product",
        lambda: answer(lambda x: torch.exp(torch.sin(x) @ torch.cos(x).t()), x),
        2,
    )


@exercise("00.2", "one graph instead of two")
def _(answer):
    import minidynamo

    x = torch.tensor([-1.0, 3.0])

    def compiled():
        minidynamo.reset()
        return minidynamo.compile(answer, fullgraph=True)(x)

    yield row("the numbers are right", lambda: compiled()[0], torch.tensor([2.0, 8.0]), same=close)
    yield row("the text", lambda: compiled()[1], "hello from the middle")
    yield row("one graph", lambda: (compiled(), minidynamo.counters["graphs"].total())[1], 1)


@exercise("00.3", "what was captured", level="core")
def _(answer):
    x = torch.randn(3)
    yield row("functions", lambda: [*answer(lambda x: torch.sin(x) + 1, x)], ["sin", "add"])
    yield row("methods", lambda: [*answer(lambda x: x.relu().sum(), x)], ["relu", "sum"])
    yield row(
        "both, one of them twice",
        lambda: [*answer(lambda x: torch.exp(x) * torch.exp(-x).abs(), x)],
        ["exp", "neg", "exp", "abs", "mul"],
    )


@exercise("00.4", "bytes that fusion saves")
def _(answer):
    x, y = torch.randn(64, 8), torch.randn(64, 8)
    size = 4 * 64 * 8
    yield row(
        "two operations in a row: one value less is written and read",
        lambda: answer(lambda x: torch.sin(x) + 1, x),
        2 * size,
    )
    yield row(
        "five in a row", lambda: answer(lambda x: ((x + 1).relu() * 2).sin().exp(), x), 8 * size
    )
    yield row("two operands", lambda: answer(lambda x, y: (x * y).relu() + y, x, y), 5 * size)
