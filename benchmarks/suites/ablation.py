"""--suite ablation: each optimisation of miniinductor off alone: how much slower, how many kernels,
how many bytes.

In:   a function and its inputs.  Out: a row; "slower without" is time without / time with all,
      median and quartiles of rounds.

    >>> row = ablate("softmax", lambda x: torch.softmax(x, -1), [torch.randn(4096, 1024)])
    >>> row["slower without"]["fusion"], row["megabytes"]["fusion"]

The graph is captured once and compiled once per switch, so nothing but the switch differs.  Every
variant is compared with eager before it is timed.  A switch may show nothing because another
mechanism does the same: "fusion and inlining" are therefore also off together.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from miniinductor import config
from miniinductor.compile import compile_fx

from ..runner import agrees, interleave, ratio
from .common import Options, Row, captured, rows, show_ratio, suite

# checks, promises, and what concerns GPUs only
NO_ABLATION = ("verify", "fallback_random", "split_reductions")
ALL = "all on"


def switches() -> dict[str, dict[str, bool]]:
    """{label: options}: every boolean option that is on by default, off alone; and the two that
    stand in for each other."""
    found = {
        name.replace("_", " "): {name: False}
        for name, value in vars(config).items()
        if value is True and name not in NO_ABLATION
    }
    return found | {"fusion and inlining": {"fusion": False, "inlining": False}}


def ablate(
    name: str,
    function: Callable,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    budget: float = 4.0,
    chosen: dict[str, dict[str, Any]] | None = None,
) -> Row:
    """One row.  chosen: {label: options} instead of all switches."""
    gm, inputs = captured(function, args, kwargs)
    expected, variants, records = gm(*inputs), {}, {}
    for label, options in ({ALL: {}} | (switches() if chosen is None else chosen)).items():
        with config.patch(**options):
            compiled = compile_fx(gm, inputs)
        if not agrees(expected, compiled(*inputs)):
            raise AssertionError(f"{name} without {label}: other numbers than eager's")
        variants[label] = lambda compiled=compiled: compiled(*inputs)
        records[label] = compiled.record
    timings = interleave({"eager": lambda: gm(*inputs), **variants}, budget, shuffled=True)
    return {
        "name": name,
        "rounds": len(timings[ALL].seconds),
        "seconds": {label: t.median for label, t in timings.items()},
        "eager / all on": ratio(timings, "eager", ALL),
        "slower without": {label: ratio(timings, label, ALL) for label in variants if label != ALL},
        "kernels": {label: len(r.kernels) for label, r in records.items()},
        "megabytes": {
            label: sum(k.bytes_read + k.bytes_written for k in r.kernels) / 1e6
            for label, r in records.items()
        },
        "intermediates": {
            label: sum(n for _, place, n in r.memory_plan if place == "new") / 1e6
            for label, r in records.items()
        },
    }


@suite("ablation")
def ablation(options: Options, result: Row) -> Iterator[Row]:
    """Kernels and models, each optimisation off alone."""
    for name, function, args, kwargs in rows(options):
        with torch.no_grad():
            row = ablate(name, function, args, kwargs)
        print(f"{name}: eager / all on {show_ratio(row['eager / all on'])}")
        for label, value in row["slower without"].items():
            print(
                f"    without {label:22} {show_ratio(value)} times the time, "
                f"{row['kernels'][label]:4} kernels, {row['megabytes'][label]:10.1f} MB",
                flush=True,
            )
        yield row
