"""Resume functions: many functions split at each possible point compute what they computed before.
No torch."""

import bisect
import contextlib
import copy
import csv
import difflib
import fractions
import gc
import json
import random
import re
import statistics
import string
import sys
import textwrap
import types
import weakref

import pytest
from split_points import split, split_points
from test_bytecode import FUNCTIONS, Derived

from minidynamo.bytecode import disassemble
from minidynamo.bytecode.assembler import VERSION
from minidynamo.resume import check_splittable
from minidynamo.resume import CannotSplit, closure_names, parameters, resume_code


def outcome(function, *args, **kwargs):
    try:
        return repr(function(*args, **kwargs))
    except Exception as error:
        return repr(error)


def each_split(function, check, limit=60):
    """Run `check` with the function split at each of (a sample of) its points; the number of
    points."""
    code = function.__code__
    points = split_points(code)
    chosen = points if len(points) <= limit else random.Random(0).sample(points, limit)
    try:
        for point in chosen:
            function.__code__ = split(code, point)
            check(point)
    finally:
        function.__code__ = code
    return len(points)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_every_split_computes_the_same(function):
    inputs = [(7, 2), (2, 5), (0, 0), (1, 0), (200, 1), (-3, 4)]
    want = [outcome(function, *args) for args in inputs]

    def check(point):
        assert [outcome(function, *args) for args in inputs] == want, point

    assert each_split(function, check, limit=1000) >= 4


@pytest.mark.parametrize("method", [Derived.__init__, Derived.m], ids=["init", "m"])
def test_super_in_a_resume_function(method):
    def check(point):
        for _ in range(40):  # 3.12+: before and after LOAD_SUPER_ATTR specialises
            assert Derived(5).m(3) == 24

    assert each_split(method, check) >= 5


class SuperLater(Derived):
    def m(self, k, *rest, key=1):
        first = k + key
        bound = super()
        second = super().m(first)
        return bound.m(second) + sum(rest)

    def cell(self, k):
        get = lambda: self.n + k
        return super().m(get())

    def rebound(self, k):
        self = SuperLater(k)
        return super().m(k)


@pytest.mark.parametrize("name", ["m", "cell", "rebound"])
def test_super_with_cells_and_stars(name):
    want = getattr(SuperLater(5), name)(3)

    def check(point):
        assert getattr(SuperLater(5), name)(3) == want, point

    assert each_split(vars(SuperLater)[name], check) >= 5


def test_super_without_its_object_is_refused():
    code = SuperLater.m.__code__
    point = next(p for p in split_points(code) if p[2] >= {"first"})
    k, stack, live = point
    if VERSION >= (3, 12):  # `bound = super()` is a plain call on every version
        assert "bound" not in live
    with pytest.raises(CannotSplit, match="first parameter, self"):
        resume_code(code, k, stack, live - {"self"})


LIBRARY = [
    (textwrap.wrap, ("the quick brown fox jumps over the lazy dog " * 3, 17)),
    (textwrap.dedent, ("  a\n    b\n\n  c",)),
    (json.dumps, ({"a": [1, 2, {"b": None}]},)),
    (statistics.median, ([3, 1, 2, 5],)),
    (statistics.quantiles, (list(range(20)),)),
    (difflib.get_close_matches, ("appel", ["ape", "apple", "peach"])),
    (difflib.SequenceMatcher.ratio, (difflib.SequenceMatcher(None, "abcd", "bcde"),)),
    (string.Template.substitute, (string.Template("$a ${b} $$"),)),
    (fractions._gcd if hasattr(fractions, "_gcd") else bisect.bisect, ([1, 2, 3], 2)),
    (re.escape, ("a.b*c",)),
    (textwrap.TextWrapper._wrap_chunks, (textwrap.TextWrapper(width=9), list("ab cd ef gh"))),
    (textwrap.TextWrapper.__init__, (textwrap.TextWrapper(),)),
    (
        difflib.SequenceMatcher.find_longest_match,
        (difflib.SequenceMatcher(None, " abcd", "abcd abcd"),),
    ),
    (
        difflib.SequenceMatcher.get_matching_blocks,
        (difflib.SequenceMatcher(None, "abxcd", "abcd"),),
    ),
    (csv.Sniffer.sniff, (csv.Sniffer(), "a;b;c\n1;2;3\n4;5;6\n")),
    (fractions.Fraction.limit_denominator, (fractions.Fraction("3.1415926"), 100)),
]
LIBRARY = [(f, args) for f, args in LIBRARY if isinstance(f, types.FunctionType)]


@pytest.mark.parametrize("function, args", LIBRARY, ids=lambda v: getattr(v, "__qualname__", ""))
def test_library_functions_split(function, args):
    keywords = {"a": 1, "b": "x"} if function is string.Template.substitute else {}
    want = outcome(function, *copy.deepcopy(args), **keywords)

    def check(point):
        assert outcome(function, *copy.deepcopy(args), **keywords) == want, point

    assert each_split(function, check, limit=80) >= 3


@pytest.mark.parametrize("seed", range(20))
def test_resume_functions_split_again(seed):
    """f split; its resume function split; and so on, at random points."""
    rng = random.Random(seed)
    for function in FUNCTIONS:
        code, made = function.__code__, []
        points = split_points(code)

        def chain(code, depth):
            points = split_points(code)
            if not points or depth == 0:
                return code
            point = rng.choice(points)
            replaced, rest = split(code, point), resume_code(code, *point)
            deeper = chain(rest, depth - 1)
            made.append(deeper)
            return replaced.replace(
                co_consts=tuple(deeper if c is rest else c for c in replaced.co_consts)
            )

        want = [outcome(function, a, b) for a, b in ((7, 2), (1, 0), (-3, 4))]
        try:
            function.__code__ = chain(code, 4)
            assert [outcome(function, a, b) for a, b in ((7, 2), (1, 0), (-3, 4))] == want
        finally:
            function.__code__ = code
        assert len(made) >= 1


# ---- what must be refused ------------------------------------------------------------------------
def index_of(body, op, nth=0):
    return [n for n, ins in enumerate(body) if ins.op == op][nth]


def refused(code, k, reason):
    with pytest.raises(CannotSplit, match=reason):
        resume_code(code, k, (), ())


def test_no_split_at_the_end_of_a_loop():
    def f(n):
        for i in range(n):
            pass
        return n

    if VERSION >= (3, 12):
        body = disassemble(f.__code__)
        k = index_of(body, "END_FOR")
        refused(f.__code__, k, "FOR_ITER")
        if VERSION >= (3, 13):
            refused(f.__code__, k + 1, "FOR_ITER")
    assert all(disassemble(f.__code__)[k].op != "END_FOR" for k, _, _ in split_points(f.__code__))


def test_no_split_within_a_call():
    def f(x):
        return dict(x, k=1)

    body = disassemble(f.__code__)
    if VERSION < (3, 13):
        refused(f.__code__, index_of(body, "KW_NAMES") + 1, "parts of a call")
    if VERSION < (3, 12):
        refused(f.__code__, index_of(body, "PRECALL") + 1, "parts of a call")
    code = SuperLater.m.__code__
    body = disassemble(code)
    k = (
        next(
            n
            for n, ins in enumerate(body)
            if ins.op == "LOAD_GLOBAL" and ins.arg == "super" and ins.flags
        )
        + 1
    )
    refused(code, k, "between super and its call")


def test_splits_while_an_exception_is_handled():
    """The exception goes on to be handled behind the split, and no longer than before."""

    def f(x):
        log = []
        try:
            try:
                x()
            except ValueError as e:
                log.append(("handling", sys.exc_info()[1] is e))
                try:
                    with contextlib.nullcontext():
                        {}["k"]
                except KeyError as inner:
                    log.append((type(inner.__context__), sys.exception() is inner))
                log.append(sys.exception() is e)
                raise
            finally:
                log.append(("finally", sys.exc_info()[0]))
        except Exception as e:
            log.append((type(e), type(e.__context__)))
        return log, sys.exc_info()

    cases = [lambda: int("a"), lambda: 1, lambda: [][0]]
    want, body = [f(case) for case in cases], disassemble(f.__code__)
    assert want[0][0][:2] == [("handling", True), (ValueError, True)] and want[0][1] == (
        None,
        None,
        None,
    )

    def check(point):
        assert [f(case) for case in cases] == want, point
        try:
            raise TypeError
        except TypeError as outer:  # what the caller handles is there, too, before and after
            assert [f(case)[0][-1] for case in cases[:1]] == [
                (ValueError, TypeError)
            ] and sys.exception() is outer

    assert each_split(f, check, limit=1000) > 60
    assert {"h", "l"} <= {kind for point in split_points(f.__code__) for kind in point[1]}


def test_handlers_in_loops_are_left_again():
    """The analysis ends (a handler that goes on with the loop), and after the handler all is
    well."""

    def f(items):
        out = []
        for item in items:
            try:
                try:
                    with contextlib.nullcontext():
                        out.append(1 / item)
                except ZeroDivisionError as e:
                    out.append(str(e))
                    continue
                finally:
                    out.append("f")
            except TypeError:
                out.append("t")
                break
            out.append(len(out))
        return out

    want = f([1, 0, 2]), f([1, "x", 3])
    body = disassemble(f.__code__)
    check_splittable(f.__code__, body, next(n for n, ins in enumerate(body) if ins.arg == "len"))

    def check(point):
        assert (f([1, 0, 2]), f([1, "x", 3])) == want, point

    assert each_split(f, check) > 10


def test_no_split_of_generators_nor_before_the_beginning():
    def g(x):
        yield x

    async def c(x):
        return x

    def f(x):
        return lambda: x

    refused(g.__code__, 3, "generator")
    refused(c.__code__, 3, "generator")
    refused(f.__code__, 0, "not begun")
    refused(f.__code__, 10_000, "no instruction")
    refused(f.__code__, -1, "no instruction")
    assert index_of(disassemble(f.__code__), "MAKE_CELL") == 0


# ---- what a resume function is -------------------------------------------------------------------
def with_block(log, b=2, *args):
    total = 0
    with log as entered:
        total += len(args)
        total *= b
    return total, entered


def at(function, name):
    """The split point just before the global `name` is loaded."""
    body = disassemble(function.__code__)
    return next(
        p
        for p in split_points(function.__code__)
        if body[p[0]].op == "LOAD_GLOBAL" and body[p[0]].arg == name
    )


class Log:
    def __init__(self):
        self.seen = []

    def __enter__(self):
        self.seen.append("enter")
        return 7

    def __exit__(self, kind, value, trace):
        self.seen.append(kind)
        return kind is KeyError


def test_inside_with_the_stack_holds_exit():
    k, stack, live = at(with_block, "len")
    assert "v" in stack
    rest = types.FunctionType(resume_code(with_block.__code__, k, stack, live), globals())
    names = parameters(with_block.__code__, stack, live)
    assert names[:3] == ["log", "b", "args"] and rest.__code__.co_varnames[: len(names)] == tuple(
        names
    )
    log, values = Log(), {"log": 0, "b": 5, "args": (1, 2), "total": 10, "entered": 7}

    exit_at = stack.index("v")

    def run(function, *more):
        given = [values[n] for n in names if n in values]
        on_stack = {exit_at: log.__exit__}
        on_stack.update(
            {i: values["total"] for i, kind in enumerate(stack) if kind == "v" and i != exit_at}
        )
        return function(
            *given, *[on_stack[i] for i, kind in enumerate(stack) if kind == "v"], *more
        )

    assert run(rest) == ((10 + 2) * 5, 7) and log.seen == [None]


def test_names_lines_and_cache():
    point = at(with_block, "len")
    code = with_block.__code__
    made = resume_code(code, *point)
    assert made is resume_code(code, *point) and made is resume_code(
        code, point[0], list(point[1]), set(point[2])
    )
    line = code.co_firstlineno + 3
    assert made.co_name == f"<resume of with_block at line {line}>"
    body = disassemble(made)
    again = resume_code(made, *next(p for p in split_points(made) if body[p[0]].pos[0] == line + 2))
    assert again.co_name == f"<resume of with_block at line {code.co_firstlineno + 5}>"
    assert made.co_filename == code.co_filename and made.co_firstlineno == code.co_firstlineno
    twin = code.replace(co_filename="elsewhere.py")
    assert twin == code and resume_code(twin, *point).co_filename == "elsewhere.py"


def test_resume_codes_die_with_their_function():
    scope = {}
    exec("def f(a):\n    b = a + 1\n    return b * 2", scope)
    made = resume_code(scope["f"].__code__, *split_points(scope["f"].__code__)[-1])
    watch = weakref.ref(made)
    del made, scope
    gc.collect()
    assert watch() is None


def test_cells_arrive_as_free_variables():
    def outer(free):
        def f(a, b):
            nonlocal free
            c = a + free
            g = lambda: (b, c)
            free += 1
            return g(), free

        return f

    f = outer(10)
    code = f.__code__
    assert set(closure_names(code)) == {"b", "c", "free"}
    want = outer(10)(1, 2)

    def check(point):
        nonlocal f
        fresh = outer(10)
        fresh.__code__ = f.__code__
        assert fresh(1, 2) == want, point

    assert each_split(f, check) >= 5


def test_what_was_on_the_stack_dies_with_it():
    """The caller hands its stack over (it deletes its own names), and the resume function deletes
    the parameters."""

    class Witness:
        pass

    def f(make, dead):
        return (make() is None, dead())[1]

    dead = []

    def make():
        w = Witness()
        dead.append(weakref.ref(w))
        return w

    points = split_points(f.__code__)

    def dies():
        dead.clear()
        return f(make, lambda: dead[0]() is None)

    def check(point):
        assert dies(), point

    assert each_split(f, check) == len(points) > 4


def test_deep_recursion_through_resume_functions():
    def f(n):
        below = f(n - 1) if n else 0
        return below + 1

    def check(point):
        assert f(60) == 61

    assert each_split(f, check) >= 5
