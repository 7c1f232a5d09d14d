"""--suite programs: small programs in the style of public ones, ours beside torch.compile, both
with backend eager: graphs, breaks, recompilations; results, gradients and random state against
plain Python's.

    python -m benchmarks --suite programs --json programs.json --resume
    python -m benchmarks --suite programs --only ^styles/

All run in this process, one after the other, each within a limit of seconds.
"""

import contextlib
import copy
import logging
import multiprocessing
import random
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

import minidynamo

from ..programs import Compile, Program, breaks, storms, styles, vision
from .census import read_rows
from .common import Options, Row, suite, wanted

CALLS = {"breaks": 1, "styles": 3, "storms": 5, "vision": 3}
LIMIT = 90  # seconds of a program under one compiler
Results = tuple[list[Any], torch.Tensor]  # of each call, and the random state behind them
COUNTS = ("graphs", "breaks", "recompilations")


def plain(function: Callable, **options: Any) -> Callable:
    """The compiler that does nothing."""
    return function


def one_call(make: breaks.Make) -> Program:
    """A program of breaks.py as a maker of steps; what it writes and its gradients are results."""

    def steps(compile):
        program, args = make()
        compiled = compile(program)

        def step(n):
            result = compiled(*args)
            leaves = torch.utils._pytree.tree_leaves(result)
            losses = [t.float().sum() for t in leaves if needs_gradient(t)]
            if losses:
                sum(losses).backward()
            return result, args, [a.grad for a in args if isinstance(a, torch.Tensor)]

        return step

    return steps


def needs_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def image_sizes(make: Callable[[], torch.nn.Module]) -> Program:
    """A model of vision.py as a maker of steps, one a size."""

    def steps(compile):
        model = make().eval()
        compiled = compile(model)

        def step(n):
            with torch.no_grad():
                return compiled(torch.randn(1, 3, *vision.SIZES[n]))

        return step

    return steps


def programs() -> dict[str, Program]:
    """name -> what makes its steps, of every file of benchmarks/programs/."""
    found = {f"breaks/{name}": one_call(make) for name, make in breaks.PROGRAMS.items()}
    found |= {f"styles/{name}": make for name, make in styles.PROGRAMS.items()}
    found |= {f"storms/{name}": make for name, make in storms.PROGRAMS.items()}
    return found | {f"vision/{name}": image_sizes(make) for name, make in vision.PROGRAMS.items()}


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """A `with` block that raises TimeoutError after so many seconds (where there are alarms)."""

    def late(number, frame):
        raise TimeoutError(f"not finished in {seconds} s")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def results(make: Program, compile: Compile, calls: int) -> Results:
    """What the calls give, copied, and the state of the random numbers behind the last."""
    torch.manual_seed(0)
    step, found = make(compile), []
    torch.manual_seed(1)
    random.seed(1)
    for n in range(calls):
        found.append(detached(step(n)))
    found.append(detached(random.getstate()))
    return found, torch.get_rng_state()


def detached(value: Any) -> Any:
    """A copy that later calls do not write into."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, numpy.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: detached(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(detached(item) for item in value)]
    return copy.copy(value)


def same(a: Any, b: Any) -> bool:
    """Equal but for rounding: types, sizes, dtypes, values, NaNs."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        alike = a.dtype == b.dtype and a.shape == b.shape
        return alike and torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(a, (numpy.ndarray, numpy.generic)):
        return a.dtype == b.dtype and numpy.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and same(list(a.values()), list(b.values()))
    return a == b or type(a).__module__ not in ("builtins", "torch")


def counts_of_ours() -> Row:
    counters = minidynamo.counters
    return {
        "graphs": counters["graphs"].total(),
        "breaks": counters["graph_breaks"].total(),
        "recompilations": counters["recompiles"].total(),
        "why": list(counters["graph_breaks"])[:3],
        "given up": sum("compiler failed" in reason for reason in counters["skipped"]),
    }


def counts_of_the_peer() -> Row:
    from torch._dynamo.convert_frame import FRAME_COMPILE_COUNTER
    from torch._dynamo.utils import counters

    # A frame with a break inside of a loop or of a context manager is left to Python as a whole;
    # torch.compile counts no break then.
    given_up = counters["frames"]["total"] - counters["frames"]["ok"]
    compiled = FRAME_COMPILE_COUNTER.values()
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": counters["graph_break"].total(),
        "recompilations": sum(count - 1 for count in compiled if count > 1),
        "why": [reason.splitlines()[0] for reason in counters["graph_break"]][:3],
        "given up": given_up,
    }


def peer(function: Callable, **options: Any) -> Callable:
    return torch.compile(function, **options)


SIDES = {"ours": (minidynamo.compile, counts_of_ours), "peer": (peer, counts_of_the_peer)}


def reset() -> None:
    import torch._dynamo
    from torch._dynamo.convert_frame import FRAME_COMPILE_COUNTER
    from torch._dynamo.utils import counters

    minidynamo.reset()
    torch._dynamo.reset()
    counters.clear()
    FRAME_COMPILE_COUNTER.clear()


def side(make: Program, label: str, calls: int, expected: Results) -> Row:
    """One compiler on one program: its counts, and whether all is as in plain Python."""
    compiler, counts = SIDES[label]
    reset()
    start = time.process_time()
    row: Row = {"results": False, "random": False}
    try:
        with within(LIMIT):
            found, random = results(make, lambda f: compiler(f, backend="eager"), calls)
        row |= {"results": same(found, expected[0]), "random": same(random, expected[1])}
    except Exception as error:  # one that fails leaves the others
        text = (str(error).splitlines() or [""])[0]
        row["error"] = f"{type(error).__name__}: {text[:160]}"
    return row | counts() | {"seconds": round(time.process_time() - start, 2)}


def measure(name: str, make: Program, options: Options) -> Row:
    """The row of one program."""
    kind = name.partition("/")[0]
    row: Row = {"name": name, "kind": kind}
    try:
        expected = results(make, plain, CALLS[kind])
    except ImportError as missing:
        return row | {"skipped": str(missing)}
    row["ours"] = side(make, "ours", CALLS[kind], expected)
    if not options.no_peer:
        row["peer"] = in_a_fork(lambda: side(make, "peer", CALLS[kind], expected))
    return row


def in_a_fork(work: Callable[[], Row]) -> Row:
    """Behind some errors torch.compile leaves its frame evaluator in the process, and the hook of
    ours stays away from then on: so it gets a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=lambda: sender.send(work()))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        process.join()


def whole(side: Row) -> bool:
    """Was all of the program captured?"""
    ended = "error" not in side and not side["given up"]
    return ended and not side["breaks"] and side["graphs"] > 0


def behind(row: Row) -> list[str]:
    """In what ours is behind torch.compile, or wrong.  What torch.compile has left to Python is
    compared in its results alone."""
    ours, theirs = row["ours"], row.get("peer")
    found = [text for text in ("results", "random") if not ours[text]]
    if theirs is None or "error" in theirs or theirs["given up"]:
        return found
    if theirs["results"] and theirs["random"]:
        if whole(theirs) and not whole(ours):
            found.append("whole")
        found += [text for text in COUNTS[1:] if ours[text] > theirs[text]]
    return found


def show(row: Row) -> str:
    if "skipped" in row:
        return f"{row['name']:46}skipped: {row['skipped']}"
    cells = [
        " ".join(f"{row[label][text]:4}" for text in COUNTS) + f" {row[label]['seconds']:7.2f}"
        for label in SIDES
        if label in row
    ]
    text = f"{row['name']:46}" + "   ".join(cells) + "   " + ", ".join(behind(row))
    for label in SIDES:
        if row.get(label, {}).get("given up"):
            text += f" [{label} left frames to Python]"
    for label in SIDES:
        if "error" in row.get(label, {}):
            text += f"\n        {label}: {row[label]['error']}"
    return text


def summary(rows: list[Row]) -> dict[str, Row]:
    """kind -> sums over its programs, for either compiler."""
    found: dict[str, Row] = {}
    for row in rows:
        if "skipped" not in row:
            sums = found.setdefault(row["kind"], {"programs": 0, "behind": []})
            sums["programs"] += 1
            sums["behind"] += [row["name"]] * bool(behind(row))
            for label in SIDES:
                if label in row:
                    sums.setdefault(
                        label, dict.fromkeys(("whole", *COUNTS, "given up", "wrong"), 0)
                    )
                    add(sums[label], row[label])
    return found


def add(sums: dict[str, int], side: Row) -> None:
    sums["whole"] += whole(side)
    sums["wrong"] += not (side["results"] and side["random"])
    for text in (*COUNTS, "given up"):
        sums[text] += side[text]


@contextlib.contextmanager
def in_silence() -> Iterator[None]:
    """Without the compilers' warnings, and those of the programs."""
    loggers = [logging.getLogger(name) for name in ("torch._dynamo", "minidynamo")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            yield
        finally:
            for logger, level in zip(loggers, levels):
                logger.setLevel(level)


@suite("programs")
def programs_suite(options: Options, result: Row) -> Iterator[Row]:
    """Small programs in the style of public ones: graphs, breaks, compilations, results."""
    print(f"{'graphs, breaks, recompilations, CPU seconds':46}{'ours':^22}   {'torch.compile':^22}")
    if not options.no_peer:
        peer(lambda x: x + 1, backend="eager")(torch.ones(2))  # its imports, once
    done = read_rows(options.json if options.resume else None)
    yield from done.values()
    for name, make in programs().items():
        if name not in done and wanted(name, options):
            with in_silence():
                row = measure(name, make, options)
            print(show(row), flush=True)
            yield row
    result["summary"] = summary(result["rows"])
    for kind, sums in result["summary"].items():
        print(kind, sums)
