"""Compiled code that is differentiated twice, with `config.double_backward = "eager"`."""

import pytest
import torch
import torch.nn.functional as F

import minidynamo
import miniinductor.config

BACKENDS = ("aot_eager", "inductor")


@pytest.fixture(autouse=True)
def by_eager_formulas():
    with miniinductor.config.patch(double_backward="eager"):
        yield


def compare(make, calls, backend="aot_eager", dynamic=None):
    """`make()` gives (function, step); step(function, argument) gives tensors, the same with the
    function compiled.  Afterwards the random state is the same, too."""
    found = []
    minidynamo.reset()
    for is_compiled in (False, True):
        torch.manual_seed(0)
        function, step = make()
        if is_compiled:
            function = minidynamo.compile(function, backend=backend, dynamic=dynamic)
        rows = []
        for argument in calls:
            torch.manual_seed(1)
            rows.append([*step(function, argument), torch.rand(2)])
        found.append(rows)
    torch.testing.assert_close(found[1], found[0])
    assert not minidynamo.counters["errors"]
    return minidynamo.counters["frames"]


def gradients_of(model):
    """Of its parameters; nothing for one that has none."""
    found = [parameter.grad for parameter in model.parameters()]
    return [torch.zeros(0) if gradient is None else gradient.clone() for gradient in found]


# --- the three kinds of program -------------------------------------------------------------------
def gradient_penalty():
    """WGAN-GP: the critic's slope at points between real and made ones is to be 1."""
    sizes = torch.nn.Linear(6, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
    critic = torch.nn.Sequential(
        sizes[0],
        torch.nn.LeakyReLU(0.2),
        torch.nn.Dropout(0.3),
        sizes[1],
        torch.nn.LayerNorm(8),
        torch.nn.Tanh(),
        sizes[2],
    )

    def step(critic_of, count):
        mixed = torch.randn(count, 6).requires_grad_()
        score = critic_of(mixed)
        [slope] = torch.autograd.grad(score.sum(), mixed, create_graph=True)
        critic.zero_grad()
        (score.mean() + 10 * (slope.norm(dim=1) - 1).square().mean()).backward()
        return [score.detach(), slope.detach(), *gradients_of(critic)]

    return critic, step


def heat_equation():
    """A physics-informed net: u_t = u_xx at some points."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def u(x, t):
        return model(torch.stack([x, t], 1)).squeeze(1)

    def step(u_of, count):
        x, t = torch.rand(2, count).requires_grad_().unbind()
        by_x, by_t = torch.autograd.grad(u_of(x, t).sum(), (x, t), create_graph=True)
        [by_xx] = torch.autograd.grad(by_x.sum(), x, create_graph=True)
        model.zero_grad()
        (by_t - by_xx).square().mean().backward()
        return [by_xx.detach(), *gradients_of(model)]

    return u, step


def hessian_times_vector():
    weights = torch.randn(3, 5).requires_grad_()

    def loss(weights, x, y):
        return F.cross_entropy(x @ weights.t(), y)

    def step(loss_of, count):
        x, y, vector = torch.randn(count, 5), torch.randint(0, 3, (count,)), torch.randn(3, 5)
        [gradient] = torch.autograd.grad(loss_of(weights, x, y), weights, create_graph=True)
        [product] = torch.autograd.grad((gradient * vector).sum(), weights, retain_graph=True)
        [again] = torch.autograd.grad((gradient * vector).sum(), weights)
        return product, again

    return loss, step


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [gradient_penalty, heat_equation, hessian_times_vector])
def test_programs_that_differentiate_twice(make, backend):
    compare(make, [4, 7, 5], backend)  # the second size makes it dynamic


@pytest.mark.parametrize("make", [gradient_penalty, heat_equation, hessian_times_vector])
def test_with_dynamic_sizes_from_the_first_call_on(make):
    assert set(compare(make, [4, 7], dynamic=True).values()) == {1}


# --- what the captured graph knows, and a traced one would not ------------------------------------
def stopped(x):
    """Its gradient stops at two places."""
    with torch.no_grad():
        scale = x.exp()
    return x.sin() * scale + x.detach() * x**3


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0] ** 2  # (2 instead of 3: its own formula counts)


def several_outputs(x):
    y = x.sin() * x
    return y[0], y[1:] * 2, x.t(), y.sum(), Cube.apply(x)


@pytest.mark.parametrize("program", [stopped, Cube.apply, lambda x: F.dropout(x, 0.5) * x**2])
def test_gradients_that_stop_custom_functions_and_random_numbers(program):
    def make():
        leaf = torch.linspace(-1, 1, 6).requires_grad_()

        def step(function, power):
            x = leaf * 2  # no leaf
            [slope] = torch.autograd.grad(
                function(x).sum() + (x**power).sum(), leaf, create_graph=True
            )
            [second] = torch.autograd.grad(slope.sum(), leaf, create_graph=True)
            return slope.detach(), second.detach()

        return lambda x: program(x), step

    compare(make, [2, 3])


def test_several_outputs_that_share_memory_and_arrive_in_turn():
    def make():
        leaf = torch.randn(3, 3).requires_grad_()

        def step(function, which):
            out = function(leaf)[which]
            [slope] = torch.autograd.grad(out.square().sum(), leaf, create_graph=True)
            return torch.autograd.grad(slope.sum(), leaf)

        return several_outputs, step

    compare(make, range(5))


def test_arguments_that_are_made_of_one_another():
    def make():
        leaf = torch.randn(4).requires_grad_()

        def step(function, factor):
            x = leaf.sin()
            [slope] = torch.autograd.grad(function(x, x * factor).sum(), x, create_graph=True)
            return slope.detach(), *torch.autograd.grad(slope.sum(), leaf)

        return lambda x, y: x**2 * y**3, step

    compare(make, [2.0, 3.0])


def test_statistics_are_written_once_a_call():
    def make():
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())

        def step(function, count):
            x = torch.randn(count, 3).requires_grad_()
            [slope] = torch.autograd.grad(function(x).sum(), x, create_graph=True)
            model.zero_grad()
            slope.square().sum().backward(retain_graph=True)
            slope.sum().backward()
            return [*gradients_of(model), *[b.clone() for b in model.buffers()]]

        return model, step

    compare(make, [5, 5])


def test_autocast_is_what_it_was_when_the_call_was_made():
    def make():
        weight = torch.randn(4, 4).requires_grad_()

        def step(function, count):
            x = torch.randn(count, 4).requires_grad_()
            with torch.autocast("cpu", torch.bfloat16):
                y = function(x, weight)
            [slope] = torch.autograd.grad(y.float().sum(), x, create_graph=True)
            return y.detach(), *torch.autograd.grad(slope.square().sum(), weight)

        return lambda x, weight: torch.tanh(x @ weight), step

    compare(make, [3])


# --- refusals -------------------------------------------------------------------------------------
def refused(function, x, between=lambda x: None, first=None):
    """What the second differentiation raises; the first gives eager's numbers."""
    y = minidynamo.compile(function, backend="inductor")(x)
    between(x)
    [slope] = torch.autograd.grad(y.sum(), x, create_graph=True)
    if first is not None:
        torch.testing.assert_close(slope.detach(), first)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice here") as error:
        slope.sum().backward()
    return str(error.value)


def test_what_cannot_be_run_again_is_refused_by_name():
    def writes(x):
        y = x * 2
        hidden.copy_(y * 3)
        return y.sin() * hidden

    leaf = torch.linspace(-1, 1, 4).requires_grad_()
    hidden = torch.zeros(4).requires_grad_() * 1
    assert "writes to a tensor that needs gradients" in refused(writes, leaf)
    with miniinductor.config.patch(fallback_random=False):
        assert "generated kernels draw" in refused(lambda x: F.dropout(x, 0.5) * x.sin(), leaf)


def test_what_is_written_after_the_call_is_refused_where_it_is_read_again():
    leaf = torch.linspace(-1, 1, 4).requires_grad_()
    other = torch.ones(4)
    reason = refused(lambda x: x.square() + other, leaf, lambda _: other.add_(1), 2 * leaf.detach())
    assert "was modified by an in-place operation" in reason


def test_without_the_option_the_message_names_it():
    with miniinductor.config.patch(double_backward="refuse"):
        x = torch.ones(3, requires_grad=True)
        compiled = minidynamo.compile(lambda x: (x**3).sum())
        [slope] = torch.autograd.grad(compiled(x), x, create_graph=True)
        with pytest.raises(RuntimeError, match="miniinductor.config.double_backward = .eager"):
            slope.sum().backward()
    [slope] = torch.autograd.grad(compiled(x), x, create_graph=True)  # the option is read by calls
    torch.testing.assert_close(torch.autograd.grad(slope.sum(), x)[0], 6 * x)


# --- asked of some tensors alone ------------------------------------------------------------------
# In each of them a gradient is one term of something that is differentiated, and what it depends on
# is asked for by name: autograd runs only what lies in between.
def of_the_leaf(function, leaf):
    [slope] = torch.autograd.grad(function(leaf).sum(), leaf, create_graph=True)
    return torch.autograd.grad(slope.square().sum() + leaf.square().sum(), leaf)


def of_what_may_be_unused(function, leaf):
    [slope] = torch.autograd.grad(function(leaf).sum(), leaf, create_graph=True)
    return torch.autograd.grad(slope.sum(), leaf, allow_unused=True)


def by_backward_with_inputs(function, leaf):
    [slope] = torch.autograd.grad(function(leaf).sum(), leaf, create_graph=True)
    (slope.square().sum() + leaf.square().sum()).backward(inputs=[leaf])
    return (leaf.grad,)


def of_an_inner_step(function, leaf):
    """MAML."""
    [slope] = torch.autograd.grad(function(leaf).sum(), leaf, create_graph=True)
    return torch.autograd.grad(function(leaf - 0.1 * slope).sum(), leaf)


def of_what_has_a_history(function, leaf):
    middle = leaf * 2
    [slope] = torch.autograd.grad(function(middle).sum(), middle, create_graph=True)
    return torch.autograd.grad((middle - slope).square().sum(), middle)


def of_what_is_gone(function, leaf):
    """Nobody but autograd's history knows the function's argument any more."""
    middle = leaf * 2
    [slope] = torch.autograd.grad(function(middle.sin()).sum(), middle, create_graph=True)
    return torch.autograd.grad((middle - slope).square().sum(), middle)


def of_one_of_two(function, leaf):
    first, second = (leaf * 2).unbind()
    result = function(torch.stack([second, first]))
    [slope] = torch.autograd.grad(result.sum(), first, create_graph=True)
    return torch.autograd.grad((first * slope).sum(), second, allow_unused=True)


def of_the_gradient_that_came(function, leaf):
    weight = torch.ones(2, 3, requires_grad=True)
    [slope] = torch.autograd.grad(function(leaf), leaf, weight, create_graph=True)
    return torch.autograd.grad(slope.square().sum() + weight.sum(), weight)


ASKED = [
    of_the_leaf,
    of_what_may_be_unused,
    by_backward_with_inputs,
    of_an_inner_step,
    of_what_has_a_history,
    of_what_is_gone,
    of_one_of_two,
    of_the_gradient_that_came,
]
FUNCTIONS = {  # what is kept for backward: the argument; the result alone; something in between
    "saves its argument": lambda x: x.sin() * x,
    "saves its result": lambda x: x.exp(),
    "saves neither": lambda x: torch.softmax(x * 2, -1) * torch.arange(3.0),
}


@pytest.mark.parametrize("option", ["refuse", "eager"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("asked", ASKED)
def test_a_gradient_is_no_constant_to_whoever_asks_for_one_tensor_alone(
    asked, name, backend, option
):
    function = FUNCTIONS[name]
    values = torch.tensor([[0.5, -1.0, 2.0], [0.3, 0.7, -0.2]])
    expected = asked(function, values.clone().requires_grad_())
    minidynamo.reset()
    with miniinductor.config.patch(double_backward=option):
        compiled = minidynamo.compile(function, backend=backend)
        compiled((values * 2).requires_grad_() * 1)  # what comes first decides what is kept
        if option == "eager":
            found = asked(compiled, values.clone().requires_grad_())
            torch.testing.assert_close(found, expected)
            return
        with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
            asked(compiled, values.clone().requires_grad_())


@pytest.mark.parametrize("first", ["a leaf", "a history"])
def test_what_came_first_does_not_decide_whether_it_is_told(first):
    with miniinductor.config.patch(double_backward="refuse"):
        compiled = minidynamo.compile(lambda x: x.exp())
        leaf = torch.ones(3, requires_grad=True)
        compiled(leaf if first == "a leaf" else leaf * 2)
        for middle in (leaf * 2, leaf):
            with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
                [slope] = torch.autograd.grad(compiled(middle).sum(), middle, create_graph=True)
                torch.autograd.grad((middle - slope).square().sum(), middle)


def test_parameters_of_a_module_are_asked_for_by_name():
    with miniinductor.config.patch(double_backward="refuse"):
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sigmoid())
        loss = minidynamo.compile(model)(torch.randn(5, 3)).square().sum()
        slopes = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        size = sum(slope.square().sum() for slope in slopes)
        for parameter in model.parameters():  # the bias, too, which is not saved
            with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
                torch.autograd.grad(parameter.sum() + size, parameter, retain_graph=True)
