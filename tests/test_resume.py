"""Resume functions: many functions split at each possible point compute what they computed before.
No torch."""

import bisect
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
import textwrap
import types
import weakref

import pytest
from split_points import split, split_points
from test_bytecode import FUNCTIONS, Derived

from minidynamo.bytecode import disassemble
from minidynamo.bytecode.assembler import VERSION
from minidynamo.rebuild.resume import CannotSplit, resume_code


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


def test_a_method_that_calls_super_is_not_split():
    refused(
        Derived.m.__code__, len(disassemble(Derived.m.__code__)) - 1, "looks at the first local"
    )


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


# ---- what must be refused ------------------------------------------------------------------------
def index_of(body, op, nth=0):
    return [n for n, ins in enumerate(body) if ins.op == op][nth]


def refused(code, k, reason):
    with pytest.raises(CannotSplit, match=reason):
        resume_code(code, k, (), ())


def test_no_split_within_a_call():
    def f(x):
        return dict(x, k=1)

    body = disassemble(f.__code__)
    if VERSION < (3, 13):
        refused(f.__code__, index_of(body, "KW_NAMES") + 1, "parts of a call")
    if VERSION < (3, 12):
        refused(f.__code__, index_of(body, "PRECALL") + 1, "parts of a call")


# ---- what a resume function is -------------------------------------------------------------------
def at(function, name):
    """The split point just before the global `name` is loaded."""
    body = disassemble(function.__code__)
    return next(
        p
        for p in split_points(function.__code__)
        if body[p[0]].op == "LOAD_GLOBAL" and body[p[0]].arg == name
    )


def test_resume_codes_die_with_their_function():
    scope = {}
    exec("def f(a):\n    b = a + 1\n    return b * 2", scope)
    made = resume_code(scope["f"].__code__, *split_points(scope["f"].__code__)[-1])
    watch = weakref.ref(made)
    del made, scope
    gc.collect()
    assert watch() is None


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
