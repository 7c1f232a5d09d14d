"""What a frame enters and calls: torch's contexts, checkpoints, vmap; numbers of NumPy; loops that
break in each turn."""

import sys

import pytest
import torch
import torch.utils.checkpoint
from test_capture_language import make_test, same

import minidynamo

pytestmark = pytest.mark.usefixtures("anew")


def X():
    return torch.arange(6.0).reshape(2, 3) / 7 + 0.1


# ---- breaks in loops
def test_a_loop_that_breaks_in_each_turn_does_not_nest():
    def f(x, n):
        for _ in range(n):
            x = x + 1
            minidynamo.graph_break()
            x = x * 1
        return x

    turns = sys.getrecursionlimit() + 100
    same(minidynamo.compile(f, backend="eager")(X(), turns), f(X(), turns))
    assert minidynamo.counters["graphs"].total() == 3 and len(minidynamo.records.frames) < 8


# ---- torch: contexts, transforms, checkpoints
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_checkpoint_is_repeated_as_it_ran(backend, reentrant):
    lin = torch.nn.Linear(3, 3)

    def body(v):
        return torch.nn.functional.dropout(torch.relu(lin(v)).sin(), 0.5)

    def f(x):
        y = torch.utils.checkpoint.checkpoint(body, x * 2, use_reentrant=reentrant)
        (y * 3).sum().backward()
        return y.detach()

    outcomes = []
    for function in (
        f,
        minidynamo.compile(f, backend=backend),
        minidynamo.compile(f, backend=backend),
    ):
        x = X().requires_grad_()
        torch.manual_seed(0)
        outcomes.append((function(x), x.grad, lin.weight.grad.clone()))
        lin.zero_grad()
    for ours in outcomes[1:]:
        for a, b in zip(ours, outcomes[0]):
            torch.testing.assert_close(a, b)


@make_test(X(), graphs=2, breaks=2)
def test_vmap_runs_its_function_plainly(x):
    return torch.vmap(lambda row: row.sum() * 2)(x * 2) + 1


def test_a_function_called_under_vmap_is_compiled_outside_of_it():
    def f(x):
        return x.sin() + 1

    compiled = minidynamo.compile(f, backend="inductor")
    for _ in range(2):
        torch.testing.assert_close(torch.vmap(compiled)(X()), f(X()))
        torch.testing.assert_close(compiled(X()), f(X()))
    assert minidynamo.counters["graphs"].total() == 1 and not minidynamo.counters["errors"]


# ---- context managers of C: inference mode, devices (the graph breaks at each)
WEIGHT = torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()


def inference_then_autograd(x):
    h = (x @ WEIGHT).sin()
    with torch.inference_mode():
        y, ones, view = h.cos() * 2, torch.ones(2, 3), x.view(3, 2)
        if torch.is_inference_mode_enabled() and not torch.is_grad_enabled():
            ones.add_(1)
    return (h + y).sum(), y, y.t(), ones, view, y.is_inference(), torch.is_grad_enabled()


def inference_nested(x):
    with torch.inference_mode(False):
        a = x + 1
    with torch.autocast("cpu"), torch.inference_mode():
        with torch.inference_mode():
            b = x @ x.t()
        c = b + 1
    return a, b, c, x @ WEIGHT


def inference_writes(x):
    w = x.clone()
    with torch.inference_mode():
        w.add_(1)
        x.mul_(2)
    return w, x


@torch.inference_mode()
def decorated(x):
    return x.sin()


def inference_decorated(x):
    return decorated(x) + 1


def device(x):
    with torch.device("meta"), torch.no_grad():
        made, kept, here = torch.zeros(2), x.new_ones(2), torch.get_default_device()
    with torch.device("cpu"):
        return x + torch.ones(2, 3), made.device, kept.device, here, torch.get_default_device()


def looks(value):
    """What a program can see of a tensor."""
    return (
        value.is_meta or value.detach().tolist(),
        value.dtype,
        value.stride(),
        value.is_inference(),
        value.requires_grad,
    )


def thread_state():
    modes = torch.overrides._get_current_function_mode_stack()
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        len(modes),
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "function",
    [inference_then_autograd, inference_nested, inference_writes, inference_decorated, device],
)
def test_contexts_of_c(function, backend):
    state, compiled = thread_state(), minidynamo.compile(function, backend=backend)
    for x in (X(), X() + 1):
        plain, ours = x.clone(), x.clone()
        for a, b in zip(function(plain), compiled(ours)):
            assert looks(a) == looks(b) if isinstance(a, torch.Tensor) else a == b
        assert torch.equal(plain, ours) and thread_state() == state


def test_breaks_inside_contexts_of_c():
    """What was entered is entered behind the break, in the state it had been entered in; and left
    when the graph raises."""

    def nested(x):
        with torch.no_grad(), torch.autocast("cpu"):
            with torch.inference_mode(), torch.device("meta"):
                y = x @ x.t()
                minidynamo.graph_break()
                z, made = y + 1, torch.zeros(3)
            state = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
            u = x @ x.t()
        return y, z, made, u, x @ WEIGHT, state

    def raising(x):
        with torch.inference_mode(), torch.device("cpu"):
            y = x + 1
            try:
                y = y + torch.zeros(int(x.shape[0])).view(x.shape[1], -1)
            except RuntimeError as error:
                return y.is_inference(), type(error)

    def at_run_time(x, index):
        try:
            with torch.inference_mode(), torch.device("cpu"):
                return torch.ones(3)[index] + x
        except IndexError:
            return torch.zeros(2) + x

    state = thread_state()
    for function, *args in (
        (nested, X()),
        (raising, X()),
        (at_run_time, X()[:, :2], torch.tensor([0, 1])),
        (at_run_time, X()[:, :2], torch.tensor([0, 7])),
    ):
        compiled = minidynamo.compile(function, backend="eager")
        for _ in range(2):
            for a, b in zip(function(*args), compiled(*args)):
                assert looks(a) == looks(b) if isinstance(a, torch.Tensor) else a == b
            assert thread_state() == state, function
    assert "inference_mode() is entered" in " ".join(minidynamo.counters["graph_breaks"])


# ---- guards
def test_numbers_of_numpy():
    """An int64 of NumPy's is a constant: it once was an object that equals nothing."""
    numpy = pytest.importorskip("numpy")

    def f(x, n):
        padding = n - x.shape[-1] % n
        y = x / numpy.sqrt(n) + (1 if x.shape[-1] % n != 0 else 0) + numpy.lcm(n, 6) + x[:n].sum()
        return y * padding if n == 4 else y, padding, f"{n}"

    compiled = minidynamo.compile(f, backend="eager", fullgraph=True)
    x = torch.ones(16)
    for n in (numpy.int64(4), numpy.int64(4), numpy.int32(1), numpy.int64(16)):
        for a, b in zip(compiled(x, n), f(x, n)):
            assert type(a) is type(b) and (
                torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
            )
    assert minidynamo.counters["frames"].total() == 3
    g = minidynamo.compile(
        lambda x, n: (x + torch.tensor(n), x + torch.full((2,), n == 0)), backend="eager"
    )
    for n in (numpy.float64(2), numpy.float32(2), numpy.float64(0.0), numpy.float64(-0.0)):
        for a, b in zip(g(x[:2], n), (x[:2] + torch.tensor(n), x[:2] + torch.full((2,), n == 0))):
            assert a.dtype == b.dtype and torch.equal(a, b)
