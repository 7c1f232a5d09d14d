"""What the suites share: their registry, one row measured and printed.

In:   command line options.  Out: a table on the terminal and a dictionary for JSON: the machine,
      the command, the rows.

    @suite("mine")                              # --suite mine
    def mine(options, result):                  # result["rows"]: what it has yielded so far
        yield {"name": "a row", "seconds": 1.0}

A row's result is compared with eager before anything is timed; a wrong row is printed as such and
has no time.
"""

import argparse
import datetime
import functools
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import fx

import minidynamo

from ..models import MODELS
from ..runner import (
    agrees,
    fresh_caches,
    interleave,
    largest_difference,
    peer_compile,
    ratio,
    timed_first_call,
)
from ..workloads import WORKLOADS

Options = argparse.Namespace  # the command line
Row = dict[str, Any]  # what --json holds of one measurement, or of a whole run
Suite = TypeVar("Suite", bound=Callable[..., Iterator[Row]])  # takes the options, a dictionary
Workload = tuple[str, Callable, Sequence[Any], dict[str, Any]]  # name, function, its arguments
SUITES: dict[str, Callable[[Options], Row]] = {}


def suite(name: str) -> Callable[[Suite], Suite]:
    """Register a generator of rows.  What it has is written to the --json file after every row: a
    run that is cut short leaves that."""

    def register(function: Suite) -> Suite:
        @functools.wraps(function)  # its docstring is told by --help
        def run(options: Options) -> Row:
            if options.threads:
                torch.set_num_threads(options.threads)
            command = f"python -m benchmarks --suite {name}"
            command += f" --device {options.device}" if options.device != "cpu" else ""
            command += f" --threads {options.threads}" if options.threads else ""
            command += f" --jobs {options.jobs}" * (options.jobs > 1)
            command += f' --only "{options.only}"' if options.only else ""
            result: Row = {"machine": machine(), "command": command, "rows": []}
            print(", ".join(f"{key} {value}" for key, value in result["machine"].items()))
            for row in function(options, result):
                result["rows"].append(row)
                write(result, options.json)
            write(result, options.json)
            minidynamo.reset()
            return result

        SUITES[name] = run
        return function

    return register


def write(result: Row, path: str | None) -> None:
    """Whole or not at all: a run that is cut while it writes leaves what was there."""
    if path:
        beside = f"{path}.{os.getpid()}"
        with open(beside, "w") as file:
            json.dump(result, file, indent=1)
        os.replace(beside, path)


def wanted(name: str, options: Options) -> bool:
    """Does --only name this row?"""
    return any(part in f"^{name}$" for part in options.only.split(";"))


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    about = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    }
    if torch.cuda.is_available():
        try:
            import triton

            about |= {"triton": triton.__version__, "cuda": torch.version.cuda}
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            driver = subprocess.run(query, capture_output=True, text=True).stdout
            about["driver"] = driver.split("\n")[0]
        except (ImportError, OSError):
            pass
    return about


def rows(options: Options) -> Iterator[Workload]:
    """(name, function, args, kwargs) of every workload and model."""
    for table in (WORKLOADS, MODELS):
        for name, build in table.items():
            if wanted(name, options):
                function, inputs = build()
                given = ([], inputs) if isinstance(inputs, dict) else (inputs, {})
                yield name, function, *given


def measure_all(rows: Iterable[Workload], options: Options) -> Iterator[Row]:
    """The rows, measured and printed; under no_grad."""
    print(
        "ratios are medians over interleaved rounds [quartiles]; above 1: the second is faster\n\n"
        f"{'':20} {'eager':>10} {'ours':>10} {'peer':>10}   {'eager / ours':21} {'eager / peer':21}"
        f" {'peer / ours':21} "
        f"{'compile s (CPU s): ours':>24} {'peer':>15} {'difference':>10}"
    )
    for name, function, args, kwargs in rows:
        with torch.no_grad():
            row = measure(name, function, args, kwargs, peer=not options.no_peer)
        print(format_row(row), flush=True)
        yield row


def measure(
    name: str,
    function: Callable,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    peer: bool = True,
    budget: float = 3.0,
    more: Mapping[str, Callable] = {},
) -> Row:
    """One row: agreement with eager, cold compile times, steady-state times.  more: what else is
    timed, without arguments."""
    minidynamo.reset()
    torch.compiler.reset()  # no row is one recompilation too many of another's code
    row: Row = {"name": name}
    eager = lambda: function(*args, **kwargs)  # noqa: E731
    expected = eager()
    variants = {"eager": eager}
    compilers = {"ours": minidynamo.compile} | ({"torch.compile": peer_compile} if peer else {})
    for label, compiler in compilers.items():
        compiled = compiler(function)
        with fresh_caches():
            result, spent = timed_first_call(lambda: compiled(*args, **kwargs))
        row[f"{label} compile"] = {"wall": spent.wall, "cpu": spent.cpu}
        row[f"{label} difference"] = largest_difference(expected, result)
        if agrees(expected, result):
            variants[label] = lambda run=compiled: run(*args, **kwargs)  # type: ignore[misc]
    variants |= more
    # one thread on a shared machine: what others do counts less on the process's own clock
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    if any(getattr(argument, "is_cuda", False) for argument in args):
        clock = lambda: torch.cuda.synchronize() or time.perf_counter()  # type: ignore  # noqa
    timings = interleave(variants, budget, shuffled=True, clock=clock)
    row["seconds"] = {label: timing.median for label, timing in timings.items()}
    row["rounds"] = len(timings["eager"].seconds)
    for label in variants:
        if label != "eager":
            row[f"eager / {label}"] = ratio(timings, "eager", label)
        if "ours" in variants and label != "ours":
            row[f"{label} / ours"] = ratio(timings, label, "ours")
    return row


def captured(
    function: Callable, args: Sequence[Any], kwargs: dict[str, Any] | None = None
) -> tuple[fx.GraphModule, list[Any]]:
    """(graph module, its example inputs) of a function that is captured whole."""
    minidynamo.reset()
    seen: list[tuple[fx.GraphModule, list[Any]]] = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> fx.GraphModule:
        seen.append((gm, inputs))
        return gm

    minidynamo.compile(function, fullgraph=True, backend=backend)(*args, **kwargs or {})
    minidynamo.reset()
    [one] = seen
    return one


def show_ratio(value: Sequence[float] | None) -> str:
    return f"{value[0]:6.2f} [{value[1]:5.2f}-{value[2]:5.2f}]" if value else f"{'-':>6}{'':15}"


def format_row(row: Row) -> str:
    def seconds(label):
        if label in row["seconds"]:
            return f"{row['seconds'][label] * 1e3:8.3f}ms"
        return f"{'wrong' if f'{label} difference' in row else '-':>10}"

    def compile_time(label):
        value = row.get(f"{label} compile")
        return f"{value['wall']:6.2f} ({value['cpu']:6.2f})" if value else "-"

    times = " ".join(map(seconds, ("eager", "ours", "torch.compile")))
    pairs = ("eager / ours", "eager / torch.compile", "torch.compile / ours")
    ratios = " ".join(show_ratio(row.get(pair)) for pair in pairs)
    compiles = f"{compile_time('ours'):>24} {compile_time('torch.compile'):>15}"
    return f"{row['name']:20} {times}   {ratios} {compiles} {row['ours difference']:10.1e}"
