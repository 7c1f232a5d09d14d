"""Checks of notebook 14: dynamic shapes."""

import math

import torch

from . import close, exercise, row


@exercise("14.1", "division of sizes")
def _(answer):
    import sympy

    s0, s1 = sympy.symbols("s0 s1", integer=True)

    def traced(program, **sizes):
        asked = []
        result = program(
            *[
                answer(sympy.Symbol(name, integer=True), value, asked)
                for name, value in sizes.items()
            ]
        )
        return result, asked

    def heads(width):
        per_head = width // 4
        return (per_head.expression, per_head.hint)

    def windows(length):
        return "even" if length % 4 == 0 else "padded"

    yield row(
        "width // 4: the expression and the value", lambda: traced(heads, s0=12)[0], (s0 // 4, 3)
    )
    yield row(
        "length % 4 == 0, for 12", lambda: traced(windows, s0=12), ("even", [sympy.Eq(s0 % 4, 0)])
    )
    yield row(
        "length % 4 == 0, for 13", lambda: traced(windows, s0=13), ("padded", [sympy.Ne(s0 % 4, 0)])
    )
    yield row(
        "both together",
        lambda: traced(lambda a, b: ((a + b) // 2 + a % b).hint, s0=7, s1=4)[0],
        5 + 3,
    )
    yield row(
        "a size over a size: both symbols stay",
        lambda: traced(lambda a, b: ((a // b).expression, (a % b).expression), s0=7, s1=4)[0],
        (s0 // s1, s0 % s1),
    )


@exercise("14.2", "always so?")
def _(answer):
    from minidynamo.shapes.symbolic_shapes import ShapeEnv

    yield row(
        "s0 + s1 - 2: the paper's question, s0 + s1 > 2, is always so",
        lambda: answer({"s0": 1, "s1": 1}, -2),
        2,
    )
    yield row("3 s0", lambda: answer({"s0": 3}, 0), 6)
    yield row("s0 - s1", lambda: answer({"s0": 1, "s1": -1}, 0), -math.inf)
    yield row("a number", lambda: answer({}, 5), 5)
    yield row("s0 - s0 + 3: nothing is left of s0", lambda: answer({"s0": 0}, 3), 3)

    def agrees():
        import random

        draw = random.Random(0)
        for _ in range(40):
            env, expression = ShapeEnv(), 0
            terms = {f"s{n}": draw.choice((-2, 1, 2, 3)) for n in range(draw.randint(1, 3))}
            constant = draw.randint(-12, 6)
            for number, coefficient in enumerate(terms.values()):
                expression = expression + coefficient * env.create_symbol(5 + number).node.expr
            if bool(env.prove(expression + constant > 0)) != (answer(terms, constant) > 0):
                return terms, constant
        return True

    yield row("what ShapeEnv proves, on 40 random questions", agrees)


@exercise("14.3", "buckets")
def _(answer):
    import minidynamo

    def rows(x):
        return torch.softmax(x * 2, -1)

    def run(lengths):
        minidynamo.reset()
        call = answer(minidynamo.compile(rows, dynamic=False), [4, 16, 64])
        with torch.no_grad():
            return [close(call(x), rows(x)) for x in (torch.randn(n, 5) for n in lengths)]

    lengths = [2, 3, 4, 5, 9, 16, 17, 30, 64, 12, 3]
    yield row("the right rows", lambda: all(run(lengths)))
    yield row(
        "three graphs for eleven calls of nine lengths",
        lambda: (run(lengths), minidynamo.counters["graphs"].total())[1],
        3,
    )

    def given(sizes, *arguments):
        """What the function was called with."""
        seen = []
        call = answer(lambda x: (seen.append(x), x)[1], sizes)
        for argument in arguments:
            call(argument)
        return seen

    def sizes_of(sizes, *lengths):
        return [len(x) for x in given(sizes, *(torch.ones(length, 2) for length in lengths))]

    buckets = [4, 16, 64]
    yield row(
        "a bucket that fits is not passed over", lambda: sizes_of(buckets, 3, 4, 16), [4, 4, 16]
    )
    yield row("more rows than the largest bucket", lambda: all(run([70])))
    yield row("... are not padded", lambda: sizes_of(buckets, 70), [70])
    yield row("buckets in any order", lambda: sizes_of([64, 4, 16], 3, 9), [4, 16])
    yield row(
        "rows of zeros are added, of the same dtype",
        lambda: given([3], torch.ones(2, 2, dtype=torch.int64))[0],
        torch.tensor([[1, 1], [1, 1], [0, 0]]),
        same=close,
    )


@exercise("14.4", "how many graphs", level="core")
def _(answer):
    yield row("one shape, often", lambda: answer([(4, 8)] * 5), 1)
    yield row(
        "many lengths: one static, one symbolic", lambda: answer([(n,) for n in (5, 6, 7, 8)]), 2
    )
    yield row("a length of one has a graph of its own", lambda: answer([(5,), (6,), (7,), (1,)]), 3)
    yield row(
        "a second dimension that changes later",
        lambda: answer([(4, 8), (5, 8), (6, 8), (6, 9), (7, 10)]),
        3,
    )
    yield row("one first: the next is symbolic", lambda: answer([(1,), (5,), (6,)]), 2)
    yield row(
        "zero and one have a graph each", lambda: answer([(5,), (6,), (1,), (0,), (7,), (0,)]), 4
    )
    yield row("an older graph is asked, too", lambda: answer([(5,), (6,), (1,), (7,), (5,)]), 3)
    yield row(
        "what has changed once is a symbol from then on",
        lambda: answer([(4, 8), (4, 9), (5, 9), (6, 10)]),
        3,
    )
