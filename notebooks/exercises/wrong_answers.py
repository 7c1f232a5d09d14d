"""Plausible wrong answers to the exercises: each must fail in at least one row of its check.

In:   nothing.  Out: WRONG, {exercise: {what is wrong: the answer}}.

They are what students hand in: the check that lets one through is too weak.  A test runs all of
them (`tests/test_wrong_answers.py`).  The students' tree does not have this file.
"""

import math
import statistics
from collections.abc import Callable
from typing import Any

import torch

WRONG: dict[str, dict[str, Any]] = {}


def wrong(exercise: str, why: str) -> Callable:
    """Register a wrong answer of an exercise."""

    def register(answer: Any) -> Any:
        WRONG.setdefault(exercise, {})[why] = answer
        return answer

    return register


@wrong("01.1", "replays on the recorded input")
def _(function, a, b):
    import prior

    return torch.equal(prior.record(function, a)(a), function(a))


@wrong("01.1", "compares shapes only")
def _(function, a, b):
    import prior

    return prior.record(function, a)(b).shape == function(b).shape


@wrong("01.3", "reads the flag once")
def _(function, read):
    import prior

    read()
    return prior.stage(function)


@wrong("01.3", "stages anew in each call")
def _(function, read):
    import prior

    return lambda *inputs: prior.stage(function)(*inputs)


def calls_of(gm):
    return [node for node in gm.graph.nodes if node.op.startswith("call")]


@wrong("02.1", "the last call")
def _(gm):
    return calls_of(gm)[-1].name


@wrong("02.1", "inputs count, too")
def _(gm):
    known = [n for n in gm.graph.nodes if isinstance(n.meta.get("example_value"), torch.Tensor)]
    return min(known, key=lambda n: -n.meta["example_value"].shape[0]).name


def merging(key, skip=lambda gm, node: False):
    """A pass that merges calls with an equal key."""

    def merge(gm):
        first: dict[Any, Any] = {}
        for node in list(gm.graph.nodes):
            if node.op != "call_function" or skip(gm, node):
                continue
            try:
                earlier = first.setdefault(key(node), node)
            except TypeError:
                continue
            if earlier is not node:
                node.replace_all_uses_with(earlier)
                gm.graph.erase_node(node)
        gm.recompile()
        return gm

    return merge


def is_random(gm, node):
    names = (torch.rand_like, torch.randn_like, torch.nn.functional.dropout)
    return node.target in names


WRONG["02.2"] = {
    "random operations are merged": merging(lambda n: (n.target, n.args, str(n.kwargs))),
    "1 and 1.0 are one key": merging(lambda n: (n.target, n.args, str(n.kwargs)), is_random),
    "writes between are not seen": merging(
        lambda n: (n.target, repr(n.args), repr(n.kwargs)), is_random
    ),
    "nothing is merged": lambda gm: gm,
}


@wrong("02.3", "removes every multiplication by something equal to one")
def _(gm):
    import operator

    for node in list(gm.graph.nodes):
        if node.target is operator.mul and node.args[1] == 1:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


@wrong("02.3", "removes nothing")
def _(gm):
    return gm


@wrong("03.1", "counts each name once")
def _(function, *args):
    from minidynamo.frame import frame_hook

    names: dict[str, int] = {}

    def callback(called, code, args):
        names[code.co_name] = 1

    frame_hook.enabled(function, callback)(*args)
    return names


@wrong("03.1", "leaves the hooked function out")
def _(function, *args):
    from minidynamo.frame import frame_hook

    names: dict[str, int] = {}

    def callback(called, code, args):
        if code is not function.__code__:
            names[code.co_name] = names.get(code.co_name, 0) + 1

    frame_hook.enabled(function, callback)(*args)
    return names


@wrong("03.2", "1.0 is taken for 1")
def _(function, result_of):
    from minidynamo.frame import frame_hook

    def callback(called, code, args):
        if code is not function.__code__ or args[0] not in result_of:
            return None
        key, scope = args[0], {}
        exec(f"def stored(n): return {result_of[key]!r}", scope)
        return (lambda called, n: n == key), scope["stored"].__code__

    return frame_hook.enabled(function, callback)


@wrong("03.2", "a wrapper, which lets the function run")
def _(function, result_of):
    return lambda n: (function(n), result_of.get(n, n * n))[1]


@wrong("05.1", "1 and True are equal")
def _(function, *args):
    def fact(value):
        return (value.dtype, value.shape) if isinstance(value, torch.Tensor) else value

    facts = [fact(a) for a in args]
    return lambda *now: [fact(a) for a in now] == facts


@wrong("05.1", "the shape is forgotten")
def _(function, *args):
    def fact(value):
        is_tensor = isinstance(value, torch.Tensor)
        return (type(value), value.dtype if is_tensor else value)

    facts = [fact(a) for a in args]
    return lambda *now: [fact(a) for a in now] == facts


@wrong("05.1", "always true")
def _(function, *args):
    return lambda *now: True


@wrong("05.2", "never looks")
def _(record, *args):
    return "all guards hold"


@wrong("05.2", "the last guard, whatever happens")
def _(record, *args):
    return record.guard_function.guards[-1].code


@wrong("05.2", "one text for every failure")
def _(record, *args):
    found = record.guard_function.first_failure(None, *args)
    return "SHAPE or factor x.shape" if found else "all guards hold"


@wrong("06.2", "all local variables")
def _(function, line):
    return set(function.__code__.co_varnames)


@wrong("06.2", "whatever is read, overwritten or not")
def _(function, line):
    from minidynamo.bytecode import disassemble

    start = function.__code__.co_firstlineno + line - 1
    found = [i for i in disassemble(function.__code__) if i.pos and (i.pos[0] or 0) >= start]
    return {i.arg for i in found if i.op == "LOAD_FAST"}


WRONG["07.1"] = {
    "both lists are the same one": lambda: [2.0, 2, 2],
    "a new list for a, too": lambda: [1.0, 1, 4],
    "b without the append": lambda: [2.0, 2, 3],
}


@wrong("07.2", "writes at once")
class _(list):
    def __init__(self, real):
        self.real = real

    def append(self, value):
        self.real.append(value)

    def __getitem__(self, index):
        return self.real[index]

    def __setitem__(self, index, value):
        self.real[index] = value

    def __len__(self):
        return len(self.real)

    def replay(self):
        pass


@wrong("07.3", "names of all lists")
def _(function, *args):
    names = function.__code__.co_varnames
    return {n for n, a in zip(names, args, strict=False) if isinstance(a, (list, dict))}


@wrong("07.3", "a shallow copy sees nothing inside")
def _(function, *args):
    before = [list(a) if isinstance(a, list) else a for a in args]
    function(*args)
    names = function.__code__.co_varnames
    pairs = zip(names, before, args, strict=False)
    return {n for n, old, new in pairs if isinstance(new, (list, dict)) and old != new}


@wrong("08.1", "forgets the first write")
def _(x):
    y = x.sum(0)
    return y + y, torch.select_scatter(x, y, 0, 0)


@wrong("08.1", "writes to x")
def _(x):
    x[1:3].mul_(2)
    y = x.sum(0)
    x[0] = y
    return y + x[0], x


@wrong("08.2", "saves what is read")
def _(values, edges, must, reads):
    return set(reads)


@wrong("08.2", "saves what cannot be computed again")
def _(values, edges, must, reads):
    return set(must)


WRONG["10.1"] = {
    "the same steps are enough": lambda write, read: write[0] == read[0],
    "anything goes": lambda write, read: True,
    "an earlier element is there already": lambda write, read: read[1] <= write[1],
    "a later element, too": lambda write, read: write[0] == read[0] and write[1] <= read[1],
    "a longer step, too": lambda write, read: write[0] <= read[0] and write[1] == read[1],
    "equal in one iteration": lambda write, read: sum(write) == sum(read),
}
WRONG["10.2"] = {
    "shared reads only": lambda a, b, sizes: sum(sizes[n] for n in a["reads"] & b["reads"]),
    "what flows only": lambda a, b, sizes: sum(sizes[n] for n in a["writes"] & b["reads"]),
    "all that the second reads": lambda a, b, sizes: sum(sizes[n] for n in b["reads"]),
}


@wrong("11.3", "a running sum in float32")
def _(rows, columns):
    return f"""extern "C" int NAME(void** args) {{
        const float* in = (const float*)args[0]; float* out = (float*)args[1];
        for (long r = 0; r < {rows}; r++) {{
            float total = 0;
            for (long k = 0; k < {columns}; k++) total += in[r * {columns} + k];
            out[r] = total;
        }}
        return 0; }}"""


@wrong("11.3", "whole chunks only")
def _(rows, columns):
    return f"""extern "C" int NAME(void** args) {{
        const float* in = (const float*)args[0]; float* out = (float*)args[1];
        for (long r = 0; r < {rows}; r++) {{
            double total = 0;
            for (long k = 0; k < {columns} / 16 * 16; k++) total += in[r * {columns} + k];
            out[r] = (float)total;
        }}
        return 0; }}"""


@wrong("13.2", "replays the first input")
def _(program):
    from types import SimpleNamespace

    state: dict[str, Any] = {}

    def call(x):
        stream = SimpleNamespace(launch=lambda kernel, *tensors: kernel(*tensors))
        if "output" not in state:
            state["output"] = program(stream, x)
        return state["output"]

    return call


@wrong("13.3", "the smallest time")
def _(candidates, seconds, rounds=9):
    times = {c: [seconds(c) for _ in range(rounds)] for c in candidates}
    return min(candidates, key=lambda c: min(times[c]))


@wrong("13.3", "made for the names in the rows")
def _(candidates, seconds, rounds=9):
    return "b" if "b" in candidates else min(candidates)


@wrong("13.3", "means, one candidate after the other")
def _(candidates, seconds, rounds=9):
    return min(candidates, key=lambda c: statistics.mean(seconds(c) for _ in range(rounds)))


@wrong("13.4", "made for the rows: everything else at the bottom")
def _(lives):
    offsets = {life[0]: 0 for life in lives}
    known = [
        {"a": 0, "b": 64, "c": 0, "d": 64},
        {"y": 0, "x": 0, "s": 96},
        {"a": 0, "b": 32, "c": 0},
        {"z": 0, "a": 64, "b": 128},
    ]
    return next((plan for plan in known if set(plan) == set(offsets)), offsets)


WRONG["14.2"] = {
    "sizes from 0": lambda terms, constant: constant,
    "sizes from 1": lambda terms, constant: constant + sum(terms.values()),
    "a coefficient of zero falls, too": lambda terms, constant: (
        -math.inf if any(c <= 0 for c in terms.values()) else constant + 2 * sum(terms.values())
    ),
    "negative coefficients, too": lambda terms, constant: constant + 2 * sum(terms.values()),
    "no smallest value, ever": lambda terms, constant: -math.inf,
}


@wrong("14.3", "returns the padding, too")
def _(function, sizes):
    def call(x):
        size = next((s for s in sorted(sizes) if s >= len(x)), len(x))
        return function(torch.nn.functional.pad(x, (0, 0, 0, size - len(x))))

    return call


@wrong("14.4", "the shape before decides")
def _(shapes):
    graphs: list[list[int | None]] = []
    before = shapes[0]
    for shape in shapes:
        pairs = [zip(graph, shape, strict=True) for graph in graphs]
        if not any(all(n == size or (n is None and size > 1) for n, size in p) for p in pairs):
            now = zip(before, shape, strict=True)
            graphs.append([None if old != size and size > 1 else size for old, size in now])
        before = shape
    return len(graphs)


@wrong("15.1", "a ratio of medians")
def _(slow, fast):
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return statistics.median(slow) / statistics.median(fast), low, high


@wrong("15.1", "a mean")
def _(slow, fast):
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return statistics.mean(ratios), low, high


WRONG["15.2"] = {
    "the arithmetic mean": statistics.mean,
    "the harmonic mean": statistics.harmonic_mean,
    "the median": statistics.median,
    "the median of the logarithms": lambda ratios: math.exp(
        statistics.median(map(math.log, ratios))
    ),
    "between the smallest and the largest": lambda ratios: math.sqrt(min(ratios) * max(ratios)),
}
