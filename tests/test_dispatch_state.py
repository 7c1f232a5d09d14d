"""The thread's dispatch state: what a program asks of torch's dispatcher, compiled kernels must not
pass by.  Each situation is run with plain Python and compiled, with calls before and after."""

import contextlib

import pytest
import torch
import torch.autograd.forward_ad as fw
from torch.autograd import functional
from torch.utils._python_dispatch import TorchDispatchMode

import minidynamo
import miniinductor
from minidynamo.frame import frame_hook
from miniinductor.autograd import fake_mode as dispatch_keys

X = torch.tensor([0.3, 0.7])
T = torch.tensor([1.0, 3.0])


class Tenfold(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        return (
            out * 10
            if function in (torch.ops.aten.sin.default, torch.ops.aten.cos.default)
            else out
        )


def f(x):
    return torch.sin(x) * 2


def leaf():
    return X.clone().requires_grad_()


def in_a_mode(c):
    with Tenfold():
        return c(X)


def backward_in_a_mode(c):
    y = leaf()
    z = c(y).sum()
    with Tenfold():
        z.backward()
    return y.grad


def two_outputs_of_which_one_is_used(c):
    y = leaf()
    a, _ = c(y), c(y)
    with Tenfold():
        (a[0] * 3).backward()
    return y.grad


def handler_of_a_mode(c):
    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return (
                c(*args)
                if function is torch.ops.aten.exp.default
                else function(*args, **kwargs or {})
            )

    y = leaf()
    with Calls():
        z = y.exp()
    return z, z.requires_grad


def dual(c):
    with fw.dual_level():
        return tuple(fw.unpack_dual(c(fw.make_dual(X, T))))


def dual_gradient_of_a_call_before(c):
    y = leaf()
    z = c(y)
    with fw.dual_level():
        (g,) = torch.autograd.grad(z, y, fw.make_dual(torch.ones(2), T))
        return tuple(fw.unpack_dual(g))


def level_in_the_frame(c):
    def inner(x):
        with fw.dual_level():
            return tuple(fw.unpack_dual(torch.sin(fw.make_dual(x, T))))

    return (inner if c is f else minidynamo.compile(inner, backend=c.backend))(X)


def mode_in_the_frame(c):
    def inner(x):
        with Tenfold():
            return torch.sin(x)

    return (inner if c is f else minidynamo.compile(inner, backend=c.backend))(X)


def below_autograd(c):
    with torch._C._AutoDispatchBelowAutograd():
        return c(leaf()).requires_grad


def batched_gradients(c):
    y = leaf()
    return torch.autograd.grad(c(y), y, torch.eye(2), is_grads_batched=True)


def batched_in_a_hook(c):
    y = leaf()
    z = f(y)
    z.register_hook(lambda g: c(g))
    return torch.autograd.grad(z, y, torch.eye(2), is_grads_batched=True)


SITUATIONS = [
    *(in_a_mode, backward_in_a_mode, two_outputs_of_which_one_is_used, handler_of_a_mode),
    *(dual, dual_gradient_of_a_call_before, level_in_the_frame, mode_in_the_frame),
    *(below_autograd, batched_gradients, batched_in_a_hook),
    lambda c: torch.func.jvp(c, (X,), (T,)),
    lambda c: torch.func.vmap(c)(X),
    lambda c: torch.func.jacfwd(c)(X),
    lambda c: torch.func.jacrev(c)(X),
    lambda c: torch.func.hessian(c)(X),
    lambda c: torch.func.functionalize(lambda x: c(x))(X),
    lambda c: functional.jacobian(c, X, strategy="forward-mode", vectorize=True),
    lambda c: functional.jacobian(c, X, vectorize=True),
    lambda c: torch.jit.trace(lambda x: c(x) + 1, X)(X * 2),
]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.__name__)
def test_what_the_dispatcher_does_is_done(situation, warm, backend):
    compiled = minidynamo.compile(f, backend=backend)
    compiled.backend = backend
    if warm:
        compiled(X)
        compiled(leaf()).sum().backward()
    assert str(situation(compiled)) == str(situation(f))
    assert torch.allclose(compiled(X), f(X))  # and nothing of it was baked in
    (g,) = torch.autograd.grad(compiled(y := leaf()).sum(), y)
    assert torch.allclose(g, 2 * X.cos())


def test_a_graph_without_a_front_end_is_seen_by_a_mode():
    compiled = miniinductor.compile_fx(torch.fx.symbolic_trace(f), [X])
    with Tenfold():
        assert torch.equal(compiled(X), f(X))


@contextlib.contextmanager
def both():
    with torch.autocast("cpu"), torch.inference_mode():
        yield


def states():
    for key in [key for name, key in vars(torch._C.DispatchKey).items() if name[0].isupper()]:
        yield key.name, lambda key=key: torch._C._IncludeDispatchKeyGuard(key)
        one = torch._C.DispatchKeySet(key)
        yield "no " + key.name, lambda one=one: torch._C._ExcludeDispatchKeyGuard(one)
    yield "usual", lambda: torch.enable_grad()
    yield "inference", lambda: torch.inference_mode()
    yield "autocast", lambda: torch.autocast("cpu")
    yield "both", both


def test_every_key_is_guarded_or_refused_and_the_hook_agrees():
    asked = []

    def callback(function, code, args):
        asked.append(code.co_name)

    usual = {"usual", "inference", "autocast", "both"}
    for name, state in states():
        called = frame_hook.enabled(lambda: 1, callback)
        asked.clear()
        with state():
            unusual = dispatch_keys.is_unusual()
            called()
        assert bool(asked) != unusual, name
        if name in usual or name.startswith(("no Autocast", "no Named")):
            assert not unusual, name
        if name in ("Python", "FuncTorchBatched", "Functionalize", "PreDispatch", "AutogradCPU"):
            assert unusual, name


@pytest.mark.parametrize("size", [5, 7])
def test_sizes_are_those_of_the_call_where_a_graph_runs_op_by_op(size):
    """A backward half in a mode, and a graph whose text would mean something else."""

    def of_sizes(x):
        return ((-2.0) ** x.reshape(x.shape[0] * 2, -1) * x.shape[0] / 3).sum()

    compiled = minidynamo.compile(of_sizes, dynamic=True)
    found = []
    for function in (of_sizes, compiled):
        x = torch.arange(size * 4.0).view(size, 4).requires_grad_()
        loss = (function(x) * x.sin().sum()).sum()
        with Logging():
            loss.backward()
        found.append((loss, x.grad))
    torch.testing.assert_close(*found, equal_nan=True)


class Logging(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_a_graph_that_is_interpreted_has_the_sizes_of_its_call():
    compiled = minidynamo.compile(
        lambda x: (-2.0) ** x.reshape(x.shape[0] * 2, -1), backend="eager", dynamic=True
    )
    for size in (4, 6):
        x = torch.arange(size * 2.0).view(size, 2)
        torch.testing.assert_close(compiled(x), (-2.0) ** x.reshape(size * 2, -1))
