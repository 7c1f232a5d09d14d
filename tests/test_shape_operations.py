"""Every operation of tuples, lists and torch.Size over sizes that are symbols: the answer of eager,
and no number is made of a size that only an equality or an order was asked of.

`OPERATIONS` has the programs of each method; the list of methods is Python's own.
"""

import copy

import pytest
import torch

import minidynamo

# operation -> expressions in `s` (the sizes, three of them), `t` (the same of another tensor) and
# `n`, `m` (single sizes).  `kind` is list, tuple or torch.Size.
OPERATIONS = {
    "__eq__": ["s == t", "s == kind(s)", "(n,) == (m,)", "[n] == [m, n]", "s == 3"],
    "__ne__": ["s != t", "s != kind(s)", "s[1:] != t[1:]", "s != None"],
    "__lt__": ["s < t", "[*s] < [*t]"],
    "__le__": ["s <= t", "kind(s) <= s"],
    "__gt__": ["s > t", "(n, 1) > (m, 1)"],
    "__ge__": ["s >= t", "s >= kind(s)"],
    "__contains__": (
        "-1 in s[1:2]; n in (64, 128); n in [m, 128]; n in s; 'a' in s; "
        "n not in (2, None); s.__contains__(-1); s in (t, 3); s in [t, s]; "
        "(n, m) in ((m, m), (n, m))"
    ).split("; "),
    "count": ["s.count(n)", "s.count(-1)", "(64, 128).count(n)", "(s, t).count(s)"],
    "index": ["s.index(s[1])", "(3, n, -1).index(-1)", "s.index(-1)"],
    "__add__": ["s + kind((n, 2))", "kind(s + t)", "sum((s, t), kind())"],
    "__radd__": ["(m, 2) + torch.Size(s)"],
    "__iadd__": ["exec_iadd(kind(s), t)"],
    "__mul__": ["s * 2", "kind((n, m)) * 3"],
    "__rmul__": ["2 * s"],
    "__imul__": ["exec_imul(kind(s), 2)"],
    "__getitem__": ["s[1]", "s[-1]", "s[::2]", "s[1:][0]", "s.__getitem__(0)"],
    "__len__": ["len(s)", "len(s[1:])", "bool(s)", "not s[:0]"],
    "__iter__": ["[a for a in s]", "next(iter(s))", "list(zip(s, t))", "[*map(abs, s)]", "max(s)"],
    "__reversed__": ["list(reversed(s))"],
    "__class__": ["s.__class__ is kind", "isinstance(s, tuple)"],
    "numel": ["torch.Size(s).numel()"],
    "append": ["changed(s, 'append', n)"],
    "clear": ["changed(s, 'clear')"],
    "copy": ["[*s].copy()"],
    "extend": ["changed(s, 'extend', t)"],
    "insert": ["changed(s, 'insert', 1, n)"],
    "pop": ["changed(s, 'pop')", "changed(s, 'pop', 0)"],
    "remove": ["changed(s, 'remove', m)", "changed((3, n, -1), 'remove', -1)"],
    "reverse": ["changed(s, 'reverse')"],
    "sort": ["changed(s, 'sort')", "changed((n, m), 'sort', reverse=True)", "sorted(s)", "min(s)"],
    "__setitem__": ["stored([*s], 0, m)", "stored([*s], slice(0, 2), (m,))"],
    "__delitem__": ["changed(s, '__delitem__', 0)"],
}
# what makes a number of sizes, in Python, too: a hash, a text, an index
NUMBERS = {
    "__hash__": ["hash(tuple(s)) == hash(tuple(t))"],
    "__repr__": ["repr(s)"],
    "__str__": ["str(s)"],
    "__format__": ["f'{tuple(s)}'"],
}
# nobody calls these of sizes
LEFT = """__class_getitem__ __delattr__ __dir__ __doc__ __getattribute__ __getnewargs__ __getstate__
    __init__ __init_subclass__ __new__ __reduce__ __reduce_ex__ __setattr__ __sizeof__
    __subclasshook__""".split()
KINDS = {"tuple": tuple, "list": list, "Size": torch.Size}


def exec_iadd(a, b):
    a += b
    return a


def exec_imul(a, b):
    a *= b
    return a


def changed(items, method, *args, **options):
    made = list(items)
    return made, getattr(made, method)(*args, **options)


def stored(items, place, value):
    items[place] = value
    return items


def program(expression, kind):
    """A function of two tensors that asks this of their sizes."""
    text = f"""
def f(x, y):
    s, t = kind(x.shape), kind(y.size())
    n, m = x.shape[0], y.shape[0]
    try:
        return x + 1, {expression}
    except (ValueError, TypeError) as error:
        return x - 1, type(error).__name__
"""
    space = {**globals(), "kind": kind}
    exec(text, space)
    return space["f"]


def answers(got):
    return copy.deepcopy(got[1]), type(got[1])


def graphs_of(f, fullgraph=True):
    """How often a function of two tensors is compiled for shapes of which all but one differ."""
    minidynamo.reset()
    compiled = minidynamo.compile(f, backend="eager", dynamic=True, fullgraph=fullgraph)
    for size in range(5, 12):
        for other in ((size, 14, 20), (2 * size, 3, 4)):
            x, y = torch.zeros(size, 14, 20), torch.zeros(other)
            assert answers(compiled(x, y)) == answers(f(x, y))
    return sum(record.graph is not None for record in minidynamo.records.frames)


def cases(table):
    for name, expressions in table.items():
        for expression in expressions:
            yield pytest.param(expression, id=f"{name}: {expression}")


def test_the_list_of_operations_is_complete():
    assert {name for kind in KINDS.values() for name in dir(kind)} == {*OPERATIONS, *NUMBERS, *LEFT}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("expression", cases(OPERATIONS))
def test_sizes_stay_symbols(expression, kind):
    """Two answers, two graphs; an order of three sizes has few more."""
    assert 1 <= graphs_of(program(expression, KINDS[kind])) <= 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("expression", cases(NUMBERS))
def test_numbers_that_are_needed_are_right(expression, kind):
    graphs_of(program(expression, KINDS[kind]), fullgraph=False)
