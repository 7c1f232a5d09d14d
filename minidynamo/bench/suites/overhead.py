"""--suite overhead: what a compiled call costs over eager with backend "eager" (nothing is made faster), and what the hook costs outside.

Rows: a two-line function; a module with 150 parameters in nested containers; BERT.  Overhead is the time of a compiled call minus that of the bare
graph (the captured operations, called with nothing around them), median over interleaved rounds; eager is shown beside it, for eager also pays for
the Python that capture removed.  Last: plain Python (no compiled call) before, between and after compiled calls.
"""
import statistics

import torch

import minidynamo

from ..models import bert
from ..runner import interleave
from .common import machine, suite


def two_lines(x):
    y = x * 2
    return y + 1


class Nested(torch.nn.Module):
    """150 parameters: 15 blocks in a ModuleList of ModuleDicts, ten parameters each; forward adds up one element of each."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.ModuleDict({
            name: torch.nn.ParameterList([torch.nn.Parameter(torch.randn(1)) for _ in range(5)]) for name in ("left", "right")}) for _ in range(15)])

    def forward(self, x):
        for block in self.blocks:
            for part in block.values():
                for parameter in part:
                    x = x + parameter
        return x


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def rows(only):
    x = torch.ones(4)
    if only in "two lines":
        yield "two lines", two_lines, (x,), {}
    if only in "150 parameters":
        yield "150 parameters", Nested(), (x,), {}
    if only in "BERT":
        model, inputs = bert()
        yield "BERT", model, (), inputs


@suite("overhead")
def overhead(options):
    """Per-call overhead, microseconds."""
    print(", ".join(f"{k} {v}" for k, v in machine().items()))
    print(f"{'':20}{'eager us':>12}{'graph us':>12}{'ours us':>12}{'peer us':>12}{'ours - graph':>14}{'peer - graph':>14}{'ratio':>8}{'of eager':>10}")
    result = []
    with torch.no_grad():
        for name, function, args, kwargs in rows(options.only):
            minidynamo.reset()
            graphs, bare = [], minidynamo.backends.lookup_backend("eager")[1]
            minidynamo.compile(function, backend=lambda gm, inputs: graphs.append(bare(gm, inputs)) or graphs[0])(*args, **kwargs)
            minidynamo.reset()
            tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
            variants = {"eager": lambda: function(*args, **kwargs), "graph": lambda: graphs[0](*tensors)}
            ours = minidynamo.compile(function, backend="eager")
            variants["ours"] = lambda: ours(*args, **kwargs)
            if not options.no_peer:
                peer = torch.compile(function, backend="eager")
                variants["peer"] = lambda: peer(*args, **kwargs)
            timings = interleave(variants, budget=8.0, rounds=(15, 400))
            micro = {label: timing.median * 1e6 for label, timing in timings.items()}
            over = {label: statistics.median(b - a for a, b in zip(timings["graph"].seconds, timings[label].seconds)) * 1e6
                    for label in ("ours", "peer") if label in timings}
            result.append({"name": name, "microseconds": micro, "over the graph": over})
            print(f"{name:20}{micro['eager']:12.2f}{micro['graph']:12.2f}{micro['ours']:12.2f}{micro.get('peer', float('nan')):12.2f}"
                  f"{over['ours']:14.2f}{over.get('peer', float('nan')):14.2f}{over['ours'] / over['peer'] if 'peer' in over else float('nan'):8.2f}"
                  f"{over['ours'] / micro['eager']:10.1%}", flush=True)
    if not options.only:
        result.append(outside())
    return {"machine": machine(), "rows": result}


def outside(rounds=60):
    """Plain Python before any compiled call, between, and after `reset`: medians of interleaved runs, as ratios to a run before."""
    minidynamo.reset()
    compiled = minidynamo.compile(two_lines, backend="eager")
    x = torch.ones(4)
    import time

    def measure():
        start = time.perf_counter()
        fib(18)
        return time.perf_counter() - start
    before = [measure() for _ in range(rounds)]
    between = []
    for _ in range(rounds):
        compiled(x)
        between.append(measure())
    minidynamo.reset()
    after = [measure() for _ in range(rounds)]
    low = [statistics.median(values) for values in (before, between, after)]
    ratios = {"between / before": low[1] / low[0], "after / before": low[2] / low[0]}
    print("plain Python, call-heavy: " + ", ".join(f"{k} {v:.3f}" for k, v in ratios.items()))
    return {"name": "plain Python", **ratios}
