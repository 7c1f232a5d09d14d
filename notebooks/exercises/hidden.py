"""Hidden rows for nbgrader: inputs that the students have not seen.

In:   nothing.  Out: HIDDEN, {exercise: a generator of rows, like the checks}.

`notebooks/build.py --nbgrader` puts them between BEGIN and END HIDDEN TESTS.  The students' tree
does not have this file.  An answer that was made to fit the visible rows fails here.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import Row, close, row

HIDDEN: dict[str, Callable[[Any], Iterator[Row]]] = {}


def hidden(name: str) -> Callable:
    """Register the hidden rows of an exercise."""

    def register(function: Callable) -> Callable:
        HIDDEN[name] = function
        return function

    return register


@hidden("00.1")
def _(answer):
    x = torch.randn(3, 5)
    yield row("a softmax", lambda: answer(lambda x: torch.softmax(x, -1), x), 1)


@hidden("01.1")
def _(answer):
    a, b = torch.ones(2), torch.tensor([1.0, -5.0])
    yield row(
        "clamped by its own minimum", lambda: answer(lambda x: x + x.min().item(), a, b), False
    )


@hidden("03.1")
def _(answer):
    def once():
        return 1

    def thrice():
        return once() + once() + once()

    yield row("three calls of one", lambda: answer(thrice), {"thrice": 1, "once": 3})


@hidden("05.1")
def _(answer):
    guard = lambda: answer(lambda x, n: x * n, torch.ones(2), 0)  # noqa: E731
    yield row("zero is zero", lambda: bool(guard()(torch.ones(2), 0)))
    yield row("False is not zero", lambda: bool(guard()(torch.ones(2), False)), False)


@hidden("06.2")
def _(answer):
    def swapped(a, b):
        a, b = b, a
        c = a - b
        return c * a

    yield row("after a swap", lambda: set(answer(swapped, 2)), {"a", "b"})
    yield row("at the end", lambda: set(answer(swapped, 4)), {"a", "c"})


@hidden("07.2")
def _(answer):
    real: list[int] = []

    def emptied():
        shadow = answer(real)
        shadow.append(1)
        shadow.append(2)
        shadow[1] = 7
        shadow.replay()
        return real

    yield row("an empty list, two writes", emptied, [1, 7])


@hidden("08.2")
def _(answer):
    values = {"a": 10, "b": 3, "c": 8}
    edges = [("a", "b"), ("a", "c")]
    yield row("two branches", lambda: set(answer(values, edges, {"a"}, {"b", "c"})), {"a"})
    yield row("one branch is read", lambda: set(answer(values, edges, {"a"}, {"b"})), {"b"})


@hidden("10.1")
def _(answer):
    yield row("y[i + 1] and y[i]", lambda: answer((1, 1), (1, 0)), False)
    yield row("y[3 i + 2] and y[3 i + 5]", lambda: answer((3, 2), (3, 5)), False)
    yield row("y[2 i + 4] and y[4 i + 2]", lambda: answer((2, 4), (4, 2)), False)
    yield row("y[5 i - 2] and itself", lambda: answer((5, -2), (5, -2)), True)


@hidden("10.2")
def _(answer):
    sizes = {"a": 7, "b": 11, "c": 13}
    first, second = {"reads": {"a", "b"}, "writes": {"c"}}, {"reads": {"b", "c"}, "writes": set()}
    yield row("one shared, one flowing", lambda: answer(first, second, sizes), 24)
    yield row("in the other order only one is shared", lambda: answer(second, first, sizes), 11)


@hidden("13.1")
def _(answer):
    yield row("three blocks, unsorted", lambda: answer([(48, 16), (0, 16), (20, 4)], 24), 24)
    yield row("nothing fits between", lambda: answer([(8, 8), (20, 4)], 9), 24)


@hidden("14.2")
def _(answer):
    yield row("2 s0 + 3 s1 - 7", lambda: answer({"s0": 2, "s1": 3}, -7), 3)
    yield row("s0 - 2 s1 + 100", lambda: answer({"s0": 1, "s1": -2}, 100), -math.inf)


@hidden("14.3")
def _(answer):
    x = torch.randn(6, 2)
    yield row("columns stay", lambda: close(answer(lambda t: t * 3, [8, 32])(x), x * 3))


@hidden("15.1")
def _(answer):
    yield row("the middle of five", lambda: answer([5.0, 4, 3, 2, 1], [1.0] * 5)[0], 3.0)
    yield row("low before high", lambda: (lambda m, a, b: a < b)(*answer([5.0, 4, 3], [1.0] * 3)))


@hidden("15.2")
def _(answer):
    yield row("of 8 and 2", lambda: round(answer([8.0, 2.0]), 6), 4.0)
