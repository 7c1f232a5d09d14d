"""How much is traced and guarded: long loops and lists, the order of sets, what is behind proxies,
and room near the recursion limit."""

import sys
import types

import pytest
import torch
from test_capture_language import same

import minidynamo

pytestmark = pytest.mark.usefixtures("anew")


def test_a_long_loop_runs_as_plain_python():
    def f(x):
        for n in range(1000):
            x = x + n
        return x

    with minidynamo.config.patch(step_limit=1000):
        same(minidynamo.compile(f, backend="eager")(torch.ones(2)), f(torch.ones(2)))
    assert any("step_limit" in text for text in minidynamo.counters["skipped"])


def test_a_list_too_long_to_guard():
    """Reading all items of a list from outside guards each: of a million that is gigabytes of
    code."""

    compiled = minidynamo.compile(lambda numbers, x: x + sum(numbers), backend="eager")
    with minidynamo.config.patch(guard_limit=1000):
        assert (
            compiled([1] * 1500, torch.zeros(())).item() == 1500
            and compiled([2] * 5, torch.zeros(())).item() == 10
        )
    assert any("it would take 1,5" in text for text in minidynamo.counters["skipped"])


def test_the_order_of_a_set_is_guarded():
    def f(x, kinds):
        for kind in kinds:
            x = x * 2 + kind
        return x

    compiled, one, other = minidynamo.compile(f, backend="eager"), {0, 8}, {8, 0}
    assert one == other and list(one) != list(other)
    for kinds in (one, other):
        same(compiled(torch.ones(2), kinds), f(torch.ones(2), kinds))


BEHIND = {"k": 2.0}
PROXY = types.MappingProxyType(BEHIND)


class Kinds:
    one = 1


def test_what_is_behind_a_proxy_is_guarded(monkeypatch):
    def f(x):
        return (
            x * PROXY["k"] + len(PROXY),
            len([name for name in Kinds.__dict__ if name[0] != "_"]),
            Kinds.__dict__["one"],
        )

    compiled, x = minidynamo.compile(f, backend="eager"), torch.ones(2)
    same(compiled(x), f(x))
    for change in (
        lambda: monkeypatch.setitem(BEHIND, "k", 3.0),
        lambda: monkeypatch.setitem(BEHIND, "j", 1),
        lambda: monkeypatch.setattr(Kinds, "one", 5),
        lambda: monkeypatch.setattr(Kinds, "two", 2, raising=False),
    ):
        change()
        same(compiled(x), f(x))


def test_guards_and_the_compiler_have_room_near_the_recursion_limit():
    def deep(n, x):
        if n == 0:
            return x.sin() + 1
        return deep(n - 1, x)

    compiled, x, limit = (
        minidynamo.compile(lambda n, x: deep(n, x), backend="eager"),
        torch.ones(2),
        sys.getrecursionlimit(),
    )

    def reached(function):
        for n in range(400):
            try:
                function(n, x)
            except RecursionError:
                return n

    def depth():
        frame, n = sys._getframe(), 0
        while frame is not None:
            frame, n = frame.f_back, n + 1
        return n

    minidynamo.disable(depth)
    try:
        sys.setrecursionlimit(depth() + 60)
        plain, ours = reached(lambda n, x: deep(n, x)), reached(compiled)
    finally:
        sys.setrecursionlimit(limit)
    assert plain - 3 <= ours, (plain, ours)
