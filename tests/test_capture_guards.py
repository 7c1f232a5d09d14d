"""Guards: whatever a compiled entry assumed, changing it gives plain Python's result, through a
recompile."""

import collections
import math

import pytest
import torch
from record_helpers import last_compiled

import minidynamo
from minidynamo import config
from minidynamo.frame import frame_hook

pytestmark = pytest.mark.usefixtures("anew")


def check(function, *calls):
    """Each call, compiled, equals plain Python; returns how many frames were compiled."""
    compiled = minidynamo.compile(function, backend="eager")
    for args in calls:
        torch.testing.assert_close(compiled(*args), function(*args), equal_nan=True)
    return minidynamo.counters["frames"].total()


A = torch.arange(6.0).reshape(2, 3) - 2


@pytest.mark.parametrize(
    "first, second",
    [(1, True), (1, 1.0), (0.0, -0.0), (1.0, math.nan), (2, 3), ("a", "b"), (None, 0)],
)
def test_constants_by_value_and_type(first, second):
    def f(x, c):
        if isinstance(c, float):
            return x + (math.copysign(5, c) if c == c else 6)
        if isinstance(c, int):
            return x + (1 if c is True else 2)
        return x + (4 if c is None else 3)

    assert check(f, (A, first), (A, second), (A, first), (A, second)) == 2


def test_nan_hits():
    """One NaN is as good as another."""
    other = float("nan")
    calls = (A, math.nan), (A, math.nan), (A, other), (A, other)
    assert check(lambda x, c: x + (c != c), *calls) == 1


def test_the_factory_of_a_dictionary():
    def f(x, table):
        try:
            return x + table["a"]
        except KeyError:
            return x * 2

    factories = (None, lambda: 5, None, lambda: 7)
    assert check(f, *[(A, collections.defaultdict(each)) for each in factories]) == 3


def test_same_tensor_twice():
    def f(x, y):
        x.add_(1)
        return y * 2

    compiled = minidynamo.compile(f, backend="eager")
    for same in (False, True, False, True):
        x = A.clone()
        y = x if same else A.clone()
        torch.testing.assert_close(compiled(x, y), (A + same) * 2)
    assert minidynamo.counters["frames"].total() == 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            [torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3)]
        )
        self.scale = 1.0

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.scale


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "scale", 2.0),
        lambda m: setattr(m.layers[0], "weight", torch.nn.Parameter(torch.ones(3, 3))),
        lambda m: m.layers.append(torch.nn.Linear(3, 2)),
        lambda m: m.layers.__setitem__(0, torch.nn.Linear(3, 3)),
        lambda m: m.layers[2].train(),
        lambda m: m.layers[0].register_forward_hook(lambda mod, args, out: out + 1),
        lambda m: m.layers[0].register_forward_pre_hook(lambda mod, args: (args[0] * 2,)),
        lambda m: setattr(m.layers[0], "forward", lambda x: x * 5),
        lambda m: m.double(),
    ],
    ids=range(9),
)
def test_module_changes(change):
    torch.manual_seed(0)
    model = Net().eval()
    compiled = minidynamo.compile(model, backend="eager")
    torch.testing.assert_close(compiled(A), model(A))
    compiled(A)
    assert minidynamo.counters["frames"].total() == 1
    change(model)
    x = A.to(model.layers[2].running_mean.dtype)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    expected = model(x)
    model.load_state_dict(before)
    torch.testing.assert_close(compiled(x), expected)
    assert minidynamo.counters["frames"].total() == 2


def test_compiled_module_is_the_module():
    model = Net()
    compiled = minidynamo.compile(model, backend="eager")
    assert isinstance(compiled, torch.nn.Module) and list(compiled.state_dict()) == list(
        model.state_dict()
    )
    assert [*compiled.parameters()][0] is model.layers[0].weight
    compiled.eval()
    assert not model.training and not compiled.training


def test_recompile_limit():
    compiled = minidynamo.compile(lambda x, n: x + n, backend="eager", dynamic=False)
    with config.patch(recompile_limit=3):
        for n in range(6):
            torch.testing.assert_close(compiled(A, n), A + n)
    assert minidynamo.counters["graphs"].total() == 3
    assert any("recompile_limit" in reason for reason in minidynamo.counters["skipped"])


def test_hits_are_counted():
    compiled = minidynamo.compile(Net().eval(), backend="eager")
    for _ in range(4):
        compiled(A)
    assert minidynamo.counters["cache_hits"].total() == 3 and last_compiled().hits == 3


def test_the_gradient_is_guarded():
    x = A.clone().requires_grad_()
    compiled = minidynamo.compile(
        lambda x: x.detach() + (0 if x.grad is None else x.grad), backend="eager"
    )
    for grad in (None, torch.ones(2, 3), None, torch.full((2, 3), 4.0)):
        x.grad = grad
        torch.testing.assert_close(compiled(x), A + (0 if grad is None else grad))
    assert minidynamo.counters["frames"].total() == 2


# ---- the cache
def test_the_entry_that_hit_last_is_tried_first():
    def f(x, n):
        return x + n

    compiled = minidynamo.compile(f, backend="eager", dynamic=False)
    order = lambda: [
        next(g.code[-1] for g in entry.record.guards if g.kind == "EQUALS")
        for entry in frame_hook.get_cache(f.__code__)
    ]  # noqa: E731
    for n in (1, 2, 3):
        compiled(A, n)
    assert sorted(order()) == ["1", "2", "3"]
    for n in (2, 1, 3):
        compiled(A, n)
        assert order()[0] == str(n)


def test_the_limit_message_says_what_failed():
    compiled = minidynamo.compile(
        lambda x, n: x + n, backend="eager", fullgraph=True, dynamic=False
    )
    with config.patch(recompile_limit=2):
        compiled(A, 1), compiled(A, 2)
        with pytest.raises(
            minidynamo.Unsupported,
            match=r"test_capture_guards.py.* 2 times .config.recompile_limit.*"
            r"[\s\S]*n == 2 is false",
        ):
            compiled(A, 3)


HELD = torch.full((3,), 3.0)


class Named:
    """An object whose number a program keeps."""


KEPT = Named()
SCALES = {id(KEPT): 5.0, id(HELD): 3.0}
NUMBERS = [id(KEPT), id(HELD)]


def scale_or_raise(x, value):
    try:
        return x * SCALES[id(value)]
    except KeyError:
        return x + 1


@pytest.mark.parametrize(
    "function",
    [
        scale_or_raise,
        lambda x, value: x * SCALES.get(id(value), 1),
        lambda x, value: x * 2 if id(value) in NUMBERS else x + 1,
        lambda x, value: x * 2 if id(value) in set(NUMBERS) else x + 1,
        lambda x, value: x * 2 if id(value) == NUMBERS[0] else x + 1,
        lambda x, value: x * 2 if id(value) != NUMBERS[1] else x + 1,
        lambda x, value: x * 2 if {id(value)} & SCALES.keys() else x + 1,
        lambda x, value: x * 2 if {NUMBERS[0]: 1, NUMBERS[1]: 2}.get(id(value)) else x + 1,
    ],
)
@pytest.mark.parametrize("turn", [0, 1])
def test_ids_that_were_kept_outside(function, turn):
    x, other = torch.ones(3), torch.ones(3)
    for values in ([KEPT, Named(), KEPT], [HELD, other, HELD], [[KEPT], [1], [KEPT]]):
        minidynamo.reset()
        check(function, *[(x, value) for value in values[turn:]])


def sharing():
    """Three functions of one variable."""
    n = 0

    def use(x, add, get):
        nonlocal n
        n += 10
        add()
        return x + 100 * n + get()

    def add():
        nonlocal n
        n += 1

    return use, add, lambda: n


@pytest.mark.parametrize("first", [0, 3, 5])
def test_functions_that_share_a_variable_in_some_calls(first):
    found = []
    for wrap in (
        minidynamo.disable,
        lambda function: minidynamo.compile(function, backend="eager"),
    ):
        made = [sharing(), sharing()]
        compiled = [wrap(made[0][0]), wrap(made[1][0])]
        calls = [(n & 1, n >> 1 & 1, n >> 2) for n in (*range(first, 8), *range(8))]
        x = torch.zeros(1)
        found.append([compiled[a](x, made[b][1], made[c][2]).item() for a, b, c in calls])
    assert found[0] == found[1]
