"""Random Python programs over small tensors, as source text.

In:   a seed.   Out: the text of a module with helpers and `def f(x, y, n, xs, d, box, *rest, k=2,
      **kw)`; `arguments(seed, ...)`.

    >>> print(program(7))
Statements know which names are surely bound and of which kind; now and then one is used that may
not be.  Loops end: every `while` counts down.  A program may raise anything; it only has to do the
same when compiled.
"""

import functools
import random
import re

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

DEFAULTS = dict(s="set(range(n))", f="helper", g="counter(3)", l="xs", d="d", o="box", t="W")
DEFAULTS |= dict(i="n", p="rest")


class Fields(dict):
    """What `{name}` stands for: what was given, called where it is a function; a bound name of a
    kind for a capital letter; an expression of the maker's method of that name else."""

    def __init__(self, maker, given):
        super().__init__(given)
        self.maker = maker

    def __getitem__(self, name):
        if name in self:
            found = super().__getitem__(name)
            return found() if callable(found) else found
        return self.maker.old(name.lower()) if name.isupper() else getattr(self.maker, name)()


class Maker:
    def __init__(self, rng):
        self.rng, self.lines, self.count, self.depth = rng, [], 0, 0
        known = "t=x,y i=n,k l=xs d=d,kw o=box s= f= g= p=rest"
        self.names = {part[0]: [*filter(None, part[2:].split(","))] for part in known.split()}
        self.loops, self.functions, self.budget, self.maybe = 0, 0, 40, []
        self.globals = rng.random() < 0.5

    # ---- helpers
    def emit(self, text):
        self.lines.append("    " * (self.depth + 1) + text)

    def pick(self, *options):
        return self.rng.choice(options)

    def draw(self, options, **given):
        """One of the templates between "; ", each filled in, as `Fields` says."""
        fields = Fields(self, given)
        return self.pick(
            *[option.format_map(fields) for option in re.split(r";\s+", options.strip())]
        )

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
        return self.rng.choice(names) if names else DEFAULTS[kind]

    def scope(self, body):
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
        options = """
            len({L}); int({cond}); guarded({I}); risky({I}); Box.plain(n); min({I}, 4); abs({I});
            (lambda a, b=n: a - b)({I}); sum(counter({small})); math.floor(H * {I});
            [*{L}].count(1); divmod({I}, 3)[1]; functools.reduce(operator.add, range({small}), 1);
            hash({one}); (q{count} := {I} + 1)"""
        return self.draw(options, one=lambda: self.pick("box", "1", "(1, 2)"), count=self.count)

    def small(self):
        return self.pick("2", "3", "min(abs(n), 3)", "len(rest)", "1")

    def t(self, deep=0):
        a = self.old("t") if deep > 1 or self.rng.random() < 0.7 else f"({self.t(deep + 1)})"
        b = self.old("t") if deep > 1 or self.rng.random() < 0.8 else f"({self.t(deep + 1)})"
        e = self.rng.random()
        if e < 0.4:
            options = """
                {a} + {b}; {a} * {i}; {a} - {b}; torch.relu({a}); {a}.sin(); {a} * 2 - {b};
                {a}.clone(); torch.add({a}, {b}, alpha={I}); {a} / 4; {i} - {a}; -{a}; {a}.abs();
                torch.where({a} > 0, {a}, {b})"""
            return self.draw(options, a=a, b=b)
        if e < 0.6:
            options = """
                {a}.sum(-1); {a}.mean(); {a}.t(); {a}.view(-1); {a}.reshape(3, -1); {a}[0];
                {a}[..., 1:]; {a}.unsqueeze(0); {a}.transpose(0, 1); torch.cat([{a}, {b}]);
                torch.stack(({a}, {b}), dim=-1); {a}.expand(2, 3); {a}[{I}]; {a}.max();
                {a}.detach(); {a}.squeeze(); {a}[:, None]; {a}.double(); {a}.to(torch.int64);
                {a} @ W.t(); {a}.chunk(2)[0]; torch.softmax({a}, -1); {a}.cumsum(0);
                F.layer_norm({a}, (3,)); {a}.flip(0)"""
            return self.draw(options, a=a, b=b)
        if e < 0.75:
            options = """
                {F}({a}); helper({a}, {i}); helper({a}, *{P}, flag={cond}); wrapped({a}, k={i});
                broken({a}); recur({a}, {small}); box({a}, 1, z={i}); NET({a});
                helper({a}, **{{'w': {i}}}); functools.partial(helper, flag=True)({a}, {b});
                NET.lin({a}); (Box({a}) + {b}).v; Sub({a}).bump({i}).v; box.v + {a};
                sum([{a}, {b}]); max([{a}.sum(), {b}.sum()], key=lambda q: q.dim());
                Pair({a}, {b}).right; next(iter([{a}])); change({a}.clone(), [])[-1];
                operator.mul({a}, {b}); Box.make({a}).twice"""
            return self.draw(options, a=a, b=b)
        if e < 0.85:
            options = """
                W; torch.ones(2, 3) * {i}; torch.full((2, 3), {i});
                torch.arange({small} * 3).float(); torch.zeros_like({a});
                torch.tensor([1.0, {i}, 2.0]); NET.lin.bias; NET.seen; box.v; torch.tensor({I})"""
            return self.draw(options, a=a)
        if e < 0.93:
            return f"({a} if {self.cond()} else {b})"
        options = """
            [{a}, {b}][{I}]; {{'p': {a}, 'q': {b}}}[{one}]; ({a}, {b})[::-1][0];
            [v * 2 for v in ({a}, {b})][0]; sum(v.sum() for v in [{a}, {b}] if v.dim() > 1);
            dict(p={a}, q={b}).pop('q'); {L}[{two}]; {D}.get('t', {a})"""
        return self.draw(
            options,
            a=a,
            b=b,
            one=lambda: self.pick(repr("p"), repr("q"), repr("r")),
            two=lambda: self.pick("0", "-1", self.old("i")),
        )

    def cond(self):
        e = self.rng.random()
        if e < 0.4:
            return f"{self.i()} {self.pick('<', '>', '==', '!=', '<=')} {self.i()}"
        if e < 0.6:
            options = """
                {I} in {L}; {one} in {D}; not {L}; isinstance({two}, {three});
                hasattr({O}, {four}); {T}.requires_grad; box; rest; kw; {T}.dim() == 2;
                {T}.dtype == torch.float32; torch.is_grad_enabled(); NET.training; {O} == box;
                {L} is {L}; {T} is {T}; callable({F}); type({O}) is Box; {T}.shape == {T}.shape;
                {S} <= {{0, 1, 2}}; 0 < {I} < 3"""
            return self.draw(
                options,
                one=lambda: self.pick(repr("a"), repr("z"), self.old("i")),
                two=lambda: self.pick(self.old("t"), self.old("o"), self.old("l")),
                three=lambda: self.pick("torch.Tensor", "Box", "list", "(int, Sub)"),
                four=lambda: self.pick(repr("v"), repr("extra"), repr("dynx")),
            )
        if e < 0.75:
            return self.draw("""
                {T}.sum() > {I}; ({T} > 0).any(); bool({T}.mean() < 0); {T}.sum().item() < 1;
                torch.equal({T}, {T})""")
        return self.draw("""
            {i} > 1 and {i}; {i} < 1 or {L}; not {i}; any(q > 1 for q in range({small}));
            all([{i}, {i}]); True; False; {I}""")

    def any(self):
        def constant():
            return self.pick(
                *"None; 's'; 1.5; (1, 'z'); []; {}; float('nan'); -0.0; b'q'".split("; ")
            )

        names = [functools.partial(self.old, kind) for kind in "ldof"]
        expressions = (self.i, self.i, self.t, self.t, self.cond)
        return self.pick(*expressions, *names, constant, self.text)()

    def text(self):
        return self.draw("""
            f'{{{I}}}-{{{I}:03d}}'; f'{{{L}!r:.3}}'; '%s/%d' % ('a', {I});
            '-'.join(map(str, range({small}))); str({I}).zfill(3); 'abc'[::-1]; '{{}}'.format({I});
            'abc'[{I} % 3]; repr({I}); f'{{{T}.shape}}'""")

    # ---- statements
    def statement(self):
        if self.budget <= 0:
            return self.emit(f"LOG.append({self.rng.randint(0, 99)})")
        self.budget -= 1
        simple = (
            "assign 8, inplace 4, lists 5, dicts 4, sets 2, objects 5, outer 3, output 2, leave 2"
        )
        nested = "if_ 4, for_ 4, while_ 2, try_ 4, with_ 3, def_ 4, match_ 1, class_ 1"
        weights = f"{simple}, misc 5" + (f", {nested}" if self.depth < 4 else "")
        pairs = [entry.split() for entry in weights.split(", ")]
        getattr(self, self.pick(*[name for name, times in pairs for _ in range(int(times))]))()

    def assign(self):
        kind = self.pick("t", "t", "t", "i", "i", "l", "d", "o", "f", "p", "g")
        name = self.fresh(kind)
        if kind == "t":
            value = self.t()
        elif kind == "i":
            value = self.i()
        elif kind == "l":
            value = self.draw("""
                [{any}, {any}]; []; {L}; list(range({small})); {L} + [{any}]; {L}[:];
                [{any} for q in range({small})]; sorted([3, {I}, 1], reverse={cond});
                [*{L}, {any}]; list(map(lambda q: q + 1, [1, {i}]));
                [(q, r) for q in range(2) for r in 'ab' if q]; {L} * 2; list({D}.values());
                list(counter({small})); [q for q in {L} if isinstance(q, int)]; {L}.copy();
                {T}.tolist(); list(zip(range(3), {L})); list(itertools.chain({L}, [1]));
                list(torch.unbind({T})); list(itertools.accumulate([1, {i}, 3]));
                list(filter(None, [0, {i}]))""")
        elif kind == "d":
            value = self.draw("""
                {{'a': {any}, 'b': {any}}}; {{}}; {D}; dict(p={any}); {{**{D}, 'm': {any}}};
                {D}.copy(); {{q: q * 2 for q in range({small})}}; dict(zip('ab', [{any}, 2]));
                TABLE; collections.OrderedDict(u={any}); collections.defaultdict(list);
                {D} | {{'j': {any}}}; dict(sorted({{'b': 1, 'a': {i}}}.items()))""")
        elif kind == "o":
            value = self.draw("""
                Box({any}); Sub({any}); {O}; Box.make({any}); {O}.bump({i}); Sub({t}, {L}); NET""")
        elif kind == "f":
            value = self.draw("""
                helper; lambda q: q + {i}; functools.partial(helper, b={i}); box.__call__;
                torch.relu; (lambda q, *r, s={i}: q * s); wrapped; broken; recur.__get__(1); NET;
                Box.plain; operator.neg""")
        elif kind == "p":
            value = self.draw("""
                ({any}, {any}); tuple({L}); Pair({any}, {any}); (*{P}, {any}); {P}[1:]""")
        else:
            value = self.draw("""
                (q + {i} for q in range({small})); counter({small}); iter({L}); zip({L}, 'abc');
                enumerate({L}); map(lambda q: {any}, range(2)); reversed([1, {any}]); talker(n)""")
        self.emit(f"{name} = {value}")
        self.bind(kind, name)

    def inplace(self):
        a = self.old("t")
        options = """
            {a} += {i}; {a} *= 0.5; {a}.add_({t}); {a}.mul_({i}); {a}[0] = {i};
            {a}[..., 0] += 1; {a}.zero_(); {a}.view(-1).add_(1); {a}.t().mul_(2);
            {a}[{I}] = {t}; {a}.data.add_(1); {a}.copy_({t}); {a} -= {t}; W.add_(1);
            torch.add({a}, 1, out={a}); {a}.fill_({i}); {a}.relu_(); {a}.unsqueeze_(0);
            {a}.note = {any}; {a}[{a} > 0] = 1; {a}.requires_grad_({cond}); {a}.clamp_(-1, 1);
            {a}.resize_(1, 2).zero_(); {a}.t_()"""
        self.emit(self.draw(options, a=a))

    def lists(self):
        a = self.old("l")
        options = """
            {a}.append({any}); {a}.append({any}); {a}.extend([{any}, {any}]);
            {a}.insert({I}, {any}); {a}.pop(); {a}[{one}] = {any}; del {a}[{two}]; {a} += [{any}];
            {a}.reverse(); {a}.clear(); {a}[1:] = [{any}]; {a}[0], {a}[-1] = {a}[-1], {a}[0];
            {a} *= 2; {a}.remove({i}); {three}; {a}[:0] = ({any},); {four};
            LOG.append({a}.index({i}))"""
        e = self.draw(
            options,
            a=a,
            one=lambda: self.pick("0", "-1", self.old("i")),
            two=lambda: self.pick("0", "-1", ":1"),
            three=lambda: (
                f"{a}.append({a})" if self.rng.random() < 0.1 else f"{a}.append({self.i()})"
            ),
            four=lambda: (
                f"{a}.sort(key=str)"
                if self.rng.random() < 0.3
                else f"{a}.append({self.old('l')}[:1])"
            ),
        )
        self.emit(e)

    def dicts(self):
        a, key = (
            self.old("d"),
            self.pick("'a'", "'b'", "'new'", self.old("i"), "(1, 2)", "'t'", "None", "1.0", "True"),
        )
        options = """
            {a}[{key}] = {any}; {a}[{key}] = {any}; {a}.pop({key}, None);
            {a}.setdefault({key}, []).append({any}); {a}.update(z={any}); del {a}[{key}];
            {a}[{key}] += 1; {a}.popitem(); LOG.append(list({a})); LOG.append({a}[{key}]);
            {a} |= {{{key}: {any}}}; {a}.clear(); {a}.pop({key});
            {a}.update({{q: 1 for q in 'ab'}}); LOG.extend({a}.items());
            LOG.append(next(iter({a}.values())))"""
        self.emit(self.draw(options, a=a, key=key))

    def sets(self):
        if not self.names["s"] or self.rng.random() < 0.4:
            name = self.fresh("s")
            value = self.draw("""
                {{1, 2}}; set(); set(range({small})); {{q % 2 for q in range(4)}}; set({S});
                frozenset((3, 4))""")
            self.emit(f"{name} = {value}")
            self.bind("s", name)
        else:
            a, b = self.old("s"), self.old("s")
            options = """
                {a}.add({i}); {a}.discard({i}); {a}.remove({i}); {a} |= {{{i}}};
                {a}.update([5, {i}]); LOG.append({a} & {b}); LOG.append({a} - {b});
                LOG.append(sorted({a} ^ {b})); LOG.append(len({a})); LOG.append({a} < {b});
                {a} -= {b}; LOG.append({i} in {a})"""
            self.emit(self.draw(options, a=a, b=b))

    def objects(self):
        a, name = (
            self.old("o"),
            self.pick("v", "v", "log", "extra", "twice", "scale", "dynq", "bump"),
        )
        options = """
            {a}.{name} = {any}; {a}.v += {one}; {a}.bump({two}); {a}.extra = {any};
            LOG.append({a}.{name}); del {a}.{name}; setattr({a}, 'extra', {any});
            LOG.append(getattr({a}, {name!r}, None)); {a}.log = {L}; {a}.log.append({any});
            {three}; NET.calls += {i}; NET.seen = NET.seen + 1; NET.extra = {any};
            {a}.twice = {t}; {four}; {five}; {a}.__dict__['extra'] = {any};
            LOG.append(vars({a}).get('extra')); LOG.append(Slots({any}));
            LOG.append(Data({i})); LOG.append({a}[0]); LOG.append([*{a}]);
            LOG.append({a}.dynfoo); LOG.append(Data(1, {L}) == Data({i}));
            LOG.append({a} + {i})"""
        self.emit(
            self.draw(
                options,
                a=a,
                name=name,
                one=lambda: self.pick("1", self.t()),
                two=lambda: self.pick("", self.i()),
                three=lambda: (
                    f"{a}.self = {a}" if self.rng.random() < 0.15 else f"{a}.v = {self.t()}"
                ),
                four=lambda: (
                    f"NET.train({self.cond()})" if self.rng.random() < 0.3 else "NET.calls = 0"
                ),
                five=lambda: (
                    f"Box.scale = {self.i()}"
                    if self.rng.random() < 0.3
                    else f"{a}.scale = {self.i()}"
                ),
            )
        )

    def outer(self):
        choice = self.pick("LOG", "table", "G", "H")
        if choice == "LOG":
            self.emit(f"LOG.append({self.any()})")
        elif choice == "table":
            self.emit(
                self.draw("""
                    TABLE['a'] = {i}; TABLE['a'] += 1; TABLE[{I}] = {any}; TABLE.pop('b', 0);
                    globals()['H'] = {i}""")
            )
        elif self.globals and not self.functions:
            self.emit(f"{choice} = {self.pick(f'{choice} + 1', self.i())}")
        else:
            self.emit(f"LOG.append({choice})")

    def output(self):
        self.emit(
            self.draw("""
                print({any}, sep=''); print('p', {i}); print({text}, end=';'); graph_break();
                graph_break(); print([{i}], {T}.shape)""")
        )

    def leave(self):
        e = self.rng.random()
        if self.depth and e < 0.25 and self.loops:
            self.emit(self.pick("break", "continue"))
        elif self.depth and e < 0.5:
            self.emit(f"return {self.any()}")
        elif e < 0.7 and self.depth:
            options = """
                raise {one}({any}); raise Err({i}, {any}) from KeyError('k'); raise;
                raise IndexError; raise Err({i}) from None"""
            self.emit(
                self.draw(
                    options, one=lambda: self.pick("ValueError", "KeyError", "RuntimeError", "Err")
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
        e = self.draw("""
            star; swap; del; walrus; unpack; gen; aug; closure; expr; slice; chain;
            list_t; import""")
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
                self.draw("""
                    LOG.append(next({G}, None)); LOG.append(list({G})); LOG.append(sum({G}));
                    LOG.append(dict(enumerate({G}))); a_, *b_ = {G};
                    LOG.append(tuple(itertools.islice({G}, 2))); {G}.send(None)""")
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
            values = self.draw(
                "range({small}); counter({small}); [1, 2, 5]; reversed(range({small}))"
            )
            self.emit(f"for {name} in {values}:")
        elif kind == "t":
            values = self.draw("({t}, {T}); [{t}, {t}]; {T}")
            self.emit(f"for {name} in {values}:")
        elif kind == "pair":
            key = f"i{self.count}"
            self.count += 1
            pairs = self.draw(
                "enumerate({L}[:3]); zip(range(2), {L}); enumerate(rest); list({D}.items())"
            )
            self.emit(f"for {key}, {name} in {pairs}:")
        else:
            values = self.draw("""
                {L}[:4]; rest; list(kw); sorted({{2, 1}}); tuple({L}); box.log[:3]; {P}""")
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
                    options = """
                        LOG.append(str(type({name}))); LOG.append({name}.args);
                        LOG.append({name}); print({name}); raise {name};
                        raise Err(1) from {name}; pass; LOG.append({name}.code);
                        LOG.append({name}.__context__)"""
                    self.emit(self.draw(options, name=name))
                self.block(2)

            self.scope(body)
        indent = 4 * (self.depth + 1)
        outer = (line for line in reversed(self.lines) if len(line) - len(line.lstrip()) == indent)
        if next(outer, "").strip().startswith("except"):
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
        options = """
            Manager(); Manager({one}); torch.no_grad(); torch.enable_grad();
            contextlib.suppress(KeyError, Err); managed(str(n)); Manager() as m;
            contextlib.nullcontext(); Manager(ValueError), torch.no_grad(); torch.inference_mode();
            torch.inference_mode(), Manager(); torch.device("cpu");
            Manager(), torch.device("meta")"""
        managers = self.draw(options, one=lambda: self.rng.choice(ERRORS))
        self.emit(f"with {managers}:")
        self.scope(self.block)

    def def_(self):
        name = f"f{self.count}"
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
            if self.rng.random() < 0.5 and self.depth < 3 and style != "gen":
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
