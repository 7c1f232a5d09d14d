"""Keys that are equal but not the same (1, True, 1.0, -0.0, NaN...), in all kinds of containers:
what a first call has seen must not be told of a second one."""

import collections
import dataclasses
import enum
import itertools
import random

import numpy
import pytest
import torch

import minidynamo


class Number(enum.IntEnum):
    ONE = 1


class MyInt(int):
    pass


class MyStr(str):
    pass


class MyDict(dict):
    pass


GROUPS = [
    [1, True, 1.0, 1 + 0j, numpy.int64(1), numpy.float32(1), Number.ONE, MyInt(1)],
    [0, 0.0, -0.0, False, complex(0.0, -0.0), numpy.float64(-0.0)],
    ["a", MyStr("a"), numpy.str_("a")],
    [(1, "a"), (True, "a"), (1.0, "a"), (1, MyStr("a"))],
    [((0.0,),), ((-0.0,),), ((False,),)],
    [frozenset({1}), frozenset({True})],
    [float("nan"), float("nan"), numpy.float64("nan")],
    [range(0, 3, 2), range(0, 4, 2)],
]
PAIRS = [pair for group in GROUPS for pair in itertools.permutations(group, 2)]
DICTS = {
    "dict": lambda key: {key: 2},
    "OrderedDict": lambda key: collections.OrderedDict({key: 2}),
    "defaultdict": lambda key: collections.defaultdict(int, {key: 2}),
    "Counter": lambda key: collections.Counter({key: 2}),
    "a class of dicts": lambda key: MyDict({key: 2}),
}
CONTAINERS = DICTS | {"set": lambda key: {key}, "frozenset": lambda key: frozenset({key})}
READS = {
    "list": lambda c: list(c),
    "types": lambda c: [type(key).__name__ for key in c],
    "next": lambda c: next(iter(c)),
    "text": lambda c: [repr(key) for key in c],
    "copy": lambda c: [*c.copy()],
    "parts": lambda c: [getattr(key, "real", key) for key in c],
    "sum": lambda c: sum(c, start=0),
    "length": lambda c: len(c),
    "items": lambda c: [*c.items()] if isinstance(c, dict) else [*c],
}
ASKS = {
    "in": lambda c, key: key in c,
    "get": lambda c, key: c.get(key) if isinstance(c, dict) else key in {*c},
    "in a list": lambda c, key: key in [*c],
    "put": lambda c, key: [*{**c, key: 3}.items()] if isinstance(c, dict) else [*(c | {key})],
    "new": lambda c, key: [*{key: 1}, *c],
}


def outcome(function, *args):
    try:
        return repr(function(torch.ones(2), *args)[1])
    except Exception as error:
        return type(error).__name__


def difference(function, *calls):
    """What differs between eager and one compiled function, called with each of `calls`."""
    minidynamo.reset()
    compiled = minidynamo.compile(function, backend="eager")
    for args in calls:
        want, got = outcome(function, *args), outcome(compiled, *args)
        if want != got:
            return f"{args}: {want}, not {got}"
    return None


def walked(kind, read, pair):
    make, ask = CONTAINERS[kind], READS[read]
    return difference(lambda x, c: (x + 1, ask(c)), *[(make(key),) for key in pair])


def asked(kind, how, pair):
    make, ask = CONTAINERS[kind], ASKS[how]
    one, other = pair
    calls = [(make(one), one), (make(one), other), (make(other), one), (make(other), other)]
    return difference(lambda x, c, key: (x + 1, ask(c, key)), *calls)


@pytest.mark.parametrize("seed", range(4))
def test_equal_keys(seed):
    chosen = random.Random(seed)
    found = {}
    for pair in chosen.sample(PAIRS, 40):
        kind = chosen.choice([*CONTAINERS])
        for check, table in ((walked, READS), (asked, ASKS)):
            how = chosen.choice([*table])
            found[kind, how, pair] = check(kind, how, pair)
    assert not {case: told for case, told in found.items() if told}


def test_slices_and_ranges_as_arguments():
    """They are equal where their parts are."""
    for one, other in [(range(0, 3, 2), range(0, 4, 2)), (slice(1), slice(True))]:
        assert not difference(lambda x, s: (x + 1, s.stop), (one,), (other,))


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: int = 1
    b: int = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True)
class OwnHash:
    a: int = 1

    def __hash__(self):
        return 7


class EqualTuple(tuple):
    def __eq__(self, other):
        return False

    __hash__ = tuple.__hash__


MADE = {
    "slots": lambda x: (
        x + 1,
        {Slotted(3, 1): 1}.get(Slotted(3, 2)),
        len({Slotted(1), Slotted(2)}),
    ),
    "in a tuple": lambda x: (x + 1, {(Slotted(3), 1): 1}[(Slotted(3), 1)]),
    "own hash": lambda x: (x + 1, {OwnHash(3): 1}[OwnHash(3)]),
    "equality of a tuple": lambda x: (x + 1, EqualTuple((1, 2)) in {EqualTuple((1, 2)): 1}),
}


@pytest.mark.parametrize("name", MADE)
def test_objects_as_keys(name):
    assert not difference(MADE[name], ())
