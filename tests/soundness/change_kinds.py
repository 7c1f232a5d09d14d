"""The kinds of things that `change.py` changes: each text makes one subject in its own module."""

HEADER = """
import collections, dataclasses, enum, functools, types, typing
import torch
from torch import nn

class Base:
    pass

def use(v, x):
    if isinstance(v, torch.Tensor):
        return x * 2 + v.sum()
    if isinstance(v, (bool, int, float)):
        return x * v + 1
    if isinstance(v, str):
        return x + len(v), v
    if callable(v) and not isinstance(v, (type, nn.Module)):
        return x + 2, v.__name__
    return x + 1, v

def call(f, x):
    return f(x)

def write(v):
    # whatever else is the same object changes, too
    if isinstance(v, (list, collections.deque)):
        v.append(1.0)
    elif isinstance(v, dict):
        v["written"] = 1.0
    elif isinstance(v, Base):
        v.written = 1.0

def size(v):
    if isinstance(v, (list, dict, collections.deque)):
        return len(v)
    return hasattr(v, "written")
"""

MODULE = """
class Child(nn.Module):
    scale = 2.0
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.gain = 1.5
    def forward(self, x):
        return self.linear(x) * self.gain * self.scale

class Net(nn.Module):
    rate: float = 0.5
    limit = 3
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))
        self.register_parameter("nothing", None)
        self.register_buffer("running", torch.ones(3))
        self.register_buffer("passing", torch.ones(3) * 3, persistent=False)
        self.child = Child()
        self.config = {"k": 2.0, "names": ["a", "b"]}
        self.flag = True
        self.mode = None
    def method(self, x):
        return x * self.rate + self.running
    @property
    def doubled(self):
        return self.limit * 2
    def forward(self, x):
        x = self.child(x) * self.weight + self.running
        if self.nothing is not None:
            x = x + self.nothing
        if hasattr(self, "extra"):
            x = x * self.extra
        return x * self.config["k"] + getattr(self, "fresh_name", 1.0) if self.flag else x

make = Net
"""

HOOKS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
    def forward(self, x, more=1.0):
        return self.linear(x) * more
    method = forward

def make():
    net = Net()
    net.register_forward_hook(lambda module, args, result: result + 1)
    net.register_forward_hook(
        lambda module, args, kwargs, result: result * 2, with_kwargs=True, always_call=True)
    net.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    net.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {"more": 2.0}), with_kwargs=True)
    net.linear.register_forward_hook(lambda module, args, result: result - 1)
    return net
"""

CONTAINERS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.several = nn.ModuleList([nn.Linear(3, 3), nn.Tanh()])
        self.named = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.ReLU()})
        self.numbers = nn.ParameterList([torch.ones(3), torch.arange(3.0)])
        self.table = nn.ParameterDict({"p": torch.ones(3), "q": torch.arange(3.0)})
        self.row = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid())
    def method(self, x):
        return [name for name, _ in self.named_children()], len(self.several)
    def forward(self, x):
        for layer in self.several:
            x = layer(x)
        for name, layer in self.named.items():
            x = layer(x) + len(name)
        for p in self.numbers:
            x = x * p
        for name in self.table.keys():
            x = x + self.table[name]
        return self.row(x)

make = Net
"""

SEQUENTIAL = "make = lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Dropout(0.5).eval())"
MODULE_LIST = "make = lambda: nn.ModuleList([nn.Linear(3, 3), nn.Tanh()])"
MODULE_DICT = "make = lambda: nn.ModuleDict({'a': nn.Linear(3, 3), 'b': nn.Tanh()})"
PARAMETER_LIST = "make = lambda: nn.ParameterList([torch.ones(3), torch.arange(3.0)])"
PARAMETER_DICT = "make = lambda: nn.ParameterDict({'a': torch.ones(3), 'b': torch.arange(3.0)})"

GETATTR_MODULE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.gain = 2.0
    def __getattr__(self, name):
        if name == "virtual":
            return 4.0
        return super().__getattr__(name)
    def forward(self, x):
        return self.linear(x) * self.virtual * getattr(self, "absent", self.gain)

make = Net
"""

DICT = "make = lambda: {'a': 1.0, 'b': torch.ones(3), 3: [1, 2], None: {'deep': (1, 'z')}, True: 2}"
LIST = "make = lambda: [1, 2.5, torch.ones(3), [3, 4], {'k': 5}, 'text', None]"
SET = "make = lambda: {1, 2.5, 'text', None}"
FROZENSET = "make = lambda: types.SimpleNamespace(a=frozenset({1, 'text'}))"
TUPLE = "make = lambda: (1, 2.5, torch.ones(3), [3, 4], {'k': 5}, ('text', None))"
DEQUE = "make = lambda: collections.deque([1, 2.5, torch.ones(3), [3, 4]], maxlen=9)"
NESTED_DEQUE = "make = lambda: {'a': collections.deque([1.0, 2.0], maxlen=2)}"
ORDERED = "make = lambda: collections.OrderedDict(a=1.0, b=torch.ones(3), c=[1, 2])"
DEFAULT = "make = lambda: collections.defaultdict(list, a=1.0, b=torch.ones(3), c=[1, 2])"
COUNTER = "make = lambda: collections.Counter(a=1, b=2)"

SUBCLASSES = """
class Dict(dict):
    tag = 1.0
    def method(self, x):
        return x * self.get("a", 3.0) + len(self)

class List(list):
    tag = 2.0
    def method(self, x):
        return x + len(self) * self.tag

class Ordered(collections.OrderedDict):
    pass

class Answers(dict):
    def __missing__(self, key):
        return 5.0
    def __contains__(self, key):
        return True
    def __iter__(self):
        return iter(["other"])

class Holder:
    def __init__(self):
        self.a, self.b = Dict(a=1.0, b=torch.ones(3)), List([1, 2.5, torch.ones(3)])
        self.c, self.d = Ordered(p=1.0, q=2.0), Answers(u=1.0, v=2.0)
        self.a.own, self.b.own = 1.5, 2.5
    def method(self, x):
        return self.a.method(x) + self.b.method(x) + self.d["v"] + len(self.c) + self.a.own

make = Holder
"""

OBJECT = """
class Parent:
    inherited = 2.0
    def helper(self, x):
        return x + self.inherited

class Thing(Parent, Base):
    shared = 4
    names = ["a", "b"]
    def __init__(self):
        self.number, self.text, self.tensor = 1.5, "text", torch.ones(3)
        self.inner, self.flag, self.nothing = {"k": 1, "l": [2]}, True, None
    def method(self, x):
        return self.helper(x) * self.number + self.shared + len(self.inner)
    @property
    def doubled(self):
        return self.number * 2
    @staticmethod
    def fixed(x):
        return x - 1
    @classmethod
    def named(cls, x):
        return x + cls.shared
    def __call__(self, x):
        return self.method(x) + self.doubled + self.fixed(x) + self.named(x)
    def __len__(self):
        return self.shared
    def __iter__(self):
        return iter([self.number, self.shared])
    def __bool__(self):
        return self.flag
    def __getitem__(self, key):
        return self.inner[key]
    def __contains__(self, key):
        return key in self.inner
    def __eq__(self, other):
        return other == self.shared
    __hash__ = None

make = Thing
"""

SLOTS = """
class Thing:
    __slots__ = ("a", "b", "unset")
    shared = 3
    def __init__(self):
        self.a, self.b = 1.5, [1, torch.ones(3)]
    def method(self, x):
        return x * self.a + len(self.b) + getattr(self, "unset", 2.0)
    def __call__(self, x):
        return self.method(x) + self.shared

make = Thing
"""

SLOTS_AND_DICT = """
class Slotted:
    __slots__ = ("a", "unset")

class Thing(Slotted):
    def __init__(self):
        self.a, self.b = 1.5, 2.5
    def method(self, x):
        return x * self.a + self.b

make = Thing
"""

DESCRIPTORS = """
class Data:
    level = 2.0
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, 3.0) * self.level
    def __set__(self, instance, value):
        instance.__dict__[self.name] = value

class NonData:
    level = 2.0
    def __get__(self, instance, owner=None):
        return self.level

class Thing:
    data, plain = Data(), NonData()
    def __init__(self):
        self.data, self.number = 1.5, 2.5
    @property
    def both(self):
        return self.number + 1
    @both.setter
    def both(self, value):
        self.number = value
    @functools.cached_property
    def once(self):
        return self.number * 4
    def method(self, x):
        return x * self.data + self.plain + self.both

make = Thing
"""

GETATTR = """
class Thing:
    def __init__(self):
        self.number, self.table = 1.5, {"a": 2.0}
    def __getattr__(self, name):
        if name in self.__dict__.get("table", {}):
            return self.table[name]
        raise AttributeError(name)
    def method(self, x):
        return x * self.a + getattr(self, "fresh_name", 1.0)

class Every(Thing):
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)

def make():
    return types.SimpleNamespace(a=Thing(), b=Every(), method=lambda x: x)
"""

METACLASS = """
class Meta(type):
    kind = 2.0
    def __len__(cls):
        return cls.size
    def __iter__(cls):
        return iter([cls.size, 5])
    def __call__(cls, x):
        return x * cls.size
    @property
    def doubled(cls):
        return cls.size * 2
    def method(cls, x):
        return x + cls.size

class Thing(metaclass=Meta):
    size = 3
    names = ["a"]

make = lambda: Thing
"""

CLASS = """
class Parent:
    inherited = 2.0

class Thing(Parent):
    size = 3
    names = ["a"]
    weight = torch.ones(3)
    @classmethod
    def method(cls, x):
        return x * cls.size + cls.inherited
    @staticmethod
    def fixed(x):
        return x + 1
    def __init__(self, x):
        self.x = x

make = lambda: Thing
"""

DATACLASS = """
@dataclasses.dataclass
class Config:
    width: int = 3
    rate: float = 0.5
    tags: tuple = ("p",)
    inner: dict = dataclasses.field(default_factory=lambda: {"k": 1})
    def method(self, x):
        return x * self.rate + self.width + len(self.tags)

@dataclasses.dataclass(slots=True)
class Slotted:
    width: int = 3

@dataclasses.dataclass(frozen=True)
class Frozen:
    width: int = 3

def make():
    made = Config()
    made.slotted, made.frozen = Slotted(), Frozen()
    return made
"""

ENUM = """
class Mode(enum.Enum):
    FAST = 1
    SLOW = 2
    def method(self, x):
        return x * self.value
    @property
    def doubled(self):
        return self.value * 2

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2

class Flags(enum.Flag):
    A = 1
    B = 2

class Holder:
    def __init__(self):
        self.mode, self.level, self.flags = Mode.FAST, Level.LOW, Flags.A
    def method(self, x):
        return self.mode.method(x) * self.level + (Flags.A in self.flags)

make = Holder
"""

ENUM_MEMBER = ENUM + "\nmake = lambda: Mode.FAST\n"
ENUM_CLASS = ENUM + "\nmake = lambda: Mode\n"

NAMED_TUPLE = """
class Point(typing.NamedTuple):
    a: float
    b: torch.Tensor
    c: list
    def method(self, x):
        return x * self.a + self.b + len(self.c)

make = lambda: Point(1.5, torch.ones(3), [1, 2])
"""

NAMESPACE = "make = lambda: types.SimpleNamespace(a=1.5, b=torch.ones(3), c={'k': [1]}, d='text')"

PYTHON_MODULE = """
NUMBER, TEXT, TENSOR, TABLE = 1.5, "text", torch.ones(3), {"k": [1, 2]}
def method(x):
    return x * NUMBER + TABLE["k"][0]
make = lambda: this_module
"""

PARTIAL = """
def function(a, x, b=2.0):
    return a * x + b
class Thing:
    def __init__(self):
        self.partial = functools.partial(function, 3.0, b=4.0)
        self.bound = self.helper
        self.cell = (lambda: torch).__closure__
    def helper(self, x):
        return x + 1
    def method(self, x):
        return self.partial(x) + self.bound(x)
make = Thing
"""

PROXY = """
behind = {"a": 1.0, "b": [1, 2]}
make = lambda: types.SimpleNamespace(a=types.MappingProxyType(behind), b=behind)
"""

EXCEPTION = """
class Failed(ValueError):
    code = 3
    def __init__(self, *args):
        super().__init__(*args)
        self.detail = 1.5
make = lambda: types.SimpleNamespace(error=Failed("a", 2))
"""

ALIASES = """
class Held(Base):
    pass

def make():
    held, numbers = Held(), [1.0]
    return {"a": numbers, "b": numbers, "c": [2.0], "d": held, "e": held, "f": Held(), "g": {}}
"""

CELLS = """
def make():
    factor = 2.0
    def late(x):
        return x * later
    def function(x):
        try:
            return late(x) * factor
        except NameError:  # `later` is not there yet
            return x * factor
    if factor == 0.0:
        later = 1.0
    cells = (*function.__closure__, *late.__closure__)
    return types.SimpleNamespace(method=function, late=late, cells=cells)
"""

CALLABLES = """
import math
class Thing:
    def __init__(self):
        self.method = lambda x: x * 2
        self.builtin = math.gcd
        self.bound = [1.0, 2.0].count
        self.net = nn.Linear(3, 3)
        self.kind = Base
    def __call__(self, x):
        return self.net(x) + self.builtin(4, 6) + self.bound(1.0)
make = Thing
"""

BUILTIN_METHOD = "make = lambda: types.SimpleNamespace(bound=[1.0, 2.0].count)"

BUILTIN_FUNCTION = """
import math
make = lambda: types.SimpleNamespace(builtin=math.gcd)
"""

LOGGER = """
import logging
class Print(logging.Handler):
    def emit(self, record):
        print(record.getMessage())

class Named(logging.Logger):
    def method(self, x):
        self.info("a message")
        return x + 1

def make():
    made = Named("name", 10)
    made.addHandler(Print())
    made.disabled = True
    return made
"""

COLLIDING = "make = lambda: {0, 8, 16, 24}"

KINDS = {
    name.lower(): text
    for name, text in dict(vars()).items()
    if name.isupper() and isinstance(text, str) and name != "HEADER" and not name.startswith("_")
}
