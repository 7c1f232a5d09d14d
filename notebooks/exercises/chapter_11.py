"""Checks of notebook 11: C++ code generation."""

import sympy
import torch

from . import close, exercise, row


def repeated(i):
    from miniinductor.ir.ops import ops

    x = ops.load("x", i)
    twice = ops.mul(x, ops.constant(2, torch.float32))
    again = ops.mul(ops.load("x", i), ops.constant(2, torch.float32))
    ops.store("out", i, ops.add(twice, again))


def summed_first(i):
    from miniinductor.ir.ops import ops

    one, two = ops.constant(1, torch.float32), ops.constant(2, torch.float32)
    ops.store("out", i, ops.mul(ops.add(ops.load("x", i), one), two))


def biggest(i):
    from miniinductor.ir.ops import ops

    ops.store("out", i, ops.maximum(ops.load("x", i), ops.constant(0, torch.float32)))


def smallest_first(i):
    from miniinductor.ir.ops import ops

    ops.store("out", i, ops.maximum(ops.constant(0, torch.float32), ops.load("x", i)))


def lines(handler, body):
    from miniinductor.ir.ops import set_handler

    with set_handler(handler()) as used:
        body(sympy.Symbol("i"))
    return used.lines


def run(handler, body, x):
    from miniinductor.toolchain import build_kernels

    inner = "\n".join(lines(handler, body))
    source = (
        'extern "C" int NAME(void** args) {\n const float* x = (const float*)args[0]; float* out = '
        "(float*)args[1];\n"
        f"for (long i = 0; i < {x.numel()}; i++) {{\n{inner}\n}}\nreturn 0; }}"
    )
    (kernel,) = build_kernels([(source, "exercise")])
    out = torch.full_like(x, float("nan"))
    kernel(x, out)
    return out


@exercise("11.1", "write once")
def _(answer):
    yield row("one load, one mul, one add, one store", lambda: len(lines(answer, repeated)), 4)
    x = torch.tensor([1.0, -2.0, 3.0])
    yield row("the numbers", lambda: run(answer, repeated, x), 4 * x, same=close, after=True)
    yield row(
        "(x + 1) * 2: a line is referred to by its name",
        lambda: run(answer, summed_first, x),
        (x + 1) * 2,
        same=close,
        after=True,
    )


@exercise("11.2", "NaN goes through maximum")
def _(answer):
    x = torch.tensor([1.0, -2.0, float("nan"), float("inf")])

    def same(a, b):
        torch.testing.assert_close(a, b, equal_nan=True)
        return True

    yield row(
        "maximum(x, 0)",
        lambda: run(answer, biggest, x),
        torch.maximum(x, torch.zeros(())),
        same=same,
    )
    yield row(
        "maximum(0, x)",
        lambda: run(answer, smallest_first, x),
        torch.maximum(x, torch.zeros(())),
        same=same,
        after=True,
    )
    yield row(
        "without a library call",
        lambda: any("std::" in line or "isnan" in line for line in lines(answer, biggest)),
        False,
        after=True,
    )


@exercise("11.3", "row sums, accurately")
def _(answer):
    def sums(x):
        from miniinductor.toolchain import build_kernels

        (kernel,) = build_kernels([(answer(*x.shape), "row_sums")])
        out = torch.full((x.shape[0],), float("nan"))
        kernel(x, out)
        return out

    x = torch.randn(7, 1001)
    yield row("a 7 x 1001 matrix", lambda: sums(x), x.sum(1), same=close)
    yield row("one column", lambda: sums(torch.ones(3, 1)), torch.ones(3), same=close)
    ones = torch.full((1, 10_000_000), 0.1)
    exact = ones.double().sum().item()
    yield row(
        "ten million times 0.1: relative error below 1e-6",
        lambda: abs(sums(ones).item() - exact) / exact,
        1e-6,
        same=lambda error, bound: error < bound,
    )


def misses(order, lines=24, width=8):
    """How many cache lines are fetched by a transpose in this order: reads of rows, writes of
    columns, `lines` lines of `width` numbers, the least recently used one goes."""
    cache: dict = {}
    count = 0
    for r, c in order:
        for line in (("read", r, c // width), ("write", c, r // width)):
            count += line not in cache
            cache.pop(line, None)
            cache[line] = True
            if len(cache) > lines:
                cache.pop(next(iter(cache)))
    return count


@exercise("11.4", "tiles and cache lines")
def _(answer):
    yield row(
        "the order for a small matrix",
        lambda: list(answer(3, 3, 2)),
        [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2), (2, 0), (2, 1), (2, 2)],
    )
    every = sorted((r, c) for r in range(7) for c in range(10))
    yield row("edges: each pair once", lambda: sorted(answer(7, 10, 4)), every)

    def fewer():
        plain = [(r, c) for r in range(64) for c in range(64)]
        return misses(answer(64, 64, 8)) * 2 < misses(plain)

    yield row("less than half of the misses", fewer, after=True)
