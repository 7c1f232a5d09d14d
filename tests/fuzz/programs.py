"""Random Python programs over small tensors, as source text.

In:   a seed.   Out: the text of a module with helpers and `def f(x, y, n, xs, d, box, *rest, k=2,
      **kw)`; `arguments(seed, ...)`.

    >>> print(program(7))
Statements know which names are surely bound and of which kind; now and then one is used that may
not be.  Loops end: every `while` counts down.  A program may raise anything; it only has to do the
same when compiled.
"""

import random

HEADER = """
import collections, contextlib, functools, itertools, math, operator
import torch
import torch.nn.functional as F
from dataclasses import dataclass, field
from minidynamo import graph_break

G, H, LOG, TABLE = 3, 0.5, [], {"a": 1, "b": 2.0}
W = torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])

class Err(Exception):
    def __init__(self, code, *rest):
        super().__init__(code, *rest)
        self.code = code

class Box:
    scale = 2
    def __init__(self, v, log=None):
        self.v, self.log = v, [] if log is None else log
    def bump(self, k=1):
        self.v = self.v + k
        self.log.append(k)
        return self
    @property
    def twice(self): return self.v * 2
    @twice.setter
    def twice(self, value): self.v = value / 2
    @classmethod
    def make(cls, v): return cls(v, [cls.scale])
    @staticmethod
    def plain(a, b=3): return a + b
    def __len__(self): return len(self.log)
    def __getitem__(self, i): return self.log[i]
    def __eq__(self, other): return isinstance(other, Box) and len(self.log) == len(other.log)
    def __hash__(self): return 7
    def __contains__(self, item): return item in self.log
    def __add__(self, other):
        return Box(self.v + (other.v if isinstance(other, Box) else other), self.log)
    __radd__ = __add__
    def __call__(self, a, *b, **c): return a * self.scale + len(b) + len(c)
    def __iter__(self): return iter(self.log)

class Sub(Box):
    scale = 5
    def bump(self, k=1):
        super().bump(k * 2)
        return self
    def __getattr__(self, name):
        if name.startswith("dyn"): return len(name)
        raise AttributeError(name)
    def __bool__(self): return len(self.log) % 2 == 0

class Slots:
    __slots__ = ("a", "b")
    def __init__(self, a): self.a = a

@dataclass
class Data:
    p: int
    q: list = field(default_factory=list)

Pair = collections.namedtuple("Pair", "left right")

class Manager:
    def __init__(self, swallow=()): self.swallow = swallow
    def __enter__(self):
        LOG.append("in")
        return self
    def __exit__(self, kind, value, trace):
        LOG.append("out " + (kind.__name__ if kind else "-"))
        return kind is not None and issubclass(kind, self.swallow)

@contextlib.contextmanager
def managed(tag):
    LOG.append(tag)
    try: yield len(LOG)
    finally: LOG.append(tag + "!")

def helper(a, b=2, *rest, flag=False, **named):
    if flag: return a - b
    return a * b + len(rest) + sum(named.values())

def risky(n):
    if n > 2: raise Err(n, "too large")
    if n < 0: raise ValueError(f"negative {n}")
    return n + 1

def guarded(n):
    try: return risky(n)
    except ValueError as error: return str(error)
    finally: LOG.append(n)

def counter(n, step=1):
    for i in range(0, n, step): yield i * 2

def talker(a):
    got = yield a
    yield (got, a + 1)

def deco(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        LOG.append(fn.__name__)
        return fn(*args, **kwargs)
    return inner

@deco
def wrapped(a, k=1): return a + k

def broken(a):
    b = a * 2
    graph_break()
    return b - 1

def recur(a, n): return a if n <= 0 else recur(a + n, n - 1)

def change(t, l):
    t.mul_(2)
    l.append(t)
    return l

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
        self.lin.weight.data.copy_(torch.arange(9.0).view(3, 3) / 7)
        self.lin.bias.data.fill_(0.125)
        self.register_buffer("seen", torch.zeros(1))
        self.calls, self.parts = 0, torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Tanh()])
    def forward(self, a, k=1):
        self.calls += k
        self.seen += 1
        a = self.lin(a)
        for part in self.parts: a = part(a)
        return a if not self.training else a * 2

NET = Net()
"""

INTS = (
    "n; k; G; len(xs); len(rest); len(LOG); x.dim(); x.shape[0]; x.size(-1); "
    "y.numel(); len(d); -1; 0; 1; 2; 5; len(box); box.scale; sum(range(3)); "
    "max(n, 1); TABLE['a']; NET.calls; kw.get('w', 4); d.get('c', 7); len(box.log)"
).split("; ")
ERRORS = (
    "ValueError; KeyError; IndexError; TypeError; Err; ZeroDivisionError; "
    "RuntimeError; AttributeError; UnboundLocalError; (KeyError, IndexError); "
    "LookupError; ArithmeticError; Exception; StopIteration; "
    "NotImplementedError; AssertionError"
).split("; ")


class Maker:
    def __init__(self, rng):
        self.rng, self.lines, self.count, self.depth = rng, [], 0, 0
        self.names = {
            "t": ["x", "y"],
            "i": ["n", "k"],
            "l": ["xs"],
            "d": ["d", "kw"],
            "o": ["box"],
            "s": [],
            "f": [],
            "g": [],
            "p": ["rest"],
        }
        self.loops, self.functions, self.budget, self.maybe = 0, 0, 40, []
        self.globals = rng.random() < 0.5

    # ---- helpers
    def emit(self, text):
        self.lines.append("    " * (self.depth + 1) + text)

    def pick(self, *options):
        return self.rng.choice(options)

    def fresh(self, kind):
        self.count += 1
        reuse = self.names[kind]
        if reuse and self.rng.random() < 0.3:
            return self.rng.choice(reuse)
        return f"{kind}{self.count}"

    def bind(self, kind, name):
        for names in self.names.values():
            if name in names:
                names.remove(name)
        self.names[kind].append(name)
        if name in self.maybe:
            self.maybe.remove(name)

    def old(self, kind):
        if self.maybe and self.rng.random() < 0.03:
            return self.rng.choice(self.maybe)
        names = self.names[kind]
        return (
            self.rng.choice(names)
            if names
            else {
                "s": "set(range(n))",
                "f": "helper",
                "g": "counter(3)",
                "l": "xs",
                "d": "d",
                "o": "box",
                "t": "W",
                "i": "n",
                "p": "rest",
            }[kind]
        )

    def scope(self, body, kinds=None):
        """Run `body` indented; what it binds may be unbound afterwards."""
        saved = {kind: list(names) for kind, names in self.names.items()}
        self.depth += 1
        start = len(self.lines)
        body()
        if len(self.lines) == start:
            self.emit("pass")
        self.depth -= 1
        for kind, names in self.names.items():
            self.maybe += [name for name in names if name not in saved[kind]]
        self.names = saved

    def block(self, most=3):
        for _ in range(self.rng.randint(1, most)):
            self.statement()

    # ---- expressions
    def i(self):
        e = self.rng.random()
        if e < 0.45:
            return self.old("i")
        if e < 0.75:
            return self.rng.choice(INTS)
        if e < 0.9:
            left = self.old("i")
            sign = self.pick("+", "-", "*", "//", "%", "&", "|", "^")
            return f"({left} {sign} {self.pick('2', '3', self.old('i'))})"
        return self.pick(
            f"len({self.old('l')})",
            f"int({self.cond()})",
            f"guarded({self.old('i')})",
            f"risky({self.old('i')})",
            "Box.plain(n)",
            f"min({self.old('i')}, 4)",
            f"abs({self.old('i')})",
            f"(lambda a, b=n: a - b)({self.old('i')})",
            f"sum(counter({self.small()}))",
            f"math.floor(H * {self.old('i')})",
            f"[*{self.old('l')}].count(1)",
            f"divmod({self.old('i')}, 3)[1]",
            f"functools.reduce(operator.add, range({self.small()}), 1)",
            f"hash({self.pick('box', '1', '(1, 2)')})",
            f"(q{self.count} := {self.old('i')} + 1)",
        )

    def small(self):
        return self.pick("2", "3", "min(abs(n), 3)", "len(rest)", "1")

    def t(self, deep=0):
        a = self.old("t") if deep > 1 or self.rng.random() < 0.7 else f"({self.t(deep + 1)})"
        b = self.old("t") if deep > 1 or self.rng.random() < 0.8 else f"({self.t(deep + 1)})"
        e = self.rng.random()
        if e < 0.4:
            return self.pick(
                f"{a} + {b}",
                f"{a} * {self.i()}",
                f"{a} - {b}",
                f"torch.relu({a})",
                f"{a}.sin()",
                f"{a} * 2 - {b}",
                f"{a}.clone()",
                f"torch.add({a}, {b}, alpha={self.old('i')})",
                f"{a} / 4",
                f"{self.i()} - {a}",
                f"-{a}",
                f"{a}.abs()",
                f"torch.where({a} > 0, {a}, {b})",
            )
        if e < 0.6:
            return self.pick(
                f"{a}.sum(-1)",
                f"{a}.mean()",
                f"{a}.t()",
                f"{a}.view(-1)",
                f"{a}.reshape(3, -1)",
                f"{a}[0]",
                f"{a}[..., 1:]",
                f"{a}.unsqueeze(0)",
                f"{a}.transpose(0, 1)",
                f"torch.cat([{a}, {b}])",
                f"torch.stack(({a}, {b}), dim=-1)",
                f"{a}.expand(2, 3)",
                f"{a}[{self.old('i')}]",
                f"{a}.max()",
                f"{a}.detach()",
                f"{a}.squeeze()",
                f"{a}[:, None]",
                f"{a}.double()",
                f"{a}.to(torch.int64)",
                f"{a} @ W.t()",
                f"{a}.chunk(2)[0]",
                f"torch.softmax({a}, -1)",
                f"{a}.cumsum(0)",
                f"F.layer_norm({a}, (3,))",
                f"{a}.flip(0)",
            )
        if e < 0.75:
            return self.pick(
                f"{self.old('f')}({a})",
                f"helper({a}, {self.i()})",
                f"helper({a}, *{self.old('p')}, flag={self.cond()})",
                f"wrapped({a}, k={self.i()})",
                f"broken({a})",
                f"recur({a}, {self.small()})",
                f"box({a}, 1, z={self.i()})",
                f"NET({a})",
                f"helper({a}, **{{'w': {self.i()}}})",
                f"functools.partial(helper, flag=True)({a}, {b})",
                f"NET.lin({a})",
                f"(Box({a}) + {b}).v",
                f"Sub({a}).bump({self.i()}).v",
                f"box.v + {a}",
                f"sum([{a}, {b}])",
                f"max([{a}.sum(), {b}.sum()], key=lambda q: q.dim())",
                f"Pair({a}, {b}).right",
                f"next(iter([{a}]))",
                f"change({a}.clone(), [])[-1]",
                f"operator.mul({a}, {b})",
                f"Box.make({a}).twice",
            )
        if e < 0.85:
            return self.pick(
                "W",
                f"torch.ones(2, 3) * {self.i()}",
                f"torch.full((2, 3), {self.i()})",
                f"torch.arange({self.small()} * 3).float()",
                f"torch.zeros_like({a})",
                f"torch.tensor([1.0, {self.i()}, 2.0])",
                "NET.lin.bias",
                "NET.seen",
                "box.v",
                f"torch.tensor({self.old('i')})",
            )
        if e < 0.93:
            return f"({a} if {self.cond()} else {b})"
        return self.pick(
            f"[{a}, {b}][{self.old('i')}]",
            f"{{'p': {a}, 'q': {b}}}[{self.pick(repr('p'), repr('q'), repr('r'))}]",
            f"({a}, {b})[::-1][0]",
            f"[v * 2 for v in ({a}, {b})][0]",
            f"sum(v.sum() for v in [{a}, {b}] if v.dim() > 1)",
            f"dict(p={a}, q={b}).pop('q')",
            f"{self.old('l')}[{self.pick('0', '-1', self.old('i'))}]",
            f"{self.old('d')}.get('t', {a})",
        )

    def cond(self):
        e = self.rng.random()
        if e < 0.4:
            return f"{self.i()} {self.pick('<', '>', '==', '!=', '<=')} {self.i()}"
        if e < 0.6:
            return self.pick(
                f"{self.old('i')} in {self.old('l')}",
                f"{self.pick(repr('a'), repr('z'), self.old('i'))} in {self.old('d')}",
                f"not {self.old('l')}",
                f"isinstance({self.pick(self.old('t'), self.old('o'), self.old('l'))}, "
                f"{self.pick('torch.Tensor', 'Box', 'list', '(int, Sub)')})",
                f"hasattr({self.old('o')}, {self.pick(repr('v'), repr('extra'), repr('dynx'))})",
                f"{self.old('t')}.requires_grad",
                "box",
                "rest",
                "kw",
                f"{self.old('t')}.dim() == 2",
                f"{self.old('t')}.dtype == torch.float32",
                "torch.is_grad_enabled()",
                "NET.training",
                f"{self.old('o')} == box",
                f"{self.old('l')} is {self.old('l')}",
                f"{self.old('t')} is {self.old('t')}",
                f"callable({self.old('f')})",
                f"type({self.old('o')}) is Box",
                f"{self.old('t')}.shape == {self.old('t')}.shape",
                f"{self.old('s')} <= {{0, 1, 2}}",
                f"0 < {self.old('i')} < 3",
            )
        if e < 0.75:
            return self.pick(
                f"{self.old('t')}.sum() > {self.old('i')}",
                f"({self.old('t')} > 0).any()",
                f"bool({self.old('t')}.mean() < 0)",
                f"{self.old('t')}.sum().item() < 1",
                f"torch.equal({self.old('t')}, {self.old('t')})",
            )
        return self.pick(
            f"{self.i()} > 1 and {self.i()}",
            f"{self.i()} < 1 or {self.old('l')}",
            f"not {self.i()}",
            f"any(q > 1 for q in range({self.small()}))",
            f"all([{self.i()}, {self.i()}])",
            "True",
            "False",
            f"{self.old('i')}",
        )

    def any(self):
        return self.pick(
            self.i,
            self.i,
            self.t,
            self.t,
            self.cond,
            lambda: self.old("l"),
            lambda: self.old("d"),
            lambda: self.old("o"),
            lambda: self.old("f"),
            lambda: self.pick(
                "None", "'s'", "1.5", "(1, 'z')", "[]", "{}", "float('nan')", "-0.0", "b'q'"
            ),
            self.text,
        )()

    def text(self):
        return self.pick(
            f"f'{{{self.old('i')}}}-{{{self.old('i')}:03d}}'",
            f"f'{{{self.old('l')}!r:.3}}'",
            f"'%s/%d' % ('a', {self.old('i')})",
            f"'-'.join(map(str, range({self.small()})))",
            f"str({self.old('i')}).zfill(3)",
            "'abc'[::-1]",
            f"'{{}}'.format({self.old('i')})",
            f"'abc'[{self.old('i')} % 3]",
            f"repr({self.old('i')})",
            f"f'{{{self.old('t')}.shape}}'",
        )

    # ---- statements
    def statement(self):
        if self.budget <= 0:
            return self.emit(f"LOG.append({self.rng.randint(0, 99)})")
        self.budget -= 1
        simple = (
            [self.assign] * 8
            + [self.inplace] * 4
            + [self.lists] * 5
            + [self.dicts] * 4
            + [self.sets] * 2
            + [self.objects] * 5
            + [self.outer] * 3
            + [self.output] * 2
            + [self.leave] * 2
            + [self.misc] * 5
        )
        nested = (
            [self.if_] * 4
            + [self.for_] * 4
            + [self.while_] * 2
            + [self.try_] * 4
            + [self.with_] * 3
            + [self.def_] * 4
            + [self.match_]
            + [self.class_]
        )
        self.rng.choice(simple + nested * (1 if self.depth < 4 else 0))()

    def assign(self):
        kind = self.pick("t", "t", "t", "i", "i", "l", "d", "o", "f", "p", "g")
        name = self.fresh(kind)
        if kind == "t":
            value = self.t()
        elif kind == "i":
            value = self.i()
        elif kind == "l":
            value = self.pick(
                f"[{self.any()}, {self.any()}]",
                "[]",
                self.old("l"),
                f"list(range({self.small()}))",
                f"{self.old('l')} + [{self.any()}]",
                f"{self.old('l')}[:]",
                f"[{self.any()} for q in range({self.small()})]",
                f"sorted([3, {self.old('i')}, 1], reverse={self.cond()})",
                f"[*{self.old('l')}, {self.any()}]",
                f"list(map(lambda q: q + 1, [1, {self.i()}]))",
                f"[(q, r) for q in range(2) for r in 'ab' if q]",
                f"{self.old('l')} * 2",
                f"list({self.old('d')}.values())",
                f"list(counter({self.small()}))",
                f"[q for q in {self.old('l')} if isinstance(q, int)]",
                f"{self.old('l')}.copy()",
                f"{self.old('t')}.tolist()",
                f"list(zip(range(3), {self.old('l')}))",
                f"list(itertools.chain({self.old('l')}, [1]))",
                f"list(torch.unbind({self.old('t')}))",
                f"list(itertools.accumulate([1, {self.i()}, 3]))",
                f"list(filter(None, [0, {self.i()}]))",
            )
        elif kind == "d":
            value = self.pick(
                f"{{'a': {self.any()}, 'b': {self.any()}}}",
                "{}",
                self.old("d"),
                f"dict(p={self.any()})",
                f"{{**{self.old('d')}, 'm': {self.any()}}}",
                f"{self.old('d')}.copy()",
                f"{{q: q * 2 for q in range({self.small()})}}",
                f"dict(zip('ab', [{self.any()}, 2]))",
                "TABLE",
                f"collections.OrderedDict(u={self.any()})",
                f"collections.defaultdict(list)",
                f"{self.old('d')} | {{'j': {self.any()}}}",
                f"dict(sorted({{'b': 1, 'a': {self.i()}}}.items()))",
            )
        elif kind == "o":
            value = self.pick(
                f"Box({self.any()})",
                f"Sub({self.any()})",
                self.old("o"),
                f"Box.make({self.any()})",
                f"{self.old('o')}.bump({self.i()})",
                f"Sub({self.t()}, {self.old('l')})",
                "NET",
            )
        elif kind == "f":
            value = self.pick(
                "helper",
                f"lambda q: q + {self.i()}",
                f"functools.partial(helper, b={self.i()})",
                "box.__call__",
                "torch.relu",
                f"(lambda q, *r, s={self.i()}: q * s)",
                "wrapped",
                "broken",
                "recur.__get__(1)",
                "NET",
                "Box.plain",
                "operator.neg",
            )
        elif kind == "p":
            value = self.pick(
                f"({self.any()}, {self.any()})",
                f"tuple({self.old('l')})",
                f"Pair({self.any()}, {self.any()})",
                f"(*{self.old('p')}, {self.any()})",
                f"{self.old('p')}[1:]",
            )
        else:
            value = self.pick(
                f"(q + {self.i()} for q in range({self.small()}))",
                f"counter({self.small()})",
                f"iter({self.old('l')})",
                f"zip({self.old('l')}, 'abc')",
                f"enumerate({self.old('l')})",
                f"map(lambda q: {self.any()}, range(2))",
                f"reversed([1, {self.any()}])",
                "talker(n)",
            )
        self.emit(f"{name} = {value}")
        self.bind(kind, name)

    def inplace(self):
        a = self.old("t")
        self.emit(
            self.pick(
                f"{a} += {self.i()}",
                f"{a} *= 0.5",
                f"{a}.add_({self.t()})",
                f"{a}.mul_({self.i()})",
                f"{a}[0] = {self.i()}",
                f"{a}[..., 0] += 1",
                f"{a}.zero_()",
                f"{a}.view(-1).add_(1)",
                f"{a}.t().mul_(2)",
                f"{a}[{self.old('i')}] = {self.t()}",
                f"{a}.data.add_(1)",
                f"{a}.copy_({self.t()})",
                f"{a} -= {self.t()}",
                f"W.add_(1)",
                f"torch.add({a}, 1, out={a})",
                f"{a}.fill_({self.i()})",
                f"{a}.relu_()",
                f"{a}.unsqueeze_(0)",
                f"{a}.note = {self.any()}",
                f"{a}[{a} > 0] = 1",
                f"{a}.requires_grad_({self.cond()})",
                f"{a}.clamp_(-1, 1)",
                f"{a}.resize_(1, 2).zero_()",
                f"{a}.t_()",
            )
        )

    def lists(self):
        a = self.old("l")
        e = self.pick(
            f"{a}.append({self.any()})",
            f"{a}.append({self.any()})",
            f"{a}.extend([{self.any()}, {self.any()}])",
            f"{a}.insert({self.old('i')}, {self.any()})",
            f"{a}.pop()",
            f"{a}[{self.pick('0', '-1', self.old('i'))}] = {self.any()}",
            f"del {a}[{self.pick('0', '-1', ':1')}]",
            f"{a} += [{self.any()}]",
            f"{a}.reverse()",
            f"{a}.clear()",
            f"{a}[1:] = [{self.any()}]",
            f"{a}[0], {a}[-1] = {a}[-1], {a}[0]",
            f"{a} *= 2",
            f"{a}.remove({self.i()})",
            f"{a}.append({a})" if self.rng.random() < 0.1 else f"{a}.append({self.i()})",
            f"{a}[:0] = ({self.any()},)",
            f"{a}.sort(key=str)" if self.rng.random() < 0.3 else f"{a}.append({self.old('l')}[:1])",
            f"LOG.append({a}.index({self.i()}))",
        )
        self.emit(e)

    def dicts(self):
        a, key = (
            self.old("d"),
            self.pick("'a'", "'b'", "'new'", self.old("i"), "(1, 2)", "'t'", "None", "1.0", "True"),
        )
        self.emit(
            self.pick(
                f"{a}[{key}] = {self.any()}",
                f"{a}[{key}] = {self.any()}",
                f"{a}.pop({key}, None)",
                f"{a}.setdefault({key}, []).append({self.any()})",
                f"{a}.update(z={self.any()})",
                f"del {a}[{key}]",
                f"{a}[{key}] += 1",
                f"{a}.popitem()",
                f"LOG.append(list({a}))",
                f"LOG.append({a}[{key}])",
                f"{a} |= {{{key}: {self.any()}}}",
                f"{a}.clear()",
                f"{a}.pop({key})",
                f"{a}.update({{q: 1 for q in 'ab'}})",
                f"LOG.extend({a}.items())",
                f"LOG.append(next(iter({a}.values())))",
            )
        )

    def sets(self):
        if not self.names["s"] or self.rng.random() < 0.4:
            name = self.fresh("s")
            value = self.pick(
                "{1, 2}",
                "set()",
                f"set(range({self.small()}))",
                "{q % 2 for q in range(4)}",
                f"set({self.old('s')})",
                "frozenset((3, 4))",
            )
            self.emit(f"{name} = {value}")
            self.bind("s", name)
        else:
            a, b = self.old("s"), self.old("s")
            self.emit(
                self.pick(
                    f"{a}.add({self.i()})",
                    f"{a}.discard({self.i()})",
                    f"{a}.remove({self.i()})",
                    f"{a} |= {{{self.i()}}}",
                    f"{a}.update([5, {self.i()}])",
                    f"LOG.append({a} & {b})",
                    f"LOG.append({a} - {b})",
                    f"LOG.append(sorted({a} ^ {b}))",
                    f"LOG.append(len({a}))",
                    f"LOG.append({a} < {b})",
                    f"{a} -= {b}",
                    f"LOG.append({self.i()} in {a})",
                )
            )

    def objects(self):
        a, name = (
            self.old("o"),
            self.pick("v", "v", "log", "extra", "twice", "scale", "dynq", "bump"),
        )
        self.emit(
            self.pick(
                f"{a}.{name} = {self.any()}",
                f"{a}.v += {self.pick('1', self.t())}",
                f"{a}.bump({self.pick('', self.i())})",
                f"{a}.extra = {self.any()}",
                f"LOG.append({a}.{name})",
                f"del {a}.{name}",
                f"setattr({a}, 'extra', {self.any()})",
                f"LOG.append(getattr({a}, {name!r}, None))",
                f"{a}.log = {self.old('l')}",
                f"{a}.log.append({self.any()})",
                f"{a}.self = {a}" if self.rng.random() < 0.15 else f"{a}.v = {self.t()}",
                f"NET.calls += {self.i()}",
                f"NET.seen = NET.seen + 1",
                f"NET.extra = {self.any()}",
                f"{a}.twice = {self.t()}",
                f"NET.train({self.cond()})" if self.rng.random() < 0.3 else "NET.calls = 0",
                f"Box.scale = {self.i()}" if self.rng.random() < 0.3 else f"{a}.scale = {self.i()}",
                f"{a}.__dict__['extra'] = {self.any()}",
                f"LOG.append(vars({a}).get('extra'))",
                f"LOG.append(Slots({self.any()}))",
                f"LOG.append(Data({self.i()}))",
                f"LOG.append({a}[0])",
                f"LOG.append([*{a}])",
                f"LOG.append({a}.dynfoo)",
                f"LOG.append(Data(1, {self.old('l')}) == Data({self.i()}))",
                f"LOG.append({a} + {self.i()})",
            )
        )

    def outer(self):
        choice = self.pick("LOG", "table", "G", "H")
        if choice == "LOG":
            self.emit(f"LOG.append({self.any()})")
        elif choice == "table":
            self.emit(
                self.pick(
                    f"TABLE['a'] = {self.i()}",
                    f"TABLE['a'] += 1",
                    f"TABLE[{self.old('i')}] = {self.any()}",
                    "TABLE.pop('b', 0)",
                    f"globals()['H'] = {self.i()}",
                )
            )
        elif self.globals and not self.functions:
            self.emit(f"{choice} = {self.pick(f'{choice} + 1', self.i())}")
        else:
            self.emit(f"LOG.append({choice})")

    def output(self):
        self.emit(
            self.pick(
                f"print({self.any()}, sep='')",
                f"print('p', {self.i()})",
                f"print({self.text()}, end=';')",
                "graph_break()",
                "graph_break()",
                f"print([{self.i()}], {self.old('t')}.shape)",
            )
        )

    def leave(self):
        e = self.rng.random()
        if self.depth and e < 0.25 and self.loops:
            self.emit(self.pick("break", "continue"))
        elif self.depth and e < 0.5:
            self.emit(f"return {self.any()}")
        elif e < 0.7 and self.depth:
            self.emit(
                self.pick(
                    f"raise {self.pick('ValueError', 'KeyError', 'RuntimeError', 'Err')}"
                    f"({self.any()})",
                    f"raise Err({self.i()}, {self.any()}) from KeyError('k')",
                    "raise",
                    "raise IndexError",
                    f"raise Err({self.i()}) from None",
                )
            )
        else:
            self.emit(
                self.pick(
                    f"assert {self.cond()}, {self.text()}",
                    f"risky({self.i()})",
                    f"guarded({self.i()})",
                )
            )

    def misc(self):
        e = self.pick(
            "star",
            "swap",
            "del",
            "walrus",
            "unpack",
            "gen",
            "aug",
            "closure",
            "expr",
            "slice",
            "chain",
            "list_t",
            "import",
        )
        if e == "star":
            names = [self.fresh("t"), self.fresh("l")]
            self.emit(f"{names[0]}, *{names[1]} = {self.t()}, {self.any()}, {self.any()}")
            self.bind("t", names[0]), self.bind("l", names[1])
        elif e == "swap":
            a, b = self.old("t"), self.old("t")
            self.emit(f"{a}, {b} = {b}, {a}") if a != "W" and b != "W" else self.emit("pass")
        elif e == "del":
            kind = self.pick("t", "i", "l")
            name = self.old(kind)
            if (
                name.isidentifier()
                and name not in ("W",)
                and not self.functions
                and name[-1].isdigit()
            ):
                self.emit(f"del {name}")
                if name in self.names[kind] and len(self.names[kind]) > 1:
                    self.names[kind].remove(name)
                    self.maybe.append(name)
        elif e == "walrus":
            name = self.fresh("i")
            self.emit(f"if ({name} := {self.i()}) > 1: LOG.append({name})")
            self.bind("i", name)
        elif e == "unpack":
            a, b = self.fresh("i"), self.fresh("t")
            self.emit(f"{a}, ({b}, _) = {self.i()}, ({self.t()}, {self.any()})")
            self.bind("i", a), self.bind("t", b)
        elif e == "gen":
            self.emit(
                self.pick(
                    f"LOG.append(next({self.old('g')}, None))",
                    f"LOG.append(list({self.old('g')}))",
                    f"LOG.append(sum({self.old('g')}))",
                    f"LOG.append(dict(enumerate({self.old('g')})))",
                    f"a_, *b_ = {self.old('g')}",
                    f"LOG.append(tuple(itertools.islice({self.old('g')}, 2)))",
                    f"{self.old('g')}.send(None)",
                )
            )
        elif e == "aug":
            name = self.pick("n", "k", self.old("i"))
            self.emit(
                f"{name} {self.pick('+=', '-=', '*=')} {self.i()}"
            ) if name.isidentifier() and not (self.functions or name == "G") else self.emit(
                "LOG.append(0)"
            )
        elif e == "closure":
            self.emit(f"LOG.append({self.old('f')}({self.any()}))")
        elif e == "slice":
            self.emit(f"LOG.append({self.old('l')}[{self.pick('::2', '1:', ':-1', '::-1')}])")
        elif e == "chain":
            a, b = self.fresh("i"), self.fresh("i")
            self.emit(f"{a} = {b} = {self.i()}")
            self.bind("i", a), self.bind("i", b)
        elif e == "list_t":
            self.emit(f"LOG.append([q.sum() for q in [{self.t()}, {self.old('t')}]])")
        elif e == "import":
            self.emit("from math import floor as fl; LOG.append(fl(1.5))")
        else:
            self.emit(self.any())

    def if_(self):
        self.emit(f"if {self.cond()}:")
        self.scope(self.block)
        if self.rng.random() < 0.3:
            self.emit(f"elif {self.cond()}:")
            self.scope(self.block)
        if self.rng.random() < 0.5:
            self.emit("else:")
            self.scope(self.block)

    def for_(self):
        kind = self.pick("i", "i", "t", "pair", "any")
        name = {"i": "i", "t": "t"}.get(kind, "a") + f"{self.count}"
        self.count += 1
        if kind == "i":
            values = self.pick(
                f"range({self.small()})",
                f"counter({self.small()})",
                "[1, 2, 5]",
                f"reversed(range({self.small()}))",
            )
            self.emit(f"for {name} in {values}:")
        elif kind == "t":
            values = self.pick(
                f"({self.t()}, {self.old('t')})", f"[{self.t()}, {self.t()}]", self.old("t")
            )
            self.emit(f"for {name} in {values}:")
        elif kind == "pair":
            key = f"i{self.count}"
            self.count += 1
            pairs = self.pick(
                f"enumerate({self.old('l')}[:3])",
                f"zip(range(2), {self.old('l')})",
                "enumerate(rest)",
                f"list({self.old('d')}.items())",
            )
            self.emit(f"for {key}, {name} in {pairs}:")
        else:
            values = self.pick(
                f"{self.old('l')}[:4]",
                "rest",
                "list(kw)",
                "sorted({2, 1})",
                f"tuple({self.old('l')})",
                "box.log[:3]",
                self.old("p"),
            )
            self.emit(f"for {name} in {values}:")

        def body():
            self.names["t" if kind == "t" else "i"].append(name) if kind in "it" else None
            if kind == "pair" and self.rng.random() < 0.8:
                self.names["i"].append(key)
            self.block()

        self.loops += 1
        self.scope(body)
        self.loops -= 1
        if self.rng.random() < 0.2:
            self.emit("else:")
            self.scope(self.block)

    def while_(self):
        name = f"w{self.count}"
        self.count += 1
        self.emit(f"{name} = {self.small()}")
        self.emit(f"while ({name} := {name} - 1) >= 0{self.pick('', '', f' and ({self.cond()})')}:")
        self.loops += 1
        self.scope(self.block)
        self.loops -= 1

    def try_(self):
        self.emit("try:")
        self.scope(self.block)
        for _ in range(self.rng.randint(0, 2)):
            name = f"e{self.count}"
            self.count += 1
            self.emit(
                f"except {self.rng.choice(ERRORS)}{self.pick('', f' as {name}', f' as {name}')}:"
            )
            bound = self.lines[-1].endswith(f"as {name}:")

            def body():
                if bound:
                    self.emit(
                        self.pick(
                            f"LOG.append(str(type({name})))",
                            f"LOG.append({name}.args)",
                            f"LOG.append({name})",
                            f"print({name})",
                            f"raise {name}",
                            f"raise Err(1) from {name}",
                            "pass",
                            f"LOG.append({name}.code)",
                            f"LOG.append({name}.__context__)",
                        )
                    )
                self.block(2)

            self.scope(body)
        caught = self.lines and any(
            line.strip().startswith("except")
            and len(line) - len(line.lstrip()) == 4 * (self.depth + 1)
            for line in self.lines[-12:]
        )
        last = next(
            (
                line
                for line in reversed(self.lines)
                if len(line) - len(line.lstrip()) == 4 * (self.depth + 1)
            ),
            "",
        )
        if last.strip().startswith("except"):
            if self.rng.random() < 0.25:
                self.emit("else:")
                self.scope(self.block)
            if self.rng.random() < 0.3:
                self.emit("finally:")
                self.scope(lambda: self.block(2))
        else:
            self.emit("finally:")
            self.scope(lambda: self.block(2))

    def with_(self):
        managers = self.pick(
            "Manager()",
            f"Manager({self.rng.choice(ERRORS)})",
            "torch.no_grad()",
            "torch.enable_grad()",
            "contextlib.suppress(KeyError, Err)",
            "managed(str(n))",
            "Manager() as m",
            "contextlib.nullcontext()",
            "Manager(ValueError), torch.no_grad()",
            "torch.inference_mode()",
            "torch.inference_mode(), Manager()",
            'torch.device("cpu")',
            'Manager(), torch.device("meta")',
        )
        self.emit(f"with {managers}:")
        self.scope(self.block)

    def def_(self):
        name, nonlocals = f"f{self.count}", []
        self.count += 1
        style = self.pick("def", "def", "nonlocal", "nonlocal", "gen")
        target = self.old(self.pick("i", "t"))
        if style == "nonlocal" and (
            not target.isidentifier() or self.functions or target in ("W", "G")
        ):
            style = "def"
        self.emit(f"def {name}(a, b={self.i()}, *c):")
        saved = {kind: list(names) for kind, names in self.names.items()}

        def body():
            if style == "nonlocal":
                self.emit(f"nonlocal {target}")
                self.emit(f"{target} = {target} + {self.pick('1', 'b')}")
            self.functions += 1
            loops, self.loops = self.loops, 0
            self.names["t"].append("a")
            inner = self.rng.random()
            if inner < 0.5 and self.depth < 3 and style != "gen":
                count = len(self.lines)
                self.emit(f"q = {self.t()}")
                self.simple_body()
            if style == "gen":
                self.emit(f"yield a")
                self.emit(f"yield {self.i()}")
            else:
                self.emit(
                    f"return {self.pick('a + b', 'a', self.t(), f'a * {self.i()}', '(a, c)')}"
                )
            self.functions -= 1
            self.loops = loops

        self.scope(body)
        self.names = saved
        self.bind("f", name)
        if self.rng.random() < 0.6:
            if style == "gen":
                self.emit(f"LOG.extend({name}({self.i()}))")
            else:
                out = self.fresh("t")
                self.emit(
                    f"{out} = {name}({self.t()}{self.pick('', ', ' + self.i(), ', 1, 2, 3')})"
                )
                self.bind("t", out)

    def simple_body(self):
        """Statements of an inner function that bind no name of the outer one."""
        for _ in range(self.rng.randint(0, 2)):
            self.pick(
                lambda: self.emit(f"LOG.append({self.any()})"),
                self.objects,
                self.dicts if not self.functions else self.outer,
                lambda: self.emit(f"if {self.cond()}: return {self.t()}"),
            )()

    def match_(self):
        subject = self.pick(self.i(), "[n, k]", self.old("o"), f"({self.i()}, {self.any()})", "d")
        self.emit(f"match {subject}:")
        self.depth += 1
        for _ in range(self.rng.randint(1, 2)):
            pattern = self.pick(
                "1 | 2", "[1, z_]", "(z_, *_)", "Box(v=z_)", "int()", "0", "Sub()", "None"
            )
            self.emit(f"case {pattern}:")
            self.scope(self.block)
        self.emit("case _:")
        self.scope(self.block)
        self.depth -= 1

    def class_(self):
        name = f"C{self.count}"
        self.count += 1
        self.emit(f"class {name}(Box):")
        self.emit(f"    def bump(self, k=1): return super().bump(k + {self.pick('1', 'n')})")
        other = self.fresh("o")
        self.emit(f"{other} = {name}({self.any()})")
        self.bind("o", other)


def program(seed):
    """The module's text."""
    rng = random.Random(seed)
    maker = Maker(rng)
    maker.budget = rng.choice((4, 8, 14, 22))
    maker.emit("global G, H") if maker.globals else None
    while maker.budget > 0:
        maker.statement()
    results = [rng.choice(names) for names in maker.names.values() if names]
    maker.emit(f"return {', '.join(results[: rng.randint(1, len(results))])}")
    text = (
        HEADER + "\ndef f(x, y, n, xs, d, box, *rest, k=2, **kw):\n" + "\n".join(maker.lines) + "\n"
    )
    try:
        compile(text, "program", "exec")
    except SyntaxError:  # a rare clash of names
        return program(seed + 1_000_003)
    return text


CALLS = 4


def arguments(seed, call, space):
    """(args, kwargs) of one call; `space` is the executed module.  Later calls resemble the first
    one in most ways."""
    import torch

    rng = random.Random(seed * 17 + (call if call > 1 else 0))  # the second call hits the cache
    values = torch.Generator().manual_seed(seed + call)
    shape, dtype = (2, 3), torch.float32
    if call > 1:
        shape = rng.choice([(2, 3), (2, 3), (3, 3), (4, 2), (2,), (1, 3)])
        dtype = rng.choice([torch.float32] * 3 + [torch.float64, torch.int64])

    def tensor():
        made = (torch.randn(shape, generator=values) * 2).round(decimals=2).to(dtype)
        if rng.random() < 0.15 and made.dim() == 2:
            made = made.t().contiguous().t()
        return made.requires_grad_() if rng.random() < 0.15 and made.is_floating_point() else made

    x = tensor()
    y = (
        x
        if rng.random() < 0.1
        else x.detach().flatten()[: shape[-1]]
        if x.requires_grad or not x.is_contiguous()
        else x.view(-1)[: shape[-1]]
        if rng.random() < 0.08
        else tensor()
    )
    n = rng.choice([0, 1, 1, 2, 3, 4, -1])
    xs = [rng.choice([1, 2, 0, tensor(), [1], "s", None, 2.5]) for _ in range(rng.randint(0, 3))]
    d = {
        key: rng.choice([1, 2, tensor(), [3], "u", xs])
        for key in rng.sample(["a", "b", "t", 1, "c"], rng.randint(0, 3))
    }
    box = rng.choice([space["Box"], space["Sub"], space["Box"]])(
        rng.choice([1, x, tensor(), 2.5]), rng.choice([None, [1, 2], xs])
    )
    rest = [rng.choice([1, tensor(), "r"]) for _ in range(rng.randint(0, 2))]
    kw = {key: rng.randint(0, 5) for key in rng.sample(["w", "z"], rng.randint(0, 2))}
    if rng.random() < 0.3:
        kw["k"] = rng.randint(0, 4)
    return (x, y, n, xs, d, box, *rest), kw
