"""A name is asked for that an object does not have; then the object gets it, or its class does.

    python -m tests.soundness.absence --jobs 2

Case: (kind of object, way of asking, place where it lies).  `fresh` is set on its class, then set,
set again and deleted on the object, then on both, then its class gets a `__getattr__`; whatever
Python refuses of that is left out.  Enumerated: every kind with every way at every place.
"""

import collections
import contextlib
import dataclasses
import enum
import functools
import math
import queue
import string
import threading
import types
from collections.abc import Callable
from typing import Any

import torch

from ..fuzz.compare import difference_of_calls, outcome
from . import runner
from .modes import Mode


def tried(thing: Any) -> Any:
    try:
        return thing.fresh
    except AttributeError:
        return 1


ASKING: dict[str, Callable] = {
    "hasattr": lambda thing: 5 if hasattr(thing, "fresh") else 1,
    "getattr": lambda thing: getattr(thing, "fresh", 1),
    "getattr or None": lambda thing: 1 if getattr(thing, "fresh", None) is None else 5,
    "then read": lambda thing: thing.fresh if hasattr(thing, "fresh") else 1,
    "try": tried,
}
PLACES = {
    "argument": "def f(x): return lambda x, thing: x * ask(thing)",
    "closure": "def f(x):\n    inner = thing\n    return lambda x: x * ask(inner)",
    "global": "def f(x): return lambda x: x * ask(thing)",
    "nested": "def f(x): return lambda x: x * ask(held.things[0])",
}


def subclass_of(*bases: type) -> type:
    return types.new_class("Own", bases, exec_body=lambda space: space.update(__module__=__name__))


def functions() -> dict[str, Any]:
    def plain(x):
        return x

    @functools.wraps(plain)
    def wrapping(x):
        return x

    @functools.singledispatch
    def dispatching(x):
        return x

    @contextlib.contextmanager
    def managing():
        yield

    def generating():
        yield 1

    async def waiting():
        pass

    class Class:
        def method(self):
            return 1

        static = staticmethod(lambda: 1)

    return {
        "function": plain,
        "lambda": lambda: 1,
        "wrapper": wrapping,
        "single dispatch": dispatching,
        "context manager": managing,
        "generator function": generating,
        "coroutine function": waiting,
        "method": Class.method,
        "bound method": Class().method,
        "static method": Class.static,
        "cached": functools.lru_cache(plain),
        "partial": functools.partial(plain),
        "partial's subclass": subclass_of(functools.partial)(plain),
        "torch's function": torch.nn.functional.relu,
        "builtin": math.floor,
    }


def instances() -> dict[str, Any]:
    class Slots:
        __slots__ = ("fresh",)

    class SlotsAndDictionary:
        __slots__ = ("other", "__dict__")

    class Metaclass(type):
        pass

    class WithMetaclass(metaclass=Metaclass):
        pass

    @dataclasses.dataclass
    class Data:
        field: int = 1

    class Member(enum.Enum):
        ONE = 1

    containers = (list, dict, set, tuple, collections.deque, collections.OrderedDict)
    bases = (*containers, collections.Counter, collections.UserDict, str, int, float, Exception)
    made = {f"{base.__name__}'s subclass": subclass_of(base)() for base in bases}
    pair = subclass_of(collections.namedtuple("Pair", "a b"))
    default = subclass_of(collections.defaultdict)(int)
    return {
        **made,
        "named tuple's subclass": pair(1, 2),
        "defaultdict's subclass": default,
        "slots": Slots(),
        "slots and dictionary": SlotsAndDictionary(),
        "object": subclass_of()(),
        "dataclass": Data(),
        "member": Member.ONE,
        "thread local": subclass_of(threading.local)(),
        "namespace": types.SimpleNamespace(),
        "python module": types.ModuleType("fresh_module"),
        "module of the library": math,
        "module in Python": string,
        "module of torch": torch.nn.functional,
        "exception": ValueError("text"),
        "ordered": collections.OrderedDict(),
        "queue": queue.Queue(),
        "class": subclass_of(),
        "class with a metaclass": WithMetaclass,
        "metaclass": Metaclass,
        "class of named tuples": pair,
        "dataclass itself": Data,
        "enumeration": Member,
        "class of exceptions": subclass_of(Exception),
        "class of torch": torch.nn.Linear,
    }


def of_torch() -> dict[str, Any]:
    nn = torch.nn
    linear = nn.Linear(2, 2)
    return {
        "tensor": torch.ones(2),
        "parameter": nn.Parameter(torch.ones(2)),
        "parameter of a module": linear.weight,
        "module": linear,
        "sequential": nn.Sequential(),
        "module list": nn.ModuleList(),
        "module dictionary": nn.ModuleDict(),
        "parameter list": nn.ParameterList(),
        "class of modules": subclass_of(nn.Module),
        "autograd function": subclass_of(torch.autograd.Function),
        "optimizer": torch.optim.SGD([nn.Parameter(torch.ones(1))]),
        "generator": torch.Generator(),
    }


def things() -> dict[str, Any]:
    return functions() | instances() | of_torch()


class Held:
    things: list[Any]


def allowed(change: Callable, *args: Any) -> None:
    """Some objects refuse: nothing changes then."""
    with contextlib.suppress(AttributeError, TypeError):
        change(*args)


def steps(thing: Any, cls: type) -> list[Callable[[], None]]:
    """What happens between the calls."""
    found = [
        lambda: setattr(cls, "fresh", 2.5),
        lambda: delattr(cls, "fresh"),
        lambda: setattr(thing, "fresh", 3),
        lambda: setattr(thing, "fresh", 6),
        lambda: delattr(thing, "fresh"),
        lambda: setattr(cls, "fresh", 7),
        lambda: setattr(thing, "fresh", 4),
        lambda: delattr(thing, "fresh"),
        lambda: delattr(cls, "fresh"),
    ]
    if cls.__module__ == __name__ and not isinstance(thing, type):
        found.append(lambda: setattr(cls, "__getattr__", lambda self, name: 9))
    return found


def calls_of(case: tuple[str, str, str], mode: Mode | None) -> list:
    kind, asking, place = case
    thing, held, x = things()[kind], Held(), torch.arange(1.0, 3)
    held.things = [thing]
    space: dict[str, Any] = {"ask": ASKING[asking], "thing": thing, "held": held}
    exec(PLACES[place], space)
    function = space["f"](x)
    args = (x, thing) if place == "argument" else (x,)
    if mode is not None:
        function = mode.compile(function)

    def called():
        return function(*args)

    cls = thing if isinstance(thing, type) else type(thing)
    slot = vars(cls).get("fresh")  # a descriptor: the class keeps it
    changes = steps(thing, cls)
    if slot is not None:
        changes = changes[2:5]
    found = []
    try:
        with torch.no_grad():
            for change in (lambda: None, *changes):
                allowed(change)
                found += [outcome(called, (), {}, [], "<absence>") for _ in range(2)]
    finally:
        allowed(delattr, thing, "fresh")
        if slot is None:
            allowed(delattr, cls, "fresh")
    return found


def cases(count: int, first: int) -> list[tuple]:
    """All of them: `count` and `first` are not looked at."""
    return [(kind, asking, place) for kind in things() for asking in ASKING for place in PLACES]


def check(case: tuple, mode: Mode) -> str:
    return difference_of_calls(calls_of(case, None), calls_of(case, mode))


if __name__ == "__main__":
    runner.main("tests.soundness.absence", default_modes="eager,inductor")
