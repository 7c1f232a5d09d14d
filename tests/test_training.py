"""Training: gradients, buffers, hooks and aliasing of compiled code are eager's; the eight pitfalls
of a joint graph."""

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree

import minidynamo
import miniinductor
from minidynamo import records
from tests.soundness.tables import rows

BACKENDS = ["aot_eager", "inductor"]


@pytest.fixture(autouse=True)
def clean(anew):
    torch.manual_seed(0)


def compiled_records():
    return [f.backend_record for f in records.frames if f.backend_record is not None]


def tensors(value):
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def run(function, inputs, seed=1):
    """(outputs, gradients of the inputs, inputs as they are afterwards): every differentiable
    output reaches the loss."""
    leaves = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    # no leaves: the program may write to them
    used = [t.clone() if t.requires_grad else t for t in leaves]
    sources = [t for t in leaves if t.requires_grad]
    torch.manual_seed(seed)
    outputs = function(*used)
    loss = sum(
        (t * torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).view(t.shape)).sum()
        for t in [*tensors(outputs), *used]
        if t.requires_grad
    )
    return outputs, torch.autograd.grad(loss, sources, allow_unused=True), used


def check(function, *inputs, backend="inductor", eagerly=False):
    """Compiled `function` does what eager does, twice; returns the CompileRecords."""
    compiled = minidynamo.compile(function, backend=backend)
    for _ in range(2):
        want, got = run(function, inputs), run(compiled, inputs)
        for ours, eager in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
            assert type(ours) is type(eager), (ours, eager)
            if isinstance(eager, torch.Tensor):
                for what in ("shape", "dtype", "requires_grad"):
                    assert getattr(ours, what) == getattr(eager, what)
                torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
            else:
                assert ours == eager or ours is eager
        assert sharing(got) == sharing(want)
    found = compiled_records()
    assert any(r.notes_of("runs eagerly") for r in found) == eagerly, [r.notes for r in found]
    return found


def sharing(result):
    """Which outputs are the same object as, and which share memory with, which input or output."""
    outputs, _, used = result
    everything = [*tensors(outputs), *used]
    return [
        (i, j, a is b)
        for i, a in enumerate(everything)
        for j, b in enumerate(everything[:i])
        if a.untyped_storage()._cdata == b.untyped_storage()._cdata
    ]


def x(*shape):
    return torch.randn(*shape or (4, 6), requires_grad=True)


def plain(*shape):
    return torch.randn(*shape or (4, 6))


def after_no_grad(x):
    with torch.no_grad():
        mean = x.mean()
    return x - mean


def frozen_part(x, y):
    with torch.no_grad():
        y.mul_(2)
        seen = x.view(-1)[:3]
    return x * y, seen


def no_grad_view(x):
    y = x.exp()
    with torch.no_grad():
        seen = y.view(-1)
    return y * 2, seen


def no_grad_views(x):
    with torch.no_grad():
        first = x.diagonal()
    return first, first[::2], x.view(-1).detach()[1:]


def split(x):
    a, b, c = (x * 2).chunk(3, 1)
    return a, b * 2, c


# name -> a function, and its inputs where they are others than one of shape [4, 6]
PROGRAMS = {
    name: (eval(function, globals()), *eval(f"({given[0] if given else 'x()'},)", globals()))
    for name, function, *given in rows("""
pointwise :: lambda x: torch.tanh(x) * x
reduction :: lambda x: (x.softmax(1), x.var(0))
matmul :: lambda x: x @ x.t()
two inputs :: lambda x, y: (x * y, (x @ y.t()).relu()) :: x(), x()
one needs none :: lambda x, y: (x * y, y * 2) :: x(), plain()
integer output :: lambda x: (x.argmax(1), x.sort(1))
constant output :: lambda x: (x * 2, torch.ones(3), 5, None, {"a": [x.exp()]})
detach :: lambda x: (x.exp().detach() * x, x.detach())
no_grad :: after_no_grad
no_grad view and write :: frozen_part :: x(), plain()
no_grad view of a hidden value :: no_grad_view
an input :: lambda x, y: (y, x, x * y) :: x(), plain()
view of an input :: lambda x: (x.view(-1), x.t()[1:], x * 2)
same output twice :: lambda x: (lambda y: (y, y, y + 1))(x * 3)
output and view of it :: lambda x: (lambda y: (y, y.view(-1), y.t()[1]))(x * 3)
two views of a hidden value :: lambda x: (lambda y: (y[0], y[1:]))(x.exp())
one view of a hidden value :: lambda x: x.exp()[1:, 0::2]
pieces :: split
detached view of an output :: lambda x: (lambda y: (y, y.detach()[0]))(x * 3)
expanded output :: lambda x: x.sum(0).expand(4, 6)
views of an input, some without history :: no_grad_views
a piece of an input :: lambda x: (x.split(2)[1], x.unbind(1)[0], x * 2)
written input :: lambda x: x.mul_(2).exp()
written and returned :: lambda x: (x.mul_(2), x * 3)
written through a view :: lambda x: (x[1].mul_(2), x.sum())[1]
written through a view and returned :: lambda x: (x.view(-1)[3:9].sin_(), x)
written by another :: lambda x, y: (y.mul_(x), y.exp())[1] :: x(), plain()
written without history :: lambda x, y: (y.add_(1), x * y)[1] :: x(), plain()
saved and then written :: lambda x, y: (x * y, y.clone().add_(1))[0] :: x(), plain()
inner writes :: lambda x: (lambda y: (y[1:].mul_(2), y[0].add_(x[1]), y)[2])(x.clone())
detached write :: lambda x: (x.detach().mul_(2), x * 3)[1]
gather :: lambda x, i: (x.gather(1, i), x[:, i[0]], x[i[:, 0]]) ::
    x(), torch.tensor([[0, 2, 2], [1, 1, 3]])
embedding :: lambda w, i: F.embedding(i, w, padding_idx=1) ::
    x(), torch.tensor([[0, 1, 1], [2, 3, 0]])
index_put :: lambda x, v: x.clone().index_put_((torch.tensor([0, 0, 2]),), v, accumulate=True) ::
    x(), x(3, 6)
scatter :: lambda x, v: x.scatter_add(0, torch.tensor([[0, 1, 1, 2, 3, 0]]), v) :: x(), x(1, 6)
conv :: lambda x, w, b: F.max_pool2d(F.conv2d(x, w, b, padding=1).relu(), 2) ::
    x(2, 3, 8, 8), x(4, 3, 3, 3), x(4)
transposed conv :: lambda x, w: F.conv_transpose2d(x, w, stride=2) :: x(2, 3, 4, 4), x(3, 4, 3, 3)
attention :: lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True) ::
    x(2, 2, 5, 8), x(2, 2, 5, 8), x(2, 2, 5, 8)
layer norm :: lambda x, w, b: F.layer_norm(x, (6,), w, b) :: x(), x(6), x(6)
group norm :: lambda x, w, b: F.group_norm(x, 2, w, b) :: x(3, 4, 5), x(4), x(4)
batch norm :: lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True) ::
    x(4, 3, 5), x(3), x(3), plain(3), plain(3).abs()
cross entropy :: lambda x, t: F.cross_entropy(x, t) :: x(), torch.tensor([1, 0, 5, -100])
weighted cross entropy :: lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=0.1) ::
    x(), torch.tensor([1, 0, 5, 3]), plain(6).abs()
cross entropy, sum, pixels :: lambda x, t: F.cross_entropy(x, t, reduction="sum") ::
    x(2, 5, 3, 3), torch.randint(0, 5, (2, 3, 3))
unreduced :: lambda x, t: F.cross_entropy(x, t, reduction="none") ::
    x(), torch.tensor([1, 0, 5, 3])
dropout :: lambda x: F.dropout(x, 0.4) * F.dropout(x * 2, 0.3)
random :: lambda x: x * torch.rand(4, 6) +
    torch.randn_like(x).exp() * torch.bernoulli(torch.full((4, 6), 0.3))
activations :: lambda x: F.gelu(x) + F.silu(x) * F.hardswish(x) +
    F.leaky_relu(x) + F.softplus(x) + F.elu(x)
where, clamp, max :: lambda x: torch.where(x > 0, x, x * 2).clamp(-1, 1) +
    torch.maximum(x, x.flip(0)) + x.amax(1, keepdim=True)
cat, stack, pad :: lambda x: torch.cat([x, x * 2], 1)[:, 2:8] +
    F.pad(torch.stack([x, x])[1], (1, 1))[:, 1:-1]
einsum :: lambda x: torch.einsum("ij,kj->ik", x, x.exp())
cumsum :: lambda x: x.cumsum(1) + x.cumprod(0)
norm :: lambda x: x / x.norm(dim=1, keepdim=True) + torch.linalg.vector_norm(x)
double :: lambda x: x.exp() / x.sum() :: x().detach().double().requires_grad_()
""")
}


@pytest.mark.parametrize(
    "name, backend",
    [(name, "aot_eager") for name in PROGRAMS] + [(name, "inductor") for name in [*PROGRAMS][::3]],
)
def test_program(name, backend):
    check(*PROGRAMS[name], backend=backend)


class Net(torch.nn.Module):
    """Linear, batch norm with buffers, dropout, a frozen and an unused parameter, one layer used
    twice."""

    def __init__(self):
        super().__init__()
        self.first, self.twice = torch.nn.Linear(6, 8), torch.nn.Linear(8, 8)
        self.last = torch.nn.Linear(8, 3)
        self.norm = torch.nn.BatchNorm1d(8)
        self.unused = torch.nn.Parameter(torch.randn(2))
        self.frozen = torch.nn.Parameter(torch.randn(8), requires_grad=False)

    def forward(self, x):
        x = self.norm(torch.relu(self.first(x)))
        x = self.twice(torch.tanh(self.twice(x))) * self.frozen
        return self.last(F.dropout(x, 0.2, self.training))


def two():
    model = Net()
    return model, copy.deepcopy(model)


def same_state(a, b, tolerance=1e-5):
    mine = [*a.named_parameters(), *a.named_buffers()]
    for (name, one), two in zip(mine, [*b.parameters(), *b.buffers()]):
        for ours, theirs in ((one, two), (one.grad, two.grad)):
            assert (ours is None) == (theirs is None), name
            if ours is not None:
                torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_module_trains(backend):
    model, reference = two()
    compiled = minidynamo.compile(model, backend=backend, fullgraph=True)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (model, reference)]
    for step in range(4):
        data, target = torch.randn(5, 6), torch.randint(0, 3, (5,))
        for m, optimizer in zip((compiled, reference), optimizers):
            torch.manual_seed(step)
            if step != 2:  # gradients accumulate
                optimizer.zero_grad()
            F.cross_entropy(m(data), target).backward()
            optimizer.step()
        same_state(model, reference)
    assert len(compiled_records()) == 1
    compiled.eval(), reference.eval()
    assert torch.allclose(compiled(data), reference(data), atol=1e-5)
    with torch.no_grad():
        assert not compiled(data).requires_grad


def test_hooks_fire_and_autograd_grad_works():
    model, reference = two()
    compiled = minidynamo.compile(model)
    model.eval(), reference.eval()
    seen = []
    for m, tag in ((model, "ours"), (reference, "eager")):
        m.first.weight.register_hook(lambda g, tag=tag: seen.append((tag, g.clone())) or g * 2)
        m.last.bias.register_post_accumulate_grad_hook(
            lambda p, tag=tag: seen.append((tag, p.grad.clone()))
        )
    data = torch.randn(5, 6)
    for m in (compiled, reference):
        m(data).square().sum().backward()
    same_state(model, reference, 1e-4)
    assert [tag for tag, _ in seen] == ["ours", "ours", "eager", "eager"]
    (one, unused), (other, _) = (
        torch.autograd.grad(m(data).sum(), [m.twice.weight, m.unused], allow_unused=True)
        for m in (compiled, reference)
    )
    torch.testing.assert_close(one, other)
    assert unused is None


def test_only_what_reached_the_loss_is_differentiated():
    """The backward half is compiled for the outputs that got a gradient; the other outputs cost
    nothing."""

    def f(x, w):
        return x @ w, (x.exp() * 2).sum()

    compiled = minidynamo.compile(f)
    a, w = x(4, 6), x(6, 3)
    for pick in (1, 0):
        want = torch.autograd.grad(f(a, w)[pick].sum(), [a, w], allow_unused=True)
        got = torch.autograd.grad(compiled(a, w)[pick].sum(), [a, w], allow_unused=True)
        for ours, eager in zip(got, want):
            assert (ours is None) == (eager is None)
            if eager is not None:
                torch.testing.assert_close(ours, eager)
        backward = compiled_records()[0].backward
        products = [f for f in backward.fallbacks if f.op == "aten.mm.default"]
        assert len(products) == (0 if pick else 2)
    both = torch.autograd.grad(sum(t.sum() for t in compiled(a, w)), [a, w])
    torch.testing.assert_close(both, torch.autograd.grad(sum(t.sum() for t in f(a, w)), [a, w]))


def test_retain_graph():
    a = x()
    out = minidynamo.compile(lambda x: x.exp().sum())(a)
    out.backward(retain_graph=True)
    out.backward()
    torch.testing.assert_close(a.grad, 2 * a.detach().exp())
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_saved_tensor_hooks_see_what_is_saved_and_memory_is_freed():
    def f(x, w):
        return torch.relu(x @ w).t() * 2

    a, w = x(), x(6, 5)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (packed.append(t), t.clone(memory_format=torch.contiguous_format))[1], lambda t: t
    ):
        out = minidynamo.compile(f)(a, w)
    torch.testing.assert_close(
        torch.autograd.grad(out.sum(), [a, w]), torch.autograd.grad(f(a, w).sum(), [a, w])
    )
    assert 2 <= len(packed) <= 4
    alive = weakref.ref(packed[-1])
    del packed, out
    gc.collect()
    assert alive() is None


# --- the eight pitfalls ---------------------------------------------------------------------------
@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_1_a_saved_input_that_is_written_later_is_saved_as_a_copy(backend):
    def f(x, y):
        out = x * y  # backward needs y as it is here
        with torch.no_grad():
            y.add_(1)
        return out

    def legal(x, y):  # (eager autograd refuses f itself: the version check)
        out = x * y.clone()
        with torch.no_grad():
            y.add_(1)
        return out

    check(legal, x(), plain(), backend=backend)
    (record,) = {id(r): r for r in compiled_records()}.values()
    assert any(not s.is_input and s.bytes == 96 for s in record.saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        a, b = x(), plain()
        minidynamo.compile(f, backend=backend)(a, b).sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_2_a_written_input_with_history(backend):
    def f(x):
        x.mul_(3)
        return x.sin()

    check(f, x(), backend=backend)
    leaf = x()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        minidynamo.compile(f, backend=backend)(leaf)
    base = x(8, 6)  # the input is a view: its base gets the history
    want = torch.autograd.grad((lambda b: (f(b[2:6]).sum(), b.sum()))(base * 1)[0], base)

    def through(b):
        b = b * 1
        return minidynamo.compile(f, backend=backend)(b[2:6]).sum()

    torch.testing.assert_close(torch.autograd.grad(through(base), base), want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_3_tangents_in_any_strides(backend):
    def f(x):
        return x.sum(0).expand(4, 6), x.t() * 2

    compiled = minidynamo.compile(f, backend=backend)
    a = x()
    for make in (
        lambda t: t.sum(),
        lambda t: (t * plain_like(t)).sum(),
        lambda t: t.t().contiguous().sum(),
        lambda t: t[:, ::2].sum(),
    ):
        for k in (0, 1):
            torch.testing.assert_close(
                torch.autograd.grad(make(compiled(a)[k]), a), torch.autograd.grad(make(f(a)[k]), a)
            )


def plain_like(t):
    return torch.linspace(-1, 1, t.numel()).view(t.t().shape).t()


@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_4_writing_to_what_came_back(backend):
    programs = [
        lambda x: x.view(-1),
        lambda x: x.sin().view(-1),
        lambda x: x.sin(),
        lambda x: (lambda y: (y, y.t()))(x * 2)[1],
    ]
    for f in programs:
        results = []
        for function in (f, minidynamo.compile(f, backend=backend)):
            leaf = torch.linspace(-1, 1, 24).view(4, 6).requires_grad_()
            used = leaf * 1
            out = function(used)
            out.mul_(3)
            results.append((out, used, *torch.autograd.grad(out.sum() + used.sum(), leaf)))
        torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_5_two_inputs_share_memory_and_one_is_written(backend):
    def f(x, y):
        x.mul_(2)
        return (x * y).sum()

    results = []
    for function in (f, minidynamo.compile(f, backend=backend)):
        for apart in (True, False):
            leaf = torch.linspace(-1, 1, 6, requires_grad=True)
            base = leaf * 1
            out = function(base[:4], (leaf * 1)[2:] if apart else base[2:])
            results.append((out, *torch.autograd.grad(out, leaf)))
    torch.testing.assert_close(results[:2], results[2:])


@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_6_double_backward_says_what_to_do(backend):
    a = x()
    compiled = minidynamo.compile(lambda x: (x**3).sum(), backend=backend)
    with pytest.raises(RuntimeError, match='backend="eager"'):
        torch.autograd.grad(compiled(a), a, create_graph=True)
    minidynamo.reset()
    (gradient,) = torch.autograd.grad(
        minidynamo.compile(lambda x: (x**3).sum(), backend="eager")(a), a, create_graph=True
    )
    torch.testing.assert_close(torch.autograd.grad(gradient.sum(), a)[0], 6 * a)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_backward_pass_through_one_graph_says_what_is_freed(backend):
    u, v = x(), x()
    p, q = minidynamo.compile(lambda u, v: (u.exp(), v.exp()), backend=backend)(u, v)
    p.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        q.sum().backward()


def test_pitfall_7_the_backward_half_is_traced_in_this_thread():
    from torch import fx

    from miniinductor.autograd.joint import trace_joint

    class M(torch.nn.Module):
        def forward(self, x):
            return (x.exp(),)

    before = torch.autograd.is_multithreading_enabled()
    joint = trace_joint(fx.symbolic_trace(M()), [x()], [])
    assert [n.target for n in joint.graph.graph.nodes if n.meta.get("backward")] == [
        torch.ops.aten.mul.Tensor
    ]
    assert torch.autograd.is_multithreading_enabled() == before


@pytest.mark.parametrize("how", ["min-cut", "save-everything", "recompute-all"])
def test_pitfall_8_random_ops_are_never_drawn_again(how):
    with miniinductor.config.patch(partition=how):
        (record, *_) = check(lambda x: F.dropout(x.sin(), 0.5).exp() * torch.rand_like(x), x())
    random = [
        n
        for n in record.backward.functional_graph.graph.nodes
        if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
    ]
    assert not random and any(s.reason == "random" or s.op != "primal" for s in record.saved)


def test_dropout_keeps_its_mask_as_bytes_and_nothing_for_the_shape_of_it():
    """copy(empty_like(y), mask) needed y in backward: the float mask was kept, or y itself."""
    for how in ("min-cut", "recompute-all"):
        minidynamo.reset()
        with miniinductor.config.patch(partition=how):
            (record, *_) = check(lambda x, w: F.dropout(x @ w, 0.5), x(16, 6), x(6, 8))
        assert [(s.op, s.bytes) for s in record.saved if not s.is_input] == [
            ("aten.bernoulli.p", 16 * 8)
        ]


# --- the world around -----------------------------------------------------------------------------
def test_gradient_checkpointing_inside():
    from torch.utils.checkpoint import checkpoint

    model, reference = two()

    def f(net, x):
        return checkpoint(net, x * 2, use_reentrant=False).exp()

    data = torch.randn(5, 6)
    for function, m in ((f, reference), (minidynamo.compile(f), model)):
        torch.manual_seed(3)
        function(m, data).sum().backward()
    same_state(model, reference, 1e-4)


def test_an_error_of_autograd_runs_eagerly_and_is_eagers():
    def f(x):
        y = x.exp()
        y.add_(1)  # exp saved its result
        return y.sum()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        minidynamo.compile(f)(x()).backward()
    assert compiled_records()[0].notes_of("runs eagerly")


def probe(gradient):
    SEEN.append([made() is not None for made in UNPACKED])
    return gradient.clone()


LIBRARY = torch.library.Library("minitest", "FRAGMENT")
LIBRARY.define("probe(Tensor g) -> Tensor")
LIBRARY.impl("probe", probe, "CPU")
LIBRARY.impl("probe", torch.empty_like, "Meta")
UNPACKED, SEEN = [], []


class Probe(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return torch.ops.minitest.probe(gradient)


def test_saved_values_are_freed_while_the_backward_half_runs():
    """Gradients take up memory as activations give it back, as in eager: not all of both at
    once."""

    def unpack(tensor):
        copy = tensor.clone()
        UNPACKED.append(weakref.ref(copy))
        return copy

    w = x(6, 6)
    for retain in (False, True):
        UNPACKED.clear(), SEEN.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            out = minidynamo.compile(lambda x, w: ((Probe.apply(x) @ w).exp() @ w).sin())(x(), w)
        (gradient,) = torch.autograd.grad(out.sum(), w, retain_graph=retain)
        ((*alive,),) = SEEN[-1:]
        assert len(alive) >= 3 and not all(alive), alive
