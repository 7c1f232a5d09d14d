"""What capture once lacked: breaks in long loops, the lifetime of values behind a break, torch's contexts, generators' results..."""
import sys
import weakref

import torch

import minidynamo
from test_capture_language import fresh, make_test, same  # noqa: F401


def X():
    return torch.arange(6.).reshape(2, 3) / 7 + 0.1


# ---- breaks in loops
def test_a_loop_that_breaks_in_each_turn_does_not_nest():
    def f(x, n):
        for _ in range(n):
            x = x + 1
            minidynamo.graph_break()
            x = x * 1
        return x
    turns = sys.getrecursionlimit() + 100
    compiled = minidynamo.compile(f, backend="eager")
    same(compiled(X(), turns), f(X(), turns))
    assert minidynamo.counters["graphs"].total() == 3 and len(minidynamo.records.frames) < 8


class Temporary:
    """Says when it goes, like a lock or a temporary file."""
    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("gone")


def test_what_a_frame_holds_lives_as_long_behind_breaks():
    def f(x, log):
        kept = make(log)
        other = make(log)                   # noqa: F841
        x = x + 1
        minidynamo.graph_break()
        log.append("first")
        x = x * 2
        minidynamo.graph_break()
        log.append("second")
        del kept
        minidynamo.graph_break()
        log.append("third")
        return x * 3
    make = minidynamo.disable(Temporary)
    compiled = minidynamo.compile(f, backend="eager")
    for _ in range(2):
        plain, ours = [], []
        same(compiled(X(), ours), f(X(), plain))
        assert ours == plain == ["first", "second", "gone", "third", "gone"]


def test_a_deleted_tensor_is_freed_behind_a_break():
    def f(x):
        big = x + 1
        alive = weakref.ref(big)
        minidynamo.graph_break()
        y = big.sum()
        del big
        return alive() is None, y
    compiled = minidynamo.compile(f, backend="eager")
    compiled(X())
    assert compiled(X())[0]


# ---- generators and exceptions
@make_test(X(), graphs=1, breaks=0)
def test_the_value_that_a_generator_returns(x):
    def steps():
        yield x + 1
        return x * 2
    made, found = steps(), []
    found.append(next(made))
    try:
        next(made)
    except StopIteration as stop:
        found.append(stop.value)
    try:
        next(made)
    except StopIteration as stop:
        found.append(stop.value)
    return found


@make_test(X(), graphs=1, breaks=0)
def test_yield_from_an_object_with_a_result(x):
    steps = Steps(2)

    def outer():
        found = yield from steps
        yield x * found
    return list(outer())


class Steps:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if not self.n:
            raise StopIteration(7)
        self.n -= 1
        return self.n


@make_test(X())
def test_contexts_of_exceptions_that_leave(x):
    try:
        try:
            x = x + 1
            raise KeyError("first")
        finally:
            raise ValueError("second")
    except ValueError as error:
        found = error
    return x, found, found.__context__.args, found.__suppress_context__


@make_test(X(), graphs=1, breaks=0)
def test_reversed_iterators_have_their_types(x):
    kinds = type(reversed([x, x + 1])).__name__, type(reversed((1, x))).__name__, type(reversed([])).__name__
    return kinds, next(reversed((1, x + 1))), callable(3), callable(x)


@make_test(X(), graphs=0)
def test_a_closure_variable_that_may_be_unbound_behind_a_break(x):
    if x.sum().item() > 1e9:
        late = 1
    y = x + 1
    minidynamo.graph_break()
    try:
        return late, lambda: late
    except UnboundLocalError as error:
        return y, type(error).__name__


# ---- wrong arguments are the program's error
@make_test(X(), graphs=0, breaks=1)
def test_wrong_arguments_of_a_method(x):
    found = []
    for call in (lambda: [].append(), lambda: {}.get(), lambda: [].sort(1, 2), lambda: next([1])):
        try:
            call()
        except TypeError as error:
            found.append(str(error))
    return x + len(found), found
