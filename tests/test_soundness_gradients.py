"""Autograd functions, requires_grad, views of inputs: the same history as eager."""

import pytest
import torch

import minidynamo
import miniinductor
from tests.soundness import gradients, modes, runner

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])


class HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.5


class Product(torch.autograd.Function):
    """Its backward is not linear in what reaches the loss alone."""

    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return g * h.cos()


@BACKENDS
def test_a_function_that_returns_its_input_keeps_its_gradient(backend):
    x = torch.ones(4, requires_grad=True)
    out = minidynamo.compile(lambda x: HalfGradient.apply(x), backend=backend)(x)
    assert out._is_view() and out._base is x and out.grad_fn is not None
    out.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4,), 0.5))


@BACKENDS
def test_what_does_not_reach_the_loss_is_not_taken_for_zero(backend):
    x = torch.ones(4, requires_grad=True)
    first, second = minidynamo.compile(lambda x: Product.apply(x), backend=backend)(x)
    first.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(4))


@BACKENDS
def test_requires_grad_inside(backend):
    def f(a):
        a.requires_grad_(True)
        return a * 2

    a = torch.ones(3)
    out = minidynamo.compile(f, backend=backend)(a)
    assert a.requires_grad and out.requires_grad
    out.sum().backward()
    torch.testing.assert_close(a.grad, torch.full((3,), 2.0))


@BACKENDS
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_views_of_leaves_without_gradients(backend, mode):
    x = torch.ones(4, requires_grad=True)
    with mode():
        view = minidynamo.compile(lambda x: x.view(2, 2), backend=backend)(x)
    assert view.requires_grad and view.is_leaf and view._base is x


READ_BY_FUNCTIONS = """
import torch
from torch.autograd import Function

number, table, row, seen, weight = 2, {"k": 2}, [2], [], torch.ones(2)

class Holder:
    k = 2
    def scale(self, g): return g * self.k

holder = Holder()
def helper(): return number

def with_closure(k):
    class Scaled(Function):
        forward = staticmethod(lambda ctx, x: x * k)
        backward = staticmethod(lambda ctx, g: g * k)
    def change(new):
        nonlocal k
        k = new
    return Scaled, change

class Mine(Function):
    k = 2
    @staticmethod
    def forward(ctx, x, default=(2,)): return FORWARD
    @staticmethod
    def backward(ctx, g): return BACKWARD, None

Scaled, change_closure = with_closure(2)
Chosen = Scaled if "FORWARD" == "closure" else Mine
def f(x): return Chosen.apply(x)
"""
READS_OF_FUNCTIONS = {  # name -> (what forward gives, what backward gives, how that is changed)
    "global": ("x * 2", "g * number", "number = 7"),
    "global's helper": ("x * 2", "g * helper()", "number = 7"),
    "helper's code": ("x * 2", "g * helper()", "helper.__code__ = (lambda: 7).__code__"),
    "table": ("x * table['k']", "g * table['k']", "table['k'] = 7"),
    "list": ("x * 2", "g * row[0]", "row[0] = 7"),
    "attribute": ("x * holder.k", "g * holder.k", "holder.k = 7"),
    "class attribute": ("x * Mine.k", "g * Mine.k", "Mine.k = 7"),
    "method": ("x * 2", "holder.scale(g)", "Holder.k = 7"),
    "absent": ("x * 2", "g * getattr(Mine, 'late', 1)", "Mine.late = 7"),
    "default": ("x * default[0]", "g * 2", "Mine.forward.__defaults__ = ((7,),)"),
    "tensor": ("x * 2", "g * weight", "weight = torch.ones(2) * 7"),
    "closure": ("closure", "g", "change_closure(7)"),
    "effect": ("x * (seen.append(1) or 2)", "g * (seen.append(2) or 2)", "pass"),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", READS_OF_FUNCTIONS)
def test_what_a_custom_function_reads_and_does(name, backend):
    """Its methods are Python that a backend runs while it traces, and then no more."""
    forward, backward, change = READS_OF_FUNCTIONS[name]
    text = READ_BY_FUNCTIONS.replace("FORWARD", forward).replace("BACKWARD", backward)

    def outcome(wrap):
        minidynamo.reset()
        space = {"__name__": "program"}
        exec(text, space)
        function, found = wrap(space["f"]), []
        for call in range(4):
            if call == 2:
                exec(change, space)
            x = torch.ones(2, requires_grad=True)
            y = function(x)
            y.sum().backward()
            found.append((y.tolist(), x.grad.tolist(), len(space["seen"])))
        return found

    compiled = outcome(lambda function: minidynamo.compile(function, backend=backend))
    assert compiled == outcome(lambda function: function)


def test_sample():
    modes = "aot_eager,inductor,eager,aot_eager-training,inductor-training"
    assert not runner.sample(gradients, 16, modes)


@pytest.mark.parametrize("seed", [31828, 34718, 36027, 39308, 3004689, 5006020])
def test_programs_of_inference_mode_and_of_writes(seed):
    """Found by the generator; the fourth adds a row of a matrix to it, the fifth gives `.data`."""
    kept = {34718: "inductor-dynamic", 5006020: "inductor-dynamic", 3004689: "aot_eager"}
    mode = kept.get(seed, "aot_eager-training")
    [mode] = modes.chosen(mode)
    assert gradients.check(seed, mode) == ""


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("kind", [ValueError, KeyError, AssertionError, TypeError, RuntimeError])
def test_a_backward_that_raises_does_so_when_it_is_asked(kind, backend):
    """The compiler calls it in the first call already, to trace it."""

    class Raising(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise kind("backward")

    minidynamo.reset()
    compiled = minidynamo.compile(lambda x: Raising.apply(x).sum(), backend=backend)
    with minidynamo.config.patch(raise_internal_errors=True):
        for _ in range(2):
            loss = compiled(torch.ones(3, requires_grad=True))
            assert loss == 6
            with pytest.raises(kind, match="backward"):
                loss.backward()


VIEWS = {
    "view": lambda x: x.view(-1),
    "unbind": lambda x: x.unbind(0)[0],
    "split": lambda x: x.split(1)[1].expand(2, 2),
    "chunk": lambda x: torch.chunk(x, 2)[0],
}


@BACKENDS
@pytest.mark.parametrize("view", VIEWS)
def test_what_eager_refuses_of_a_view_that_was_made_inside(view, backend):
    """Behind a graph break nobody would know that it is one."""

    def g(x):
        y = VIEWS[view](x * 2)
        y += 1
        return y

    x = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="detach views in-place"):
        minidynamo.compile(lambda x: VIEWS[view](x * 2).detach_(), backend=backend)(x)
    if view in ("unbind", "chunk"):
        with pytest.raises(RuntimeError, match="modified inplace"):
            minidynamo.compile(g, backend=backend)(x)


@BACKENDS
@pytest.mark.parametrize("kind", ["no-grad view", "view of result", "inference"])
def test_a_piece_that_is_given_a_view_that_was_written_in_another_mode(kind, backend):
    """Whether it is a leaf, autograd then does not say."""

    def f(x):
        with torch.enable_grad():
            x.view(-1).mul_(3)
        return x + 1

    x, expected = gradients.tensor_of(kind, 0), gradients.tensor_of(kind, 0)
    with torch.inference_mode(), minidynamo.config.patch(raise_internal_errors=True):
        with miniinductor.config.patch(raise_internal_errors=True):
            out = minidynamo.compile(f, backend=backend)(x)
        assert out.tolist() == f(expected).tolist() and x.tolist() == expected.tolist()


@BACKENDS
@pytest.mark.parametrize("needed", [False, True])
def test_requires_grad_in_a_graph_that_turns_gradients_on(needed, backend):
    """A piece would take the tensor for what it is when the graph ends."""

    def f(x, w):
        torch.set_grad_enabled(True)
        y = w * 2
        x.requires_grad_(not needed)
        return x * y

    x, w = torch.ones(3, requires_grad=needed), torch.ones(3, requires_grad=True)
    with torch.no_grad():
        out = minidynamo.compile(f, backend=backend)(x, w)
    assert x.requires_grad is not needed
    out.sum().backward()
    assert w.grad.tolist() == [2.0] * 3 and (x.grad is None) is needed
