"""A sample of `tests/soundness/c_objects.py`, and how each class is asked."""

import abc
import collections
import functools
import numbers
import typing

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
    *(torch.FloatTensor, torch.LongTensor, torch.HalfTensor, torch.cuda.FloatTensor),
    *((torch.LongTensor, torch.FloatTensor), torch.Tensor, torch.autograd.Variable),
    *(torch.nn.Parameter, torch.nn.Buffer, torch.nn.parameter.UninitializedParameter),
    *(collections.abc.Sized, collections.abc.Iterable, typing.Iterable, typing.SupportsInt),
    *(numbers.Number, HasSize, Asked, Registry, typing.Union[int, None], int | None),
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


def test_attributes_that_c_types_inherit():
    outside = functools.partial(int, base=2)

    def f(x, given):
        made = functools.partial(given, 1)
        names = ("__call__", "__doc__", "__eq__", "__hash__", "func", "nothing")
        found = [hasattr(o, name) for o in (made, outside, given, [].append) for name in names]
        return x + 1, found, made == made, [].append == [].append, made.__doc__ == outside.__doc__

    x = torch.ones(2)
    assert compiled(f)(x, lambda a: a)[1:] == f(x, lambda a: a)[1:]


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
