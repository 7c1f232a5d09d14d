"""The memo of guard checks: whatever is written, it says so; needs no torch."""

import collections
import gc

import pytest
from minidynamo.extras._guard_memo import Memo


class Thing:
    level = 1

    def __init__(self):
        self.a, self.b = 1, 2


class Other(Thing):
    pass


def lasting(thing):
    return [thing, thing.__dict__, Thing, lasting], [thing.__dict__]


def store(thing, *names):
    for name in names:
        setattr(thing, name, 3)


WRITES = {
    "attribute": lambda t: store(t, "a"),
    "new attribute": lambda t: store(t, "c"),
    "many": lambda t: store(t, *map(chr, range(97, 120))),
    "del": lambda t: delattr(t, "a"),
    "object.__setattr__": lambda t: object.__setattr__(t, "a", 4),
    "item": lambda t: t.__dict__.__setitem__("a", 5),
    "update": lambda t: t.__dict__.update(a=6),
    "|=": lambda t: t.__dict__.__ior__({"a": 7}),
    "pop": lambda t: t.__dict__.pop("b"),
    "clear": lambda t: t.__dict__.clear(),
    "other dict": lambda t: setattr(t, "__dict__", dict(t.__dict__)),
    "other class": lambda t: setattr(t, "__class__", Other),
    "class attribute": lambda t: setattr(Thing, "level", Thing.level + 1),
    "code": lambda t: setattr(lasting, "__code__", lasting.__code__.replace()),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("warm", [0, 50])  # specialized bytecode stores in ways of its own
def test_writes_are_seen(name, warm):
    for _ in range(warm):
        thing = Thing()
        thing.__dict__
        store(thing, "a", "b")
    thing = Thing()
    memo = Memo()
    assert not memo()
    memo.remember(*lasting(thing))
    assert memo() and memo()
    WRITES[name](thing)
    assert not memo()
    memo.remember(*lasting(thing))
    assert memo()


def test_other_bases_are_seen():
    made, memo = type("Made", (type("Base", (), {}),), {}), Memo()
    memo.remember([made], [])
    assert memo()
    made.__bases__ = (type("Base", (), {}),)
    assert not memo()


def test_an_ordered_dictionary_is_not_remembered_for_its_order():
    table, memo = collections.OrderedDict(a=1, b=2), Memo()
    memo.remember([table], [])
    assert not memo()
    memo.remember([Thing], [table])
    assert memo()
    table["c"] = 3
    assert not memo()


def test_an_ordered_dictionary_whose_order_does_not_matter_is_remembered():
    table, memo = collections.OrderedDict(a=1, b=2), Memo()
    memo.remember([Thing, table], [table])
    assert memo()
    table.move_to_end("a")
    assert memo()
    del table["a"]
    assert not memo()


class Table(dict):
    pass


class OtherTable(dict):
    pass


TABLE_WRITES = {
    "item": lambda table: table.update(a=2),
    "through dict": lambda table: dict.__setitem__(table, "b", 2),
    "attribute": lambda table: setattr(table, "level", 2),
    "class": lambda table: setattr(table, "__class__", OtherTable),
}


@pytest.mark.parametrize("name", TABLE_WRITES)
def test_a_dictionary_of_a_class_of_its_own(name):
    table, memo = Table(a=1), Memo()
    memo.remember([table, table.__dict__], [])
    assert memo() and memo()
    TABLE_WRITES[name](table)
    assert not memo()


def test_the_content_of_a_cell():
    content, memo = object(), Memo()

    def write(value):
        nonlocal content
        content = value

    memo.remember(list(write.__closure__), [])
    assert memo()
    write(object())
    assert not memo()


def test_what_changes_in_every_call_is_given_up():
    thing, memo = Thing(), Memo()
    for n in range(100):
        memo.remember(*lasting(thing))
        assert memo()  # a hit between two writes: it is worth it
        thing.a = n
        assert not memo()
    for n in range(40):
        memo.remember(*lasting(thing))
        thing.a = n
        assert not memo()
    memo.remember(*lasting(thing))
    assert not memo()


def test_nothing_is_kept_alive():
    import weakref

    thing, memo = Thing(), Memo()
    memo.remember(*lasting(thing))
    seen = weakref.ref(thing)
    del thing
    gc.collect()
    assert seen() is None
