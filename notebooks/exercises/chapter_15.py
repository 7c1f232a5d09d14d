"""Checks of notebook 15: measuring and ablation."""

import statistics

import torch

from . import exercise, row


def inclusive(slow, fast):
    """(median, quartiles) as numpy.percentile finds them: quartiles of a few values have two
    definitions, and both are right."""
    values = [a / b for a, b in zip(slow, fast, strict=True)]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def near(a, b):
    return all(abs(x - y) < 1e-9 for x, y in zip(a, b, strict=True))


@exercise("15.1", "a ratio with spread")
def _(answer):
    from benchmarks.runner import Timing, ratio

    yield row(
        "twice as fast",
        lambda: answer([2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0]),
        (2, 2, 2),
        same=near,
    )
    drift = [1.5**n for n in range(8)]
    yield row(
        "on a machine that gets slower in every round",
        lambda: answer([3 * d for d in drift], drift),
        (3, 3, 3),
        same=near,
    )
    yield row(
        "the medians of the two lists come from different rounds",
        lambda: answer([10.0, 1.1, 1.2], [5.0, 1.0, 0.4])[:1],
        (2,),
        same=near,
    )
    slow, fast = [1.1, 1.0, 9.0, 1.2, 1.05, 1.1, 1.0], [0.5, 0.6, 0.5, 0.55, 5.0, 0.52, 0.5]
    yield row(
        "with interruptions, as the project's runner",
        lambda: answer(slow, fast),
        ratio({"a": Timing(slow), "b": Timing(fast)}, "a", "b"),
        same=lambda found, wanted: near(found, wanted) or near(found, inclusive(slow, fast)),
    )


@exercise("15.2", "a mean of ratios")
def _(answer):
    def mean(*values):
        return [answer(list(values))]

    yield row("of one", lambda: mean(1.7), [1.7], same=near)
    yield row("of 2 and 1/2", lambda: mean(2.0, 0.5), [1.0], same=near)
    yield row(
        "the other way round",
        lambda: [answer([3.0, 1.5, 0.8]) * answer([1 / 3, 1 / 1.5, 1 / 0.8])],
        [1.0],
        same=near,
    )
    yield row("of 1, 10 and 100", lambda: mean(1.0, 10.0, 100.0), [10.0], same=near)
    yield row("of 1, 1 and 8: all of them count", lambda: mean(1.0, 1.0, 8.0), [2.0], same=near)


@exercise("15.3", "an ablation of bytes")
def _(answer):
    from benchmarks.suites.ablation import captured

    x = torch.randn(64, 96)
    cases = {
        "softmax": (lambda x: torch.softmax(x, -1), [x], {"fusion"}),
        "a chain: each mechanism stands in for the other": (
            lambda x: torch.sigmoid(torch.exp(x) * 2),
            [x],
            set(),
        ),
        "what feeds a matrix product must be stored anyway": (
            lambda x: torch.relu(x) @ x.t(),
            [x],
            set(),
        ),
    }
    for name, (function, inputs, expected) in cases.items():

        def run(function=function, inputs=inputs, switches=("fusion", "inlining", "buffer_reuse")):
            with torch.no_grad():
                return answer(*captured(function, inputs), switches)

        yield row(name, run, expected)

    def without_the_one():
        return run(*cases["softmax"][:2], switches=("inlining", "buffer_reuse"))

    yield row("softmax, asked for the other two only", without_the_one, set(), after=True)


@exercise("15.4", "the whole, part by part", level="core")
def _(answer):
    yield row("half of it, ten times", lambda: round(answer([(5, 10), (5, 1)]), 4), 1.8182)
    yield row("all of it", lambda: answer([(3, 2), (1, 2)]), 2.0)
    yield row("one part is slower", lambda: round(answer([(8, 4), (2, 0.5)]), 4), 1.6667)
    yield row("three parts", lambda: round(answer([(6, 2), (3, 3), (1, 1)]), 4), 2.0)
    yield row("a single part", lambda: answer([(7, 4)]), 4.0)
