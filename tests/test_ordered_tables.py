"""An OrderedDict has a table and an order; dict's own methods write to the table alone.

Each method of dict that writes, applied between two calls (and before the first), then each way to
look at an OrderedDict: the compiled function gives what the plain one gives, or raises the same.
"""

import collections

import pytest
import torch

import minidynamo
from tests.soundness.tables import items

WRITES = {
    "new key": lambda table: dict.__setitem__(table, "c", 3),
    "known key": lambda table: dict.__setitem__(table, "a", 4),
    "update": lambda table: dict.update(table, c=3, d=4),
    "setdefault": lambda table: dict.setdefault(table, "c", 3),
    "delete": lambda table: dict.__delitem__(table, "a"),
    "pop": lambda table: dict.pop(table, "b"),
    "popitem": lambda table: dict.popitem(table),
    "clear": lambda table: dict.clear(table),
    "or": lambda table: dict.__ior__(table, {"c": 3}),
    "another key": lambda table: (dict.__delitem__(table, "a"), dict.__setitem__(table, "c", 3)),
}
LOOKS = items("""
    len(table); bool(table); 'a' in table; 'c' in table; table['a']; table['c']; table.get('a', 7);
    table.get('c', 7); len(table.keys()); len(types.MappingProxyType(table)); len(list(table));
    sum(table.values()); len(dict(table)); len({**table}); len(dict.keys(table));
    table == {'a': 1, 'b': 2}; 'c' in table.keys(); len(table.copy())
""")


class Own(collections.OrderedDict):
    pass


def outcome(function, x, table):
    try:
        return function(x, table).tolist()
    except Exception as error:
        return type(error)


def looking(text):
    namespace = {"torch": torch, "types": __import__("types")}
    exec(f"def look(x, table):\n    return x + ({text})", namespace)
    return namespace["look"]


@pytest.mark.parametrize("cls", [collections.OrderedDict, Own])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_past_the_order_is_noticed(cls, name):
    different = []
    for text in LOOKS:
        for early in (False, True):
            look, table, x = looking(text), cls(a=1, b=2), torch.ones(2)
            compiled = minidynamo.compile(look, backend="eager")
            if not early:
                outcome(compiled, x, table)
            WRITES[name](table)
            expected, found = outcome(look, x, table), outcome(compiled, x, table)
            errors = [record.error for record in minidynamo.records.frames if record.error]
            assert not errors, (text, errors)
            if found != expected:
                different.append((text, early, found, expected))
    assert not different
