"""Who is asked by `a + b` and `a < b`, and in which order: every pair of a few classes."""

import enum
import itertools

import pytest
import torch

import minidynamo


class Silent:
    """Knows both sides, and answers neither."""

    def __add__(self, other):
        return NotImplemented

    def __eq__(self, other):
        return NotImplemented

    def __lt__(self, other):
        return NotImplemented


class FromTheRight(Silent):
    def __radd__(self, other):
        return "radd", type(other).__name__

    def __gt__(self, other):
        return "gt", type(other).__name__


class Left:
    def __add__(self, other):
        return "add", type(other).__name__

    def __lt__(self, other):
        return "lt", type(other).__name__

    def __gt__(self, other):
        return "gt", type(other).__name__


class SameLeft(Left):
    """Adds nothing of its own: a comparison asks it first, an addition does not."""


class OwnRight(Left):
    def __radd__(self, other):
        return "own radd", type(other).__name__

    def __gt__(self, other):
        return NotImplemented


class Unequal:
    def __ne__(self, other):
        return "ne"


class Equal:
    def __eq__(self, other):
        return True


class NoOperators:
    __add__ = __eq__ = __lt__ = __neg__ = None


class PlainList(list):
    pass


class SilentList(list):
    __eq__ = Silent.__eq__
    __lt__ = __gt__ = Silent.__lt__


class SilentInt(int):
    __add__ = __radd__ = Silent.__add__
    __eq__ = Silent.__eq__
    __lt__ = __gt__ = Silent.__lt__


class Level(enum.IntEnum):
    LOW = 1


OBJECTS = [kind() for kind in (Silent, FromTheRight, Left, SameLeft, OwnRight, Unequal, Equal)]
OBJECTS += [NoOperators(), PlainList([1]), SilentList([1]), SilentInt(2), Level.LOW]
OPERANDS = {type(value).__name__: value for value in (*OBJECTS, [2], (1,), 1, "a", None)}


def outcome(function):
    try:
        return function()
    except TypeError as error:
        return str(error)


def answers(x, a, b):
    return x + 1, [
        outcome(lambda: a + b),
        outcome(lambda: a < b),
        outcome(lambda: a >= b),
        outcome(lambda: a == b),
        outcome(lambda: a != b),
        outcome(lambda: -a),
    ]


@pytest.mark.parametrize("first", OPERANDS)
def test_every_pair(first):
    x = torch.ones(2)
    compiled = minidynamo.compile(answers, backend="eager")
    for second in OPERANDS:
        minidynamo.reset()
        operands = OPERANDS[first], OPERANDS[second]
        assert repr(compiled(x, *operands)[1]) == repr(answers(x, *operands)[1]), second


def test_two_objects_of_one_class():
    """`a + a` does not ask for `__radd__`; wrong before: ("radd", "FromTheRight")."""
    x = torch.ones(2)
    kinds = [FromTheRight, OwnRight, SameLeft]
    for first, second in itertools.product(kinds, kinds):
        expected = answers(x, first(), second())[1]
        assert minidynamo.compile(answers, backend="eager")(x, first(), second())[1] == expected


def grown(x, values):
    def growing():
        for n in (1, 2, 8):
            values.add(90 + n)
            yield n

    made = [values.union, values.difference, values.intersection, values.symmetric_difference]
    return x + 1, [sorted(method(growing())) for method in made], sorted(values)


def test_sets_that_grow_while_an_operation_walks():
    """The tracer raised a KeyError."""
    x = torch.ones(2)
    assert minidynamo.compile(grown, backend="eager")(x, {7, 8})[1:] == grown(x, {7, 8})[1:]
