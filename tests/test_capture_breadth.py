"""torch in a frame: autocast, optimizers, checkpoints, generators that come from outside.  Each
equals plain Python."""

import gc
import logging
import weakref

import pytest
import torch
import torch.utils.checkpoint
from test_capture_language import same

import minidynamo
from benchmarks.error_bound import assert_near

pytestmark = pytest.mark.usefixtures("anew")


def X():
    return torch.arange(6.0).reshape(2, 3) / 7 + 0.1


def counts():
    return minidynamo.counters["graphs"].total(), len(minidynamo.counters["graph_breaks"])


# ---- the thread's state
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_autocast_entered_in_a_frame(backend):
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.T
            with torch.autocast("cpu", enabled=False):
                z = x @ x.T
        return y, z, x @ x.T

    compiled = minidynamo.compile(f, backend=backend)
    for _ in range(2):
        same(compiled(X()), f(X()))
        assert not torch.is_autocast_enabled("cpu")
        torch.autocast_increment_nesting()
        assert torch.autocast_decrement_nesting() == 0
    assert counts() == (1, 0)


def test_a_break_inside_autocast_keeps_its_depth(capsys):
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            print("here")
            return y, y @ w, torch.is_autocast_enabled("cpu")

    w = torch.eye(3, requires_grad=True)
    compiled = minidynamo.compile(f, backend="eager")
    for _ in range(2):
        same(compiled(X(), w), f(X(), w))
        torch.autocast_increment_nesting()
        assert torch.autocast_decrement_nesting() == 0 and not torch.is_autocast_enabled("cpu")


def test_state_is_restored_when_the_graph_fails():
    def f(x, n):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            return x[n]

    compiled = minidynamo.compile(f, backend="eager")
    compiled(X(), torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(X(), torch.tensor([7]))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


# ---- optimizers: `step` is one graph
STEPS = {
    "SGD": dict(lr=0.1),
    "SGD-momentum": dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": {},
    "AdamW": dict(amsgrad=True),
    "SGD-foreach": dict(lr=0.1, momentum=0.9, foreach=True),
    "Adam-foreach": dict(foreach=True),
    "AdamW-foreach": dict(foreach=True),
    "Adam-fused": dict(fused=True),
    "RMSprop": {},
    "Adagrad": dict(lr_decay=0.1),
}


@pytest.mark.parametrize("name", STEPS)
def test_optimizer_step(name):
    def train(compiled):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        optimizer = getattr(torch.optim, name.partition("-")[0])(model.parameters(), **STEPS[name])
        step = minidynamo.compile(optimizer.step, backend="eager") if compiled else optimizer.step
        for n in range(6):
            optimizer.zero_grad()
            model(X() + n).square().sum().backward()
            step()
        return list(model.parameters()), [
            list(state.values()) for state in optimizer.state.values()
        ]

    for got, want in zip(train(True), train(False)):
        assert_near(got, want)
    graphs, breaks = counts()
    assert (
        breaks == 0 and 1 <= graphs <= 2 and minidynamo.counters["recompiles"].total() <= 1
    )  # the first step makes the state


def test_optimizer_entries_die_with_it():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(X()).sum().backward()
    minidynamo.compile(optimizer.step, backend="eager")()
    parameter, seen = weakref.ref(model.weight), weakref.ref(optimizer)
    del model, optimizer
    gc.collect(), gc.collect()  # the optimizer, whose death drops the entry; then the entry
    assert seen() is None and parameter() is None


# ---- breaks in awkward places
def test_a_real_generator_is_not_advanced_while_tracing():
    def f(x, numbers):
        return x + next(numbers), next(numbers)

    compiled = minidynamo.compile(f, backend="eager")
    for _ in range(2):
        same(compiled(X(), (n for n in (1, 2, 3))), f(X(), (n for n in (1, 2, 3))))


# ---- language
def test_what_is_assumed_of_pinned_objects_is_checked():
    """A builtin that a global hides later, a logger's level, hooks on all modules."""
    namespace = {"logger": logging.getLogger("minidynamo.test"), "linear": torch.nn.Linear(3, 3)}
    exec("def f(x):\n    logger.debug('seen')\n    return linear(x) * len(x)", namespace)
    f, seen = namespace["f"], []
    compiled = minidynamo.compile(f, backend="eager")
    same(compiled(X()), f(X()))
    namespace["len"] = lambda x: 10
    same(compiled(X()), f(X()))
    del namespace["len"]
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, args, result: result + 1
    )
    same(compiled(X()), f(X()))
    hook.remove()
    logger = namespace["logger"]
    logger.addFilter(lambda record: seen.append(record.getMessage()) or False)
    logger.setLevel(logging.DEBUG)
    compiled(X())
    logger.setLevel(logging.WARNING)
    assert seen == ["seen"]


# ---- what a trainer and its helpers write
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_that_keeps_no_random_state(backend, reentrant):
    """A graph break: where something is drawn, plain Python draws anew in backward."""
    weight = torch.linspace(-1, 1, 9).reshape(3, 3)

    def f(x, p):
        def body(v):
            return torch.nn.functional.dropout(torch.sin(v @ weight), p, training=p > 0)

        return torch.utils.checkpoint.checkpoint(
            body, x, use_reentrant=reentrant, preserve_rng_state=False
        )

    for p in (0.0, 0.5):
        minidynamo.reset()
        found = []
        for function in (f, minidynamo.compile(f, backend=backend)):
            torch.manual_seed(0)
            x = X().requires_grad_()
            result = function(x, p)
            (result * 3).sum().backward()
            found.append((result.detach(), x.grad, torch.rand(1)))
        same(found[1], found[0])
        assert minidynamo.counters["graph_breaks"].total()
