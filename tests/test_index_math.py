"""Index maths: every simplification equals the original at every point of the loops' ranges."""

import itertools
import operator
import random

import pytest
import sympy
import torch
import torch.nn.functional as F

import minidynamo
from miniinductor.sizes.expressions import (
    FloorDiv,
    Mod,
    Position,
    index_text,
    is_indirect,
    python_code,
)
from miniinductor.sizes.symbols import bounds, lies_in, reshape_index, simplify

i, j = sympy.symbols("i j", integer=True, nonnegative=True)


def expression(depth, rng):
    if depth == 0:
        return rng.choice([i, j, sympy.Integer(rng.randint(0, 9))])
    kind = rng.random()
    if kind < 0.15:
        return rng.choice([sympy.Max, sympy.Min])(
            expression(depth - 1, rng), rng.randint(-3, 9) - expression(depth - 1, rng)
        )
    if kind < 0.2:
        return sympy.Abs(expression(depth - 1, rng) - rng.randint(0, 9))
    if kind < 0.4:
        return expression(depth - 1, rng) + expression(depth - 1, rng)
    if kind < 0.5:
        return rng.randint(1, 8) * expression(depth - 1, rng)
    return rng.choice([FloorDiv, Mod])(
        expression(depth - 1, rng), sympy.Integer(rng.randint(1, 12))
    )


def value(e, a, b):
    """Python's own // and %, whatever FloorDiv.eval would do."""
    names = {"FloorDiv": operator.floordiv, "Mod": operator.mod, "Max": max, "Min": min, "Abs": abs}
    return eval(str(sympy.sympify(e)), names, {"i": a, "j": b})


@pytest.mark.parametrize("seed", range(60))
def test_simplify_keeps_every_value(seed):
    rng = random.Random(seed)
    ranges = {i: rng.randint(1, 12), j: rng.randint(1, 12)}
    e = expression(4, rng)
    simple = simplify(e, ranges)
    limits = bounds(sympy.expand(simple), ranges)
    for a, b in itertools.product(range(ranges[i]), range(ranges[j])):
        assert value(e, a, b) == value(simple, a, b), (e, simple, a, b)
        if limits is not None:
            assert limits[0] <= value(simple, a, b) <= limits[1]


def test_only_indices_that_stay_inside_for_sure_are_not_checked():
    s, backwards = sympy.Symbol("s", integer=True, positive=True), 7 - 3 * Mod(i, 3)
    assert lies_in(3 * Mod(i, 3), s + 6, {i: s}) and not lies_in(backwards, s + 4, {i: s})
    falls = lambda x: F.pad(x, (4, 0))[7 - 3 * torch.arange(3).repeat(2)]  # noqa: E731
    wraps = lambda x: x[(torch.arange(4, dtype=torch.int32) * 2**30 * 2).clamp(0, 3)]  # noqa: E731
    large = lambda x: x[(torch.arange(len(x)) * 2**61).clamp(0, 3)]  # noqa: E731
    for read in (falls, wraps, large):
        x, compiled = torch.arange(5.0), minidynamo.compile(read, dynamic=True)
        assert torch.equal(compiled(x), read(x))
    with pytest.raises(IndexError):
        minidynamo.compile(falls, dynamic=True)(torch.ones(2))


def texts_of(e):  # in C, in Triton and in Python, each as Python
    c = index_text(e).replace("mini::", "").replace("<int64_t>", "").replace("/", "//")
    return c, index_text(e, "triton").replace("integer_", ""), python_code(e)


@pytest.mark.parametrize("seed", range(60))
def test_texts_mean_what_the_expression_means(seed):
    """Also products of quotients and remainders, with coefficients below zero."""
    rng, names = random.Random(seed), {"maximum": max, "minimum": min, "max": max, "min": min}
    names |= {"floordiv": lambda x, y: x // y, "remainder": lambda x, y: x % y, "abs": abs}
    e = expression(2, rng) - rng.randint(-9, 9) * expression(2, rng) * expression(2, rng)
    for a, b in itertools.product(range(7), (0, 3, 8)):
        for text in texts_of(e):
            assert eval(text, names, {"i": a, "j": b}) == value(e, a, b), (e, text, a, b)


def test_what_simplifies():
    assert simplify(FloorDiv(8 * i + j, 8), {i: 4, j: 8}) == i
    assert simplify(Mod(8 * i + j, 8), {i: 4, j: 8}) == j
    assert simplify(Mod(i, 7), {i: 7}) == i
    assert simplify(FloorDiv(i, 7), {i: 7}) == 0
    assert simplify(24 * FloorDiv(i, 4) + 6 * Mod(i, 4) + j, {i: 8, j: 6}) == 6 * i + j
    assert FloorDiv(FloorDiv(i, 3), 4) == FloorDiv(i, 12)
    below, two = sympy.Integer(-7), sympy.Integer(2)
    assert FloorDiv(below, two) == -4 and Mod(below, two) == 1
    flat = 12544 * i + j  # channels of groups: (12544*i + j) % 100352 // 12544 is i % 8
    channel = FloorDiv(flat, 100352) * 8 + FloorDiv(Mod(flat, 100352), 12544)
    assert simplify(channel, {i: 64, j: 12544}) == i


SHAPES = [
    *[((2, 3, 4), (6, 4)), ((6, 4), (2, 3, 4)), ((2, 12), (24,)), ((4, 6), (6, 4))],
    *[((1, 5, 1), (5,)), ((5,), (1, 5, 1)), ((4, 6, 10), (2, 12, 2, 5)), ((3, 1, 4), (12, 1))],
    *[((8, 9), (6, 12)), ((), (1,)), ((1,), ()), ((7,), (7, 1, 1))],
]


@pytest.mark.parametrize("old,new", SHAPES, ids=str)
def test_reshape_finds_the_same_element(old, new):
    x = torch.arange(int(torch.tensor(old or (1,)).prod())).view(old)
    y = x.view(new)
    variables = sympy.symbols(f"x0:{len(new)}", integer=True, nonnegative=True)
    expressions = reshape_index(old, new)(list(variables))
    for at in itertools.product(*map(range, new)):
        where = tuple(int(sympy.sympify(e).subs(dict(zip(variables, at)))) for e in expressions)
        assert x[where] == y[at]


def test_a_symbol_says_itself_whether_it_may_be_negative():
    """Not its name: a loop variable may be called `tmp0`, and a place that is read `x_row`."""
    loop = sympy.Symbol("tmp0", integer=True, nonnegative=True)
    unknown = sympy.Symbol("size", integer=True)
    read = Position("x_row", integer=True)
    assert index_text(FloorDiv(loop, 3)) == "tmp0/3"
    assert index_text(FloorDiv(unknown, 3)) == "mini::floordiv<int64_t>(size, 3)"
    assert index_text(FloorDiv(read, 3)) == "mini::floordiv<int64_t>(x_row, 3)"
    assert is_indirect(2 * loop + read) and not is_indirect(2 * loop + unknown)
    assert [str(part) for part in (read + loop + unknown).as_ordered_terms()] == [
        *("size", "tmp0", "x_row")  # as if they were symbols of one kind
    ]
