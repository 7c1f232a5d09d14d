"""Numbers that change in each call: few compilations, the results of plain Python.  `make storms`
runs all the programs, with both backends."""

import math

import pytest
import torch

import minidynamo
from benchmarks.programs import storms as storm_programs
from benchmarks.programs.storms import MOST, PROGRAMS
from tests.soundness.tables import lambdas

BY_INDUCTOR = ["cache_position", "negative_index", "decoder"]

pytestmark = pytest.mark.usefixtures("anew")


@pytest.mark.parametrize("name", PROGRAMS)
def test_few_compilations(name):
    assert not storm_programs.run(name, lambda f: minidynamo.compile(f, backend="eager"), 6)
    assert storm_programs.compilations() <= MOST


@pytest.mark.parametrize("name", BY_INDUCTOR)
def test_the_same_with_kernels(name):
    assert not storm_programs.run(name, minidynamo.compile, 5)
    assert storm_programs.compilations() <= MOST


def in_place(x, t):
    y = t
    t //= 0.7
    y %= 0.3
    return x * t + y, t, y


FLOATS = lambdas(
    "x, t",
    globals(),
    """
    division: x / t if t else x; division of numbers: x * (1 / (t - 0.5));
    floor: x + t // 0.3 + t % 0.3; in place: in_place(x, t); a power: x * t**2 + t**0.5;
    a power of a number: x * 0.9**t; text: (x * t, f"{t:.2f}", {t: 1});
    functions: x * torch.tensor(t).sin() + round(t, 1) + int(t);
    order: (x * max(t, 0.35), min(1, t), sorted([0.5, t]), t == 0.5, t < math.inf);
    a size: (x[: int(t * 4)], torch.full((2,), t), x * t);
    negative zero: (t * -0.0, -t, abs(t), x + t);
    left of a tensor: [t * x, t / x, t + x, t - x]; left of integers: t / (x.long() * 3);
    left of halves: (lambda y: [t * y, t / y, t - y])((x / 7 - 0.3).bfloat16());
    integers: (x.long() * t, x.long() > t, t * 2); alpha: x.long().add(x.long(), alpha=t);
    a factor of integers: (lambda y: y.addcmul(y, y, value=t))(x.long())
    """,
)
VALUES = (0.1, 0.7, 3, 0.3, 2.5, 0.5, True, -1.5, 0.0, -0.0, math.inf, math.nan, 1e300)


def outcome(function, *args):
    try:
        return repr(function(*args))
    except (ValueError, ZeroDivisionError, OverflowError, RuntimeError) as error:
        return repr(error)


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_pythons_own(name):
    """To the last bit, signs of zeros, exceptions and types."""
    function = FLOATS[name]
    compiled = minidynamo.compile(function, backend="eager")
    x = torch.arange(8.0)
    for value in VALUES:
        assert outcome(compiled, x, value) == outcome(function, x, value), value


def test_a_float_that_changes_is_compiled_for_until_the_limit():
    compiled = minidynamo.compile(lambda x, t: x * t, backend="eager")
    for n in range(12):
        assert torch.equal(compiled(torch.ones(2), n / 7), torch.ones(2) * (n / 7))
    assert storm_programs.compilations() <= minidynamo.config.recompile_limit


INDICES = lambdas(
    "x, n",
    globals(),
    """
    in the middle: x[1, n, :2]; behind an ellipsis: x[..., n]; in front of an ellipsis: x[n, ...];
    with None: x[None, :, n]; two: x[n, n - 1]; negative: x[:, -n]; out of range: x[0, n + 5];
    beside a tensor: x[torch.tensor([0, 1]), n]; too many: x[n, n, n, n]
    """,
)


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("writes", [False, True])
def test_symbolic_indices(name, writes):
    read = INDICES[name]

    def write(x, n):
        x = x.clone()
        target = Recorder()
        read(target, n)
        x[target.key] = 7.0
        return x

    function = write if writes else read
    compiled = minidynamo.compile(function, backend="eager")
    x = torch.randn(6, 7, 8)
    for n in (2, 3, 4, 5, 6):
        try:
            expected = function(x, n)
        except IndexError:
            with pytest.raises(IndexError):
                compiled(x, n)
        else:
            assert torch.equal(compiled(x, n), expected)


class Recorder:
    """Keeps the key that it was asked for."""

    def __getitem__(self, key):
        self.key = key


def test_whether_numbers_that_changed_are_one_object():
    """Symbols are no objects: the question is asked of the numbers of this run."""

    def same(x, n, m):
        return n is m, n is None, n is n, x * n

    compiled, x = minidynamo.compile(same, backend="eager"), torch.ones(2)
    for n, m in ((3, 3), (4, 4), (5, 6), (6, 6), (7, 8), (3, 3)):
        assert compiled(x, n, m)[:3] == same(x, n, m)[:3]


FROM_ZERO = lambdas(
    "x, n",
    globals(),
    """
    an argument: x * n; a decision: x * n if n < 9 else x; half of it: x + n // 2 + n % 3;
    a rate: x * min(1.0, (n + 1) / 100); a flag: x + 1 if n >= 0 else x;
    a tensor of it: x + torch.tensor([n, n])
    """,
)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", FROM_ZERO)
def test_a_counter_is_a_symbol_from_its_second_value_on(name, backend):
    function = FROM_ZERO[name]
    compiled = minidynamo.compile(function, backend=backend)
    for n in range(6):
        torch.testing.assert_close(compiled(torch.ones(2), n), function(torch.ones(2), n))
    assert storm_programs.compilations() == 2
