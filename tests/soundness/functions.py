"""One attribute of a function changes between two calls, for each way in which a function can be
reached.

    python -m tests.soundness.functions --jobs 2

Case: (way, attribute, what is read).  The attributes are all that a function object lets one write,
found by reflection; each is changed in place, too, where it is a dictionary.  The second kind of
cases, (module, name, replacement), replaces what a module, a class or `builtins` has under a name.
"""

import builtins
import functools
import inspect
import math
import types
from collections.abc import Callable

import torch
import torch.nn.functional as F

from ..fuzz.compare import difference_of_calls, outcome
from . import runner
from .modes import Mode

SPACE = """
import functools
import torch

def target(x, a=2, *, b=3, **more):
    return x * a + b

def prepared(fn):
    return fn

def wrapping(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)
    return wrapper

class Class:
    method = target
    static = staticmethod(target)
    cls = classmethod(lambda cls, x, **more: target(x, **more))
    prop = property(target)
    cached = functools.cached_property(target)
    partial = functools.partialmethod(target, b=4)
    __call__ = target
    def __mul__(self, other): return other
    def __add__(self, other): return other

class Layer(torch.nn.Module):
    forward = lambda self, x: target(x)

class Own(torch.nn.Module):
    pass

layer, instance, table, items = Layer(), Class(), {"key": target}, [target]
bound, partial = target.__get__(torch.ones(3)), functools.partial(target, a=5)
decorated, cached = wrapping(target), functools.cache(lambda: 1)

def enclosing(fn):
    def called(x, read):
        return fn(x), read(fn)
    return called

def default(x, read, fn=target):
    return fn(x), read(fn)
"""
# how the target is reached: the body of `def f(x, read)`, or an expression for the function itself
WAYS = {
    "global": "def f(x, read): return target(x), read(target)",
    "closure": "f = enclosing(target)",
    "default": "f = default",
    "argument": "def g(x, read, fn): return fn(x), read(fn)",
    "method": "def f(x, read):\\n"
    "    instance.__dict__['x'] = 0\\n"
    "    return Class.method(x), read(Class.method)",
    "static": "def f(x, read): return instance.static(x), read(Class.static)",
    "classmethod": "def f(x, read): return instance.cls(x), read(target)",
    "property": "class P(torch.nn.Module): prop = property(lambda self: target(self.x))\\n"
    "p = P(); p.x = torch.ones(3)\\n"
    "def f(x, read): return p.prop * x, read(target)",
    "submodule": "def f(x, read): return layer(x), read(target)",
    "partial": "def f(x, read): return partial(x), read(partial.func)",
    "bound": "def f(x, read): return bound() * x, read(bound.__func__)",
    "decorated": "def f(x, read): return decorated(x), read(decorated.__wrapped__)",
    "cached": "@functools.cache\\n"
    "def kept(): return target\\n"
    "def f(x, read): return kept()(x), read(target)",
    "dictionary": "def f(x, read): return table['key'](x), read(table['key'])",
    "list": "def f(x, read): return items[0](x), read(items[0])",
    "called by another": "def outer(x): return target(x)\\n"
    "def f(x, read): return outer(x), read(target)",
}


def example():
    """A plain function, to look at."""


def is_writable(name: str) -> bool:
    try:
        setattr(example, name, getattr(example, name))
    except (AttributeError, TypeError):
        return False
    return True


ATTRIBUTES = [
    name
    for name in dir(types.FunctionType)
    if inspect.isdatadescriptor(inspect.getattr_static(types.FunctionType, name))
    and is_writable(name)
]
NEW = {  # a value of each attribute; those that are not here get a text
    "__code__": [(lambda x, a=2, *, b=3, **more: x - a - b).__code__],
    "__defaults__": [(7,), (2.0,), (True,), None, (torch.ones(3), 9)],
    "__kwdefaults__": [{"b": 8}, {"b": 3.0}, None, {"b": 3, "c": 1}],
    "__dict__": [{"mark": 5}],
    "__annotations__": [{"x": int}],
    "__type_params__": [("T",)],
}
INSIDE = {"__kwdefaults__": ("b", 11), "__dict__": ("mark", 6), "__annotations__": ("x", float)}
REPLACED = [  # (where, name, program)
    (torch, "relu", lambda x: torch.relu(x)),
    (torch, "relu", lambda x: F.relu(x)),
    (F, "relu", lambda x: F.relu(x)),
    (F, "linear", torch.nn.Linear(3, 3)),
    (F, "gelu", torch.nn.GELU()),
    (F, "softmax", lambda x: F.softmax(x, 0)),
    (torch.nn.Linear, "forward", torch.nn.Linear(3, 3)),
    (torch.nn.Linear, "__call__", torch.nn.Linear(3, 3)),  # Module's, until the class has its own
    (torch.nn.Linear, "_call_impl", torch.nn.Linear(3, 3)),
    (torch.nn.Module, "__call__", torch.nn.Sequential(torch.nn.ReLU())),
    (torch.nn.Module, "_call_impl", torch.nn.Sequential(torch.nn.ReLU())),
    (torch.nn, "functional", lambda x: torch.nn.functional.relu(x)),
    (torch.Tensor, "relu", lambda x: x.relu()),
    (torch.Tensor, "__add__", lambda x: x + 1),
    (torch.Tensor, "__rsub__", lambda x: 1 - x),
    (torch.Tensor, "norm", lambda x: x.norm()),
    (torch.Tensor, "T", lambda x: x.T),
    (math, "sqrt", lambda x: x * math.sqrt(4)),
    (math, "pi", lambda x: x * math.pi),
    (builtins, "round", lambda x: x * round(2.4)),
    (builtins, "divmod", lambda x: x * divmod(7, 4)[0]),
    (functools, "reduce", lambda x: functools.reduce(torch.add, [x, x])),
]


def cases(count: int, first: int) -> list[tuple]:
    """All of them: `count` and `first` are not looked at."""
    found = []
    for way in WAYS:
        for name in ATTRIBUTES:
            places = [*range(len(NEW.get(name, [None]))), *(["inside"] if name in INSIDE else [])]
            found += [("function", way, name, place) for place in places]
    for number in range(len(REPLACED)):
        found += [("module", number, kind) for kind in ("function", "wraps", "before", "value")]
    return found


def reader(name: str) -> Callable:
    """What the compiled program reads of the function: only what plain values can say."""
    text = f"def read(fn): return fn.{name}"
    if name in ("__code__", "__globals__", "__builtins__", "__closure__"):
        text = "def read(fn): return 0"
    if name in ("__annotations__", "__dict__"):
        text = f"def read(fn): return sorted(map(str, fn.{name}.items()))"
    space: dict = {}
    exec(text, space)
    return space["read"]


def change(function: Callable, name: str, place: object) -> None:
    if place == "inside":
        key, value = INSIDE[name]
        getattr(function, name)[key] = value
    else:
        setattr(function, name, NEW.get(name, ["another"])[place])


def calls_of_function(case: tuple, mode: Mode | None) -> list:
    _, way, name, place = case
    space: dict = {"__name__": "program"}
    exec(compile(SPACE + WAYS[way].replace("\\n", "\n"), f"<{way}>", "exec"), space)
    target, read, x = space["target"], reader(name), torch.arange(3.0)
    space["target"].mark = 1
    function, args = space.get("f"), (x, read)
    if way == "argument":
        function, args = space["g"], (x, read, target)
    if mode is not None:
        function = mode.compile(function)
    found = []
    with torch.no_grad():
        for step in range(3):
            if step == 1:
                change(target, name, place)
            found.append(outcome(function, args, {}, [], f"<{way}>"))
    return found


def calls_of_module(case: tuple, mode: Mode | None) -> list:
    """Before, while something else has that name, and after."""
    _, number, kind = case
    where, name, program = REPLACED[number]
    x = torch.arange(3.0) - 1
    had, old = name in vars(where), getattr(where, name)
    called: list[str] = []
    watched = [] if where is functools else called  # compilers call `reduce` themselves

    def mine(*args, **kwargs):
        called.append(name)
        result = old(*args, **kwargs)
        return [result] if kind == "value" else result * 2

    if kind == "wraps":
        functools.update_wrapper(mine, old)
    new = mine if callable(old) or kind == "value" else 5.0
    if isinstance(old, types.GetSetDescriptorType):
        new = property(lambda tensor: old.__get__(tensor) * 3)
    if isinstance(old, types.ModuleType):
        new = torch
    function = program if mode is None else mode.compile(program)
    found = []
    with torch.no_grad():
        for step in range(4):
            replaced = step in ((0, 1) if kind == "before" else (1, 2))
            if replaced:
                setattr(where, name, new)
            try:
                # a call that the graph makes, too, would be made too often
                found.append(outcome(function, (x,), {}, watched, "<module>", digits=4))
            finally:
                if replaced and had:
                    setattr(where, name, old)
                elif replaced:
                    delattr(where, name)
    return found


def check(case: tuple, mode: Mode) -> str:
    calls = calls_of_function if case[0] == "function" else calls_of_module
    torch.manual_seed(0)
    return difference_of_calls(calls(case, None), calls(case, mode))


if __name__ == "__main__":
    runner.main("tests.soundness.functions", default_modes="eager,inductor")
