"""Autograd functions, requires_grad, views of inputs: the same history as eager."""

import pytest
import torch

import minidynamo
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
@pytest.mark.parametrize("is_leaf", [True, False])
def test_detached_then_written(backend, is_leaf):
    def f(w, x):
        w.detach_()
        w.add_(x)
        return w * 2

    leaf, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    w = leaf if is_leaf else leaf * 2
    minidynamo.compile(f, backend=backend)(w, x).sum().backward()
    assert leaf.grad is None and w.requires_grad and not w.is_leaf
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


@BACKENDS
def test_as_strided_around_a_part_of_what_is_written_later(backend):
    def f(x):
        whole = x * 2
        around = whole[2:4].as_strided((3,), (1,), 0)
        whole.mul_(3)
        return around * 5

    x = torch.ones(6, requires_grad=True)
    minidynamo.compile(f, backend=backend)(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([30.0, 30.0, 30.0, 0.0, 0.0, 0.0]))


@BACKENDS
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_views_of_leaves_without_gradients(backend, mode):
    x = torch.ones(4, requires_grad=True)
    with mode():
        view = minidynamo.compile(lambda x: x.view(2, 2), backend=backend)(x)
    assert view.requires_grad and view.is_leaf and view._base is x


@BACKENDS
@pytest.mark.parametrize("view", ["view_as", "t", "detach"])
def test_a_view_alone_that_inference_mode_has_made_of_a_result(backend, view):
    """It needs gradients as what it is a view of, which nobody else has."""

    def f(w):
        whole = w * 2
        with torch.inference_mode():
            return whole.view_as(whole) if view == "view_as" else getattr(whole, view)()

    def state(function):
        out = function(torch.ones(2, 2, requires_grad=True))
        return out.requires_grad, out.is_leaf, out.grad_fn, out.is_inference()

    assert state(minidynamo.compile(f, backend=backend)) == state(f)


class SavesSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (w,) = ctx.saved_tensors
        return gradient.expand(w.shape), None


@BACKENDS
@pytest.mark.parametrize("f", [lambda x, w: SavesSecond.apply(x, w), lambda x, w: x * w * 0 + x])
def test_what_inference_mode_has_made_cannot_be_saved(backend, f):
    """Not by an entry either that was compiled for other tensors."""
    minidynamo.reset()
    compiled, x = minidynamo.compile(f, backend=backend), torch.ones(3, requires_grad=True)
    for _ in range(3):  # at the second one the memo of the guards remembers
        compiled(x, torch.ones(3))
    with torch.inference_mode():
        made = torch.ones(3)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        compiled(x, made)


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


@BACKENDS
def test_a_custom_function_that_reads_constants_is_part_of_the_graph(backend):
    space = {"__name__": "program"}
    exec(
        READ_BY_FUNCTIONS.replace("FORWARD", "x * Mine.k + number").replace(
            "BACKWARD", "torch.cos(g)"
        ),
        space,
    )
    minidynamo.reset()
    mine = space["Mine"]
    compiled = minidynamo.compile(lambda x: mine.apply(x).sin(), backend=backend)
    compiled(torch.ones(2, requires_grad=True)).sum().backward()
    assert not minidynamo.counters["graph_breaks"]


@BACKENDS
def test_a_write_to_a_view_reaches_the_input(backend):
    x, w = torch.ones(4), torch.full((2, 2), 3.0, requires_grad=True)
    view = minidynamo.compile(lambda x: x.view(2, 2), backend=backend)(x)
    view.mul_(w)
    x.sum().backward()
    torch.testing.assert_close(w.grad, torch.ones(2, 2))


class SecondIsFree(torch.autograd.Function):
    """Its second input has a place in the history, and no gradient."""

    @staticmethod
    def forward(ctx, x, w):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


@BACKENDS
def test_no_gradient_is_not_a_gradient_of_zeros(backend):
    leaf, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    minidynamo.compile(lambda x, w: SecondIsFree.apply(x, w), backend=backend)(
        x, leaf * 1
    ).sum().backward()
    assert leaf.grad is None and x.grad is not None


@BACKENDS
def test_hooks_hear_nothing_of_what_is_not_used(backend):
    heard = []
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    x.register_hook(heard.append)
    minidynamo.compile(lambda x, w: (x.detach() * w, x.shape), backend=backend)(x, w)[
        0
    ].sum().backward()
    assert not heard


@BACKENDS
def test_writes_through_data_are_not_counted(backend):
    x = torch.ones(3, requires_grad=True)
    product = x * x
    minidynamo.compile(lambda x: x.data.mul_(1.0) + 1, backend=backend)(x)
    assert x._version == 0
    product.sum().backward()


@BACKENDS
def test_results_can_be_detached_and_written(backend):
    with torch.no_grad():
        out = minidynamo.compile(lambda x: x.transpose(0, 1).reshape(-1) * 1, backend=backend)(
            torch.ones(2, 3)
        )
    out.detach_()
    assert out.mul_(torch.ones(6, requires_grad=True)).requires_grad


@BACKENDS
def test_a_refusal_in_inference_mode_leaves_the_thread_as_it_was(backend):
    def f(x):
        with torch.inference_mode():
            x.detach_()
        return x * 2

    x = torch.ones(2, 2, requires_grad=True) * 1
    minidynamo.compile(f, backend=backend)(x)  # no backend but the first takes the graph
    assert not torch.is_inference_mode_enabled()
    assert torch.ones(2).tolist() == [1.0, 1.0]


@BACKENDS
def test_a_view_that_autograd_refuses(backend):
    x = torch.ones(4, requires_grad=True) * 1
    with torch.no_grad():
        view = x.view(2, 2)
    x.mul_(2)
    assert minidynamo.compile(lambda view: view.shape, backend=backend)(view) == (2, 2)


@BACKENDS
@pytest.mark.parametrize("dynamic", [None, True])
def test_views_of_what_was_made_in_inference_mode(backend, dynamic):
    """Outside of that mode an entry for such a tensor is none for others, nor the other way."""

    def f(w):
        return w.view(-1), w + 1

    def state(results):
        return [(t.is_inference(), t._is_view()) for t in results]

    with torch.inference_mode():
        made = torch.ones(2, 2)
    minidynamo.reset()
    compiled = minidynamo.compile(f, backend=backend, dynamic=dynamic)
    for w in (made, torch.ones(2, 2), made):
        assert state(compiled(w)) == state(f(w))


def test_sample():
    modes = "aot_eager,inductor,eager,aot_eager-training,inductor-training"
    assert not runner.sample(gradients, 40, modes)


@pytest.mark.parametrize("seed", [31828, 34718, 36027, 39308])
def test_programs_of_inference_mode_and_of_writes_that_read_themselves(seed):
    """Found by the generator; the last one adds a row of a matrix to the matrix."""
    mode = "inductor-dynamic" if seed == 34718 else "aot_eager-training"
    [mode] = modes.chosen(mode)
    assert gradients.check(seed, mode) == ""


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("function", [torch.linalg.eig, torch.linalg.svd, torch.svd])
def test_a_loss_of_a_complex_vectors_phase_is_refused_as_in_eager(function, backend):
    minidynamo.reset()
    x = torch.eye(3, dtype=torch.complex64) + torch.arange(9).view(3, 3) / 7j
    results = minidynamo.compile(lambda v: function(v), backend=backend)(x.requires_grad_())
    loss = sum(
        (part * torch.arange(1, part.numel() + 1).view(part.shape)).sum() for part in results
    )
    with pytest.raises(RuntimeError, match="complex"):
        loss.abs().backward()


@BACKENDS
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_view_made_without_gradients_is_written_and_read(backend, dynamic):
    """Eager refuses the sum, though nobody uses it."""

    def f(x, view):
        with torch.no_grad():
            view.mul_(2)
        x + view
        return x * 2

    compiled = minidynamo.compile(f, backend=backend, dynamic=dynamic)
    for function in (f, compiled):
        leaf = torch.ones(2, 2, requires_grad=True)
        with torch.no_grad():
            view = leaf.view(2, 2)
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            function(torch.ones(2, 2), view)


@BACKENDS
def test_hooks_of_results_that_no_loss_reaches(backend):
    """Eager calls none but where the same operation has a result that is reached."""

    def f(x):
        return x * 2, x.sin(), torch.var_mean(x)

    def happened(function):
        said, x = [], torch.arange(4.0).requires_grad_()
        first, second, (variance, mean) = function(x)
        for name, tensor in {"first": first, "second": second, "mean": mean}.items():
            tensor.register_hook(lambda g, name=name: said.append((name, g is None)))
            removed = tensor.register_hook(lambda g: said.append("removed"))
            tensor.register_hook(lambda g: None if g is None else g * 3)
            removed.remove()
        several = said.append
        torch.autograd.graph.register_multi_grad_hook((first, second), lambda gs: several(len(gs)))
        (first.sum() + variance).backward()
        return sorted(map(str, said)), x.grad

    (want, want_grad), (got, got_grad) = (
        happened(f),
        happened(minidynamo.compile(f, backend=backend)),
    )
    assert want == got
    torch.testing.assert_close(want_grad, got_grad)


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


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_view_of_a_leaf_made_inside_is_not_written(backend):
    """Behind the write, which breaks the graph, the view has to be one of a leaf still."""

    def run(x):
        leaf = torch.ones(2, 2, requires_grad=True)
        y = x.sin()
        leaf.view(-1).mul_(3)
        return y

    x = torch.randn(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        run(x)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        minidynamo.compile(run, backend=backend)(x)
