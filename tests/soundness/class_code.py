"""What a class answers by code of the program; then that code reads something else, or is another.

    python -m tests.soundness.class_code --modes eager,inductor

A case is (protocol, what its code reads, change, where the object lies).  Protocols are the ways in
which a class answers by a function of the program: descriptors, properties, `__getattr__`,
metaclasses, `super()`, `__class_getitem__`, `__init_subclass__`, `__set_name__`, operators and
conversions.  The function reads one number: a global, an attribute of a class or of an object, an
item, a closure's, a default, what another function gives.  Between two calls the number changes, or
goes, or the function itself is replaced on its class.  Enumerated.
"""

from collections.abc import Callable
from typing import Any

import torch

from ..fuzz.compare import difference_of_calls, outcome
from . import runner
from .tables import rows
from .modes import Mode

FILE = "<a program of tests.soundness.class_code>"
# protocol -> (the program's classes: `answer` is the function, which `READ` calls; the question,
# of the class C and its object c)
PROTOCOLS: dict[str, tuple[str, str]] = {
    name: (text, question)
    for name, question, text in rows(r"""
descriptor :: c.got :: class D:\n def __get__(self, i, o=None): return READ\nclass C: got = D()
descriptor of a class :: C.got :: class D:\n def __get__(self, i, o=None): return READ
    \nclass C: got = D()
data descriptor :: c.got :: class D:\n def __get__(self, i, o=None): return READ
    \n def __set__(self, i, v): pass\nclass C: got = D()
descriptor set :: (setattr(c, 'got', 3), c.kept) :: class D:
    \n def __set__(self, i, v): i.kept = v * READ\nclass C: got = D()
set name :: made() :: class D:\n def __set_name__(self, o, name): self.size = READ\ndef made():
    \n class E:\n  got = D()\n return vars(E)['got'].size\nclass C: pass
property :: c.got :: class C:\n @property\n def got(self): return READ
property set :: (setattr(c, 'got', 3), c.kept) :: class C:\n @property\n def got(self): return 1
    \n @got.setter\n def got(self, v): self.kept = v * READ
class method :: C.got(), c.got() :: class C:\n @classmethod\n def got(cls): return READ
static method :: C.got(), c.got() :: class C:\n @staticmethod\n def got(): return READ
method :: c.got(), C.got(c) :: class C:\n def got(self): return READ
getattr :: c.absent :: class C:\n def __getattr__(self, name): return READ
getattribute :: c.absent :: class C:\n def __getattribute__(self, name):
    \n  return READ if name == 'absent' else object.__getattribute__(self, name)
hasattr :: hasattr(c, 'absent'), getattr(c, 'absent', 5) :: class C:\n def __getattr__(self, name):
    \n  if READ == 2: raise AttributeError(name)\n  return 1
setattr :: (setattr(c, 'kept', 3), c.kept) :: class C:
    \n def __setattr__(self, name, v): object.__setattr__(self, name, v * READ)
dir :: len(dir(c)) :: class C:\n def __dir__(self): return ['a'] * int(READ)
class item :: C[3] :: class C:\n def __class_getitem__(cls, key): return key * READ
metaclass item :: C[3] :: class M(type):\n def __getitem__(cls, key): return key * READ
    \nclass C(metaclass=M): pass
metaclass getattr :: C.absent :: class M(type):\n def __getattr__(cls, name): return READ
    \nclass C(metaclass=M): pass
metaclass property :: C.got :: class M(type):\n @property\n def got(cls): return READ
    \nclass C(metaclass=M): pass
metaclass method :: C.got() :: class M(type):\n def got(cls): return READ
    \nclass C(metaclass=M): pass
metaclass call :: C().size :: class M(type):\n def __call__(cls, *args):
    \n  made = type.__call__(cls, *args)\n  made.size = READ\n  return made
    \nclass C(metaclass=M): pass
instance check :: isinstance(3, C), isinstance(x, C), isinstance(kept, (str, C)) :: class M(type):
    \n def __instancecheck__(cls, i): return READ == 2\nclass C(metaclass=M): pass
subclass check :: issubclass(int, C), issubclass(str, (int, C)) :: class M(type):
    \n def __subclasscheck__(cls, k): return READ == 2\nclass C(metaclass=M): pass
metaclass operator :: C + 1, 1 + C, C | 1 :: class M(type):\n def __add__(cls, n): return n + READ
    \n __radd__ = __or__ = __add__\nclass C(metaclass=M): pass
metaclass length :: len(C), bool(C), not C :: class M(type):\n def __len__(cls): return int(READ)
    \n def __bool__(cls): return READ == 2\nclass C(metaclass=M): pass
metaclass iteration :: [*C], 2 in C :: class M(type):\n def __iter__(cls): return iter([READ, 1])
    \n def __contains__(cls, n): return n == READ\nclass C(metaclass=M): pass
metaclass prepare :: made() :: class M(type):\n @classmethod
    \n def __prepare__(mcs, name, bases): return {'size': READ}\ndef made():
    \n class E(metaclass=M): pass\n return E.size\nclass C: pass
new :: C().size :: class C:\n def __new__(cls):\n  made = object.__new__(cls)\n  made.size = READ
    \n  return made
init :: C().size :: class C:\n def __init__(self): self.size = READ
init subclass :: made() :: class C:\n def __init_subclass__(cls): cls.size = READ\ndef made():
    \n class E(C): pass\n return E.size
super method :: c.got() :: class B:\n def got(self): return READ\nclass C(B):
    \n def got(self): return super().got() + 1
super property :: c.got :: class B:\n @property\n def got(self): return READ\nclass C(B):
    \n @property\n def got(self): return super().got + 1
super of a class :: C.got(), c.got() :: class B:\n @classmethod\n def got(cls): return READ
    \nclass C(B):\n @classmethod\n def got(cls): return super().got() + 1
super descriptor :: C.of() :: class D:\n def __get__(self, i, o=None): return READ
    \nclass B: got = D()\nclass C(B):\n @staticmethod\n def of(): return super(C, C).got
super init :: C().size :: class B:\n def __init__(self): self.size = READ\nclass C(B):
    \n def __init__(self): super().__init__()
super in the middle :: c.got() :: class A:\n def got(self): return 1\nclass B(A):
    \n def got(self): return super().got() * READ\nclass D(A):
    \n def got(self): return super().got() + 3\nclass C(B, D): pass
call :: c(3) :: class C:\n def __call__(self, n): return n * READ
item :: c[3] :: class C:\n def __getitem__(self, n): return n * READ
length :: len(c), bool(c), 1 if c else 5 :: class C:\n def __len__(self): return int(READ)
    \n def __bool__(self): return READ == 2
iteration :: [*c], max(c) :: class C:\n def __iter__(self): yield READ
next :: next(c), next(iter(c)) :: class C:\n def __iter__(self): return self
    \n def __next__(self): return READ
contains :: 2 in c, 3 not in c :: class C:\n def __contains__(self, n): return n == READ
operators :: c + 1, 1 + c, c @ 1 :: class C:\n def __add__(self, n): return n + READ
    \n __radd__ = __matmul__ = __add__
in place :: operator.iadd(c, 1).kept :: class C:\n def __iadd__(self, n):\n  self.kept = n + READ
    \n  return self
comparison :: c == 2, c != 2, c < 3, 3 > c, 2 in [c] :: class C:
    \n def __eq__(self, n): return n == READ\n def __lt__(self, n): return READ < n
    \n __hash__ = None
hash :: hash(c) % 100 == 2, {c: 1}.get(2, 5) :: class C:\n def __hash__(self): return int(READ)
    \n def __eq__(self, n): return True
numbers :: float(c), int(c), abs(c), [1, 2, 3, 4, 5, 6, 7, 8, 9][c], range(c) :: class C:
    \n def __index__(self): return int(READ)\n def __float__(self): return READ * 1.5
    \n def __int__(self): return int(READ) + 1\n def __abs__(self): return READ
texts :: str(c), repr(c), f'{c:a} {c!r} {c!s}', '%s' % c, [c].__repr__() :: class C:
    \n def __str__(self): return 'of ' + str(READ)\n def __repr__(self): return 'r ' + str(READ)
    \n def __format__(self, spec): return spec + str(READ)
with :: made(c) :: class C:\n def __enter__(self): return READ\n def __exit__(self, *a): return True
    \ndef made(c):\n with c as n: return n
with, an error :: made(c) :: class C:\n def __enter__(self): return self
    \n def __exit__(self, *a): return READ == 2\ndef made(c):\n with c: raise ValueError('in')
    \n return 5
missing :: c['absent'] :: class C(dict):\n def __missing__(self, key): return READ
list's subclass :: len(c) :: class C(list):\n def __len__(self): return int(READ)
dataclass :: C().size :: @dataclasses.dataclass\nclass C:\n size: int = 1
    \n def __post_init__(self): self.size = READ
enumeration :: C.ONE.got, C(7) :: class C(enum.Enum):\n ONE = 1\n @property
    \n def got(self): return READ\n @classmethod
    \n def _missing_(cls, n): return cls.ONE if READ == 2 else None
named tuple :: c.got :: class C(collections.namedtuple('P', 'a b', defaults=(1, 2))):\n @property
    \n def got(self): return self.a * READ
module :: c(x) :: class C(torch.nn.Module):\n def __getattr__(self, name):
    \n  return READ if name == 'absent' else super().__getattr__(name)
    \n def forward(self, x): return x * self.absent
module's property :: c(x) :: class C(torch.nn.Module):\n @property\n def scale(self): return READ
    \n def forward(self, x): return x * self.scale
torch function :: torch.add(c, 1), torch.sin(c) :: class C:\n @classmethod
    \n def __torch_function__(cls, f, types, args=(), kwargs=None):\n  return READ
ABC :: issubclass(int, C) :: class C(abc.ABC):\n @classmethod\n def __subclasshook__(cls, k):
    \n  return READ == 2
""")
}
# what the function reads -> (expression, {change: statement})
READS: dict[str, tuple[str, dict[str, str]]] = {
    "global": ("BASE", {"other": "BASE = 7", "type": "BASE = 7.5", "gone": "del BASE"}),
    "class attribute": (
        "Held.base",
        {"other": "Held.base = 7", "type": "Held.base = 7.5", "gone": "del Held.base"},
    ),
    "attribute": ("KEPT.base", {"other": "KEPT.base = 7", "gone": "del KEPT.base"}),
    "item": ("ITEMS[0]", {"other": "ITEMS[0] = 7", "gone": "ITEMS.clear()"}),
    "key": ("TABLE['base']", {"other": "TABLE['base'] = 7", "gone": "TABLE.clear()"}),
    "length": ("len(ITEMS) + 1", {"other": "ITEMS.extend([2] * 5)"}),
    "function": (
        "helper()",
        {
            "other": "helper = lambda: 7",
            "code": "helper.__code__ = (lambda n=2: 7).__code__",
            "default": "helper.__defaults__ = (7,)",
        },
    ),
    "closure": ("closed", {"other": "put(7)"}),
    "absent": ("getattr(KEPT, 'late', 2)", {"other": "KEPT.late = 7"}),
    "tensor": ("int(WEIGHT.dim()) + 1", {"other": "WEIGHT = torch.ones(1, 1, 1, 1, 1, 1)"}),
    "itself": ("2", {"replaced": "replace(7)", "removed": "replace(None)"}),
}
HEADER = """
import abc, collections, dataclasses, enum, operator
import torch
BASE, ITEMS, TABLE, WEIGHT, kept = 2, [2], {"base": 2}, torch.ones(1), 3
class Held: base = 2
KEPT = Held()
KEPT.base = 2
def helper(n=2): return n
def make():
 closed = 2
 def put(n):
  nonlocal closed
  closed = n
TEXT
 found = locals()
 return put, *[found.get(name) for name in ("C", "M", "D", "B", "made")]
"""
PLACES = {
    "global": "def f(x): return x + 1, QUESTION",
    "argument": "def f(x, c, C): return x + 1, QUESTION",
    "inlined": "def g(x, c): return QUESTION\ndef f(x): return x + 1, g(x, c)",
}


def program(case: tuple) -> tuple[dict, str]:
    """(namespace, statement that changes something)."""
    protocol, read, change, place = case
    classes, question = PROTOCOLS[protocol]
    expression, changes = READS[read]
    body = "\n".join(f" {line}" for line in classes.replace("READ", expression).split("\n"))
    text = HEADER.replace("TEXT", body)
    text += (
        "put, C, M, D, B, made = make()\nc = next(iter(C)) if protocol == 'enumeration' else C()\n"
    )
    text += PLACES[place].replace("QUESTION", question)
    space: dict = {"__name__": "program", "protocol": protocol}
    exec(compile(text, FILE, "exec"), space)
    space["replace"] = lambda value: replace(space, value)
    return space, changes[change]


def replace(space: dict, value: int | None) -> None:
    """Another function in the place of each that the classes define, or none."""
    for name in ("C", "M", "D", "B"):
        cls = space[name]
        for key, function in [*vars(cls or object).items()] if cls else []:
            if key in ("__init__", "__dict__", "__getattribute__", "__new__") or not is_own(
                function
            ):
                continue
            if value is None:
                type.__delattr__(cls, key)
            elif isinstance(function, property):
                type.__setattr__(cls, key, property(lambda self: value, function.fset))
            elif isinstance(function, (classmethod, staticmethod)):
                type.__setattr__(cls, key, type(function)(lambda *args, **kwargs: value))
            else:
                type.__setattr__(cls, key, lambda *args, **kwargs: value)


def is_own(function: Any) -> bool:
    if isinstance(function, property):
        return True
    inner = getattr(function, "__func__", function)
    return getattr(getattr(inner, "__code__", None), "co_filename", "") == FILE


def cases(count: int, first: int) -> list[tuple]:
    """All of them: `count` and `first` are not looked at."""
    return [
        (protocol, read, change, place)
        for protocol in PROTOCOLS
        for read, (_, changes) in READS.items()
        for change in changes
        for place in PLACES
    ]


def calls(case: tuple, mode: Mode | None) -> list:
    space, change = program(case)
    function: Callable = space["f"]
    if mode is not None:
        function = mode.compile(function)
    found = []
    for step in range(4):
        if step == 2:  # at the second call the memo of the guards remembered
            try:
                exec(change, space)
            except (AttributeError, TypeError) as error:
                found.append({"change": type(error).__name__})
        x = torch.arange(3.0)
        args = (x, space["c"], space["C"]) if case[3] == "argument" else (x,)
        told = outcome(function, args, {}, None, FILE)
        found.append({name: str(told[name]) for name in ("result", "lines", "printed")})
    return found


def check(case: tuple, mode: Mode) -> str:
    return difference_of_calls(calls(case, None), calls(case, mode))


def sample(number: int) -> list[tuple]:
    """Each protocol twice, with what turns of the rest (for pytest)."""
    ways = [(read, change) for read, (_, changes) in READS.items() for change in changes]
    places, found = list(PLACES), []
    for protocol in PROTOCOLS:
        for _ in range(2):
            number += 7
            found.append((protocol, *ways[number % len(ways)], places[number % 3]))
    return found


if __name__ == "__main__":
    runner.main("tests.soundness.class_code", default_modes="eager,inductor")
