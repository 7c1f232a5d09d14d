"""Guard soundness: compile in an environment, change one thing of it, call again: recompiled or
still right, always.

    python -m tests.fuzz.environment --count 500

`CHANGES` is the list of things that can change; each is a function of a `World`.  The compiled
function reads most of the world; plain and compiled each have a world of their own, changed in the
same way.  Between changes the function is called twice.
"""

import argparse
import random
import sys
import time
import types
import warnings

import torch

import minidynamo
from minidynamo import config

from .compare import difference, outcome

SOURCE = """
import collections, dataclasses, enum, functools, types
import torch
from torch import nn

FACTOR, FLAG, NAMES, KINDS, EMPTY = 2, True, ["a", "b"], {1, 2}, None
SETTINGS = {"gain": 0.5, "deep": {"k": [1, 2]}}
BIAS = torch.arange(3.0)
PAIR = (1, (2.0, "z"))
BEHIND = {"k": 2.0}
PROXY = types.MappingProxyType(BEHIND)

class Mode(enum.Enum):
    FAST = 1
    SLOW = 2

@dataclasses.dataclass
class Config:
    width: int = 3
    rate: float = 0.1
    mode: Mode = Mode.FAST
    tags: tuple = ("p",)

class Plain:
    shared = 4
    __slots__ = ("inner",)
    def __init__(self): self.inner = 1

class Helper:
    level = 3
    def __init__(self): self.offset, self.items = 1, [1, 2, 3]
    def compute(self, x): return x * self.level + self.offset
    @property
    def doubled(self): return self.offset * 2
    @staticmethod
    def fixed(x): return x - 1
    @classmethod
    def named(cls, x): return x + cls.level

class Other(Helper):
    def compute(self, x): return x / 2

class Layer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        with torch.no_grad():
            for p in self.lin.parameters():
                p.copy_(torch.arange(float(p.numel())).view(p.shape) * n / 10)
        self.register_buffer("scale", torch.full((1,), 2.0))
        self.kind, self.act = "plain", torch.relu
    def forward(self, x):
        y = self.lin(x) * self.scale
        if self.kind == "plain": y = self.act(y)
        return y + 1 if self.training else y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(1), Layer(2)])
        self.drop, self.settings = nn.Dropout(0.0), {"skip": False}
        self.heads = nn.ModuleDict({"one": Layer(3)})
        self.norm = nn.BatchNorm1d(3, momentum=0.5)
    def forward(self, x):
        for layer in self.layers: x = layer(x)
        if not self.settings["skip"]: x = self.heads["one"](x)
        return self.norm(self.drop(x))

def scaled(x, k=2, *, sign=1): return x * k * sign

def outside(x): return x + 1

def make(n, m):
    def inner(x): return x * n + len(m)
    return inner

closure = make(3, [1])
partial = functools.partial(scaled, k=5)

def f(x, y, items, table, obj, net, n=1, *rest, bonus=0, **kw):
    z = scaled(x, FACTOR) + closure(y)
    if FLAG: z = z + SETTINGS["gain"] + sum(SETTINGS["deep"]["k"])
    z = obj.compute(z) + obj.doubled + len(obj.items) + obj.fixed(z) + obj.named(z)
    for i, item in enumerate(items): z = z + item * (i + 1)
    for key, value in table.items(): z = z + value + len(key)
    if 2 in KINDS: z = z + len(NAMES)
    if EMPTY is None: z = z - 1
    cfg = CONFIG
    z = z * cfg.rate + cfg.width + len(cfg.tags) + (1 if cfg.mode is Mode.FAST else 2)
    z = z + PLAIN.inner + PLAIN.shared + PAIR[0] + PAIR[1][0]
    z = z + n + bonus + len(rest) + len(kw) + BIAS + partial(x) + outside(y)
    z = z * PROXY["k"] + len(PROXY) + len([name for name in Helper.__dict__ if name[0] != "_"])
    if x is y: z = z * 2
    if hasattr(obj, "late"): z = z + obj.late
    if isinstance(obj, Other): z = z - 3
    if x.requires_grad: z = z + 1
    if torch.is_grad_enabled(): z = z + 2
    if x.dtype is torch.float64: z = z + 3
    if x.is_contiguous(): z = z + 4
    if torch.get_default_dtype() is torch.float64: z = z + 5
    z = z + torch.ones(3) + torch.tensor(0.25)
    y.add_(1)
    items.append(1)
    z = z + x
    return net(z.float()), z, x.shape, {"k": z.sum()}

CONFIG, PLAIN = Config(), Plain()
"""


class World:
    """One side: a module, the arguments, and the contexts around calls."""

    def __init__(self, seed):
        self.g = self.space = {"__name__": "world"}
        exec(compile(SOURCE, "<world>", "exec"), self.space)
        values = torch.Generator().manual_seed(seed)
        self.x, self.y = (torch.randn(2, 3, generator=values) for _ in range(2))
        self.items, self.table, self.obj, self.net = (
            [1, 2.5],
            {"p": 1, "q": 2.0},
            self.g["Helper"](),
            self.g["Net"]().eval(),
        )
        self.rest, self.kw, self.n, self.mode, self.f = (), {}, 1, None, self.g["f"]

    def call(self, function):
        if callable(self.mode):
            with self.mode():
                return outcome(function, *self.arguments(), [*self.watched()], "<world>")
        return outcome(function, *self.arguments(), [*self.watched()], "<world>")

    def arguments(self):
        return (
            self.x,
            self.y,
            self.items,
            self.table,
            self.obj,
            self.net,
            self.n,
            *self.rest,
        ), self.kw

    def watched(self):
        return [self.g[name] for name in ("FACTOR", "SETTINGS", "NAMES", "BIAS", "CONFIG")]


class Sub(torch.Tensor):
    pass


def halves(module):
    """The module, all of its parameters 0.5 and without gradients."""
    for parameter in module.requires_grad_(False).parameters():
        parameter.fill_(0.5)
    return module


CHANGES = {}


def change(function):
    CHANGES[function.__name__] = function
    return function


def setter(name, act):
    CHANGES[name] = act


for _name, _value in (
    ("FACTOR", 3),
    ("FACTOR", 2.0),
    ("FACTOR", True),
    ("FLAG", False),
    ("FLAG", 1),
    ("EMPTY", 0),
    ("KINDS", {1}),
    ("KINDS", frozenset({1, 2})),
    ("PAIR", (2, (2.0, "z"))),
    ("PAIR", (1, (3.0, "z"))),
    ("PAIR", [1, [2.0]]),
    ("NAMES", ["a"]),
    ("NAMES", ("a", "b", "c")),
):
    setter(f"global {_name} = {_value!r}", lambda w, n=_name, v=_value: w.g.__setitem__(n, v))
for _text in (
    """
g['SETTINGS']['gain'] = 1.5 | g['SETTINGS']['deep']['k'].append(4)
g['SETTINGS']['deep']['k'][0] = 9 | g['SETTINGS']['deep'] = {'k': [7]} | g['NAMES'].append('c')
g['NAMES'].clear()
g['KINDS'].discard(2) | g['KINDS'].add(9) | g['BIAS'].add_(1) | g['BIAS'] = torch.ones(3)
g['BIAS'] = torch.ones(2, 3) | g['BIAS'] = torch.ones(3).double() | g['BIAS'] = 2.0
g['CONFIG'].width = 7 | g['CONFIG'].rate = 0.2 | g['CONFIG'].mode = g['Mode'].SLOW
g['CONFIG'].tags = ('p', 'q') | g['CONFIG'] = g['Config'](width=9)
g['CONFIG'] = type('C', (), dict(width=1, rate=2, tags=[], mode=0))
g['PLAIN'].inner = 5 | g['Plain'].shared = 6 | g['closure'] = g['make'](4, [1])
g['closure'].__closure__[1].cell_contents = 8 | g['closure'].__closure__[0].cell_contents.append(1)
g['closure'].__closure__[0].cell_contents = 'ab'
g['partial'] = functools.partial(g['scaled'], k=6) | g['partial'].keywords['k'] = 7
g['partial'].keywords['sign'] = -1 | g['scaled'].__defaults__ = (9,)
g['scaled'].__kwdefaults__ = {'sign': -1} | g['scaled'].__kwdefaults__['sign'] = 4
g['scaled'].__code__ = g['outside2'].__code__ | g['outside'] = lambda x: x - 4
g['outside'].__code__ = (lambda x: x * 9).__code__ | g['scaled'] = lambda x, k=1, sign=2: x - k
g['len'] = lambda v: 42 | g['sum'] = max
g['BEHIND']['k'] = 3.0 | g['BEHIND']['j'] = 1 | g['PROXY'] = types.MappingProxyType({'k': 7.0})
g['PROXY'] = {'k': 2.0} | g['isinstance'] = lambda a, b: True
g['enumerate'] = lambda v: zip((5, 6, 7, 8, 9, 10), v)
x.requires_grad_(True) | x = x.double() | x = x.half() | x = torch.randn(4, 3, generator=values)
x = x.t().contiguous().t() | x = x[:1] | x = y | x = y[:] | x = torch.cat([x, x])[::2]
x = x.clone() | x = x.bfloat16() | x = x.to(torch.int64)
x = x.expand(2, 2, 3) | x = torch.nn.Parameter(x.detach()) | x = x.detach().as_subclass(Sub)
x = x[0] | x = x.to_sparse().to_dense() | x = 3.0 | x = torch.zeros(0, 3)
x = torch._neg_view(x.detach())
y = y.double() | y.requires_grad_(True) | y = x.view(2, 3) | y = x.clone() | y = x.view(-1)[:3]
y = g['BIAS'] | y = net.norm.running_mean | y.data = torch.ones(1, 3)
items.append(4) | items.pop() | items[0] = 7 | items[0] = 1.0 | items[0] = True | items = (1, 2.5)
items[0] = x | items = [*items] | items.insert(0, items[0]) | items = g['SETTINGS']['deep']['k']
items = list(range(3))
table['r'] = 3 | table.pop('p') | table['p'] = 5 | table = {'q': 2.0, 'p': 1}
table = dict(reversed(table.items())) | table['p'] = x | table = collections.OrderedDict(table)
table = collections.defaultdict(int, table) | table.clear() | table['p'] = -0.0
obj.offset = 4 | obj.level = 8 | g['Helper'].level = 9 | obj.items.append(1) | obj.late = 5
g['Helper'].late = 2 | obj.compute = lambda x: x * 11 | g['Helper'].compute = lambda self, x: x * 12
obj = g['Other']() | obj.__class__ = g['Other']
g['Helper'].doubled = property(lambda self: 77) | g['Helper'].fixed = staticmethod(lambda x: x + 5)
g['Helper'].named = classmethod(lambda cls, x: x) | obj.fixed = lambda x: x * 3 | obj.offset = x
obj.items = () | obj = g['Helper']() | g['Helper'].__getattr__ = lambda self, name: 3
g['Helper'].compute.__code__ = (lambda self, x: x + 20).__code__
g['Helper'].__getattribute__ = lambda s, n: 50 if n == 'offset' else object.__getattribute__(s, n)
g['Helper'].level = property(lambda self: 6)
net.train() | net.eval() | net.layers[0].train() | net.layers[1].kind = 'other'
net.layers[0].act = torch.tanh | net.settings['skip'] = True | net.settings = {'skip': 1}
net.layers.append(g['Layer'](4)) | net.layers[1] = g['Layer'](5) | net.heads['one'] = g['Layer'](6)
net.layers[0].lin.weight.data.mul_(2)
net.layers[0].lin.weight = torch.nn.Parameter(torch.ones(3, 3))
net.layers[0].lin = halves(torch.nn.Linear(3, 3, bias=False))
net.layers[0].lin.bias = None | net.layers[0].lin.weight.requires_grad_(False)
net.layers[0].scale.fill_(3) | net.layers[0].scale = torch.ones(3)
net.layers[0].scale = torch.ones(1).double()
net.layers[0].register_forward_hook(lambda m, a, o: o * 2)
net.register_forward_pre_hook(lambda m, a: (a[0] + 1,))
net.layers[0].lin.register_forward_hook(lambda m, a, o: o - 1)
net = g['Net']().eval() | net.double() | net.norm.momentum = 0.1 | net.norm.eps = 0.5
net.norm.running_mean.add_(1) | net.norm.track_running_stats = False | net.norm.affine = False
net.norm = torch.nn.Identity() | net.drop.p = 0.0 | net.requires_grad_(False)
net.forward = lambda x: x * 5 | net.layers[0].forward = lambda x: x - 2
g['Layer'].forward = lambda self, x: x + 30 | g['Net'].extra = 5
net.layers[0].__class__ = g['Net'] | net.add_module('drop', torch.nn.ReLU()) | del net.layers[1]
net.layers[0].lin.weight.data = torch.zeros(3, 3)
net.layers[0].lin.weight.data = net.layers[0].lin.weight.data.double()
net.layers[0].lin.weight.data = net.layers[0].lin.weight.data.t()
net.layers[0].lin.in_features = 9
register_parametrization(net.layers[0].lin, 'weight', torch.nn.Softplus())
net.layers[1].lin = net.layers[0].lin
net.layers[1].lin.weight = net.layers[0].lin.weight | net.norm.running_var = None
net.norm.weight.data.add_(1)
n = 4 | n = True | n = 1.0 | n = x | rest = (1,) | rest = (1, x) | kw = {'bonus': 3} | kw = {'q': 1}
kw = {'bonus': x} | f.__defaults__ = (5,) | f.__kwdefaults__ = {'bonus': 9}
f.__kwdefaults__['bonus'] = 2 | f.__code__ = g['f2'].__code__
mode = torch.no_grad | mode = torch.inference_mode | mode = torch.enable_grad | mode = autocast
mode = default_dtype | mode = deterministic | mode = threads | mode = function_mode
mode = dispatch_mode | mode = global_hook | mode = autocast_cache | mode = flush
mode = warn_always | mode = device_context
""".strip()
    .replace("\n", " | ")
    .split(" | ")
):

    def _act(w, text=_text):
        target, _, value = (
            text.partition(" = ")
            if " = " in text and "(" not in text.partition(" = ")[0] and not text.startswith("del")
            else (text, "", "")
        )
        space = dict(
            vars(w),
            torch=torch,
            values=torch.Generator().manual_seed(3),
            Sub=Sub,
            w=w,
            types=types,
            halves=halves,
            register_parametrization=torch.nn.utils.parametrize.register_parametrization,
            functools=__import__("functools"),
            collections=__import__("collections"),
            **MODES,
        )
        w.g.setdefault("outside2", lambda x, k=2, *, sign=1: x * 100 + k)
        w.g.setdefault("f2", lambda x, y, items, table, obj, net, n=1, *rest, bonus=0, **kw: x - 1)
        names = [name for name in vars(w) if target == name]
        exec(f"w.{text}" if names else text, space)

    CHANGES[_text] = _act


class FunctionMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        return result + 1 if function is torch.Tensor.mul else result


class DispatchMode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        return result + 1 if function is torch.ops.aten.mul.Tensor else result


def switch(set_to, get, value):
    import contextlib

    @contextlib.contextmanager
    def block():
        before = get()
        set_to(value)
        try:
            yield
        finally:
            set_to(before)

    return block


def _global_hook():
    import contextlib

    @contextlib.contextmanager
    def block():
        handle = torch.nn.modules.module.register_module_forward_hook(
            lambda m, a, o: o + 1 if isinstance(m, torch.nn.Linear) else None
        )
        try:
            yield
        finally:
            handle.remove()

    return block


MODES = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default_dtype": switch(torch.set_default_dtype, torch.get_default_dtype, torch.float64),
    "deterministic": switch(
        torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled, True
    ),
    "threads": switch(torch.set_num_threads, torch.get_num_threads, 2),
    "function_mode": FunctionMode,
    "dispatch_mode": DispatchMode,
    "global_hook": _global_hook(),
    "autocast_cache": switch(
        torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled, False
    ),
    "device_context": lambda: torch.device("meta"),
    "flush": switch(torch.set_flush_denormal, lambda: False, True),
    "warn_always": switch(torch.set_warn_always, torch.is_warn_always_enabled, True),
}


def check(seed, names=None, backend="eager", changes=10):
    """(names of the changes made, what differs or '')."""
    rng = random.Random(seed)
    names = names or rng.sample(list(CHANGES), changes)
    minidynamo.reset()
    sides = World(seed), World(seed)
    compiled = minidynamo.compile(sides[1].f, backend=backend)
    for step, name in enumerate([None, *names, None]):
        errors = []
        for world in sides:
            torch.utils.hooks.RemovableHandle.next_id = 1000 * step  # hooks are found under these
            try:
                if name is not None:
                    CHANGES[name](world)
            except Exception as error:  # impossible after an earlier one; then for both
                errors.append(repr(error))
        if len(errors) == 1:
            return names, f"only one side could be changed by {name!r}: {errors}"
        torch.manual_seed(step)
        plain = sides[0].call(sides[0].f)
        torch.manual_seed(step)
        ours = sides[1].call(compiled)
        if minidynamo.counters["raised_after_write"]:  # docs/limits.md: what is raised counts
            return names, "" if plain["result"] == ours["result"] else f"step {step} ({name})"
        found = difference(plain, ours)
        if found:
            return names, f"step {step} ({name}):\n{found}"
    return names, ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--stop", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    begin, bad = time.time(), 0
    jobs = [(-1 - n, [name]) for n, name in enumerate(CHANGES)] + [
        (seed, None) for seed in range(options.first, options.first + options.count)
    ]
    with config.patch(raise_internal_errors=True, recompile_limit=100):
        for seed, names in jobs:
            names, found = check(seed, names)
            if found:
                bad += 1
                print(f"seed {seed} {names}\n{found[:1500]}", flush=True)
                if bad >= options.stop:
                    break
    print(
        f"{len(jobs)} environments, {len(CHANGES)} kinds of change, "
        f"each alone and {10 * options.count} in random orders; "
        f"{bad} with a difference, {time.time() - begin:.0f} s"
    )
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
