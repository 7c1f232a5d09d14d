"""Training in the world: mixed precision, random numbers, optimizers."""

import copy

import pytest
import torch
import torch.nn.functional as F
from test_training import BACKENDS, Net, check, clean, compiled_records, plain, same_state, x  # noqa: F401  # noqa: F401

import minidynamo
import miniinductor.compile
from benchmarks.error_bound import assert_near


# --- random numbers -------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", BACKENDS)
def test_dropout_is_reproducible_and_backward_agrees(backend):
    compiled = minidynamo.compile(lambda x: F.dropout(x, 0.5), backend=backend)
    a = x(100, 10)
    torch.manual_seed(3)
    first = compiled(a)
    (gradient,) = torch.autograd.grad(first.sum(), a)
    assert torch.equal(gradient != 0, first != 0) and 300 < int((first != 0).sum()) < 700
    torch.manual_seed(3)
    assert torch.equal(compiled(a), first)
    assert not torch.equal(compiled(a), first)


def test_our_own_numbers_are_well_spread():
    def f(x):
        return (
            torch.rand_like(x),
            torch.randn_like(x),
            F.dropout(x, 0.25),
            torch.bernoulli(torch.full_like(x, 0.7)),
            torch.rand(1000, 100),
        )

    compiled = minidynamo.compile(f)
    with miniinductor.config.patch(fallback_random=False), torch.no_grad():
        torch.manual_seed(1)
        first = compiled(torch.ones(1000, 100))
        torch.manual_seed(1)
        again, other = compiled(torch.ones(1000, 100)), compiled(torch.ones(1000, 100))
    uniform, normal, dropped, coin, more = first
    assert all(torch.equal(a, b) for a, b in zip(first, again)) and not any(
        torch.equal(a, b) for a, b in zip(first, other)
    )
    for values, mean, deviation in (
        (uniform, 0.5, 12**-0.5),
        (more, 0.5, 12**-0.5),
        (normal, 0.0, 1.0),
        (dropped, 1.0, 3**-0.5),
        (coin, 0.7, 0.21**0.5),
    ):
        assert (
            abs(values.mean() - mean) < 4 * deviation / 1e5**0.5 * 1.5
            and abs(values.std() - deviation) < 0.01
        )
    assert 0 <= uniform.min() and uniform.max() < 1 and len(uniform.unique()) > 99_000
    for values in (uniform, normal):  # neighbours, rows and the two streams are not correlated
        pairs = torch.stack(
            [
                values.flatten()[:-100],
                values.flatten()[1:-99],
                values.flatten()[100:],
                more.flatten()[:-100],
            ]
        )
        assert (torch.corrcoef(pairs) - torch.eye(4)).abs().max() < 0.015
    assert dropped.unique().allclose(torch.tensor([0.0, 1 / 0.75]))


@pytest.mark.parametrize("how", ["min-cut", "save-everything", "recompute-all"])
def test_our_own_dropout_is_computed_again_in_backward(how):
    compiled = minidynamo.compile(lambda x: F.dropout(F.dropout(x.sin(), 0.5).exp() * 2, 0.2))
    with miniinductor.config.patch(fallback_random=False, partition=how):
        a = x(100, 10)
        torch.manual_seed(3)
        out = compiled(a)
        (gradient,) = torch.autograd.grad(out.sum(), a)
        inner = gradient != 0  # a second draw would differ
        assert torch.equal(inner, (out != 0) & (out != 2.5)) and 300 < int(inner.sum()) < 500
        torch.testing.assert_close(gradient[inner], (out * 2 * a.cos())[inner].detach())
    (record,) = compiled_records()
    if how != "save-everything":  # seeds and x
        assert sum(s.bytes for s in record.saved if not s.is_input) == 16


# --- mixed precision ------------------------------------------------------------------------------
def amp_step(model, run, data, target, scaler=None):
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(run(data), target)
    (scaler.scale(loss) if scaler else loss).backward()
    return loss


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_around(backend):
    model = Net().eval()
    reference = copy.deepcopy(model)
    compiled = minidynamo.compile(model, backend=backend)
    data, target = torch.randn(16, 6), torch.randint(0, 3, (16,))
    for _ in range(2):
        assert_near(
            amp_step(model, compiled, data, target), amp_step(reference, reference, data, target)
        )
        same_state(model, reference, 2e-2)
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(data).dtype == torch.bfloat16
    assert compiled(data).dtype == torch.float32  # another entry: the state is guarded
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert_near(compiled(data), reference(data))
    with torch.autocast("cpu", torch.float16):
        assert compiled(data).dtype == torch.float16


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_inside(backend):
    def f(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
        return y.float().softmax(-1), y

    compiled = minidynamo.compile(f, backend=backend)
    a, w = x(5, 6), x(6, 4)
    for ours, eager in zip(compiled(a, w), f(a, w)):
        assert ours.dtype == eager.dtype
        assert_near(ours, eager)
    assert_near(
        torch.autograd.grad(compiled(a, w)[0][:, 0].sum(), [a, w]),
        torch.autograd.grad(f(a, w)[0][:, 0].sum(), [a, w]),
    )


def test_grad_scaler():
    model = Net().eval()
    reference = copy.deepcopy(model)
    compiled = minidynamo.compile(model)
    data, target = torch.randn(16, 6), torch.randint(0, 3, (16,))
    for m, run in ((model, compiled), (reference, reference)):
        optimizer, scaler = (
            torch.optim.SGD(m.parameters(), 0.1),
            torch.amp.GradScaler("cpu", init_scale=1024.0),
        )
        for _ in range(3):
            amp_step(m, run, data, target, scaler)
            scaler.step(optimizer)
            scaler.update()
    same_state(model, reference, 2e-2)


# --- optimizers -----------------------------------------------------------------------------------
def adamw(
    params, grads, means, squares, steps, lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-8, decay=1e-2
):
    """torch.optim.AdamW's step over lists (foreach, capturable), as the optimizer writes it."""
    torch._foreach_add_(steps, 1)
    torch._foreach_mul_(params, 1 - lr * decay)
    torch._foreach_lerp_(means, grads, 1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
    first, second = torch._foreach_pow(beta1, steps), torch._foreach_pow(beta2, steps)
    torch._foreach_sub_(first, 1), torch._foreach_sub_(second, 1)
    torch._foreach_div_(first, lr), torch._foreach_reciprocal_(first)
    torch._foreach_neg_(second), torch._foreach_sqrt_(second)
    divisor = torch._foreach_sqrt(squares)
    (
        torch._foreach_div_(divisor, second),
        torch._foreach_add_(divisor, eps),
        torch._foreach_div_(divisor, first),
    )
    torch._foreach_addcdiv_(params, means, divisor)


def test_an_adamw_step_over_lists_fuses_into_one_kernel_per_parameter():
    shapes = [(8, 8), (8,), (16, 8), (16,), (4, 16)]
    state = [[torch.rand(s) for s in shapes] for _ in range(4)] + [
        [torch.tensor(2.0) for _ in shapes]
    ]
    ours, eager = copy.deepcopy(state), state
    graph = torch.fx.Graph()
    lists = [[graph.placeholder(f"t{i}_{k}") for k in range(len(shapes))] for i in range(5)]
    graph.call_function(adamw, tuple(lists))
    graph.output(())
    with torch.no_grad():
        compiled = miniinductor.compile_fx(
            torch.fx.GraphModule(torch.nn.Module(), graph), [t for group in ours for t in group]
        )
        for _ in range(3):
            compiled(*[t for group in ours for t in group])
            adamw(*eager)
    torch.testing.assert_close(ours, eager)
    assert len(compiled.record.kernels) <= 2 * len(shapes) and not compiled.record.fallbacks


OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, dict(momentum=0.9, weight_decay=0.1)),
    "nesterov": (torch.optim.SGD, dict(momentum=0.9, nesterov=True)),
    "dampening": (torch.optim.SGD, dict(momentum=0.9, dampening=0.1)),
    "Adam": (torch.optim.Adam, dict(weight_decay=0.1)),
    "amsgrad": (torch.optim.Adam, dict(amsgrad=True)),
    "AdamW": (torch.optim.AdamW, {}),
    "AdamW amsgrad": (torch.optim.AdamW, dict(amsgrad=True, maximize=True)),
    "RMSprop": (torch.optim.RMSprop, dict(momentum=0.9)),
    "Adagrad": (torch.optim.Adagrad, {}),
}


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_compiled_step_is_right(name, foreach):
    """20 steps; state that the first step makes; a learning rate that changes with every step
    compiles once more, not 20 times."""
    kind, options = OPTIMIZERS[name]
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    reference = copy.deepcopy(model)
    optimizers = [
        kind(m.parameters(), 0.01, foreach=foreach, **options) for m in (model, reference)
    ]
    schedules = [
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30) for optimizer in optimizers
    ]
    steps = [minidynamo.compile(optimizers[0].step), optimizers[1].step]
    for _ in range(20):
        for m, optimizer, step, schedule in zip((model, reference), optimizers, steps, schedules):
            optimizer.zero_grad()
            m(torch.arange(8.0).view(2, 4) / 8).square().sum().backward()
            step()
            schedule.step()
        same_state(model, reference, 1e-5)
    made = [r for r in compiled_records() if r.backward is None and not r.joint_graph]
    assert 1 <= len(made) <= 3 and all(
        1 <= len(r.kernels) <= 5 and not r.fallbacks for r in made
    ), [len(r.kernels) for r in made]
    assert not minidynamo.counters["graph_breaks"]
    assert [
        reason
        for reason in minidynamo.counters[
            "skipped"
        ]  # gc_callback: hypothesis's, wherever garbage is collected
        if "no tensor operation to compile" not in reason and not reason.startswith("gc_callback: ")
    ] == []
