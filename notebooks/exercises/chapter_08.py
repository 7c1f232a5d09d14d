"""Checks of notebook 08: AOTAutograd."""

import functools
import re

import torch
import torch.nn.functional as F

from . import Watched, close, exercise, record_of, row


def dirty(x):
    x[1:3].mul_(2)
    y = x.sum(0)
    x[0] = y
    return y + x[0]


@exercise("08.1", "functionalize by hand")
def _(answer):
    x = torch.arange(12.0).reshape(4, 3)
    written = x.clone()
    expected = dirty(written)
    yield row("the result", lambda: answer(x.clone())[0], expected, same=close)
    yield row("the new value of x", lambda: answer(x.clone())[1], written, same=close)

    def untouched():
        mine = x.clone()
        answer(mine)
        return torch.equal(mine, x)

    yield row("x itself is not written", untouched, after=True)


@exercise("08.2", "a cut by hand")
def _(answer):
    chain = {"mm": 100, "tanh": 100, "small": 10, "wide": 400}
    edges = [("mm", "tanh"), ("tanh", "small"), ("small", "wide")]
    yield row(
        "backward reads the end of a chain: save its narrowest place",
        lambda: set(answer(chain, edges, {"mm"}, {"wide"})),
        {"small"},
    )
    yield row(
        "it also reads the beginning: save only that",
        lambda: set(answer(chain, edges, {"mm"}, {"mm", "wide"})),
        {"mm"},
    )
    yield row(
        "a random value in the middle",
        lambda: set(
            answer(dict(chain, mask=50), [*edges, ("mask", "wide")], {"mm", "mask"}, {"wide"})
        ),
        {"small", "mask"},
    )


def program(x, w):
    return F.dropout(torch.exp(x @ w) + torch.sin(x @ w), 0.5)


@exercise("08.3", "a policy in the real partitioner")
def _(answer):
    import minidynamo
    from miniinductor.autograd import partition

    x, w = torch.randn(5, 4), torch.randn(4, 6, requires_grad=True)
    original, policy = partition.why_saved, Watched(answer)

    @functools.cache
    def train():
        partition.why_saved = policy
        minidynamo.reset()
        w.grad = None
        try:
            torch.manual_seed(3)
            e = policy.around(lambda: minidynamo.explain(program)(x, w))
            e.result.sum().backward()
        finally:
            partition.why_saved = original
            minidynamo.reset()
        return record_of(e).saved, w.grad.clone()

    def eager():
        w.grad = None
        torch.manual_seed(3)
        program(x, w).sum().backward()
        return w.grad.clone()

    def reasons():
        return all(isinstance(s.reason, str) and s.reason for s in train()[0])

    yield row("exp is saved", lambda: any("exp" in s.op for s in train()[0]))
    yield row(
        "no cheap value is saved: no sin, no cos",
        lambda: [s.op for s in train()[0] if re.search(r"\b(sin|cos)\b", s.op)],
        [],
    )
    yield row("the reason is on record", reasons, after=True)
    yield row("the gradient is eager's", lambda: train()[1], eager(), same=close, after=True)


@exercise("08.4", "backward over a tape", level="core")
def _(answer):
    product = [("mul", ("x", "y"), "p")]
    yield row(
        "a product with 0",
        lambda: answer(product, {"x": 0, "y": 5, "p": 0}, "p"),
        {"p": 1, "x": 5, "y": 0},
    )
    yield row(
        "a product",
        lambda: answer(product, {"x": 2, "y": 5, "p": 10}, "p"),
        {"p": 1, "x": 5, "y": 2},
    )
    square = [("mul", ("x", "x"), "s"), ("add", ("s", "x"), "t")]
    yield row(
        "x is used three times",
        lambda: answer(square, {"x": 3, "s": 9, "t": 12}, "t"),
        {"t": 1, "s": 1, "x": 7},
    )
    unused = [("add", ("x", "y"), "a"), ("mul", ("y", "z"), "b"), ("mul", ("a", "a"), "c")]
    yield row(
        "a name without influence has no gradient",
        lambda: answer(unused, {"x": 1, "y": 2, "z": 2, "a": 3, "b": 4, "c": 9}, "c"),
        {"c": 1, "a": 6, "x": 6, "y": 6},
    )
