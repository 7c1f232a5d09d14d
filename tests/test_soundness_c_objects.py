"""A sample of `tests/soundness/c_objects.py`, and the programs of issue 18 that it came from."""

import abc
import collections
import enum
import functools
import numbers
import types
import typing
import weakref

import pytest
import torch

import minidynamo
from tests.soundness import c_objects, runner


def test_every_type_has_an_instance_or_a_reason():
    assert not c_objects.without_instances()


def test_every_instance_can_be_made():
    namespace = c_objects.load(c_objects.HEADER, "<c_objects header>")
    for made in c_objects.instances().values():
        for expression in made:
            eval(expression, namespace)


SAMPLES = [("names", 1), ("operations", 2), ("consume", 150), ("methods", 12), ("sets", 40)]


@pytest.mark.parametrize(("family", "count"), SAMPLES)
def test_sample(family, count, monkeypatch):
    everything = [case for case in c_objects.cases(200, 0) if case[0].startswith(family)]
    monkeypatch.setattr(c_objects, "cases", lambda count, first: everything)
    assert not runner.sample(c_objects, count, "eager")


@typing.runtime_checkable
class HasSize(typing.Protocol):
    size_of_it: int


class Sized:
    def __init__(self):
        self.size_of_it = 1


class Meta(type):
    def __instancecheck__(cls, value):
        return value is None or super().__instancecheck__(value)


class Asked(metaclass=Meta):
    pass


class Registry(abc.ABC):
    pass


class Late:
    pass


KINDS = (
    torch.FloatTensor,
    torch.LongTensor,
    torch.HalfTensor,
    torch.cuda.FloatTensor,
    (torch.LongTensor, torch.FloatTensor),
    torch.Tensor,
    torch.autograd.Variable,
    torch.nn.Parameter,
    torch.nn.Buffer,
    torch.nn.parameter.UninitializedParameter,
    collections.abc.Sized,
    collections.abc.Iterable,
    typing.Iterable,
    numbers.Number,
    HasSize,
    Asked,
    Registry,
    typing.SupportsInt,
    typing.Union[int, None],
    int | None,
)


def compiled(function):
    minidynamo.reset()
    return minidynamo.compile(function, backend="eager")


@pytest.mark.parametrize(
    "make", [torch.ones, lambda n: torch.nn.Parameter(torch.ones(n)), torch.nn.Buffer]
)
def test_isinstance_asks_each_class_in_its_own_way(make):
    def f(x, other):
        y = x + 1
        values = (x, y, y.half(), y.long(), other, 3, None)
        found = [isinstance(value, kind) for value in values for kind in KINDS]
        return y, found, x.type(), y.type() == "torch.FloatTensor", type(x) is torch.Tensor

    x = make(3) if make is not torch.nn.Buffer else torch.nn.Buffer(torch.ones(3))
    for other in (Sized(), Late(), Asked()):
        assert compiled(f)(x, other)[1:] == f(x, other)[1:]


def test_a_class_that_is_registered_later_is_noticed():
    def f(x, other):
        return x + 1, isinstance(other, Registry), issubclass(Late, Registry)

    run = compiled(f)
    assert run(torch.ones(2), Late())[1:] == (False, False)
    Registry.register(Late)
    assert run(torch.ones(2), Late())[1:] == (True, True)


def test_attributes_that_c_types_inherit():
    outside = functools.partial(int, base=2)

    def f(x, given):
        made = functools.partial(given, 1)
        names = ("__call__", "__doc__", "__eq__", "__hash__", "func", "nothing")
        found = [hasattr(o, name) for o in (made, outside, given, [].append) for name in names]
        return x + 1, found, made == made, [].append == [].append, made.__doc__ == outside.__doc__

    x = torch.ones(2)
    assert compiled(f)(x, lambda a: a)[1:] == f(x, lambda a: a)[1:]


def test_equal_keys_keep_the_first():
    def f(x):
        return x + 1, repr({1.0, 1, True}), repr(set([True, 1])), repr({1} & {1.0})

    x = torch.ones(2)
    assert compiled(f)(x)[1:] == f(x)[1:]


def test_a_generator_that_is_dropped_runs_its_end():
    log = []

    def generate():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    def f(x):
        return x + next(generate()), list(log)

    x = torch.ones(2)
    expected = f(x)[1]
    log.clear()
    assert compiled(f)(x)[1] == expected


def test_iterators_that_leave_keep_their_class():
    def f(x, d, ordered):
        walked = iter(d)
        list(walked)
        made = [walked, iter(d.items()), iter(ordered), reversed(ordered), iter("\u00e9a")]
        made += [reversed(d), reversed(d.values()), reversed(d.items()), iter("ab"), iter({1})]
        next(made[-1])
        next(made[3])
        return x + 1, made

    arguments = torch.ones(2), {"a": 1, 2: 3}, collections.OrderedDict(a=1, b=2)
    plain, ours = f(*arguments)[1], compiled(f)(*arguments)[1]
    assert [type(made) for made in ours] == [type(made) for made in plain]
    assert [list(made) for made in ours[:3]] == [list(made) for made in plain[:3]]
    assert [len(list(made)) for made in ours[3:]] == [len(list(made)) for made in plain[3:]]


def test_a_generic_alias_looks_attributes_up_in_its_class():
    alias = list[int]

    def f(x):
        return x + 1, alias.__doc__, alias.__origin__, alias.__args__, hasattr(alias, "nothing")

    x = torch.ones(2)
    assert compiled(f)(x)[1:] == f(x)[1:]


def test_enumerations_are_walked_by_generators():
    class Color(enum.Enum):
        RED, BLUE = 1, 2

    class Backwards(enum.EnumMeta):
        def __iter__(cls):
            return reversed(list(super().__iter__()))

    class Other(enum.Enum, metaclass=Backwards):
        RED, BLUE = 1, 2

    def f(x):
        made = iter(Color)
        kinds = [type(made), type(reversed(Color))]
        first = next(made)
        minidynamo.graph_break()
        return x + 1, kinds, first, list(made), list(reversed(Color)), list(Other)

    x = torch.ones(2)
    assert str(compiled(f)(x)) == str(f(x))


def test_errors_about_objects_keep_them():
    class Color(enum.Enum):
        RED, BLUE = 1, 2

    def f(x):
        try:
            return x, Color[0:1]
        except (KeyError, TypeError) as error:  # 3.12: slices have a hash
            return x + 1, [type(part) for part in error.args]

    x = torch.ones(2)
    assert str(compiled(f)(x)) == str(f(x))


def test_a_method_of_c_that_is_given_stays_the_same_object():
    def f(x, method):
        made = [1].append
        both = [made, made]
        same = max(method, method, key=id) is method, max(made, made, key=id) is made
        return x + 1, same, [method], both

    method = [1].append
    _, same, listed, both = compiled(f)(torch.ones(2), method)
    assert same == (True, True) and listed[0] is method and both[0] is both[1]


def test_functions_without_a_closure_have_none():
    """Made in the frame: asked there, and behind a graph break, where the function is made anew."""

    def f(x):
        captured = 2
        alone = lambda a, b=1: a  # noqa: E731
        inner = lambda a: a + captured  # noqa: E731
        before = alone.__closure__
        minidynamo.graph_break()
        return x + 1, before, alone.__closure__, alone, inner(1)

    result = minidynamo.compile(f, backend="eager")(torch.ones(2))
    assert result[1] is None and result[2] is None and result[3].__closure__ is None
    assert result[4] == 3


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("name", ["symmetric_difference", "symmetric_difference_update"])
def test_methods_of_sets_that_take_one_argument(name, count):
    def f(x):
        numbers = {1, 2}
        try:
            getattr(numbers, name)(*[0] * count)
        except TypeError as error:
            return x + 1, str(error)
        return x, ""

    assert minidynamo.compile(f, backend="eager")(torch.ones(1))[1] == f(torch.ones(1))[1] != ""


@pytest.mark.parametrize("name", [3, None, b"text", int, "missing"])
def test_modules_whose_name_is_no_text(name, monkeypatch):
    monkeypatch.setattr(minidynamo.config, "raise_internal_errors", True)
    module = types.ModuleType("made")
    exec("def inner(x):\n    import math\n    return x + math.floor(2.5)", module.__dict__)
    module.__name__ = name
    if name == "missing":
        del module.__name__

    def f(x):
        return module.inner(x), getattr(module, "__name__", 7), hasattr(module, "absent")

    result = minidynamo.compile(f, backend="eager")(torch.ones(2))
    assert result[0].tolist() == [3, 3]
    assert result[1:] == (7 if name == "missing" else name, False)


class Plain:
    pass


KEPT = Plain()


def test_reversed_of_a_proxy_says_what_its_object_lacks():
    def run(x):
        o = weakref.proxy(KEPT)
        x = x + 1
        out = []
        try:
            out.append(reversed(o))
        except Exception as error:
            out.append((type(error), str(error)))
        return x * 2, out

    compiled = minidynamo.compile(run, backend="eager")
    assert compiled(torch.ones(2))[1] == run(torch.ones(2))[1]
