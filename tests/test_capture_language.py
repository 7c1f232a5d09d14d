"""Language features under capture: each plain function runs compiled (backend eager) and must equal
plain Python.

Values, mutations of the arguments, exceptions and printed text are compared, twice (the second call
hits the cache); the numbers of graphs and of graph breaks are asserted.
"""

import binascii
import collections
import contextlib
import copy
import functools
import io
import itertools  # noqa: F401
import re

import pytest
import torch

import minidynamo
from tests.soundness.tables import lambdas

pytestmark = pytest.mark.usefixtures("anew")


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b, equal_nan=True)
        assert a.requires_grad == b.requires_grad
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple, collections.deque)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, BaseException):
        assert str(a) == str(b)
    elif hasattr(a, "__dict__"):
        same(vars(a), vars(b))
    else:
        assert a == b


def outcome(function, args, kwargs):
    """(result or exception, arguments afterwards, printed text)."""
    args, printed = copy.deepcopy(args), io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            result = error
    return result, args, printed.getvalue()


def make_test(*args, graphs=1, breaks=0, **kwargs):
    """A plain function becomes a test that compares it compiled with itself, and counts."""

    def decorate(function):
        def test():
            expected = outcome(function, args, kwargs)
            compiled = minidynamo.compile(function, backend="eager")
            for _ in range(2):
                same(outcome(compiled, args, kwargs), expected)
            assert minidynamo.counters["graphs"].total() == graphs
            reasons = minidynamo.counters["graph_breaks"]
            assert len(reasons) == breaks, reasons
            assert not minidynamo.counters["errors"]

        test.__doc__ = function.__doc__
        return test

    return decorate


def X():
    return torch.arange(6.0).reshape(2, 3) - 2.0


def three_breaks(x):
    total = x
    for i in range(3):
        total = total + i
        print("step", i)
    if total.sum().item() > 0:
        total = total * 2
    else:
        total = total - 1
    with torch.no_grad():
        y = total + 1
        c = binascii.crc32(b"abc")
        y = y * (c % 7)
    return y, total


def test_three_breaks():
    expected = outcome(three_breaks, (X(),), {})
    compiled = minidynamo.compile(three_breaks, backend="eager")
    same(outcome(compiled, (X(),), {}), expected)
    same(outcome(compiled, (X(),), {}), expected)
    reasons = sorted(minidynamo.counters["graph_breaks"])
    assert len(reasons) == 3, reasons
    first = three_breaks.__code__.co_firstlineno
    for reason, (text, line) in zip(
        reasons, (("Tensor.item()", 5), ("binascii.crc32", 11), ("print()", 4))
    ):
        assert text in reason and reason.endswith(f"{__file__}:{first + line}"), reasons


@make_test(X())
def test_closure_and_nonlocal(x):
    k = 3

    def g(y):
        nonlocal k
        k += 1
        return y * k

    return g(x) + g(x), k


@make_test(X(), 1, 2, a=3, b=4)
def test_star_arguments(x, *args, a=1, **kw):
    for v in args:
        x = x + v
    return x * a + kw.get("b", 0)


@make_test(X())
def test_containers(x):
    items = [x, x + 1]
    d = {"a": items, "b": 2}
    items.append(x * 2)
    d["c"] = [v + 1 for v in items]
    first, *rest = d["c"]
    return d, rest, first, sum(items), items is d["a"]


@make_test([1, 2], {"z": 1}, X())
def test_mutated_arguments(items, d, x):
    items.append(x + 1)
    d["k"] = x * 2
    d["j"] = 3
    items[0] = 5
    return len(items)


@make_test(X())
def test_generators(x):
    def g():
        for i in range(3):
            yield x + i

    def h():
        yield from g()
        return 3

    return [v for v in h()], sum(g())


@make_test(X())
def test_exceptions(x):
    try:
        raise ValueError("bad %d" % 3)
    except ValueError as e:
        m = str(e)
    finally:
        x = x + 1
    try:
        {}["q"]
    except KeyError as e:
        m += repr(e.args)
    return x, m


@make_test(X().requires_grad_())
def test_no_grad(x):
    with torch.no_grad():
        y = x * 2
    return y, torch.is_grad_enabled(), x * 3


@make_test(X())
def test_in_place(x):
    x.add_(1)
    y = x[0]
    y.mul_(2)
    x[1] = 0
    return x


@make_test(X())
def test_builtins(x):
    numbers = sorted([3, 1, 2], key=lambda v: -v), max(1, 5, 3), min([4, 2]), any([0, 1]), all([])
    made = list(zip([1, 2], "ab")), list(map(lambda v: v + x, [1, 2])), [*reversed([1, 2])]
    return numbers, made, x + 1


@make_test(X())
def test_collections(x):
    d = collections.defaultdict(list)
    d["a"].append(x + 1)
    o = collections.OrderedDict(a=1)
    o["z"] = x
    return d, o


@make_test(X())
def test_aliasing(x):
    a = [1]
    b = a
    b += [2]
    s = {1, 2} | {3}
    return a, s, x + len(s), functools.reduce(lambda p, q: p + q, [x, x, x])


@make_test(X(), graphs=2, breaks=1)
def test_graph_break(x):
    x = x + 1
    minidynamo.graph_break()
    return x * 2


@make_test(X())
def test_returned_input_is_the_input(x):
    y = x + 1
    return [x, y], x is x


STEPS = 0


def test_global_write():
    global STEPS

    def f(x):
        global STEPS
        STEPS = STEPS + 1
        return x + STEPS

    compiled = minidynamo.compile(f, backend="eager")
    for expected in (1.0, 2.0):
        torch.testing.assert_close(compiled(torch.zeros(2)), torch.full((2,), expected))
    assert STEPS == 2


def test_object_attribute_write():
    class Counter:
        def __init__(self):
            self.n, self.log = 0, []

        def step(self, x):
            self.n += 1
            self.log.append(self.n)
            return x + self.n

    counter = Counter()
    compiled = minidynamo.compile(lambda x: counter.step(x) + counter.step(x), backend="eager")
    torch.testing.assert_close(compiled(torch.zeros(2)), torch.full((2,), 3.0))
    torch.testing.assert_close(compiled(torch.zeros(2)), torch.full((2,), 7.0))
    assert counter.n == 4 and counter.log == [1, 2, 3, 4]


class Linked:
    reads = 0

    @functools.cached_property
    def size(self):
        self.reads += 1
        return self.reads


Linked.other_size = vars(Linked)["size"]
Slotted = type("Slotted", (), {"__slots__": (), "size": functools.cached_property(lambda s: 3)})
Pair = collections.namedtuple("Pair", "a b")
LETTER, NOTED = re.compile("a"), []
NOTE = [lambda found: NOTED.append(found[0]) or "b"]


def after(generator, end):
    with contextlib.suppress(ZeroDivisionError):
        end(generator)
    return next(generator, 7)


SMALL = lambdas(
    "x",
    globals(),
    """
    keywords: (lambda **k: len(k))(**{1: 2}); signed: int.from_bytes(b"\\xff", "big", signed=True);
    raised: after((1 // n for n in (1, 0)), list);
    closed: after((n for n in "ab"), lambda g: g.close());
    twice: (lambda o: [o.other_size, o.size, o.reads])(Linked()); slots: Slotted().size;
    rows: [*itertools.permutations("ab"), *itertools.combinations(iterable=[1, 2], r=1)];
    called by C: [LETTER.sub(NOTE[0], "aa"), len(NOTED)];
    tuple: (lambda t: copy.deepcopy(t) is t)((1, 2));
    pair: (lambda p: copy.copy(p) is p)(Pair(1, 2));
    one: (lambda t: (lambda a, b, c: [a is b, a[0] is c])(*copy.deepcopy([t, t, t[0]])))(([1],));
    objects: (lambda o, p: o is p)(*copy.deepcopy((lambda o: [o, o])(Linked())));
    key: (lambda o: o in copy.deepcopy({o: 1}))(Linked());
    element: (lambda o: o in copy.deepcopy({o}))(Linked())
""",
)


@pytest.mark.parametrize("name", SMALL)
def test_small_programs(name):
    found = []
    for function in (SMALL[name], minidynamo.compile(lambda x: (x + 1, SMALL[name](x))[1])):
        NOTED.clear()
        found.append(repr([outcome(function, (X(),), {})[0] for _ in range(2)]))
    assert found[0] == found[1] and not minidynamo.counters["errors"]
