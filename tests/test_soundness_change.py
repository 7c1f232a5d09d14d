"""One thing is changed between two calls: samples of `change` and `change_state`."""

import importlib
import itertools

import pytest
import torch
from record_helpers import last_compiled
from torch import nn

import minidynamo
from minidynamo import config
from tests.soundness import absence, change, change_state, modes, mutants_change, runner


def test_things():
    assert runner.sample(change, 12, "eager") == []


def test_things_inductor():
    assert runner.sample(change, 3, "inductor", first=1) == []


def test_state():
    assert runner.sample(change_state, 16, "eager") == []


def test_each_kind_of_guard_has_a_mutant():
    assert mutants_change.all_kinds() == {*mutants_change.KILLERS, *mutants_change.ELSEWHERE}


# ---- what is absent
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        try:
            more = self.tried
        except AttributeError:
            more = 2.0
        x = self.linear(x) * getattr(self, "factor", 1.0)
        return x + more + (10 if hasattr(self, "extra") else 0)


CHANGES = {
    "number": lambda net: setattr(net, "factor", 5.0),
    "buffer": lambda net: net.register_buffer("factor", torch.ones(3) * 4),
    "parameter": lambda net: setattr(net, "factor", nn.Parameter(torch.ones(3) * 7)),
    "module": lambda net: setattr(net, "extra", nn.Linear(1, 1)),
    "tried": lambda net: setattr(net, "tried", 3.0),
    "class": lambda net: setattr(type(net), "factor", 3.0),
    "base class": lambda net: setattr(nn.Module, "factor", 4.0),
    "getattr": lambda net: setattr(
        type(net),
        "__getattr__",
        lambda self, name: 8.0 if name == "factor" else nn.Module.__getattr__(self, name),
    ),
    "dictionary": lambda net: net.__dict__.update(linear=nn.Tanh()),
    "method of torch": lambda net: setattr(nn.Linear, "forward", lambda self, x: x * 100),
}


@pytest.fixture
def restored():
    """torch's classes are as they were, whatever a test does to them."""
    forward = nn.Linear.forward
    yield
    nn.Linear.forward = forward
    if "factor" in vars(nn.Module):
        del nn.Module.factor


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", CHANGES)
def test_absence(name, backend, restored):
    if backend != "eager" and name not in ("number", "buffer", "class"):
        pytest.skip("the guards are those of the backend eager")
    net = type("Net", (Net,), {})()
    minidynamo.reset()
    with config.patch(raise_internal_errors=True), torch.no_grad():
        compiled = minidynamo.compile(net, backend=backend)
        x = torch.randn(2, 3)
        torch.testing.assert_close(compiled(x), net.forward(x))
        CHANGES[name](net)
        torch.testing.assert_close(compiled(x), net.forward(x))
        if name in ("number", "buffer", "parameter"):
            del net.factor
            torch.testing.assert_close(compiled(x), net.forward(x))
            net.factor = 6.0
            torch.testing.assert_close(compiled(x), net.forward(x))


@pytest.mark.parametrize("kind", absence.things())
def test_absence_of_every_kind_of_object(kind):
    """One way of asking at one place: drawn by the kind's name."""
    ways, places, turn = [*absence.ASKING], [*absence.PLACES], len(kind)
    case = (kind, ways[turn % len(ways)], places[turn % len(places)])
    assert runner.attempt(absence, case, modes.MODES["eager"]) == "", case


def test_absence_costs_one_guard_for_a_dictionary():
    net = Net()
    minidynamo.reset()
    minidynamo.compile(net, backend="eager")(torch.randn(2, 3))
    absences = [g for g in last_compiled().guards if g.kind == "ABSENT"]
    assert len(absences) == len({g.source for g in absences})


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", lambda gm, _: gm])
def test_hooks_of_all_modules_see_the_programs_modules_alone(backend):
    """A graph is kept in a module, too, of which the program knows nothing."""
    registry, layer, x = nn.modules.module, nn.Linear(2, 2), torch.ones(1, 2)
    seen, compiled = [], minidynamo.compile(layer, backend=backend)
    hooks = [
        registry.register_module_forward_pre_hook(lambda module, _: seen.append(module)),
        registry.register_module_forward_hook(lambda module, *_: seen.append(module)),
    ]
    try:
        for _ in range(2):
            compiled(x).sum().backward()
        assert seen == [layer] * 4
    finally:
        for hook in hooks:
            hook.remove()


class Got:
    """A descriptor that answers for the class, too."""

    def __init__(self, factor):
        self.factor = factor

    def __get__(self, instance, owner=None):
        return self.factor * owner.base


class Meta(type):
    base = 2

    def __add__(cls, other):
        return cls.base + other

    __radd__ = __mul__ = __or__ = __add__

    def __neg__(cls):
        return -cls.base

    def __lt__(cls, other):
        return cls.base < other

    def __getitem__(cls, key):
        return cls.base * key

    __hash__ = __len__ = lambda cls: cls.base

    def __str__(cls):
        return "of " + str(cls.base)


class Plain(metaclass=Meta):
    got = Got(3)


class Items:
    base = 2
    level = 5
    got = Got(3)

    def __class_getitem__(cls, key):
        return cls.base * key

    @classmethod
    def of_class(cls):
        return cls.base


class MoreItems(Items):
    base = 7

    @classmethod
    def behind(cls):
        return super().level, super().got, super().of_class()

    @staticmethod
    def behind_static():
        return super(MoreItems, MoreItems).level


READ_OF_CLASSES = {
    "descriptor": lambda: (Items.got, MoreItems.got, Plain.got),
    "class item": lambda: (Items[3], MoreItems[3]),
    "item": lambda: Plain[3],
    "operators": lambda: (Plain + 1, 1 + Plain, Plain * 2, Plain | 1, -Plain, Plain < 3),
    "hash and text": lambda: (hash(Plain), {Plain: 1}.get(3), len(Plain), str(Plain), f"{Plain}"),
    "super of a class": MoreItems.behind,
    "super in a static method": MoreItems.behind_static,
}


@pytest.mark.parametrize("name", READ_OF_CLASSES)
def test_what_a_class_answers_by_code_of_the_program(name, monkeypatch):
    """By a descriptor, a metaclass, `__class_getitem__`, `super()`: what that reads may change."""

    def f(x):
        return x * 2, READ_OF_CLASSES[name]()

    minidynamo.reset()
    compiled, x = minidynamo.compile(f, backend="eager"), torch.ones(2)
    assert str(compiled(x)) == str(f(x))
    for owner, attribute in [(Meta, "base"), (Items, "base"), (Items, "level")]:
        monkeypatch.setattr(owner, attribute, 11)
        assert str(compiled(x)) == str(f(x))
    monkeypatch.setattr(Plain.__dict__["got"], "factor", 13)
    monkeypatch.setattr(Items.__dict__["got"], "factor", 13)
    assert str(compiled(x)) == str(f(x))


outside = torch.ones(1)
ASKED_OF_TENSORS = {
    "is": lambda a, b: a is b,
    "is not": lambda a, b: a is not b,
    "of a global": lambda a, b: (b is outside, a is outside),
    "id": lambda a, b: (id(a) == id(b), id(a) == id(outside)),
    "among": lambda a, b: any(a is item for item in [b, outside]),
    "keys": lambda a, b: ({b: 1}.get(a), {outside: 2}.get(b)),
    "set": lambda a, b: (len({a, b}), len({a, b, outside})),
    "of a parameter": lambda a, b: (a is LAYER.weight, {LAYER.weight: 1}.get(b)),
}
LAYER = nn.Linear(1, 1)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", ASKED_OF_TENSORS)
def test_whether_two_tensors_are_one_is_guarded(name, backend):
    """Also of a tensor of which nothing else is asked, so that the graph does not read it."""
    question = ASKED_OF_TENSORS[name]

    def f(a, b):
        return a.detach() + 1, question(a, b)

    minidynamo.reset()
    compiled = minidynamo.compile(f, backend=backend)
    first, second = torch.ones(1), torch.ones(1)
    for a, b in itertools.product([first, second, outside, LAYER.weight], repeat=2):
        assert str(compiled(a, b)) == str(f(a, b))


# ---- names and modules that are not there
def reads(text):
    """A function of x in a module of its own, and that module's globals."""
    values = {"torch": torch, "importlib": importlib}
    exec(f"def f(x):\n    {text}", values)
    return values.pop("f"), values
