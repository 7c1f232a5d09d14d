"""Checks of notebook 06: graph breaks."""

import sys
import types
from collections.abc import Callable

import torch

from . import close, exercise, row


def reference(x):
    return x / float(x.abs().max()) if x.sum() > 0 else -x


@exercise("06.1", "remove the breaks")
def _(answer):
    import minidynamo

    inputs = torch.tensor([1.0, 2.0, -4.0, 5.0]), torch.tensor([-1.0, 0.5])
    for x in inputs:
        yield row(f"the numbers for {x.tolist()}", lambda: answer(x), reference(x), same=close)

    def breaks():
        minidynamo.reset()
        with torch.no_grad():
            minidynamo.compile(answer, backend="eager")(inputs[0])
        count = sum(minidynamo.counters["graph_breaks"].values())
        minidynamo.reset()
        return count

    yield row("no graph break", breaks, 0, after=True)


def straight(a, b, c):
    d = a + b
    e = d * c
    f = e - a
    return f + e


def overwritten(a, b):
    a = b + 1
    b = a * 2
    return a - b


@exercise("06.2", "what is alive")
def _(answer):
    yield row(
        "before the second line of straight", lambda: set(answer(straight, 3)), {"a", "c", "d"}
    )
    yield row("before the last line", lambda: set(answer(straight, 5)), {"e", "f"})
    yield row(
        "a variable that is overwritten is not alive", lambda: set(answer(overwritten, 2)), {"b"}
    )


def careful(function: Callable) -> Callable:
    """The function, whose variables are looked at before they are read.  From 3.12 on CPython
    trusts its own compiler there: code by hand that reads too early would end the process."""
    from minidynamo.bytecode import assemble, disassemble

    if sys.version_info < (3, 12):
        return function
    body = disassemble(function.__code__)
    for instruction in body:
        if instruction.op == "LOAD_FAST":
            instruction.op = "LOAD_FAST_CHECK"
    return types.FunctionType(assemble(function.__code__, body), function.__globals__)


@exercise("06.3", "a resume function by hand")
def _(answer):
    yield row(
        "straight(2, 3, 4), resumed at its third line",
        lambda: careful(answer(straight, 4))(a=2, e=20),
        straight(2, 3, 4),
    )
    yield row(
        "overwritten, resumed at its last line", lambda: careful(answer(overwritten, 4))(3, 5), -2
    )


def shrinking(x):
    y = x * 2
    z = y + 1
    s = z.sum()
    return s + 1


def many_small(a):
    b = a + 1
    c = b + a
    d = c + a
    return b + c + d


@exercise("06.4", "where to break")
def _(answer):
    yield row(
        "after the reduction",
        lambda: answer(shrinking, {"x": 1000, "y": 2000, "z": 2000, "s": 4}, [2, 3, 4, 5]),
        5,
    )
    yield row(
        "bytes count, not variables",
        lambda: answer(many_small, {"a": 1000, "b": 2, "c": 3, "d": 4}, [2, 5]),
        5,
    )
    yield row(
        "of equal places, the first",
        lambda: answer(shrinking, {"x": 8, "y": 8, "z": 8, "s": 8}, [3, 4, 5]),
        3,
    )
