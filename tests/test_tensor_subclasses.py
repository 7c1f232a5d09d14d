"""Tensors of subclasses, and objects with a `__torch_function__`, are right over a graph break."""

import operator

import pytest
import torch
import torch.utils._pytree as pytree
from torch import nn

import minidynamo

BACKENDS = ["eager", "aot_eager", "inductor"]


def X(rows=3):
    return torch.linspace(-2, 2, rows * 4).reshape(rows, 4)


class Image(torch.Tensor):
    kind = "image"

    def twice(self):
        return self * 2

    @property
    def total(self):
        return self.sum()


class Counted(torch.Tensor):
    """Sums are ten times as large."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result * 10 if function in (torch.add, torch.Tensor.add) else result


class Boxes(torch.Tensor):
    """As torchvision's: a plain tensor is what most functions give."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and function.__name__ == "mul":
            return result.as_subclass(cls)
        return result.as_subclass(torch.Tensor) if isinstance(result, Boxes) else result


class Weight(nn.Parameter):
    def sin(self):
        return self + 50


class Scaled:
    """No tensor: it contains one."""

    def __init__(self, inner, scale):
        self.inner, self.scale = inner, scale

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if not all(issubclass(kind, (torch.Tensor, cls)) for kind in types):
            return NotImplemented
        scale = max(value.scale for value in args if isinstance(value, cls))
        plain = [value.inner if isinstance(value, cls) else value for value in args]
        return cls(function(*plain, **(kwargs or {})), scale * 2)


def parts(value):
    return (value.inner, value.scale) if isinstance(value, Scaled) else value


CLASSES = (Image, Counted, Boxes)


def plain(tensor):
    """The tensor without its class; no `__torch_function__` is asked."""
    unasked = torch._C._disabled_torch_function_impl
    return unasked(torch.Tensor.as_subclass, (), (tensor, torch.Tensor), {}).detach()


def seen(function, *args):
    """Classes, numbers and the rest of what a call gives, and of its arguments behind it."""
    try:
        found = parts(function(*args))
    except TypeError as error:
        return [type(error)]
    described = []
    for value in pytree.tree_leaves([found, args]):
        numbers = plain(value).clone() if issubclass(type(value), torch.Tensor) else value
        described += [type(value), numbers]
    return described


def same(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True)
        else:
            assert a == b


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cls", (*CLASSES, Weight))
def test_gradients_reach_the_programs_tensor(cls, backend):
    def f(x):
        y = x * 2
        y.add_(1)
        return (y * torch.sin(x)).sum()

    found = []
    for called in (f, minidynamo.compile(f, backend=backend)):
        x = Weight(X()) if cls is Weight else X().as_subclass(cls)
        x.requires_grad_()
        result = called(x)
        result.backward()
        found.append((type(result), plain(result), type(x.grad), plain(x.grad), x.is_leaf))
    same(*found)


class Dispatched(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Negated(torch.Tensor):
    def __neg__(self):
        return self + 1


@pytest.mark.parametrize("cls", (Dispatched, Negated))
def test_classes_with_operations_of_their_own_break_the_graph(cls):
    compiled = minidynamo.compile(lambda x: -x, backend="eager", fullgraph=True)
    with pytest.raises(minidynamo.Unsupported, match=f"tensor subclass {cls.__name__}"):
        compiled(torch.Tensor._make_subclass(cls, X()))


# ---- what the generator of subclasses found
class Disabled(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Logging(torch.Tensor):
    seen: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


FOUND = {
    "in place": lambda x, a: (operator.iadd(a, x), x)[1],
    "is_leaf": lambda x, a: (x + 1, a.is_leaf),
    "grad": lambda x, a: (x + 1, a.grad),
    "grad_fn": lambda x, a: (x + 1, a.grad_fn is None),
    "hook": lambda x, a: (a.register_hook(lambda gradient: gradient * 3), a * 2)[1],
    "itself, in a list": lambda x, a: torch.broadcast_tensors(a, x),
    "itself": lambda x, a: (a.contiguous(), a.to(torch.float32), a.expand(3, 3)),
    "round": lambda x, a: round(a),
}


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("cls", [Image, Disabled, Logging])
@pytest.mark.parametrize("name", FOUND)
def test_what_autograd_knows_of_a_subclass(name, cls, learns):
    def told(function):
        a = torch.full((3, 3), 2.0).as_subclass(cls)
        if learns:
            a.requires_grad_()
            a.grad = torch.ones(3, 3)
        Logging.seen = []
        try:
            found = function(torch.ones(3, 3), a)
            leaves = pytree.tree_leaves(found)
        except (RuntimeError, TypeError) as error:
            found, leaves = str(error), []
        seen = list(Logging.seen)
        kept = [(type(leaf), leaf is a, getattr(leaf, "is_leaf", None)) for leaf in leaves]
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf is not a:
                leaf.sum().backward()
        grad = None if a.grad is None else a.grad.as_subclass(torch.Tensor).tolist()
        return str(found), kept, seen, grad, a.detach().as_subclass(torch.Tensor).tolist()

    assert told(minidynamo.compile(FOUND[name], backend="eager")) == told(FOUND[name])


def test_why_a_frame_is_compiled_again_is_not_asked_of_the_programs_class():
    """The first entry's guards are read, all of them, where the second call gives a subclass."""
    log = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    compiled = minidynamo.compile(lambda x: torch.sin(x), backend="eager")
    compiled(torch.ones(2, 3))
    compiled(torch.ones(2, 3).as_subclass(Logged))
    assert log == ["sin"]
