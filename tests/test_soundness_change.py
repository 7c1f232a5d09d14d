"""One thing is changed between two calls: samples of `change`, `change_state` and `cold`."""

import builtins
import collections
import enum
import functools
import importlib
import sys
import types

import pytest
import torch
from torch import nn

from record_helpers import last_compiled

import minidynamo
from minidynamo import config
from tests.soundness import absence, change, change_state, modes, mutants_change, runner


def test_things():
    assert runner.sample(change, 20, "eager") == []


def test_things_inductor():
    assert runner.sample(change, 3, "inductor", first=1) == []


@pytest.mark.parametrize(
    "case",
    [
        ("hooks", "s", "attribute", "_forward_hooks_always_called", "delete"),
        (
            *("hooks", "s.__dict__['_modules']['linear']"),
            *("attribute", "_forward_hooks_always_called", "delete"),
        ),
        ("python_module", "s", "attribute", "__name__", "type"),
        ("getattr_module", "type(s).__mro__[0]", "attribute", "_forward_pre_hooks", "descriptor"),
        ("metaclass", "type(s)", "attribute", "kind", "other"),
        ("metaclass", "s", "attribute", "size", "type"),
        ("named_tuple", "type(s).__mro__[0]", "attribute", "a", "descriptor"),
        ("named_tuple", "type(s).__mro__[0]", "attribute", "b", "delete"),
        ("named_tuple", "type(s).__mro__[0]", "attribute", "_replace", "other"),
        ("partial", "s.__dict__['partial']", "attribute", "fresh_name", "type"),
        ("class", "s", "attribute", "__abstractmethods__", "equal"),
        ("class", "s", "attribute", "__bases__", "other"),
        ("module", "this_world", "attribute", "subject", "other"),
        (
            *("subclasses", "type(s.__dict__['d']).__mro__[0]"),
            *("attribute", "__contains__", "descriptor"),
        ),
        ("named_tuple", "type(s).__mro__[0]", "attribute", "_asdict", "descriptor"),
        (
            *("hooks", "s.__dict__['_modules']['linear']"),
            *("attribute", "_forward_hooks_always_called", "type"),
        ),
        ("hooks", "type(s).__mro__[1]", "attribute", "__getattr__", "other"),
        ("logger", "s", "attribute", "disabled", "delete"),
        (
            *("module", "type(s.__dict__['_modules']['child']).__mro__[0]"),
            *("attribute", "__init__", "delete"),
        ),
    ],
)
def test_found_by_the_generator(case):
    assert runner.attempt(change, case, modes.MODES["eager"]) == ""


class Failing(nn.Module):
    def forward(self, x):
        x = x + 1
        if x.dim() == 1:
            raise ValueError(x.dim())
        return x


def test_hooks_that_are_always_called():
    def make():
        net, calls = Failing(), []
        net.register_forward_hook(lambda *args: calls.append(args[2]), always_call=True)
        net.register_forward_hook(lambda *args: calls.append("plain"))
        return net, calls

    def f(net, x):
        try:
            return net(x) * 2
        except ValueError as error:
            return x - error.args[0]

    for sizes in ((3,), (1, 3)):
        plain, compiled, x = make(), make(), torch.ones(sizes)
        want = f(plain[0], x)
        got = minidynamo.compile(f, backend="eager")(compiled[0], x)
        assert torch.equal(want, got) and [*map(str, plain[1])] == [*map(str, compiled[1])]


def test_a_global_that_is_called_super():
    class Parent:
        gain = 2.0

    class Child(Parent):
        gain = 3.0

        def read(self, x):
            return x * super().gain

    scope = {"super": lambda *args: Child if args else Parent}
    read = types.FunctionType(Child.read.__code__, scope, "read", None, Child.read.__closure__)
    x, child = torch.ones(3), Child()
    assert torch.equal(read(child, x), minidynamo.compile(read, backend="eager")(child, x))


@pytest.mark.skipif(not hasattr(torch.Tensor, "has_names"), reason="torch has no names any more")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_named_dimensions(backend):
    compiled = minidynamo.compile(lambda t: t.exp() * 2, backend=backend)
    x = torch.ones(2, 3)
    assert compiled(x).names == (None, None)
    x.names = ("a", "b")
    assert compiled(x).names == ("a", "b")


def test_state():
    assert runner.sample(change_state, 30, "eager") == []


@pytest.mark.parametrize("name", ["bert", "segformer", "t5", "llama"])
def test_cold(name):
    pytest.importorskip("transformers")
    from tests.soundness import cold

    assert runner.attempt(cold, name, modes.MODES["eager"]) == ""


def test_cold_inductor():
    pytest.importorskip("transformers")
    from tests.soundness import cold

    assert runner.attempt(cold, "vit", modes.MODES["inductor"]) == ""


def test_each_kind_of_guard_has_a_mutant():
    known = {*mutants_change.KILLERS} | {*mutants_change.ELSEWHERE}
    assert mutants_change.all_kinds() == known


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
    """Each way of asking at one place, and each place with one way: drawn by the kind's name."""
    ways, places = [*absence.ASKING], [*absence.PLACES]
    turn = len(kind)
    for n in range(2):
        case = (kind, ways[(turn + n) % len(ways)], places[(turn + n) % len(places)])
        assert runner.attempt(absence, case, modes.MODES["eager"]) == "", case


@pytest.mark.parametrize("name", ["k", "mro", "__subclasses__", "__basicsize__"])
def test_a_function_gets_an_attribute_that_the_class_of_its_class_has(name):
    def target():
        pass

    def f(x):
        return x * getattr(target, name, 1)

    compiled, x = minidynamo.compile(f, backend="eager"), torch.ones(2)
    for step in (lambda: None, lambda: setattr(target, name, 4), lambda: delattr(target, name)):
        step()
        assert torch.equal(compiled(x), f(x))


def test_attributes_of_a_cached_function():
    cached = functools.lru_cache(lambda: 1)
    cached.rate = 2

    def f(x):
        named = len(cached.__name__) + len(cached.__doc__ or "") + len(cached.__dict__)
        return x * getattr(cached, "rate", 1) + named

    compiled, x = minidynamo.compile(f, backend="eager"), torch.ones(2)
    for name, value in (("rate", 3), ("__name__", "other"), ("__doc__", "text"), ("fresh", 1)):
        assert torch.equal(compiled(x), f(x))
        setattr(cached, name, value)
    assert torch.equal(compiled(x), f(x))
    del cached.rate
    assert torch.equal(compiled(x), f(x))


def test_a_module_gets_a_call_of_its_own():
    """`__call__` is looked up in the class, and reads `_call_impl` of the module."""
    layer, x = nn.Linear(2, 2), torch.ones(2)
    compiled = minidynamo.compile(nn.Sequential(layer), backend="eager")
    for name in ("_call_impl", "_wrapped_call_impl"):
        assert torch.equal(compiled(x), layer(x))
        setattr(layer, name, lambda x: x * 3)
        assert torch.equal(compiled(x), nn.Sequential(layer)(x))
        delattr(layer, name)


def test_absence_costs_one_guard_for_a_dictionary():
    net = Net()
    minidynamo.reset()
    compiled = minidynamo.compile(net, backend="eager")
    compiled(torch.randn(2, 3))
    absences = [g for g in last_compiled().guards if g.kind == "ABSENT"]
    assert len(absences) == len({g.source for g in absences})


def test_hooks_come_and_go_and_change_their_order():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    first = net[0].register_forward_hook(lambda module, args, result: result + 1)
    net[0].register_forward_hook(lambda module, args, result: result * 2)
    minidynamo.reset()
    compiled, x = minidynamo.compile(net, backend="eager"), torch.randn(2, 3)
    with config.patch(raise_internal_errors=True):
        for change in (
            lambda: None,
            lambda: net[0]._forward_hooks.move_to_end(first.id),
            lambda: net[1].register_forward_hook(lambda module, args, result: result - 1),
            first.remove,
        ):
            change()
            for _ in range(2):
                torch.testing.assert_close(compiled(x), net.forward(x))


def test_cells_of_functions_are_guarded():
    def scale(x):
        return helper(x) * 2

    def helper(x):
        return x + 1

    class Net(nn.Module):
        def forward(self, x):
            return KEPT["scale"](x)

    KEPT = {"scale": scale}
    net, x = Net(), torch.randn(3)
    minidynamo.reset()
    compiled = minidynamo.compile(net, backend="eager")
    for added in (1, 5, 7):
        helper = lambda x, added=added: x + added  # noqa: E731, F811
        for _ in range(2):
            torch.testing.assert_close(compiled(x), (x + added) * 2)


@pytest.mark.parametrize("base", [object, list, nn.Module, Exception])
def test_no_object_is_asked_for_its_class_while_tracing(base):
    asked = []

    class Asked(base):
        def __getattribute__(self, name):
            asked.append(name)
            return object.__getattribute__(self, name)

    def f(x, thing):
        return x + 1, [thing], type(thing), thing is None

    thing = Asked()
    minidynamo.reset()
    compiled = minidynamo.compile(f, backend="eager")
    asked.clear()
    assert compiled(torch.ones(2), thing)[1:] == ([thing], Asked, False)
    assert asked == []


def test_what_a_method_is_read_from_may_raise_or_do_something_before_the_arguments_do():
    log = []

    class Slow:
        def __getattr__(self, name):
            log.append(name)
            if name == "absent":
                raise AttributeError(name)
            return lambda value: value

    class Late:
        @property
        def method(self):
            log.append("read")
            return lambda value: value

    def f(x, thing, name):
        y = x + 1
        if name == "other":
            return y * thing.other(log.append("argument") or 2)
        if name == "absent":
            return y * thing.absent(log.append("argument") or 2)
        return y * thing.method(log.append("argument") or 2)

    def line_of(error):
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        return trace.tb_lineno

    def outcome(function, thing, name):
        log.clear()
        try:
            return function(torch.ones(2), thing, name).tolist(), [*log]
        except AttributeError as error:
            return str(error), line_of(error), [*log]

    with_attributes = collections.OrderedDict(a=1)
    with_attributes.fresh = 1
    minidynamo.reset()
    compiled = minidynamo.compile(f, backend="eager")
    for thing in (Slow(), Late(), with_attributes):
        for name in ("other", "absent", "method"):
            wanted = outcome(f, thing, name)
            assert outcome(compiled, thing, name) == wanted
            assert outcome(compiled, thing, name) == wanted


def test_a_metaclass_answers_for_names_that_its_classes_lack():
    class Meta(type):
        def __getattr__(cls, name):
            if name == "absent":
                raise AttributeError(f"no {name}")
            return cls.base + len(name)

    class First(metaclass=Meta):
        base = 3

    class Every(type):
        def __getattribute__(cls, name):
            return 7 if name == "special" else type.__getattribute__(cls, name)

    class Second(metaclass=Every):
        pass

    def f(x):
        return x * getattr(First, "some", 1) + getattr(First, "absent", 2), hasattr(First, "absent")

    def g(x):
        return x * getattr(Second, "special", 1), getattr(Second, "absent", 2)

    minidynamo.reset()
    x = torch.ones(2)
    for function in (f, g):
        compiled = minidynamo.compile(function, backend="eager")
        for base in (3, 4):
            First.base = base
            assert str(compiled(x)) == str(function(x))


def test_an_enumerations_member_whose_attribute_was_removed():
    """Python 3.11 finds it still."""

    class Mode(enum.Enum):
        FAST = 2

    def f(x):
        return x * getattr(Mode, "FAST", Mode(2)).value, hasattr(Mode, "FAST")

    minidynamo.reset()
    compiled, x = minidynamo.compile(f, backend="eager"), torch.ones(2)
    assert str(compiled(x)) == str(f(x))
    type.__delattr__(Mode, "FAST")
    assert str(compiled(x)) == str(f(x))


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
    weight = LAYER.weight
    for a, b in [
        (first, second),
        (first, first),
        (second, first),
        (outside, second),
        (first, outside),
        (outside, outside),
        (weight, second),
        (first, weight),
        (weight, weight),
    ]:
        assert str(compiled(a, b)) == str(f(a, b))


# ---- names and modules that are not there
def reads(text):
    """A function of x in a module of its own, and that module's globals."""
    values = {"torch": torch, "importlib": importlib}
    exec(f"def f(x):\n    {text}", values)
    return values.pop("f"), values


TRIES = "try: return x * NAME\n    except NameError: return x - 1"


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("helper", [False, True])
def test_a_global_or_a_builtin_that_comes_later(helper, backend):
    function, values = reads(TRIES)
    program = (lambda x: function(x) + 1) if helper else function
    minidynamo.reset()
    compiled, x = minidynamo.compile(program, backend=backend), torch.ones(2)
    changes = [
        lambda: None,
        lambda: values.update(NAME=5),
        lambda: values.pop("NAME"),
        lambda: setattr(builtins, "NAME", 7),
        lambda: values.update(NAME=3),
    ]
    try:
        for change in changes:
            change()
            torch.testing.assert_close(compiled(x), program(x))
    finally:
        del builtins.NAME


IMPORTS = {
    "import": ("late", "import late; return x * late.K"),
    "tried": (
        "late",
        "try: import late\n    except ImportError: return x - 1\n    return x * late.K",
    ),
    "from": ("late", "from late import K; return x * K"),
    "as": ("os.late", "import os.late as it; return x * it.K"),
    "of a package": ("xml.late", "from xml import late; return x * late.K"),
    "import_module": ("late", "return x * importlib.import_module('late').K"),
    "__import__": ("late", "return x * __import__('late').K"),
}


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("name", IMPORTS)
def test_a_module_that_is_put_in_the_place_of_another(name, is_there, monkeypatch):
    """As tests do (`mock.patch.dict("sys.modules", late=fake)`), and plugins."""
    place, text = IMPORTS[name]
    function, _ = reads(text)
    minidynamo.reset()
    compiled, x = minidynamo.compile(function, backend="eager"), torch.ones(2)
    for k in [4 if is_there else None, 5, 6, None, 7, "None"]:
        if k is None:
            monkeypatch.delitem(sys.modules, place, raising=False)
        else:
            module = types.ModuleType(place)
            module.K = k
            monkeypatch.setitem(sys.modules, place, None if k == "None" else module)
        found = []
        for program in (function, compiled):
            try:
                found.append(program(x).tolist())
            except ImportError as error:
                found.append((type(error), str(error)))
        assert found[0] == found[1], k
