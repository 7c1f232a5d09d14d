"""--suite overhead: what a compiled call costs over eager with backend "eager" (nothing is made
faster), and what the hook costs outside.

Rows: a two-line function; a module with 150 parameters in nested containers; BERT.  Overhead is the
time of a compiled call minus that of the bare graph (the captured operations, called with nothing
around them), median over interleaved rounds; eager is shown beside it, for eager also pays for the
Python that capture removed.  Last: plain Python (no compiled call) before, between and after
compiled calls.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import minidynamo

from ..models import bert
from ..runner import interleave
from .common import Options, Row, captured, suite, wanted


def two_lines(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y + 1


class Nested(torch.nn.Module):
    """150 parameters: 15 blocks in a ModuleList of ModuleDicts, ten parameters each; forward adds
    up one element of each."""

    def __init__(self) -> None:
        super().__init__()
        five = lambda: torch.nn.ParameterList([torch.randn(1) for _ in range(5)])  # noqa: E731
        block = lambda: torch.nn.ModuleDict({"left": five(), "right": five()})  # noqa: E731
        self.blocks = torch.nn.ModuleList([block() for _ in range(15)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            for part in block.values():  # type: ignore[operator]
                for parameter in part:
                    x = x + parameter
        return x


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


ROWS: dict[str, Callable[[], tuple[Callable, Any]]] = {
    "two lines": lambda: (two_lines, [torch.ones(4)]),
    "150 parameters": lambda: (Nested(), [torch.ones(4)]),
    "BERT": bert,
}


@suite("overhead")
def overhead(options: Options, result: Row) -> Iterator[Row]:
    """Microseconds that a compiled call costs over the bare graph."""
    head = ["eager us", "graph us", "ours us", "peer us", "ours - graph", "peer - graph", "ratio"]
    print(f"{'':16}" + "".join(f"{text:>13}" for text in [*head, "of eager"]))
    for name, build in ROWS.items():
        if wanted(name, options):
            with torch.no_grad():
                yield measure(name, *build(), options)
    if not options.only:
        yield outside()


def measure(name: str, function: Callable, inputs: Any, options: Options) -> Row:
    args, kwargs = ([], inputs) if isinstance(inputs, dict) else (inputs, {})
    gm, tensors = captured(function, args, kwargs)
    graph = minidynamo.backends.lookup_backend("eager")[1](gm, tensors)
    functions = {"eager": function, "ours": minidynamo.compile(function, backend="eager")}
    if not options.no_peer:
        functions["peer"] = torch.compile(function, backend="eager")
    variants = {label: lambda f=f: f(*args, **kwargs) for label, f in functions.items()} | {
        "graph": lambda: graph(*tensors)
    }
    timings = interleave(variants, budget=8.0, rounds=(15, 400))
    micro = {label: timing.median * 1e6 for label, timing in timings.items()}
    graphs, over = timings["graph"].seconds, {}
    for label in functions.keys() - {"eager"}:
        beyond = [b - a for a, b in zip(graphs, timings[label].seconds)]
        over[label] = statistics.median(beyond) * 1e6
    none = float("nan")
    figures = [micro.get(label, none) for label in ("eager", "graph", "ours", "peer")]
    figures += [over["ours"], over.get("peer", none), over["ours"] / over.get("peer", none)]
    text = "".join(f"{figure:13.2f}" for figure in figures)
    print(f"{name:16}{text}{over['ours'] / micro['eager']:13.1%}", flush=True)
    return {"name": name, "microseconds": micro, "over the graph": over}


def outside(rounds: int = 60) -> Row:
    """Plain Python before any compiled call, between, and after `reset`: medians of interleaved
    runs, as ratios to a run before."""
    minidynamo.reset()
    compiled = minidynamo.compile(two_lines, backend="eager")
    x = torch.ones(4)

    def plain(before=lambda: None):
        times = []
        for _ in range(rounds):
            before()
            start = time.perf_counter()
            fib(18)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    before, between = plain(), plain(lambda: compiled(x))
    minidynamo.reset()
    ratios = {"between / before": between / before, "after / before": plain() / before}
    print("plain Python, call-heavy: " + ", ".join(f"{k} {v:.3f}" for k, v in ratios.items()))
    return {"name": "plain Python", **ratios}
