"""Tensors of subclasses, and objects with a `__torch_function__`, are right over a graph break."""

import operator

import pytest
import torch
import torch.nn.functional as F
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


class Named:
    def __init__(self, inner):
        self.inner = inner

    @staticmethod
    def __torch_function__(function, types, args=(), kwargs=None):
        return function.__name__, [kind.__name__ for kind in types], len(args), sorted(kwargs or {})


class Heir(Named):
    pass


def parts(value):
    return (value.inner, value.scale) if isinstance(value, Scaled) else value


TENSORS = {
    "functions and operators": lambda x: (torch.sin(x), x + 1, 1 - x, 2 * x, x @ x.T, -x, x > 0),
    "methods": lambda x: (x.sin(), x.view(-1), x.float() is x, x.to(torch.float64), x.sum(0)),
    "beside a plain tensor": lambda x: (torch.ones(3, 4) * x, torch.cat([x, torch.ones(1, 4)])),
    "several results": lambda x: (torch.max(x, 1), x.split(2), x.unbind(1)),
    "written": lambda x: (x.mul_(2) is x, x.add_(1), x, torch.ones(3, 4).add_(x)),
    "layers": lambda x: (F.linear(x, torch.ones(4, 4)), F.softmax(x, -1), F.layer_norm(x, (4,))),
    "what it is": lambda x: (
        *(type(x).__name__, x.shape, x.dtype, x.T, isinstance(x, Image)),
        *(torch.is_tensor(x), isinstance(x, nn.Parameter), getattr(x, "nothing", 7), len(x)),
    ),
    "a graph break": lambda x: ((x + 1), print(end=""), x * 3)[::2],
    "as another class": lambda x: (x.as_subclass(torch.Tensor) + 1, X().as_subclass(Image) * 2),
    "the argument": lambda x: x,
    "items": lambda x: (x[0], x[:, 1:], x[x > 0].sum()),
}
CLASSES = (Image, Counted, Boxes)
OWN = {
    "a property": (lambda x: x.total, lambda: X().as_subclass(Image)),
    "a method": (lambda x: x.twice(), lambda: X().as_subclass(Image)),
    "of the class": (lambda x: x.kind, lambda: X().as_subclass(Image)),
    "a parameter": (lambda w: (F.linear(X(), w), w * 2, type(w).__name__), lambda: Weight(X())),
    "its own method": (lambda w: (w.sin(), torch.sin(w)), lambda: Weight(X())),
}
OBJECTS = {
    "function": lambda x: torch.sin(Scaled(x, 3)),
    "operator": lambda x: x + Scaled(x, 3),
    "in a list": lambda x: torch.stack([Named(x), x]),
    "method": lambda x: x.mul(Scaled(x, 2)),
    "a name": lambda x: x.add(other=Named(x)),
    "written in Python": lambda x: F.gelu(Named(x)),
    "a layer": lambda x: F.layer_norm(Named(x), (4,)),
    "the heir first": lambda x: torch.add(Named(x), Heir(x)),
    "asked": lambda x: torch.overrides.has_torch_function((Named(x), 1)),
    "one after the other": lambda x: torch.relu(torch.exp(Scaled(x, 1))),
    "nobody knows": lambda x: torch.add(Scaled(x, 3), Named(x)),
}


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
        is_tensor = issubclass(type(value), torch.Tensor)
        numbers = plain(value).clone() if is_tensor else value
        described += [type(value), numbers]
    return described


def same(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True)
        else:
            assert a == b


def check(function, make, backend):
    minidynamo.reset()
    compiled = minidynamo.compile(function, backend=backend)
    for _ in range(2):
        same(seen(compiled, make()), seen(function, make()))


def is_chosen(backend, name):
    return backend != "inductor" or name in ("functions and operators", "written", "function")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_a_subclass(name, cls, backend):
    if not is_chosen(backend, name):
        pytest.skip("kernels are built for two of them")
    check(TENSORS[name], lambda: X().as_subclass(cls), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OWN)
def test_what_the_class_defines(name, backend):
    check(*OWN[name], backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OBJECTS)
def test_objects(name, backend):
    if not is_chosen(backend, name):
        pytest.skip("kernels are built for one of them")
    check(OBJECTS[name], X, backend)


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


CHANGES = {
    "kind": "another",
    "twice": lambda self: self * 5,
    "sin": lambda self: self * 1,
    "__add__": lambda self, other: torch.Tensor.mul(self, 7),
    "__torch_function__": classmethod(lambda cls, function, types, args=(), kwargs=None: 17),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_assumed_of_a_class_is_guarded(name, monkeypatch):
    def f(x):
        return x.sin() if name == "__torch_function__" else x.twice() + x.sin() + len(x.kind)

    def check_now():
        same(seen(compiled, X().as_subclass(Image)), seen(f, X().as_subclass(Image)))

    compiled = minidynamo.compile(f, backend="eager")
    check_now()
    with monkeypatch.context() as patch:
        patch.setattr(Image, name, CHANGES[name])
        check_now()
    check_now()
    x = X().as_subclass(Image)
    with torch._C.DisableTorchFunctionSubclass():
        assert type(compiled(x)) is type(f(x)) is torch.Tensor
    check_now()


def test_classes_and_sizes_change_between_calls():
    def f(x):
        return x.sin() + 1

    compiled = minidynamo.compile(f, backend="eager")
    for make in (X, lambda n: X(n).as_subclass(Image), lambda n: X(n).as_subclass(Counted)):
        for rows in (3, 5, 7):
            same(seen(compiled, make(rows)), seen(f, make(rows)))


def test_a_parameter_of_a_subclass_in_a_module():
    layer = nn.Linear(4, 4)
    compiled = minidynamo.compile(lambda x: layer(x) * layer.weight.scale, backend="eager")
    for weight, scale in ((Weight(X(4)), 3.0), (Weight(X(4) * 2), 4.0), (nn.Parameter(X(4)), 5.0)):
        layer.weight, weight.scale = weight, scale
        torch.testing.assert_close(compiled(X()), layer(X()) * scale)


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


class Plain:
    pass


def test_is_tensor_of_what_is_not_traced():
    def f(x):
        return torch.is_tensor(x), X() + 1

    compiled = minidynamo.compile(f, backend="eager")
    assert compiled(torch.Tensor._make_subclass(Negated, X()))[0] is True
    assert compiled(Scaled(X(), 1))[0] is False


def test_a_number_is_asked_of_an_object():
    """Wrong before: an error inside the compiler."""

    def f(x):
        return x + 1, torch.is_floating_point(Plain())

    with pytest.raises(minidynamo.Unsupported, match="where a tensor is expected"):
        minidynamo.compile(f, backend="eager", fullgraph=True)(X())


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

    ours = told(minidynamo.compile(FOUND[name], backend="eager"))
    assert ours == told(FOUND[name])
