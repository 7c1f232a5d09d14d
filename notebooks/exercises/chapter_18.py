"""Checks of notebook 18: averages over ranks, pieces of a graph, what a wire hides."""

import torch

from . import close, exercise, row


@exercise("18.1", "an average over unequal batches")
def _(answer):
    weight = torch.ones(3, requires_grad=True)

    def of(rows):
        return torch.autograd.grad(((rows @ weight) ** 2).mean(), weight)[0]

    torch.manual_seed(0)
    short, long, third = torch.randn(2, 3), torch.randn(7, 3), torch.randn(4, 3)
    ranks, nothing = [short, long, third], torch.tensor([float("nan")])
    yield row(
        "three ranks with 2, 7 and 4 rows",
        lambda: answer([of(rows) for rows in ranks], [len(rows) for rows in ranks]),
        of(torch.cat(ranks)),
        same=close,
    )
    yield row(
        "equal batches: the plain mean",
        lambda: answer([torch.tensor([1.0]), torch.tensor([3.0])], [5, 5]),
        torch.tensor([2.0]),
        same=close,
    )
    yield row(
        "a rank without rows: its mean is NaN",
        lambda: answer([nothing.clone(), torch.tensor([1.0]), nothing.clone()], [0, 5, 0]),
        torch.tensor([1.0]),
        same=close,
    )
    given = [torch.tensor([1.0]), torch.tensor([4.0])]
    yield row(
        "the ranks' gradients stay what they were",
        lambda: (answer(given, [1, 2]), torch.cat(given))[1],
        torch.tensor([1.0, 4.0]),
        same=close,
        after=True,
    )


LAYERS = [("embed", {"w0": 6}), ("up", {"w1": 4}), ("gelu", {}), ("down", {"w2": 4, "b2": 1})]


@exercise("18.2", "a graph in pieces")
def _(answer):
    yield row("a small limit", lambda: answer(LAYERS, 5), [["embed"], ["up", "gelu", "down"]])
    yield row(
        "each layer is enough", lambda: answer(LAYERS, 4), [["embed"], ["up", "gelu"], ["down"]]
    )
    yield row("a large limit", lambda: answer(LAYERS, 100), [["embed", "up", "gelu", "down"]])
    yield row(
        "a parameter that was seen begins no piece",
        lambda: answer([*LAYERS, ("head", {"w0": 6})], 4),
        [["embed"], ["up", "gelu"], ["down", "head"]],
    )
    tied = [("in", {"a": 5}), ("mid", {"b": 5}), ("out", {"a": 5, "c": 2}), ("last", {"d": 1})]
    yield row(
        "of a seen and a new parameter only the new one counts",
        lambda: answer(tied, 5),
        [["in"], ["mid"], ["out", "last"]],
    )


@exercise("18.3", "the end of a step", level="core")
def _(answer):
    yield row("one piece: nothing is hidden", lambda: answer([4.0], [3.0]), 7.0)
    yield row("a fast wire: the last bucket is exposed", lambda: answer([4.0, 4.0], [1.0, 1.0]), 9)
    yield row("a slow wire: buckets queue", lambda: answer([1.0, 1.0, 1.0], [3.0, 3.0, 3.0]), 10.0)
    yield row("the wire idles between", lambda: answer([1.0, 5.0], [2.0, 2.0]), 8.0)
    yield row(
        "a large bucket in the middle", lambda: answer([1.0, 4.0, 1.0], [1.0, 5.0, 1.0]), 11.0
    )


@exercise("18.4", "how many pieces")
def _(answer):
    yield row("an endlessly fast wire: one", lambda: answer(10.0, 0.0, 0.1, 8), 1)
    yield row("pieces cost nothing: as many as allowed", lambda: answer(10.0, 10.0, 0.0, 8), 8)
    yield row("pieces cost something", lambda: answer(10.0, 10.0, 0.5, 20), 4)
    yield row("a fast wire, dear pieces", lambda: answer(10.0, 4.0, 1.0, 8), 2)
    yield row("of equals the fewest", lambda: answer(8.0, 0.0, 0.0, 2), 1)
    yield row("a slow wire bears many", lambda: answer(10.0, 40.0, 2.0, 20), 15)
