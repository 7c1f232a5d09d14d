"""Where a graph can break: in handlers, with and try blocks, loops, comprehensions, nested calls.
Each equals plain Python, and what follows the break is compiled (`graphs`)."""

import dis
import sys

import pytest
import torch
from test_capture_language import make_test

import minidynamo

pytestmark = pytest.mark.usefixtures("anew")


class Names(set):
    pass


def X():
    return torch.arange(6.0).reshape(2, 3) / 7 + 0.1


def fail(x, kind=ValueError):
    minidynamo.graph_break()
    raise kind("no", 3)


@make_test(X(), breaks=1)
def test_an_object_of_a_subclass_of_set(x):
    return x.sin(), Names(["a"])


# ---- handlers
@make_test(X(), breaks=1)
def test_what_the_traced_part_raised(x):
    x = x.sin()
    try:
        {}["key"]
    except KeyError as error:
        x = x.cos()
        print("handling", error, type(sys.exc_info()[1]), error.__traceback__ is not None)
        x = x.exp()
    return x + 1


@make_test(X(), breaks=1)
def test_a_bare_raise(x):
    x = x.sin()
    try:
        try:
            x = x.cos()
            fail(x, KeyError)
        except KeyError:
            x = x.exp()
            minidynamo.graph_break()
            x = x.tan()
            raise
    except LookupError as error:
        x = x.sqrt()
        print(repr(error), error.__context__)
    return x + 1


@make_test(X(), graphs=0, breaks=1)
def test_handlers_in_handlers(x):
    try:
        fail(x)
    except ValueError as first:
        x = x.sin()
        try:
            fail(x, TypeError)
        except TypeError as second:
            x = x.cos()
            print("inner", second.__context__ is first, sys.exception() is second)
            x = x.exp()
        print("outer", sys.exception() is first)
        x = x.tan()
    return x + 1, sys.exception()


@make_test(X(), graphs=5, breaks=3)
def test_in_finally_and_else(x):
    log = []
    for kind in (None, KeyError):
        try:
            x = x.sin()
            if kind:
                fail(x, kind)
        except KeyError:
            log.append(sys.exc_info()[0])
        else:
            x = x * 2
            print("else")
            x = x.cos()
        finally:
            x = x.exp()
            print("finally")
            x = x + 1
    return x, log


# ---- with blocks
class Log:
    def __init__(self, seen, swallow=False):
        self.seen, self.swallow = seen, swallow

    def __enter__(self):
        self.seen.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.seen.append(
            (kind, sys.exception() is value, trace is not None and value.__traceback__ is trace)
        )
        return self.swallow


@make_test(X(), graphs=3, breaks=2)
def test_in_a_with_block(x):
    seen = []
    with Log(seen), torch.no_grad():
        x = x.sin()
        print("inside", torch.is_grad_enabled())
        x = x.cos()
        print("still", torch.is_grad_enabled())
        x = x.exp()
    return x + 1, seen, torch.is_grad_enabled()


# ---- comprehensions, nested calls, arguments
@make_test(X(), torch.nn.ModuleList([torch.nn.Tanh(), torch.nn.ReLU()]), graphs=7, breaks=1)
def test_in_a_comprehension_and_a_loop_over_a_slice_of_modules(x, layers):
    def noisy(v):
        minidynamo.graph_break()
        return v + 1

    y = x.sin()
    rows = [noisy(row) for row in y]
    for layer in layers[:2]:
        y = noisy(layer(y))
    return torch.stack([*rows, *y]).cos()


def deep(x, n):
    x = x.sin()
    if n:
        return deep(x, n - 1) + 1
    minidynamo.graph_break()
    return x.cos()


@make_test(X(), graphs=6, breaks=1)
def test_in_nested_calls(x):
    return deep(x, 2) * 2


@make_test(X(), graphs=2, breaks=1)
def test_a_branch_on_data(x):
    y = x.sin()
    if y.sum() > 0:
        return y.cos()
    return y.exp()


@pytest.mark.parametrize("raises", [False, True])
def test_a_graph_that_raises_is_repeated_where_a_call_has_begun(raises):
    """Plain Python runs the whole frame then, whatever lay on the stack at the graph break."""

    def backend(gm, inputs):
        def run(*args):
            if raises:
                raise RuntimeError("the graph cannot run")
            return gm(*args)

        return run

    class Tall(list):
        def append(self, item):
            super().append((item, minidynamo.graph_break()))

    def f(x):
        seen, tall = [], Tall()
        y = x * 2
        seen.append((y, minidynamo.graph_break(), len([n for n in range(3)]), x + 1))
        seen.append(max(y.sum(), *[minidynamo.graph_break() or x.sum()]))
        tall.append(seen[-1] * 3)
        return seen, list(tall)

    x = torch.ones(3)
    compiled = minidynamo.compile(f, backend=backend)
    with minidynamo.config.patch(raise_internal_errors=False):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), f(x))


def operations(code):
    return {instruction.opname for instruction in dis.get_instructions(code)}


def test_what_was_traced_is_not_in_the_replacement_twice():
    """The original body is there only where plain Python may have to run it."""

    def f(x):
        print(x.shape)
        return x + 1

    def half_a_call(x, thing):
        print(x.shape, thing.unknown())
        return x + 1

    class Thing:
        def __getattr__(self, name):
            minidynamo.graph_break()
            return len(name).bit_length

    minidynamo.compile(f, backend="eager")(torch.ones(3))
    compiled = minidynamo.compile(half_a_call, backend="eager")
    assert torch.equal(compiled(torch.ones(3), Thing()), half_a_call(torch.ones(3), Thing()))
    codes = {record.function: record.replacement_code for record in minidynamo.records.frames}
    named = {name.rpartition(".")[2]: code for name, code in codes.items() if code is not None}
    assert "BINARY_OP" not in operations(named["f"])
    assert "BINARY_OP" in operations(named["half_a_call"])
