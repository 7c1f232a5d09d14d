"""Checks of notebook 09: decompositions and the loop IR."""

import functools
import itertools

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import Watched, close, exercise, record_of, row


def reference(x):
    return torch.relu(1 - x.abs())


def hat_op():
    """course::hat: the notebook's, or the same one when the notebook did not run."""
    try:
        return torch.ops.course.hat.default
    except (AttributeError, RuntimeError):
        op = torch.library.custom_op(
            "course::hat", lambda x: reference(x), mutates_args=(), schema="(Tensor x) -> Tensor"
        )
        op.register_fake(lambda x: torch.empty_like(x))
        return torch.ops.course.hat.default


def compiled(x):
    """(result, CompileRecord) of hat(x) * 2 + 1."""
    import minidynamo

    op = hat_op()
    with torch.no_grad():
        e = minidynamo.explain(lambda x: op(x) * 2 + 1)(x)
    minidynamo.reset()
    return e.result, record_of(e)


class Without(TorchDispatchMode):
    """An operation that must not be called: a decomposition that calls the operation which it takes
    apart would go on for ever."""

    def __init__(self, op):
        super().__init__()
        self.op = op

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is self.op:
            raise AssertionError(f"{func} is what is to be taken apart: write the formula")
        return func(*args, **(kwargs or {}))


@exercise("09.1", "a decomposition")
def _(answer):
    from miniinductor.lowering import decompositions

    op, x = hat_op(), torch.tensor([-2.0, -0.5, 0.0, 0.25, 3.0])

    def formula(x):
        with Without(op):
            return answer(x)

    watched = Watched(answer)

    @functools.cache
    def with_decomposition():
        formula(x)
        decompositions.OURS[op] = watched
        try:
            return watched.around(lambda: compiled(x))
        finally:
            del decompositions.OURS[op]

    yield row("the formula", lambda: formula(x), reference(x), same=close)
    yield row(
        "compiled: the right numbers",
        lambda: with_decomposition()[0],
        reference(x) * 2 + 1,
        same=close,
    )
    for label, kind, count in (
        ("no eager kernel is left", "fallbacks", 0),
        ("one kernel", "kernels", 1),
    ):
        yield row(
            f"compiled: {label}",
            lambda kind=kind: len(getattr(with_decomposition()[1], kind)),
            count,
            after=True,
        )


@exercise("09.2", "a lowering")
def _(answer):
    from miniinductor.lowering.registry import LOWERINGS

    op, x = hat_op(), torch.tensor([-2.0, -0.5, 0.0, 0.25, 3.0])
    lowering = Watched(answer)

    def with_lowering(x):
        LOWERINGS[op] = lowering
        try:
            return lowering.around(lambda: compiled(x))
        finally:
            del LOWERINGS[op]

    yield row("the right numbers", lambda: with_lowering(x)[0], reference(x) * 2 + 1, same=close)
    yield row(
        "one kernel, no eager kernel",
        lambda: [len(with_lowering(x)[1].kernels), len(with_lowering(x)[1].fallbacks)],
        [1, 0],
        after=True,
    )
    yield row(
        "for float64 as well",
        lambda: with_lowering(x.double())[0],
        reference(x.double()) * 2 + 1,
        same=close,
    )


@exercise("09.3", "a counting handler")
def _(answer):
    import sympy

    from miniinductor.ir.ops import ops, set_handler

    i = sympy.Symbol("i", integer=True)

    def count(body):
        with set_handler(answer()) as handler:
            body(i)
        return handler.loads, handler.arithmetic

    yield row(
        "x + y * 2",
        lambda: count(
            lambda i: ops.add(
                ops.load("x", i), ops.mul(ops.load("y", i), ops.constant(2, torch.float32))
            )
        ),
        (2, 2),
    )
    yield row("a plain copy", lambda: count(lambda i: ops.load("x", i)), (1, 0))
    yield row("exp(exp(x))", lambda: count(lambda i: ops.exp(ops.exp(ops.load("x", i)))), (1, 2))


@exercise("09.4", "views are functions of indices", level="core")
def _(answer):
    x = torch.arange(24.0).reshape(2, 3, 4)

    def load(index):
        return x[index].item()

    def all_of(loader, like):
        every = itertools.product(*map(range, like.shape))
        return [loader(index) for index in every]

    permuted, sliced = x.permute(2, 0, 1), x[:, 1::2]
    yield row(
        "permute",
        lambda: all_of(answer(load, "permute", (2, 0, 1)), permuted),
        permuted.flatten().tolist(),
    )
    yield row(
        "slice", lambda: all_of(answer(load, "slice", 1, 1, 2), sliced), sliced.flatten().tolist()
    )
    one = x[:, :1]

    def load_one(index):
        return one[index].item()

    wide = one.expand(2, 5, 4)
    yield row(
        "expand", lambda: all_of(answer(load_one, "expand", 1), wide), wide.flatten().tolist()
    )

    def stacked():
        inner = answer(load, "permute", (2, 0, 1))
        return all_of(answer(inner, "slice", 0, 1, 2), permuted[1::2])

    yield row("a slice of a permuted one", stacked, permuted[1::2].flatten().tolist())
