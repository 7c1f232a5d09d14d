"""What a frame does to tensors beside computing: `.data = value`, `set_`, hooks on intermediates;
and modes through which all of its operations go.  As plain Python, in as few graphs as can be.
"""

import pytest
import torch
import torch.utils._pytree as pytree
from test_capture_language import fresh  # noqa: F401
from torch import nn

import minidynamo

LOG = []


def X():
    return torch.sin(torch.arange(12.0).reshape(3, 4) + 1)


def learning():
    return X().requires_grad_()


def layer():
    torch.manual_seed(0)
    return nn.Linear(4, 4)


def tensors(tree):
    """Those in the results and arguments, and the modules' parameters."""
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, nn.Module):
            yield from leaf.parameters()
        elif isinstance(leaf, torch.Tensor):
            yield leaf


def run(function, args):
    """Three calls; what one can see: results that are written, gradients, strides, versions."""
    seen = []
    for _ in range(3):
        LOG.clear()
        found = function(*args)
        results = list(tensors(found))
        losses = [result.sum() for result in results if result.requires_grad]
        if losses:
            sum(losses).backward()
        with torch.no_grad():
            for result in results:
                if result.is_floating_point():
                    result.mul_(1.5)
        state = [(t, t.stride(), t.is_leaf and t.grad) for t in tensors([found, *args])]
        versions = [t._version for t in tensors(args)]
        others = [v for v in pytree.tree_leaves(found) if not isinstance(v, torch.Tensor)]
        seen += pytree.tree_map_only(
            torch.Tensor, lambda t: t.detach().clone(), [state, versions, others, list(LOG)]
        )
    return seen


def same(ours, plain):
    leaves = list(zip(pytree.tree_leaves(ours), pytree.tree_leaves(plain), strict=True))
    for one, other in leaves:
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other)
        else:
            assert one == other


def check(function, makers, backend, graphs, breaks=()):
    plain = run(function, [make() for make in makers])
    ours = run(minidynamo.compile(function, backend=backend), [make() for make in makers])
    same(ours, plain)
    found = minidynamo.counters["graph_breaks"]
    assert minidynamo.counters["graphs"].total() == graphs, dict(found)
    assert len(found) == len(breaks), dict(found)
    for text, reason in zip(breaks, found):
        assert text in reason
    assert torch._C._len_torch_function_stack() == 0


# ---- .data and set_
def data_of_another(x, y):
    x.data = y
    v = y * 3
    y.add_(1)
    return x + v


def data_twice(x, y):
    x.data = y * 2
    x.data = x.data + 1
    return x


def exchanged(x, y):
    x.data, y.data = y.data, x.data
    return x - y


def of_other_sizes(x, y):
    x.data = y[:2, :3] * 1
    return x.sum() + x.shape[0], x.shape


def a_written_tensor(x, y):
    x.data = y * 2
    x.add_(1)
    return x * 3


def set_and_returned(x, y):
    z = torch.empty(0)
    z.set_(y)
    return x + z, z


def decayed(model, x):
    for p in model.parameters():
        p.data = p.data - 0.1 * torch.ones_like(p)
        p.data = p.data.t() if p.dim() == 2 else p.data
    return model(x)


def a_step(model, x):
    with torch.no_grad():
        for p in model.parameters():
            p.data = p.data.mul(0.9) - 0.1
        return model(x)


def needed_by_backward(model, x):
    y = model(x).sum()
    model.weight.data = model.weight.data * 0.5
    return model(x) + y


def without_and_with_gradients(model, x):
    with torch.no_grad():
        model.bias.data = model.bias * 0.5
    return model(x)


DATA = [
    (data_of_another, (X, X), 1, ()),
    (data_twice, (learning, X), 1, ()),
    (exchanged, (X, X), 1, ()),
    (of_other_sizes, (X, X), 2, ()),  # the second call has other sizes
    (a_written_tensor, (X, X), 2, ("writes to a tensor whose data was set",)),
    (set_and_returned, (X, X), 1, ()),
    (decayed, (layer, X), 2, ()),  # and strides
    (a_step, (layer, X), 1, ()),
    (needed_by_backward, (layer, X), 2, ("of a tensor that backward may need",)),
    (without_and_with_gradients, (layer, X), 2, ("data was set without gradients, used",)),
]


@pytest.mark.parametrize("function, makers, graphs, breaks", DATA)
def test_data(function, makers, graphs, breaks):
    check(function, makers, "eager", graphs, breaks)


@pytest.mark.parametrize("function, makers, graphs, breaks", [DATA[0], DATA[5], DATA[6]])
def test_data_compiled(function, makers, graphs, breaks):
    check(function, makers, "inductor", graphs, breaks)


# ---- hooks
SCALE = 3.0


def two_hooks(x, w):
    y = x * 2
    z = y * y
    y.register_hook(lambda grad: grad * w * SCALE)
    y.register_hook(torch.tanh)
    return z + y.sin()


def a_hook_that_writes(x):
    y = x.exp()
    y.register_hook(lambda grad: LOG.append(1))
    return y * 2


def on_an_argument(x):
    x.register_hook(lambda grad: grad * 2)
    return x * 2


def on_what_learns_nothing(x):
    try:
        x.detach().register_hook(lambda grad: grad * 2)
    except RuntimeError as error:
        LOG.append(str(error))
    return x * 2


@pytest.mark.parametrize("backend", ("eager", "inductor"))
def test_hooks(backend):
    check(two_hooks, (learning, learning), backend, 1)


@pytest.mark.parametrize("backend", ("eager", "inductor"))
def test_a_hook_on_an_argument(backend):
    check(on_an_argument, (learning,), backend, 1)


@pytest.mark.parametrize(
    "function, reason",
    [
        (a_hook_that_writes, "a hook that writes"),
        (on_what_learns_nothing, "Tensor.register_hook() is not traced"),
    ],
)
def test_hooks_that_break(function, reason):
    check(function, (learning,), "eager", 2, (reason,))


# ---- modes


def test_symbolic_trace_of_compiled_code():
    def inner(x):
        return torch.sin(x) + 1

    compiled = minidynamo.compile(inner, backend="eager")
    traced = torch.fx.symbolic_trace(lambda x: compiled(x) * 2)
    assert [node.name for node in traced.graph.nodes] == ["x", "sin", "add", "mul", "output"]
    torch.testing.assert_close(compiled(X()), inner(X()))
    assert minidynamo.counters["graphs"].total() == 1


# ---- numbers of constants


# what is no answer, or another one each time
NO_ANSWERS = {"__init_subclass__", "__class__", "__subclasshook__", "__iter__", "__new__"}
NO_ANSWERS |= {"__del__", "__dlpack__", "__reduce__", "__reduce_ex__", "module_load", "backward"}
NO_ANSWERS |= {"storage", "untyped_storage", "_typed_storage", "_make_subclass"}
