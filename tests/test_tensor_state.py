"""What a frame does to tensors beside computing: hooks on intermediates;
and modes through which all of its operations go.  As plain Python, in as few graphs as can be.
"""

import pytest
import torch
import torch.utils._pytree as pytree
from torch import nn

import minidynamo

pytestmark = pytest.mark.usefixtures("anew")

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
    for one, other in zip(pytree.tree_leaves(ours), pytree.tree_leaves(plain), strict=True):
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


def on_an_argument(x):
    x.register_hook(lambda grad: grad * 2)
    return x * 2


@pytest.mark.parametrize("function", (two_hooks, on_an_argument))
def test_hooks_run_as_plain_python(function):
    """Gradients inside of a graph that was captured before would pass the hook by."""
    check(function, (learning,) * function.__code__.co_argcount, "eager", 0)
    assert "a hook on the gradient" in str(dict(minidynamo.counters["skipped"]))


# ---- numbers of constants
# what is no answer, or another one each time
NO_ANSWERS = {"__init_subclass__", "__class__", "__subclasshook__", "__iter__", "__new__"}
NO_ANSWERS |= {"__del__", "__dlpack__", "__reduce__", "__reduce_ex__", "module_load", "backward"}
NO_ANSWERS |= {"storage", "untyped_storage", "_typed_storage", "_make_subclass"}
