"""ShapeEnv and SymNode alone: symbols, proofs, guards, fake tensors.  Capture with them:
test_dynamic.py."""

import itertools
import math
import random

import pytest
import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import minidynamo.functions  # noqa: F401
from minidynamo.shapes.symbolic_numbers import hint_of
from minidynamo.shapes.symbolic_shapes import ShapeEnv, symbolic_fake
from miniinductor.sizes.expressions import FloorDiv, Mod, python_code


def make(*hints):
    env = ShapeEnv(lambda: "user.py:3")
    return env, [env.create_symbol(n, f"x.shape[{d}]") for d, n in enumerate(hints)]


def fakes(*tensors):
    env, mode = ShapeEnv(), FakeTensorMode(static_shapes=True)
    mode.cache_enabled = False
    made = [
        symbolic_fake(mode, env, t, {d: f"{n}.shape[{d}]" for d in range(t.dim())})
        for n, t in zip("xyzw", tensors)
    ]
    return env, mode, made


def texts(env):
    return [guard.code for guard in env.guards()]


def test_zero_and_one_are_numbers_and_equal_sizes_share_a_symbol():
    env, (a, b, c, d) = make(5, 1, 0, 5)
    assert (b, c) == (1, 0) and str(a) == str(d) == "s0"
    assert texts(env) == ["x.shape[0] == x.shape[3]", "x.shape[0] >= 2"]


def test_a_decision_is_a_guard_with_its_line():
    env, (n,) = make(5)
    assert n > 3 and not n > 9
    assert [(g.code, g.line) for g in env.guards()] == [("4 <= x.shape[0] <= 9", "user.py:3")]
    assert n >= 4 and n + 1 > 4 and n * 2 <= 18  # proved: nothing new
    assert texts(env) == ["4 <= x.shape[0] <= 9"]


def test_the_example_of_the_paper():
    env, mode, (x, y) = fakes(torch.randn(3), torch.randn(4))
    with mode:
        z = torch.cat([x, y])
    assert z.size(0) > 2  # two sizes of at least 2: always
    assert [str(d) for d in env.decisions if d.proved] == ["s0 + s1 > 2    (always)"]
    assert texts(env) == ["x.shape[0] >= 2", "y.shape[0] >= 2"]


def test_bounds_of_a_product_with_a_size_that_cannot_vary():
    env, (a, b) = make(2, 5)
    assert a < 3 and env.prove(sympy.Gt(a.node._expr * b.node._expr - b.node._expr, 0)) is True
    assert env.bounds((a.node._expr - 2) * b.node._expr) == (0, 0)


def test_division():
    env, (n,) = make(12)
    assert str(n // 1) == "s0" and str((n * 4) // 2) == "2*s0" and (n * 4) % 2 == 0
    assert n % 4 == 0  # a guard, and from now on a fact
    assert n // 4 * 4 == n and texts(env) == ["x.shape[0] >= 2", "x.shape[0] % 4 == 0"]
    assert (-n) // 5 == -3 and n // -5 == -3 and n % -5 == -3  # Python's rounding
    with pytest.raises(ZeroDivisionError):
        n // 0


def test_numbers_that_python_needs_are_specialised():
    env, (n,) = make(5)
    assert (
        list(range(n)) == [0, 1, 2, 3, 4]
        and texts(env) == ["x.shape[0] == 5"]
        and n.node.constant == 5
    )


def test_floats_are_computed_as_python_does():
    env, (n,) = make(7)
    value = (n / 3) * 0.1 + n**-0.5
    assert hint_of(value) == (7 / 3) * 0.1 + 7**-0.5
    for k in range(2, 60):
        assert eval(str(value), {"s0": k}) == (k / 3) * 0.1 + k**-0.5
    assert hint_of(torch.sym_sqrt(n)) == math.sqrt(7)
    assert math.ceil(n / 2) == 4 and env.simplify(n.node.expr) == 7  # an int of a float is a number


def test_strides_follow_sizes():
    env, mode, (x, y) = fakes(torch.randn(5, 3, 4).transpose(0, 2), torch.randn(6, 9)[:, :7])
    assert [str(s) for s in x.stride()] == ["1", "s0", "s0*s1"] and [
        str(s) for s in y.stride()
    ] == ["9", "1"]
    assert not y.is_contiguous() and "y.shape[1] != 9" in texts(env)


def test_proofs_are_right_on_small_numbers():
    """Random relations under random facts: what `prove` says holds for every pair of sizes that
    satisfies the facts."""
    picks = random.Random(0)
    for _ in range(25):
        env, (a, b) = make(*picks.sample(range(2, 10), 2))
        x, y = a.node.expr, b.node.expr

        def expression():
            k = picks.randint(1, 4)
            divided = [FloorDiv(x, k), FloorDiv(x + y, k), Mod(y, k + 1), sympy.Max(x, y)]
            return picks.choice([x, y, x + y, x * y, k * x - y, *divided, x - k * y])

        def relation():
            return picks.choice([sympy.Gt, sympy.Ge, sympy.Lt, sympy.Le, sympy.Eq, sympy.Ne])(
                expression(), expression() + picks.randint(-5, 5)
            )

        for _ in range(3):
            env.decide(relation())
        guards = [
            guard.check.format(*guard.source)
            .replace("x.shape[0]", "s0")
            .replace("x.shape[1]", "s1")
            for guard in env.guards()
        ]
        pairs = [
            (m, n)
            for m, n in itertools.product(range(2, 14), repeat=2)
            if all(eval(g, {"s0": m, "s1": n}) for g in guards)
        ]
        assert (hint_of(a), hint_of(b)) in pairs
        for _ in range(5):
            question = relation()
            answer = env.prove(question)
            for m, n in pairs:
                assert (
                    answer is None or eval(python_code(question), {"s0": m, "s1": n}) is answer
                ), (guards, question)
        for decision in env.decisions:  # the guards imply everything that was decided
            assert all(eval(python_code(decision.fact), {"s0": m, "s1": n}) for m, n in pairs), (
                guards,
                decision,
            )
