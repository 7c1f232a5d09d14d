"""Checks of notebook 17: what a table of speedups counts, and a capture that is silently wrong."""

import torch

from . import exercise, row


def near(a, b):
    return all(abs(x - y) < 1e-9 for x, y in zip(a, b, strict=True))


def one(ours, peer=None):
    found = {"eager / ours": [ours, ours, ours]} if ours else {}
    return found | ({"eager / torch.compile": [peer, peer, peer]} if peer else {})


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
    dropout = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).eval()
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    x = torch.randn(3, 4)

    def frozen(model, x):
        return torch.jit.trace(model, x, check_trace=False)

    yield row("a trace keeps eval mode", lambda: answer(frozen, dropout, x), True)
    yield row("nothing depends on the mode", lambda: answer(frozen, plain, x), False)
    yield row("no capture at all", lambda: answer(lambda model, x: model, dropout, x), False)
