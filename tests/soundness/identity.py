"""Whether two things are one object, asked in every way; then they are two, or one, at the next
call.

    python -m tests.soundness.identity --modes eager,inductor

A case is (kind of thing, where the first lies, where the second lies, question, order).  Two things
of one kind lie at two places that the program reads: arguments, items, globals, closures,
attributes, a module's tables.  Between the calls they are put there anew: two things, one thing
twice, two views of one base, two that are equal.  Enumerated: every kind with every question, at
every pair of places.
"""

from collections.abc import Callable
from typing import Any

import torch

from ..fuzz.compare import difference_of_calls, outcome
from . import runner
from .modes import Mode

FILE = "<a program of tests.soundness.identity>"
HEADER = """
import torch

class Thing:
    pass

class Slots:
    __slots__ = ("mark",)

class Rows(list):
    pass

class Held:
    a = b = None

def value(t):
    if isinstance(t, torch.Tensor):
        return t.detach().sum()
    if isinstance(t, (list, dict, set)):
        return len(t)
    return getattr(t, "mark", 1)

def write(t):
    if isinstance(t, torch.Tensor):
        with torch.no_grad():
            t.add_(1)
    elif isinstance(t, list):
        t.append(1)
    elif isinstance(t, dict):
        t["fresh"] = 1
    elif isinstance(t, set):
        t.add("fresh")
    else:
        t.mark = 5

FIRST = SECOND = None
"""
# where the first and the second thing lie -> (expressions, how they are put there)
PLACES: dict[str, tuple[str, str, str]] = {
    "argument": ("a", "b", ""),
    "items": ("items[0]", "items[1]", ""),
    "table": ("table['a']", "table['b']", ""),
    "starred": ("rest[0]", "rest[1]", ""),
    "global": ("FIRST", "SECOND", "FIRST, SECOND = p, q"),
    "closure": ("first", "second", "put(p, q)"),
    "attribute": ("KEPT.a", "KEPT.b", "KEPT.a, KEPT.b = p, q"),
    "module": ("NET.a", "NET.b", "NET.a, NET.b = p, q"),
    "class": ("Held.a", "Held.b", "Held.a, Held.b = p, q"),
}
PROGRAM = """
KEPT, NET = Thing(), torch.nn.Module()

def outer(first, second):
    def f(x, a, b, items, table, *rest):
        p, q = {p}, {q}
        {question}
    def put(p, q):
        nonlocal first, second
        first, second = p, q
    return f, put

f, put = outer(None, None)
"""
QUESTIONS = {
    "is": "return x * (2 if p is q else 3)",
    "is not": "return x + 1, p is not q",
    "id": "return x + 1, id(p) == id(q)",
    "ids": "return x + 1, len({id(p), id(q)}), {id(p): 5}.get(id(q), 7)",
    "set": "return x + 1, len({p, q}), p in {q}",
    "key": "return x * {p: 2.0}.get(q, 3.0)",
    "among": "return x + 1, any(p is item for item in [q, x]), [p is item for item in (x, q)]",
    "in": "return x + 1, p in [q]",
    "index": "return x + 1, [q, p].index(p), [q, p].count(p)",
    "equal": "return x + 1, [p] == [q], (p, 1) == (q, 1)",
    "written": "write(p)\n        return x * value(q)",
    "written after": "y = x * value(q)\n        write(p)\n        return y + value(q)",
    "returned": "return x + 1, (p, q)",
    "kept": "made = [p, q]\n        return x * len(set(map(id, made))), made",
    "unique": "return x + 1, list({id(t): None for t in (p, q, p)}.values())",
    "match": "match p:\n            case _ if p is q: return x * 2\n        return x * 3",
    "never": "return x * value(p)",
}


def tensor(number: int) -> torch.Tensor:
    return torch.arange(3.0) + number


# kind -> (makes one, makes two that are no one object but belong together)
KINDS: dict[str, tuple[Callable[[Any, int], Any], Callable[[Any], tuple]]] = {
    "tensor": (lambda space, n: tensor(n), lambda space: views(torch.arange(6.0))),
    "overlapping": (lambda space, n: tensor(n), lambda space: overlapping(torch.arange(6.0))),
    "whole and part": (lambda space, n: tensor(n), lambda space: part(tensor(1))),
    "scalar": (lambda space, n: torch.tensor(n + 1.0), lambda space: views(torch.ones(2), 1)),
    "learning": (
        lambda space, n: tensor(n).requires_grad_(),
        lambda space: views(torch.ones(6).requires_grad_() * 1),
    ),
    "parameter": (
        lambda space, n: torch.nn.Parameter(tensor(n)),
        lambda space: tuple(map(torch.nn.Parameter, views(torch.arange(6.0)))),
    ),
    "layer": (lambda space, n: torch.nn.ReLU(), lambda space: twins(torch.nn.ReLU)),
    "list": (lambda space, n: [n], lambda space: twins(lambda: [1])),
    "dict": (lambda space, n: {1: n}, lambda space: twins(lambda: {1: 1})),
    "set": (lambda space, n: {n}, lambda space: twins(lambda: {1})),
    "list's subclass": (
        lambda space, n: space["Rows"]([n]),
        lambda space: twins(lambda: space["Rows"]([1])),
    ),
    "slots": (lambda space, n: space["Slots"](), lambda space: twins(space["Slots"])),
    "object": (lambda space, n: space["Thing"](), lambda space: twins(space["Thing"])),
    "function": (lambda space, n: lambda: n, lambda space: twins(lambda: lambda: 1)),
    "class": (lambda space, n: type("Own", (), {}), lambda space: twins(lambda: type("A", (), {}))),
    "big number": (lambda space, n: 10**30 + n, lambda space: (10**30, 10**30)),
}


def views(base: torch.Tensor, half: int = 3) -> tuple:
    parts = base[:half], base[half:]
    return parts if half > 1 else (parts[0][0], parts[1][0])


def overlapping(base: torch.Tensor) -> tuple:
    return base[:3], base[1:4]


def part(whole: torch.Tensor) -> tuple:
    return whole, whole.view(3)


def twins(make: Callable[[], Any]) -> tuple:
    return make(), make()


ORDERS = {
    "two first": ("two", "two", "one", "one", "swapped", "together", "together", "one"),
    "one first": ("one", "one", "two", "together", "one", "swapped", "swapped"),
    "views first": ("together", "together", "two", "one", "together"),
}


def pair(kind: str, how: str, space: dict) -> tuple:
    one, together = KINDS[kind]
    if how == "together":
        return together(space)
    first = one(space, 1)
    second = first if how == "one" else one(space, 2)
    return (second, first) if how == "swapped" else (first, second)


def cases(count: int, first: int) -> list[tuple]:
    """All of them: `count` and `first` are not looked at."""
    return [
        (kind, one, other, question, order)
        for kind in KINDS
        for one in PLACES
        for other in PLACES
        for question in QUESTIONS
        for order in ORDERS
    ]


def calls(case: tuple, mode: Mode | None) -> list:
    kind, one, other, question, order = case
    space: dict = {"__name__": "program"}
    text = PROGRAM.format(p=PLACES[one][0], q=PLACES[other][1], question=QUESTIONS[question])
    exec(compile(HEADER + text, FILE, "exec"), space)
    function, found = space["f"], []
    if mode is not None:
        function = mode.compile(function)
    for how in ORDERS[order]:
        space["p"], space["q"] = p, q = pair(kind, how, space)
        for place in {one, other}:
            exec(PLACES[place][2], space)
        args = (tensor(0), p, q, [p, q], {"a": p, "b": q}, p, q)
        watched = [] if kind == "big number" else [p, q]  # whether numbers are one is not told
        found.append(outcome(function, args, {}, watched, FILE))
    return found


def check(case: tuple, mode: Mode) -> str:
    # whether equal numbers, that the program makes, are one object is nobody's promise
    if case[0] == "big number" and case[3] not in ("equal", "set", "key", "in", "index"):
        return ""
    return difference_of_calls(calls(case, None), calls(case, mode))


def sample(number: int) -> list[tuple]:
    """Each kind with each question once, at places that turn (for pytest)."""
    found, places, orders = [], list(PLACES), list(ORDERS)
    for kind in KINDS:
        for question in QUESTIONS:
            number += 1
            one, other = places[number % 9], places[(number * 4 + number // 9) % 9]
            found.append((kind, one, other, question, orders[number % 3]))
    return found


if __name__ == "__main__":
    runner.main("tests.soundness.identity", default_modes="eager,inductor")
