"""Checks of notebook 04: bytecode and symbolic evaluation."""

import torch

from . import close, exercise, row


def powers(x):
    for p in range(3):
        x = x * p
    return x


def nested(x):
    for a in (1, 2):
        for b in (10, 20):
            x = x + a * b
    return x


def never(x):
    for a in ():
        x = x * 2
    return x


def operations(machine):
    machine.run()
    return [n.target.__name__ for n in machine.graph.nodes if n.op == "call_function"]


def result(machine, x):
    machine.run()
    return torch.fx.GraphModule({}, machine.graph)(x)


@exercise("04.1", "for loops")
def _(answer):
    yield row(
        "three turns give three multiplications",
        lambda: operations(answer(powers, ["x"])),
        ["mul"] * 3,
    )
    yield row("nested loops", lambda: operations(answer(nested, ["x"])), ["add"] * 4)
    yield row(
        "with the right numbers",
        lambda: result(answer(nested, ["x"]), torch.ones(1)),
        torch.tensor([91.0]),
        same=close,
    )
    yield row("an empty loop", lambda: operations(answer(never, ["x"])), [])


def square(v):
    return v * v


def twice(v, w):
    return square(v) + square(w)


def program(x):
    return twice(x, x + 1) - 3


def difference(v, w):
    return v - w


def in_order(x):
    return difference(x, x * 3)


@exercise("04.2", "inlining")
def _(answer):
    yield row(
        "two levels deep: add, mul, mul, add, sub",
        lambda: operations(answer(program, ["x"])),
        ["add", "mul", "mul", "add", "sub"],
    )
    yield row(
        "with the right numbers",
        lambda: result(answer(program, ["x"]), torch.tensor([2.0])),
        torch.tensor([10.0]),
        same=close,
        after=True,
    )

    yield row(
        "each argument goes to its own parameter",
        lambda: result(answer(in_order, ["x"]), torch.tensor([2.0])),
        torch.tensor([-4.0]),
        same=close,
        after=True,
    )

    def with_torch(x):
        return torch.relu(square(x))

    yield row(
        "torch functions stay calls", lambda: operations(answer(with_torch, ["x"])), ["mul", "relu"]
    )


def matched(x, parts):
    match parts:
        case [a]:
            return x + a
        case [a, b]:
            return x * a + b
        case _:
            return x


@exercise("04.3", "GET_LEN in the real evaluator")
def _(answer):
    import minidynamo
    from minidynamo.evaluate import evaluator, opcodes

    pushed = []

    def handler(frame, arg):
        before = len(frame.stack)
        answer(frame, arg)
        pushed.append(len(frame.stack) - before)

    def run(parts):
        minidynamo.reset()
        evaluator._CACHE.clear()
        original = opcodes.HANDLERS["GET_LEN"]
        opcodes.HANDLERS["GET_LEN"] = handler
        try:
            with minidynamo.config.patch(raise_internal_errors=True):
                return minidynamo.compile(matched, backend="eager", fullgraph=True)(
                    torch.ones(2), parts
                )
        finally:
            opcodes.HANDLERS["GET_LEN"] = original
            evaluator._CACHE.clear()
            minidynamo.reset()

    for parts in ([3], [3, 4], [1, 2, 3]):
        yield row(f"match {parts}", lambda: run(parts), matched(torch.ones(2), parts), same=close)
    yield row("each time one value was pushed, nothing taken", lambda: set(pushed), {1}, after=True)


ARITHMETIC = ["add", "mul", "sub", "sub", "add", "mul"]


def rotated(x):
    a, b, c, d = x, x + 1, x * 2, x - 3
    a, b, c, d = d, a, b, c
    return (a - b + c) * d


def in_pairs(x):
    pair = (x, (x + 5, x * 2, x * 3, x * 7))
    a, (b, c, d, e) = pair
    return (a - b) * c - d * e


@exercise("04.4", "tuples on the stack", level="core")
def _(answer):
    x = torch.tensor([3.0])
    yield row(
        "built, and unpacked in order",
        lambda: result(answer(rotated, ["x"]), x),
        rotated(x),
        same=close,
    )
    yield row(
        "only arithmetic is written down", lambda: operations(answer(rotated, ["x"])), ARITHMETIC
    )
    yield row(
        "a tuple in a tuple", lambda: result(answer(in_pairs, ["x"]), x), in_pairs(x), same=close
    )
