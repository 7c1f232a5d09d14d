"""What a frame does to tensors beside computing: hooks on intermediates;
and modes through which all of its operations go.  As plain Python, in as few graphs as can be.
"""

import pytest
import torch
import torch.utils._pytree as pytree
from test_capture_language import fresh  # noqa: F401
from torch import nn
from torch.overrides import TorchFunctionMode

import minidynamo

LOG = []


def X():
    return torch.sin(torch.arange(12.0).reshape(3, 4) + 1)


def learning():
    return X().requires_grad_()


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


# ---- hooks
SCALE = 3.0


def two_hooks(x, w):
    y = x * 2
    z = y * y
    y.register_hook(lambda grad: grad * w * SCALE)
    y.register_hook(torch.tanh)
    return z + y.sin()


def returned(x):
    y = x.exp()
    y.register_hook(lambda grad: grad * 2)
    return y


def a_hook_that_writes(x):
    y = x.exp()
    y.register_hook(lambda grad: LOG.append(1))
    return y * 2


def a_handle(x):
    y = x.exp()
    handle = y.register_hook(lambda grad: grad + 1)
    handle.remove()
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


LEAVES = "a tensor with a hook leaves the frame"


@pytest.mark.parametrize("backend", ("eager", "inductor"))
def test_hooks(backend):
    check(two_hooks, (learning, learning), backend, 1)


@pytest.mark.parametrize("backend", ("eager", "inductor"))
def test_a_hook_on_an_argument(backend):
    check(on_an_argument, (learning,), backend, 1)


def test_a_hook_on_a_result():
    check(returned, (learning,), "eager", 1)
    minidynamo.reset()
    check(returned, (learning,), "inductor", 1, (LEAVES,))


@pytest.mark.parametrize(
    "function, reason",
    [
        (a_hook_that_writes, "a hook that writes"),
        (on_what_learns_nothing, "Tensor.register_hook() is not traced"),
    ],
)
def test_hooks_that_break(function, reason):
    check(function, (learning,), "eager", 2, (reason,))


def test_a_handle_that_is_used():
    plain = run(a_handle, [learning()])
    ours = run(minidynamo.compile(a_handle, backend="eager"), [learning()])
    same(ours, plain)


# ---- modes
class Log(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        LOG.append(function.__name__)
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.sin else result


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_mode_that_a_frame_enters_is_asked(backend):
    def f(x):
        y = torch.sin(x)
        with Log():
            z = torch.sin(y) + x.cos()
            z.add_(1)
        return z * torch.sin(x)

    found = []
    for called in (f, minidynamo.compile(f, backend=backend)):
        LOG.clear()
        found.append((called(X()), called(X()), list(LOG)))
    assert str(found[0]) == str(found[1])


def test_a_mode_does_not_see_the_compiler():
    def inner(x):
        return torch.sin(x) + 1

    compiled = minidynamo.compile(inner, backend="eager")

    def outer(x, called):
        with Log():
            return called(x)

    for _ in range(2):
        LOG.clear()
        plain, expected = outer(X(), inner), list(LOG)
        LOG.clear()
        torch.testing.assert_close(outer(X(), compiled), plain)
        assert expected == LOG
    compiled(X())
    assert [n for name, n in minidynamo.counters["graphs"].items() if "inner" in name] == [1]


def test_symbolic_trace_of_compiled_code():
    def inner(x):
        return torch.sin(x) + 1

    compiled = minidynamo.compile(inner, backend="eager")
    traced = torch.fx.symbolic_trace(lambda x: compiled(x) * 2)
    assert [node.name for node in traced.graph.nodes] == ["x", "sin", "add", "mul", "output"]
    torch.testing.assert_close(compiled(X()), inner(X()))
    assert minidynamo.counters["graphs"].total() == 1


# ---- numbers of constants
def numbers(x):
    sizes, scale = torch.tensor([[1], [2]]).tolist(), torch.tensor([2.0, 3.0])
    first = scale.tolist()
    return x[sizes[0][0] :] * first[1] + sizes[1][0], scale


def written_numbers(x):
    scale = torch.tensor([2.0, 3.0])
    scale[:1].add_(1)
    return x * scale.tolist()[0]


def test_numbers_of_constants():
    check(numbers, (X,), "eager", 1)
    minidynamo.reset()
    check(written_numbers, (X,), "eager", 2, ("Tensor.tolist()",))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_detach_in_place_of_a_view_raises_after_calls_without_views(backend):
    """No guard tells a view from another tensor of its sizes: the entry made for the latter ran."""

    def function(x, w):
        x.detach_()
        return x * w

    compiled, w = minidynamo.compile(function, backend=backend), torch.ones(4)
    assert torch.equal(compiled(torch.arange(4.0), w), torch.arange(4.0))
    with torch.no_grad():
        views = [torch.arange(8.0)[:4], torch.arange(8.0).split(4)[0]]
    for view in views:
        with pytest.raises(RuntimeError, match="detach views in-place"):
            compiled(view, w)
    assert torch.equal(compiled(torch.arange(4.0), w), torch.arange(4.0))
    node = torch.arange(4.0, requires_grad=True) * 1
    compiled(node, w)
    assert not node.requires_grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_an_inference_tensor_is_written_once_by_the_write_that_is_refused(backend):
    """Eager's kernel writes, then raises: a plain tensor's entry did so, and Python once more."""

    def function(x, w):
        x.add_(w)
        return x * w

    compiled, w = minidynamo.compile(function, backend=backend), torch.ones(4)
    for _ in range(2):
        compiled(torch.zeros(4), w)
    with torch.inference_mode():
        ours, eager = torch.zeros(4), torch.zeros(4)
    for called, x in ((function, eager), (compiled, ours)):
        with pytest.raises(RuntimeError, match="inference tensor"):
            called(x, w)
    assert torch.equal(ours, eager)


# what is no answer, or another one each time
NO_ANSWERS = {"__init_subclass__", "__class__", "__subclasshook__", "__iter__", "__new__"}
NO_ANSWERS |= {"__del__", "__dlpack__", "__reduce__", "__reduce_ex__", "module_load", "backward"}
NO_ANSWERS |= {"storage", "untyped_storage", "_typed_storage", "_make_subclass"}


def questions() -> list:
    """Methods of `object` and of tensors that need no more than a tensor, and give none."""
    found = []
    for owner in (object, torch.Tensor):
        for name in sorted(set(dir(owner)) - NO_ANSWERS):
            method = getattr(owner, name)
            if not callable(method) or isinstance(method, type):
                continue
            try:
                answer = method(torch.arange(3.0))
            except Exception:
                continue
            if answer is not None and not holds_tensor(answer):
                found.append((owner, name))
    return found


def holds_tensor(value) -> bool:
    items = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(item, torch.Tensor) for item in items)


def test_what_a_tensor_tells_is_never_that_of_a_fake():
    asked, wrong = questions(), []
    assert len(asked) > 60
    for owner, name in asked:
        space = {"method": getattr(owner, name)}
        exec(
            f"def by_class(x): return x + 1, method(x)\ndef bound(x): return x + 1, x.{name}()",
            space,
        )
        for which in ("by_class", "bound"):
            x = torch.arange(3.0)
            minidynamo.reset()
            expected, found = space[which](x)[1], minidynamo.compile(space[which])(x)[1]
            if found is not expected and repr(found) != repr(expected):
                wrong.append((which, owner.__name__, name, found, expected))
    assert not wrong
