"""Classes with special methods of their own, in Python and in C, on all kinds of bases; attributes
that are set and deleted in any order; metaclasses; iterators behind a graph break."""

import collections
import contextlib
import random
import typing

import pytest
import torch

import minidynamo
from tests.soundness.tables import lambdas


def outcome(function, *args):
    try:
        return repr(function(torch.ones(2), *args))
    except Exception as error:
        return type(error).__name__


def difference(function, make):
    """What differs between eager and compiled code, each with an object of its own, and in what
    became of that."""
    minidynamo.reset()
    found = []
    for run in (function, minidynamo.compile(function, backend="eager")):
        for _ in range(2):
            thing = make()
            found.append((outcome(run, thing), state(thing)))
    return found[:2] != found[2:] and found


def state(thing):
    """All that it holds, without its special methods."""
    kinds = [base for base in (dict, list, set, tuple) if issubclass(type(thing), base)]
    inside = kinds[0] if kinds else None
    slots = []
    for name in ("a", "b", "c", "__dict__"):
        with contextlib.suppress(AttributeError):
            value = object.__getattribute__(thing, name)
            slots.append((name, [*dict.items(value)] if name == "__dict__" else value))
    return repr([slots, inside and [*inside.__iter__(thing)]])


class Pair(typing.NamedTuple):
    x: int
    y: int


class Record(collections.namedtuple("Record", "x y")):
    __slots__ = ()


# base -> what its objects are made of
BASES = {
    dict: ({"k": 1},),
    collections.OrderedDict: ({"k": 1},),
    list: ([1, 2],),
    set: ({1, 2},),
    tuple: ((1, 2),),
    Pair: (1, 2),
    Record: (1, 2),
    object: (),
}
METHODS = {
    "__len__": (lambda s: 3, list.__sizeof__),
    "__bool__": (lambda s: False, None),
    "__iter__": (lambda s: iter([7, 8]), dict.keys, list.__iter__),
    "__contains__": (lambda s, v: True, None, list.__eq__),
    "__getitem__": (lambda s, k: "item", object.__getattribute__),
    "__setitem__": (lambda s, k, v: None, object.__setattr__),
    "__add__": (lambda s, o: "added", tuple.__mul__),
    "__radd__": (lambda s, o: "added right", None),
    "__mul__": (lambda s, o: "times",),
    "__rmul__": (lambda s, o: "times right",),
    "__or__": (lambda s, o: "or", set.union),
    "__eq__": (lambda s, o: "equal", object.__eq__, object.__ne__),
    "__lt__": (lambda s, o: "less", list.__gt__),
    "__hash__": (lambda s: 5, None, object.__hash__),
    "__call__": (lambda s: "called", dict.copy),
    "__reversed__": (lambda s: iter([9]), None, list.copy),
    "__getattr__": (lambda s, n: n, dict.__getitem__),
    "__setattr__": (lambda s, n, v: None, dict.__setitem__),
    "__delattr__": (lambda s, n: None, dict.__delitem__),
    "__str__": (lambda s: "text", object.__repr__),
    "__init__": (lambda s, *values: None, dict.update),
    "__enter__": (lambda s: 4,),
    "__next__": (lambda s: 6,),
}


def set_item(x, o):
    o["k"] = 1


def set_attribute(x, o):
    o.a = x + 1
    return o.a


def delete_attribute(x, o):
    o.a = 1
    del o.a


USES = lambdas(
    "x, o",
    globals(),
    """
    len: (x + 1, len(o)); bool: (x + 1, bool(o), not o); list: (x + 1, list(o));
    star: (x + 1, [*o], (lambda *a: a)(*o));
    into: (x + 1, {5}.union(o), {5} | {*o}, {5}.isdisjoint(o)); extend: (x + 1, [0].__iadd__(o));
    unpack: (x + 1, (lambda a, b: (b, a))(*o)); in: (x + 1, 99 in o); item: (x + 1, o[0]);
    key: (x + 1, o["k"]); set item: set_item(x, o); plus: (x + 1, o + o);
    right: (x + 1, (1,) + o, 2 * o); times: (x + 1, o * 2); or: (x + 1, o | o);
    equal: (x + 1, o == o, o != o); less: (x + 1, o < o); dict: (x + 1, {o: 1}[o]);
    call: (x + 1, o()); reversed: (x + 1, [*reversed(o)]); attribute: (x + 1, o.k);
    set: set_attribute(x, o); delete: delete_attribute(x, o); text: (x + 1, f"{o}"[:4]);
    new: (x + 1, len(type(o)(*o)), [*type(o)(*o)]);
    update: (x + 1, o.update(z=1), o.setdefault("q", 2), o.pop("q", None)); next: (x + 1, next(o));
    sum: (x + 1, sum([o, o], o))
""",
)


def case(chosen):
    """A class with one or two special methods, and a use."""
    base = chosen.choice([*BASES])
    names = chosen.sample([*METHODS], chosen.choice((1, 1, 2)))
    body = {name: chosen.choice(METHODS[name]) for name in names}
    slots = {"__slots__": ()} if chosen.random() < 0.5 else {}
    return base, body | slots, chosen.choice([*USES])


@pytest.mark.parametrize("seed", range(4))
def test_special_methods(seed):
    chosen, found = random.Random(seed), {}
    for _ in range(60):
        base, body, use = case(chosen)
        try:
            kind = type("Kind", (base,), dict(body))
            kind(*BASES[base])
        except TypeError:
            continue
        told = difference(USES[use], lambda kind=kind, base=base: kind(*BASES[base]))
        found[base.__name__, str(body), use] = told
    assert not {key: told for key, told in found.items() if told}


# ---- attributes
class Slots:
    __slots__ = ("a", "b", "c")


class Both:
    __slots__ = ("a", "b", "__dict__")


class Plain:
    pass


class OwnDict(dict):
    """Its attributes are its items."""

    def __init__(self):
        self.__dict__ = self


class AttrDict(dict):
    __getattr__, __setattr__, __delattr__ = dict.__getitem__, dict.__setitem__, dict.__delitem__


STEPS = {
    "set": lambda o, name, value: setattr(o, name, value),
    "delete": lambda o, name, value: delattr(o, name),
    "try": lambda o, name, value: hasattr(o, name) and delattr(o, name),
    "read": lambda o, name, value: getattr(o, name, None),
}


@pytest.mark.parametrize("kind", (Slots, Both, Plain, OwnDict, AttrDict, torch.nn.Identity))
@pytest.mark.parametrize("seed", range(3))
def test_set_and_delete(kind, seed):
    chosen = random.Random(seed)

    def make():
        made = kind()
        if seed:
            made.b = 0
        return made

    for _ in range(6):
        kinds = [*STEPS, "set", "set", "try", "try"]
        steps = [(chosen.choice(kinds), chosen.choice("aab")) for _ in range(6)]

        def f(x, o):
            return [STEPS[step](o, name, x + n) for n, (step, name) in enumerate(steps)]

        assert not difference(f, make), steps


def test_two_objects_of_one_dict():
    """The `__dict__` of one is an argument, too: in the first call, not in the second."""

    def f(x, o, d):
        d["a"] = 5
        return x + o.a

    compiled, thing = minidynamo.compile(f, backend="eager"), Plain()
    thing.a = 1
    for d in (vars(thing), {"a": 1}):
        thing.a = 1
        assert outcome(compiled, thing, d) == outcome(f, thing, d)


# ---- enumerations, metaclasses, methods
class Singleton(type):
    made = {}

    def __call__(cls, *args):
        if cls not in cls.made:
            cls.made[cls] = super().__call__(*args)
        return cls.made[cls]


class Single(metaclass=Singleton):
    def __init__(self, n=1):
        self.n = n


class Typed(typing.TypedDict):
    n: int


WHOLE = {
    "single": lambda x, o: x + Single(2).n,
    "same single": lambda x, o: (x + 1, Single(2) is Single(3)),
    "typed": lambda x, o: (x + 1, Typed(n=1), type(Typed(n=1))),
    "bound methods": lambda x, o: (x + 1, bool(o.keep), not [].append, bool(x.sum)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_captured_whole(name):
    class Keeping:
        def keep(self):
            return 1

    thing = Keeping()
    want = [outcome(WHOLE[name], thing) for _ in range(2)]
    minidynamo.counters.clear()
    compiled = minidynamo.compile(WHOLE[name], backend="eager", fullgraph=True)
    assert [outcome(compiled, thing) for _ in range(2)] == want
    assert not minidynamo.counters["skipped"]


@pytest.mark.parametrize("make", (list, tuple, reversed, lambda values: range(len(values))))
@pytest.mark.parametrize("taken", (0, 1, 4))
def test_iterator_behind_a_break(make, taken):
    def f(x, values):
        walk = iter(make(values))
        for _ in range(taken):
            x = x + next(walk, 0)
        minidynamo.graph_break()
        for value in walk:
            x = x * 2 + value
            if value == 2:
                break
        minidynamo.graph_break()
        return x, [*walk], next(walk, None)

    compiled = minidynamo.compile(f, backend="eager")
    for values in ([1, 2, 3], [1, 2, 3], [3, 1, 1]):
        assert outcome(compiled, values) == outcome(f, values)
