"""Breadth of capture: torch features in a frame, optimizers, generators and handlers that meet a
break.  Each equals plain Python."""

import gc
import logging
import weakref

import pytest
import torch
import torch.utils._pytree as pytree
import torch.utils.checkpoint
from test_capture_language import fresh, make_test, same  # noqa: F401

import minidynamo
from benchmarks.error_bound import assert_near


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


# ---- code that autograd sees whole
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * ctx.n * x ** (ctx.n - 1), None


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_autograd_function(backend):
    def f(x):
        return Scaled.apply(x * 2, 2) + 1

    grads = []
    for function in (f, minidynamo.compile(f, backend=backend)):
        x = X().requires_grad_()
        y = function(x)
        y.sin().sum().backward()
        grads += [y, x.grad]
    torch.testing.assert_close(grads[2:], grads[:2])
    assert counts() == (1, 0)


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


@make_test(X(), graphs=2, breaks=2)
def test_generator_across_a_break(x):
    def steps():
        for i in range(3):
            print(i)
            yield x + i

    total = x * 2
    for value in steps():
        total = total + value
    return total


def test_a_real_generator_is_not_advanced_while_tracing():
    def f(x, numbers):
        return x + next(numbers), next(numbers)

    compiled = minidynamo.compile(f, backend="eager")
    for _ in range(2):
        same(compiled(X(), (n for n in (1, 2, 3))), f(X(), (n for n in (1, 2, 3))))


def test_fork_rng():
    def f(x):
        with torch.random.fork_rng(devices=[]):
            y = torch.rand(3)
        return x + y, torch.rand(3)

    compiled = minidynamo.compile(f, backend="eager")
    for _ in range(2):
        torch.manual_seed(3)
        want = f(X())
        torch.manual_seed(3)
        same(compiled(X()), want)


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


def test_dictionaries_with_tensor_keys_are_guarded():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)

    def f(d, t):
        return t * 2 if t in d else t * 3

    compiled = minidynamo.compile(f, backend="eager")
    for table, tensor in (({a: 1}, a), ({a: 1}, b), ({}, a), ({b: 1}, b)):
        same(compiled(table, tensor), f(table, tensor))


# ---- what a trainer and its helpers write


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_that_keeps_no_random_state(backend, reentrant):
    """Whole where nothing is drawn; where something is, plain Python draws anew in backward."""
    weight = torch.linspace(-1, 1, 9).reshape(3, 3)

    def f(x, p):
        def body(v):
            return torch.nn.functional.dropout(torch.sin(v @ weight), p, training=p > 0)

        return torch.utils.checkpoint.checkpoint(
            body, x, use_reentrant=reentrant, preserve_rng_state=False
        )

    for p, graphs_of_f in ((0.0, 1), (0.5, 0)):
        minidynamo.reset()
        found = []
        for function in (f, minidynamo.compile(f, backend=backend)):
            torch.manual_seed(0)
            x = X().requires_grad_()
            result = function(x, p)
            (result * 3).sum().backward()
            found.append((result.detach(), x.grad, torch.rand(1)))
        same(found[1], found[0])
        broken = minidynamo.counters["graph_breaks"].total()
        assert bool(broken) is not bool(graphs_of_f)


def test_a_class_of_modules_may_be_marked_static():
    assert minidynamo.mark_static(torch.nn.Linear) is torch.nn.Linear
    for wrong in (torch.nn.Linear(2, 2), 3, int):
        with pytest.raises(TypeError, match="a tensor or a class of modules"):
            minidynamo.mark_static(wrong)


# ---- state dictionaries: an OrderedDict with an attribute


# ---- weak references as keys


def test_weak_keys_written_in_a_frame():
    def f(x, layer, cache):
        if layer not in cache:
            cache[layer] = torch.zeros(2)
        cache[layer] = cache[layer] + x.sum(1)
        return layer(x) + cache[layer].sum()

    results = []
    for function in (f, minidynamo.compile(f, backend="eager")):
        torch.manual_seed(0)
        layers, cache = [torch.nn.Linear(3, 3) for _ in range(2)], weakref.WeakKeyDictionary()
        found = [function(X(), layers[n % 2], cache) for n in range(5)]
        found.append([cache[layer] for layer in layers])
        del layers[0]
        gc.collect()
        results.append((found, len(cache)))  # what dies is gone from it
    same(results[1], results[0])


# ---- functions of C that walk what they are given


# ---- what torch.compile captures whole
LINEAR = torch.nn.Linear(3, 3)


class Word(str):
    pass


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor, self.act = factor, torch.nn.ReLU()
        self.register_buffer("one", torch.ones(3))

    def forward(self, x):
        return self.act(x) * self.factor + self.one


def new_modules(x):
    head = torch.nn.Sequential(torch.nn.ModuleList([LINEAR, torch.nn.Tanh()])[0], Scale(x.shape[0]))
    head.eval()
    both = [head(x), head[1:](x), torch.nn.TripletMarginWithDistanceLoss()(x, x + 1, x * 2)]
    return both, [name for name, _ in head.named_parameters()], len([*head.modules()])


def a_module_cast_to_what_it_is(x):
    return LINEAR.to(torch.float32)(x) + LINEAR.cpu()(x)


def trees_of_one_kind(x):
    return pytree.tree_map_only(torch.Tensor, lambda value: value * 2, [x, 3, {"k": x}])


def words(x):
    word = Word("ab")
    y = x * len(word) * torch.mul(x, THREE) - Number(2)
    return y, word.upper(), WORD.title(), Number(4).twice(), THREE + 1


class Number(int):
    def twice(self):
        return self * 2


WORD, THREE = Word("cd"), Number(3)


@pytest.mark.parametrize(
    "function",
    [*(new_modules, a_module_cast_to_what_it_is), trees_of_one_kind, words],
    ids=lambda function: function.__name__,
)
def test_one_graph(function):
    compiled = minidynamo.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        same(compiled(X()), function(X()))
    assert counts() == (1, 0)


def test_a_module_assigned_in_forward():
    class Lazy(torch.nn.Module):
        def forward(self, x):
            if not hasattr(self, "pool"):
                self.pool = torch.nn.AvgPool1d(2) if x.shape[0] == 2 else torch.nn.Identity()
            return self.pool(x)

    for rows in (2, 3):
        ours, plain = Lazy(), Lazy()
        compiled = minidynamo.compile(ours, backend="eager", fullgraph=True)
        for _ in range(2):
            same(compiled(torch.ones(rows, 4)), plain(torch.ones(rows, 4)))
        assert str(ours) == str(plain)
