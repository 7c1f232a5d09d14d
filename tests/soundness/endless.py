"""Programs that iterate for long, or for ever, while they are traced: the compiler must give up in
bounded steps.

    python -m tests.soundness.endless [--modes eager]

Each program ends in plain Python (an endless iterator is cut by an exception that its own elements
raise), but only after many more steps than `STEP_LIMIT` allows the compiler.  A case is a number of
`PROGRAMS`: same result as plain Python, no more traced steps than the limit allows per attempt, a
recorded refusal, and no longer than a few seconds.
"""

import linecache
import time

import torch

import minidynamo
from tests.fuzz.compare import ADDRESS, Describer
from tests.soundness import runner
from tests.soundness.tables import named, statements

STEP_LIMIT = 1500
MANY = 6 * STEP_LIMIT
SECONDS = 30.0  # for one case on a busy machine; one that hangs never comes back
HEADER = f"""
import collections, functools, itertools, operator
import torch
N = {MANY}

class Listed(list):
    pass

class End(Exception):
    pass

class Counted:
    "An endless iterator of Python."
    def __init__(self): self.at = 0
    def __iter__(self): return self
    def __next__(self):
        self.at += 1
        if self.at > N: raise End(self.at)
        return self.at

class Items:
    def __getitem__(self, index):
        if index > N: raise End(index)
        return index

def endless():
    n = 0
    while True:
        n += 1
        if n > N: raise End(n)
        yield n

def check(n):
    if n > N: raise End(n)
    return n

def recursive(n): return 0 if n == 0 else 1 + recursive(n - 1)

def mutual(n): return [] if n == 0 else [mutual(n - 1)]
"""
# Each raises End after N steps, or ends.  (Not groupby's groups: their text says where they lie.)
SOURCES = named("""
    count: map(check, itertools.count());
    cycle: map(check, map(operator.add, itertools.count(), itertools.cycle([1, 2])));
    repeat: itertools.repeat(1, N); sentinel: iter(iter(range(N)).__next__, -1);
    generator: endless(); class: Counted(); items: Items();
    zip: zip(map(check, itertools.count()), itertools.repeat(2));
    chain: itertools.chain.from_iterable([n, n] for n in endless());
    starmap: itertools.starmap(operator.add, zip(endless(), itertools.count()));
    range: range(N); text: 'ab' * N; product: itertools.product(range(100), range(N // 50));
    filter: filter(None, map(check, itertools.count())); enumerate: enumerate(endless());
    accumulate: itertools.accumulate(itertools.repeat(1, N));
    islice: itertools.islice(itertools.count(), N); pairwise: itertools.pairwise(range(N));
    groupby: map(operator.itemgetter(0), itertools.groupby(range(N)));
    tee: itertools.tee(endless())[1]
""")
CONSUMERS = statements(r"""
    r = len(list({i})) | r = len(tuple({i})) | r = len(set(map(str, {i}))) |
    r = collections.deque({i}, 2) | r = -1 in {i} | r = any(n is None for n in {i}) |
    r = all(map(str, {i})) | r = max(map(str, {i})) | r = len(sorted(map(str, {i}))) |
    r = len(''.join(map(str, {i}))) | xs.extend({i}) | xs += {i} | xs[1:] = {i} |
    d.extendleft({i}) | r = len([*{i}]) | *r, last = {i}; r = len(r) | r = len([n for n in {i}]) |
    for n in {i}: r = n | r = next(n for n in {i} if n is None) |
    r = len(dict(zip(map(str, {i}), itertools.count()))) | r = len(dict.fromkeys(map(str, {i}))) |
    r = functools.reduce(lambda a, b: b, {i}) |
    r = list(itertools.dropwhile(lambda n: n is not None, {i})) |
    r = list(itertools.filterfalse(lambda n: True, {i})) |
    r = next(itertools.compress({i}, itertools.repeat(0))) | r = len(function(*{i})) |
    s.update(map(str, {i})) | r = sum(1 for n in {i}) | r = list(itertools.islice({i}, N, N + 1)) |
    m = map(str, {i})\n    while next(m) != 'never': r = 1
""")
AT_ONCE = {"r = -1 in range(N)"}  # a range knows by arithmetic: nothing is refused
OTHERS = statements(r"""
    a = Listed([1]); a.extend(a); r = list(a) |
    a = Listed([1, 2]); a += a; a[1:1] = a; r = list(a) |
    a = [1]\n    for n in a:\n        a.append(n + 1)\n        if n > N: break\n    r = len(a) |
    a = [1]; a.extend(a.append(n) or check(len(a)) for n in a) |
    a = [1]; a += map(lambda n: check(n + 1), a) |
    a = collections.deque([1]); a.extend(a); a += a; a.extendleft(a); r = list(a) |
    a = {1: 1}; a.update(a); a |= a; r = a | r = len('a' * 10 ** 7) | r = len(b'ab' * 10 ** 7) |
    r = len([0] * 10 ** 5) | r = len((0,) * 10 ** 5) | r = (10 ** 10 ** 5).bit_length() |
    r = (1 << 10 ** 8).bit_length() | r = pow(3, 10 ** 5).bit_length() |
    r = (3).__pow__(10 ** 5).bit_length() | r = operator.pow(7, 10 ** 5).bit_length() |
    r = len('a'.ljust(10 ** 7)), len('a'.center(10 ** 7)), len('1'.zfill(10 ** 7)) |
    r = len(f'{3:>10000000}'), len('%10000000d' % 3), len('{:10000000}'.format(3)) |
    r = len(format(3, '10000000')) | r = len(bytes(10 ** 7)) |
    r = len('a' * 1000 .__mul__(1000)), len('ab'.replace('a', 'c' * 10 ** 6)) |
    t = 'ab'\n    for n in range(22): t = t + t\n    r = len(t) |
    t = 3\n    for n in range(18): t = t * t\n    r = t.bit_length() |
    t = 'ab'\n    for n in range(22): t = ''.join([t, t])\n    r = len(t) |
    t = [1]\n    for n in range(14): t = t + t\n    r = len(t) |
    t = [1]\n    for n in range(14): t = [*t, *t]\n    r = len(t) |
    t = (1,)\n    for n in range(14): t = t + t\n    r = len(t) |
    import math; r = math.factorial(5000).bit_length(), math.comb(9000, 4000).bit_length() |
    r = recursive(300) | r = recursive(5000) | r = repr(mutual(60)) |
    r = 5 in range(10 ** 12), range(10 ** 12).index(7), range(10 ** 12)[-1] |
    a = []; a.append(a); r = repr(a), a == a |
    a = []; a.append(a); b = []; b.append(b); r = a == b |
    it = iter(range(50))\n    for n in range(200): it = map(abs, it)\n    r = list(it) |
    it = itertools.chain()\n    for n in range(200): it = itertools.chain(it, [n])\n    r = [*it] |
    n = 0\n    while n < N: n += 1\n    r = n |
    n = 0\n    try:\n        while True: n = check(n + 1)\n    finally: r = n
""")


def programs() -> list[str]:
    """Every consumer of every source, and the others."""
    return [c.format(i=made) for c in CONSUMERS for made in SOURCES.values()] + OTHERS


def source_of(statement: str) -> str:
    return f"""{HEADER}
def function(*args): return args

def f(x, xs, d, s):
    x = x + 1
    r = None
    try:
        {statement.replace(chr(10), chr(10) + "    ")}
    except Exception as error:
        r = type(error).__name__, str(error)
    return x * 2, r
"""


def outcome(statement: str, wrap) -> tuple:
    """Result and state afterwards."""
    source = source_of(statement)
    name = f"<endless {abs(hash(source)) % 10**8}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace = {"__name__": "program"}
    exec(compile(source, name, "exec"), namespace)
    arguments = [torch.arange(3.0), [1, 2], __import__("collections").deque([1], 5), {1}]
    try:
        result = wrap(namespace["f"])(*arguments)
    except Exception as error:
        result = type(error).__name__, ADDRESS.sub("", str(error))
    return Describer()((result, arguments[1:]))


class Watch:
    """The most steps that one analysis took."""

    def __init__(self):
        self.steps = 0

    def __enter__(self):
        from minidynamo.graph.output_graph import OutputGraph

        self.cls, self.real = OutputGraph, OutputGraph.count_step
        watch = self

        def count_step(output):
            watch.real(output)
            watch.steps = max(watch.steps, output.steps)

        OutputGraph.count_step = count_step
        return self

    def __exit__(self, *error):
        self.cls.count_step = self.real


def cases(count: int, first: int) -> list[int]:
    return list(range(len(programs())))


def check(number: int, mode) -> str:
    statement = programs()[number]
    plain = outcome(statement, lambda function: function)
    begin = time.monotonic()
    with minidynamo.config.patch(step_limit=STEP_LIMIT), Watch() as watch:
        compiled = outcome(statement, mode.compile)
    seconds = time.monotonic() - begin
    counters = minidynamo.counters
    reports = []
    if plain != compiled:
        reports.append(f"plain {plain!r:.300}\ncompiled {compiled!r:.600}")
    if watch.steps > STEP_LIMIT:
        reports.append(f"{watch.steps} steps were traced")
    if seconds > SECONDS:
        reports.append(f"{seconds:.0f} seconds")
    walks = number < len(CONSUMERS) * len(SOURCES) and statement not in AT_ONCE
    if walks and not (counters["graph_breaks"] or counters["skipped"]):
        reports.append("no refusal is recorded")
    return f"{statement}\n" + "\n".join(reports) if reports else ""


if __name__ == "__main__":
    runner.main("tests.soundness.endless", default_modes="eager")
