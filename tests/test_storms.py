"""Numbers that change in each call: few compilations, the results of plain Python.  `make storms`
runs all the programs, with both backends."""

import logging

import pytest
import torch

import minidynamo
from benchmarks.programs import storms as storm_programs
from benchmarks.programs.storms import MOST, PROGRAMS

SAMPLE = list(PROGRAMS)[::2]
BY_INDUCTOR = ["module_float_counts", "cache_position", "negative_index", "decoder"]


@pytest.fixture(autouse=True)
def fresh():
    minidynamo.reset()


@pytest.mark.parametrize("name", SAMPLE)
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


FLOATS = {
    "division": lambda x, t: x / t if t else x,
    "division of numbers": lambda x, t: x * (1 / (t - 0.5)),
    "floor": lambda x, t: x + t // 0.3 + t % 0.3,
    "in place": lambda x, t: in_place(x, t),
    "a power": lambda x, t: x * t**2 + t**0.5,
    "a power of a number": lambda x, t: x * 0.9**t,
    "functions": lambda x, t: x * torch.tensor(t).sin() + round(t, 1) + int(t),
    "text": lambda x, t: (x * t, f"{t:.2f}", {t: 1}),
    "order": lambda x, t: (
        x * max(t, 0.35),
        min(1, t),
        sorted([0.5, t]),
        t == 0.5,
        t < float("inf"),
    ),
    "a size": lambda x, t: (x[: int(t * 4)], torch.full((2,), t), x * t),
    "negative zero": lambda x, t: (t * -0.0, -t, abs(t), x + t),
}
VALUES = (0.1, 0.7, 0.3, 2.5, 0.5, -1.5, 0.0, -0.0, float("inf"), float("nan"), 1e300)


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


INDICES = {
    "in the middle": lambda x, n: x[1, n, :2],
    "behind an ellipsis": lambda x, n: x[..., n],
    "in front of an ellipsis": lambda x, n: x[n, ...],
    "with None": lambda x, n: x[None, :, n],
    "two": lambda x, n: x[n, n - 1],
    "negative": lambda x, n: x[:, -n],
    "beside a tensor": lambda x, n: x[torch.tensor([0, 1]), n],
    "out of range": lambda x, n: x[0, n + 5],
    "too many": lambda x, n: x[n, n, n, n],
}


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


def test_past_the_limit_no_guard_is_looked_for(monkeypatch, caplog):
    compiled = minidynamo.compile(lambda x, name: x * len(name), backend="eager")
    asked = []
    original = minidynamo.guards.GuardFunction.failures

    def failures(*args):
        asked.append(args)
        return original(*args)

    monkeypatch.setattr(minidynamo.guards.GuardFunction, "failures", failures)
    with caplog.at_level(logging.WARNING, "minidynamo"):
        for n in range(30):
            compiled(torch.ones(2), f"name {n}")
    assert {args[-1] for args in asked} == {f"name {n}" for n in range(1, 5)}
    assert len(caplog.records) == 1
    assert "name == 'name 3'" in caplog.text
    minidynamo.reset()  # another chance
    compiled(torch.ones(2), "again")
    assert sum(minidynamo.counters["graphs"].values()) == 1


def test_whether_numbers_that_changed_are_one_object():
    """Symbols are no objects: the question is asked of the numbers of this run."""

    def same(x, n, m):
        return n is m, n is None, n is n, x * n

    compiled, x = minidynamo.compile(same, backend="eager"), torch.ones(2)
    for n, m in ((3, 3), (4, 4), (5, 6), (6, 6), (7, 8), (3, 3)):
        assert compiled(x, n, m)[:3] == same(x, n, m)[:3]


def written(x, t):
    x = x.clone()
    x[0] = t
    x[1:, 1] = t
    x[2:].fill_(t)
    return x.masked_fill(x > 1, t), x.masked_fill_(x < t, -t)


MET_BY_TENSORS = {
    "order": lambda x, t: (x > t, x <= t, t < x, torch.ge(x, t), x.lt(t)),
    "equality": lambda x, t: (x == t, x != t, torch.eq(x, t)),
    "where": lambda x, t: (torch.where(x > 0, x, t), torch.where(x > 0, t, 0.5), x.where(x > 0, t)),
    "remainders": lambda x, t: (x // (t + 9), x % (t + 9), torch.fmod(x, t + 9), (t + 9) % x.abs()),
}
# a number is needed: each has a graph of its own
NUMBERS = {
    "written": written,
    "clamp": lambda x, t: (x.clamp(-t, t), x.clamp(t, 1.0), x.clamp(min=t), torch.clip(x, None, t)),
    "full": lambda x, t: (torch.full((2, 3), t), torch.full((2,), t, dtype=torch.float64)),
    "lerp": lambda x, t: (torch.lerp(x, x + 1, t), torch.nn.functional.leaky_relu(x, t)),
}
CHANGING = (0.1, 0.7, -0.3, 0.0, -0.0, 1.0, 2.5)


def met_by(dtype):
    """Where numbers lie on, and beside, what is compared with them."""
    x = torch.tensor([[0.1, 0.7, -0.3], [0.0, -0.0, 1.0], [2.5, -2.0, 1e-3]])
    return (x * (1 if dtype.is_floating_point else 4)).to(dtype)


def all_equal(found, expected):
    for ours, plain in zip(found, expected, strict=True):
        assert ours.dtype == plain.dtype and torch.equal(ours.isnan(), plain.isnan())
        torch.testing.assert_close(ours, plain, rtol=0, atol=0, equal_nan=True)
        zeros = plain == 0
        assert torch.equal(ours[zeros].signbit(), plain[zeros].signbit())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("name", MET_BY_TENSORS)
def test_a_float_that_changes_meets_a_tensor(name, dtype):
    """Eager's values to the last bit; floats of float32 and float64 need two compilations."""
    function, x = MET_BY_TENSORS[name], met_by(dtype)
    compiled = minidynamo.compile(function, backend="eager")
    for t in CHANGING:
        all_equal(compiled(x, t), function(x, t))
    assert minidynamo.counters["graph_breaks"].total() == 0
    if dtype in (torch.float32, torch.float64):
        assert minidynamo.counters["graphs"].total() <= 3


@pytest.mark.parametrize("name", NUMBERS)
def test_a_float_that_changes_where_a_number_is_needed(name):
    function, x = NUMBERS[name], met_by(torch.float32)
    compiled = minidynamo.compile(function, backend="eager")
    for t in CHANGING:
        all_equal(compiled(x, t), function(x, t))
    assert minidynamo.counters["graph_breaks"].total() == 0


@pytest.mark.parametrize("name", ["order", "equality", "where"])
def test_the_same_by_kernels(name):
    """Kernels compare in the tensor's dtype, as eager does: 0.1 is 0.1 there."""
    function, x = MET_BY_TENSORS[name], met_by(torch.float32)
    compiled = minidynamo.compile(function)
    for t in CHANGING:
        all_equal(compiled(x, t), function(x, t))
    assert minidynamo.counters["graphs"].total() <= 3


class Ranges(torch.nn.Module):
    """What activations were like: two buffers that each call replaces behind a graph break."""

    def __init__(self):
        super().__init__()
        self.register_buffer("low", torch.zeros(1))
        self.register_buffer("high", torch.zeros(1))

    def forward(self, x):
        if self.training:
            low, high = x.min(), x.max()
            if self.low > -1e-5 and self.high < 1e-5:
                self.low, self.high = self.low + low, self.high + high
            else:
                self.low = self.low * 0.9 + low * 0.1
                self.high = self.high * 0.9 + high * 0.1
        return x / (self.high - self.low)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_buffers_that_another_frame_replaces(backend):
    torch.manual_seed(0)
    model, plain = Ranges(), Ranges()
    compiled, counts = minidynamo.compile(model, backend=backend), []
    for n in range(6):
        x = torch.randn(5, requires_grad=True)
        ours, eager = compiled(x), plain(x)
        torch.testing.assert_close(ours, eager)
        torch.testing.assert_close(
            torch.autograd.grad(ours.sum(), x), torch.autograd.grad(eager.sum(), x)
        )
        torch.testing.assert_close(model.low, plain.low)
        counts.append(minidynamo.counters["frames"].total())
    assert counts[2:] == counts[2:3] * 4, counts
    model.low, plain.low = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    torch.testing.assert_close(compiled(x), plain(x))  # its dtype is guarded


SCALED = {
    "lists": lambda x, t: tuple(torch._foreach_add([x, x + 1], [x - 3, x], alpha=t)),
    "add": lambda x, t: (torch.add(x, x + 1, alpha=t), x.sub(x.abs(), alpha=t)),
    "in place": lambda x, t: (x.clone().add_(x - 3, alpha=t), x.clone().sub_(x, alpha=-t)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SCALED)
def test_sums_scaled_by_a_float_that_changes(name, dtype):
    """16 bits: eager's values to the last bit.  Others have the product's rounding besides."""
    torch.manual_seed(0)
    function, x = SCALED[name], (torch.randn(16, 16) * 8).to(dtype)
    compiled = minidynamo.compile(function, backend="eager")
    for t in (0.31, 0.52, 0.77, 1.13, 1.71):
        for ours, plain in zip(compiled(x, t), function(x, t)):
            if dtype.itemsize == 2:
                assert torch.equal(ours, plain)
            else:
                bound = 2 * torch.finfo(dtype).eps * 32
                torch.testing.assert_close(ours, plain, rtol=0, atol=bound)
    assert minidynamo.counters["graphs"].total() <= (5 if dtype.itemsize == 2 else 2)


def test_whole_numbers_of_a_float_break_nothing():
    compiled = minidynamo.compile(lambda x, t: (x >= int(t * 10), x * round(t)), backend="eager")
    for t in CHANGING[:5]:
        all_equal(
            compiled(met_by(torch.float32), t), compiled.__wrapped__(met_by(torch.float32), t)
        )
    assert minidynamo.counters["graph_breaks"].total() == 0


class Counted:
    number, rate = 0, 0.0


CHANGED = {
    "a float": lambda x, n: x * (n * 0.37),
    "a global": lambda x, n: x * Counted.number,
    "attributes": lambda x, n: x * Counted.number + Counted.rate,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", CHANGED)
def test_what_is_no_int_argument_becomes_a_symbol_once_it_changes(name, dynamic):
    compiled = minidynamo.compile(CHANGED[name], backend="eager", dynamic=dynamic)
    x = torch.randn(3)
    for n in range(2, 8):
        Counted.number, Counted.rate = n, n * 0.3
        number = n * 0.37 if name == "a float" else n
        assert torch.equal(compiled(x, number), CHANGED[name](x, number))
    assert minidynamo.counters["graphs"].total() <= 2


FROM_ZERO = {
    "an argument": lambda x, n: x * n,
    "a decision": lambda x, n: x * n if n < 9 else x,
    "half of it": lambda x, n: x + n // 2 + n % 3,
    "a rate": lambda x, n: x * min(1.0, (n + 1) / 100),
    "a flag": lambda x, n: x + 1 if n >= 0 else x,
    "a tensor of it": lambda x, n: x + torch.tensor([n, n]),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", FROM_ZERO)
def test_a_counter_is_a_symbol_from_its_second_value_on(name, backend):
    function = FROM_ZERO[name]
    compiled = minidynamo.compile(function, backend=backend)
    for n in range(6):
        torch.testing.assert_close(compiled(torch.ones(2), n), function(torch.ones(2), n))
    assert storm_programs.compilations() == 2


USED_AS_SIZES = {
    "a size": lambda x, n: torch.ones(n, 2).sum(0) + x,
    "a part": lambda x, n: x[n:] * 2,
    "a dimension": lambda x, n: x.sum(n % 2),
    "turns": lambda x, n: [x * i for i in range(n)],
    "an index": lambda x, n: x[n] + 1,
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("order", [(0, 1, 2, 0), (1, 0, 2), (2, 1, 0)])
@pytest.mark.parametrize("name", USED_AS_SIZES)
def test_a_small_int_that_is_used_as_a_size(name, order, backend):
    function = USED_AS_SIZES[name]
    x = torch.arange(8.0).reshape(4, 2)
    for dynamic in (None, True):
        minidynamo.reset()
        compiled = minidynamo.compile(function, backend=backend, dynamic=dynamic)
        for n in order:
            torch.testing.assert_close(compiled(x[: n + 3], n), function(x[: n + 3], n))


# ---- the first step of an optimizer
STATEFUL = ["Adam", "AdamW", "NAdam", "RMSprop", "Adamax", "Adadelta", "Rprop", "RAdam", "ASGD"]


def trained(make, compile):
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(3)) for _ in range(3)]
    optimizer = make(parameters)
    step = compile(optimizer.step)
    for n in range(4):
        for parameter in parameters[: 2 if n < 1 else 3]:  # the last one joins later
            parameter.grad = torch.cos(parameter.detach())
        step()
    return parameters, optimizer.state_dict()["state"]


@pytest.mark.parametrize("name", STATEFUL)
def test_an_optimizers_first_step_is_compiled_as_the_others(name):
    make = vars(torch.optim)[name]
    trained(lambda p: make(p[:2], 0.1), lambda f: minidynamo.compile(f, backend="eager"))
    assert minidynamo.counters["recompiles"].total() == 0


@pytest.mark.parametrize("name", STATEFUL)
def test_an_optimizers_state_is_as_in_plain_python(name):
    def make(p):
        return vars(torch.optim)[name]([{"params": p[:1], "lr": 0.3}, {"params": p[1:]}], 0.1)

    ours = trained(make, lambda f: minidynamo.compile(f, backend="eager"))
    plain = trained(make, lambda f: f)
    torch.testing.assert_close(ours[0], plain[0])
    assert [list(kept) for kept in ours[1].values()] == [list(kept) for kept in plain[1].values()]
    torch.testing.assert_close(ours[1], plain[1])


def test_no_state_where_plain_python_makes_none():
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    optimizer = torch.optim.Adam([parameter])

    def f(x, stop):
        y = x[stop]
        parameter.grad = None
        optimizer.step()
        return y

    compiled = minidynamo.compile(f, backend="eager")
    compiled(torch.ones(3), torch.tensor([1]))
    assert not optimizer.state
    parameter.grad = torch.ones(3)
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([7]))
    assert not optimizer.state
