"""Checks of notebook 17: what a table of speedups counts, and a capture that is silently wrong."""

import copy

import torch

from . import exercise, row


def near(a, b):
    return all(abs(x - y) < 1e-9 for x, y in zip(a, b, strict=True))


def one(ours, peer=None):
    """A row: the median and the quartiles of each ratio that there is."""
    found = {"eager / ours": [ours, ours / 2, ours * 3]} if ours else {}
    return found | ({"eager / torch.compile": [peer, peer / 2, peer * 3]} if peer else {})


@exercise("17.1", "two compilers over the same models")
def _(answer):
    yield row("both right", lambda: answer([one(4.0, 2.0), one(1.0, 2.0)]), (2.0, 2.0), same=near)
    yield row(
        "a model that one of them gets wrong counts for neither",
        lambda: answer([one(4.0, 2.0), one(100.0), one(None, 50.0)]),
        (4.0, 2.0),
        same=near,
    )
    yield row(
        "geometric, not arithmetic",
        lambda: answer([one(0.5, 1.0), one(2.0, 4.0)]),
        (1.0, 2.0),
        same=near,
    )


@exercise("17.2", "which captures are silently wrong")
def _(answer):
    x = torch.randn(3, 4)

    def model(last):
        """In eval mode, and new: the answer before may have left its own in another mode."""
        return torch.nn.Sequential(torch.nn.Linear(4, 4), last).eval()

    def frozen(model, x):
        return torch.jit.trace(model, x, check_trace=False)

    def itself(model, x):
        return model

    dropout, relu = torch.nn.Dropout, torch.nn.ReLU
    yield row("a trace keeps eval mode", lambda: answer(frozen, model(dropout(0.5)), x), True)
    yield row("nothing depends on the mode", lambda: answer(frozen, model(relu()), x), False)
    yield row("no capture at all", lambda: answer(itself, model(dropout(0.5)), x), False)

    def copied(model, x):
        return copy.deepcopy(model)

    yield row(
        "a capture that can be told the mode", lambda: answer(copied, model(dropout(0.5)), x), False
    )


@exercise("17.3", "what was counted")
def _(answer):
    good = {"graphs": 1, "breaks": 0, "right": True}
    broken = {"graphs": 3, "breaks": 2, "right": True}
    wrong, failed = good | {"right": False}, {"failed": "out of time"}
    yield row("what failed stays below the line", lambda: answer([good, failed]), (50.0, 50.0))
    yield row("right, but in pieces", lambda: answer([good, good, good, broken]), (75.0, 100.0))
    yield row(
        "one of three failed", lambda: answer([good, failed, good]), (200 / 3, 200 / 3), same=near
    )
    yield row("one graph that is wrong", lambda: answer([good, wrong]), (50.0, 50.0))
    yield row(
        "a break beside a single graph", lambda: answer([good, good | {"breaks": 1}]), (50.0, 100.0)
    )
    yield row(
        "two graphs without a break: compiled again",
        lambda: answer([good, good | {"graphs": 2}]),
        (50.0, 100.0),
    )


@exercise("17.4", "the model that moves the mean")
def _(answer):
    def rounded(speedups):
        name, mean = answer(speedups)
        return name, round(mean, 4)

    yield row("one carries it", lambda: rounded({"a": 1.0, "b": 1.0, "c": 8.0}), ("c", 1.0))
    yield row(
        "a slow one weighs as much as a fast one",
        lambda: rounded({"a": 1.1, "b": 1.2, "c": 4.0, "d": 0.2}),
        ("d", 1.7413),
    )
    yield row(
        "four times slower is more than twice as fast",
        lambda: rounded({"a": 2.0, "b": 0.25, "c": 1.0, "d": 1.0}),
        ("b", 1.2599),
    )
    slow = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 32.0, "e": 32.0, "f": 1 / 16}
    yield row("far from the mean, not from one", lambda: rounded(slow), ("f", 4.0))
