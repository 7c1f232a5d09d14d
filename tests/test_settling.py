"""Programs settle: modules and objects that each call makes, counters, entries that answer nothing.
`make storms` runs all of the programs, with both backends."""

import collections
import logging

import pytest
import torch
from torch import nn

import minidynamo
from benchmarks.programs import settling

# a float or an object that changes is a number with a guard: given up, in part
GIVEN_UP = {*("label_argument", "module_argument", "history_argument", "greedy_decoder")}
BY_INDUCTOR = ["layer_argument", "triplet_loss", "solver_object", "batches_with_new_modules"]

pytestmark = pytest.mark.usefixtures("anew")


def frames():
    return minidynamo.counters["frames"].total()


@pytest.mark.parametrize("name", settling.PROGRAMS)
def test_nothing_is_compiled_after_the_fifth_call(name, backend="eager"):
    counts, wrong = settling.run(name, lambda f: minidynamo.compile(f, backend=backend))
    assert not wrong and not any(counts[settling.SETTLED :]), counts
    told = [reason for reason in minidynamo.counters["skipped"] if "was compiled" in reason]
    assert not told or name in GIVEN_UP, told


@pytest.mark.parametrize("name", BY_INDUCTOR)
def test_the_same_with_kernels(name):
    test_nothing_is_compiled_after_the_fifth_call(name, "inductor")


# ---- what may lie in a module's place
class Net(nn.Module):
    def __init__(self, width=3, act=nn.ReLU, tied=False):
        super().__init__()
        self.first, self.last = nn.Linear(3, width), nn.Linear(width, 3)
        self.norm, self.act, self.scale = nn.BatchNorm1d(3), act(), 2.0
        if tied:
            self.last = self.first

    def forward(self, x):
        return self.norm(self.last(self.act(self.first(x)))) * self.scale


def changed(**attributes):
    def make():
        net = Net()
        for name, value in attributes.items():
            setattr(net, name, value)
        return net

    return make


def with_hook():
    net = Net()
    net.first.register_forward_hook(lambda module, args, out: out * 3)
    return net


NETS = {
    "the same": Net,
    "wider": lambda: Net(5),
    "another activation": lambda: Net(act=nn.Tanh),
    "tied": lambda: Net(tied=True),
    "evaluated": lambda: Net().eval(),
    "frozen": lambda: Net().requires_grad_(False),
    "without bias": changed(last=nn.Linear(3, 3, bias=False)),
    "other number": changed(scale=0.5),
    "own forward": changed(forward=lambda x: x * 7),
    "hook": with_hook,
    "no norm": changed(norm=nn.Identity()),
}


def trained(net, function, x):
    y = function(net, x)
    if y.requires_grad:
        y.square().sum().backward()
    parts = list(net.named_parameters()) + list(net.named_buffers())
    return y, {name: (value.detach(), value.grad) for name, value in parts}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_another_module_in_the_place_of_those_before(backend):
    """Results, gradients and statistics are those of the module of this call."""

    def f(net, x):
        return net(x + 1) * 2

    compiled = minidynamo.compile(f, backend=backend)
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
    for n, name in enumerate([*["the same"] * 4, *NETS, *NETS]):
        found = []
        for function in (f, compiled):
            torch.manual_seed(n)
            found.append(trained(NETS[name]().double(), function, x))
        torch.testing.assert_close(found[1], found[0], msg=lambda text: f"{name}: {text}")


def test_modules_without_a_state_take_each_others_place():
    compiled = minidynamo.compile(lambda loss, x: loss(x, x + 1), backend="eager")
    for _ in range(6):
        compiled(nn.MSELoss(), torch.ones(2, 3))
    assert frames() == 1


def test_what_modules_hold_is_input_once_two_have_died():
    compiled = minidynamo.compile(lambda net, x: net(x), backend="eager")
    for n in range(6):
        compiled(Net(), torch.ones(2, 3))
    assert minidynamo.counters["frames"]["<lambda>"] == frames() == 3


def test_what_a_frame_calls_that_was_given_up_is_tried_once():
    """And what that one calls not at all; but sizes may become symbols."""

    def inner(x, name):
        return x * len(name)

    def outer(x, name):
        return inner(x, name) + inner.__code__.co_argcount

    def whole(x, name):
        return outer(x, name) * 2, sized(x)

    def sized(x):
        return x.cos() * x.shape[0]

    compiled = minidynamo.compile(whole, backend="eager")
    for n, name in enumerate("abcdefghijk"):
        x = torch.ones(2 + n)
        torch.testing.assert_close(compiled(x, name), whole(x, name))
    assert minidynamo.counters["frames"] == {"whole": 4, "outer": 1, "sized": 2}


def test_a_named_tuple_of_each_call_settles():
    def f(x):
        return collections.namedtuple("Point", "x y")(x + 1, x).x * 2

    compiled = minidynamo.compile(f, backend="eager")
    counts = [(compiled(torch.ones(2)), frames())[1] for _ in range(8)]
    assert counts[5:] == counts[5:6] * 3


# ---- optimizers make their state in the first step
@pytest.mark.parametrize("kind, most", [("Adam", 1), ("AdamW", 1), ("RMSprop", 1), ("SGD", 2)])
def test_a_step_is_compiled_once_and_again_where_what_it_does_changes(kind, most):
    """SGD with momentum copies the gradients in its first step."""
    states = []
    if kind == "RMSprop":  # torch.compile wraps the methods of all optimizers
        torch.compile(torch.neg, backend="eager")(torch.ones(1))
    for compiler in (lambda f: f, lambda f: minidynamo.compile(f, backend="eager")):
        weights = [nn.Parameter(torch.ones(3)) for _ in range(3)]
        extra = {"momentum": 0.9} if kind == "SGD" else {}
        optimizer = getattr(torch.optim, kind)(weights, lr=0.1, **extra)
        step = compiler(optimizer.step)
        for n in range(4):
            for k, weight in enumerate(weights[: 2 + n // 2]):  # at last another has a gradient
                weight.grad = torch.full((3,), n + k + 1.0)
            step()
            if n == 1:
                first = frames()
        states.append([weights, optimizer.state_dict()])
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=0)
    assert first == most and frames() <= 2 * most


# ---- entries that answer nothing
def test_entries_that_answer_at_last_are_joined_by_others(caplog):
    compiled = minidynamo.compile(lambda x, name: x * len(name), backend="eager")
    with caplog.at_level(logging.WARNING, "minidynamo"):
        for name in "abcdefgh":
            compiled(torch.ones(2), name)
    assert frames() == 4 and "4 times, each for a single call" in caplog.text
    for name in ["a", *"efghijkl"]:
        compiled(torch.ones(2), name)
    assert frames() == minidynamo.config.recompile_limit


def test_entries_that_never_answer_are_looked_through_no_longer():
    compiled = minidynamo.compile(lambda x, name: x * len(name), backend="eager")
    for n in range(40):
        assert compiled(torch.ones(2), str(n))[0] == len(str(n))
        assert (minidynamo.frame.frame_hook.get_cache(compiled.__code__) is None) == (n >= 24)


def test_each_module_of_a_loop_has_entries_of_its_own():
    class Loop(nn.Sequential):
        def forward(self, x):
            for layer in self:
                minidynamo.graph_break()
                x = layer(x).relu()
            return x

    model, x = Loop(*[nn.Linear(3, 3) for _ in range(7)]), torch.ones(2, 3)
    compiled = minidynamo.compile(model, backend="eager")
    counts = [(torch.testing.assert_close(compiled(x), model(x)), frames())[1] for _ in range(4)]
    assert counts[1:] == counts[1:2] * 3 and "was compiled" not in str(minidynamo.counters)


def test_fullgraph_is_patient():
    compiled = minidynamo.compile(lambda x, s: x * len(s), backend="eager", fullgraph=True)
    for n in range(minidynamo.config.recompile_limit):
        compiled(torch.ones(2), f"name {n}")
    with pytest.raises(minidynamo.Unsupported, match="recompile_limit"):
        compiled(torch.ones(2), "another")


# ---- ints below zero are symbols, too
INTS = {
    "arithmetic": lambda x, n: (x * n + n // 2 - n % 3, abs(n), -n, n**2, divmod(n, 3), n / 2),
    "bits": lambda x, n: (x + 1, ~n, n >> 1, n << 1, n & 3, str(n), float(n)),
    "order": lambda x, n: (x * min(n, -3), max(n, 2), n < -4, n == -3, bool(n)),
    "a slice": lambda x, n: (x[n:] * 2, x[:n] + 1),
    "a dimension": lambda x, n: x.sum(n % 2),
    "a tensor": lambda x, n: x + torch.tensor([n, n]) + torch.full((2,), n),
    "an argument": lambda x, n: (x.roll(n, 0), x.tril(n), x.clamp(n, 3), (x.long() * 8) // (n - 9)),
    "a range": lambda x, n: [x * i for i in range(n, 0)],
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("order", [(-3, -4, -5, -2, -1, 0, 1), (2, -1, -2, -3, 0), (0, -1, -7, 5)])
@pytest.mark.parametrize("name", INTS)
def test_an_int_that_changes_its_sign(name, order, backend):
    x, compiled = torch.arange(8.0).reshape(4, 2), minidynamo.compile(INTS[name], backend=backend)
    for n in order:
        ours, plain = compiled(x, n), INTS[name](x, n)
        torch.testing.assert_close(ours, plain) if name != "bits" else None
        assert [v for v in ours if not torch.is_tensor(v)] == [
            v for v in plain if not torch.is_tensor(v)
        ]
    assert frames() <= 5 or name == "a range"
