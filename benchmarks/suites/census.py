"""--suite census --device cpu|cuda: kernels that nobody chose, as many as fit into --seconds.

    --seed N        draws the order; every beginning of it is a fair sample of all classes
    --share 0.2     so much of the cases at most
    --holdout       the cases that are held out, and no others
    --resume        the rows that --json has already are kept
    --jobs N        processes that compile ahead (default: the processors); then each case is timed
                    alone, eager, ours, torch.compile and a copy of its least bytes in one process

Written after every row.  The table's last lines: each class's geometric mean, theirs over the
classes, the 5th percentile, the worst 20 with their bytes and why.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator

import torch

import miniinductor.config

from ..census import compilers, in_fair_order, measure, summary, why
from ..census_grid import Case, grid
from ..census_worker import Workers, cache_environment
from ..runner import keep_freed_memory
from .common import Options, Row, suite, wanted


def read_rows(path: str | None) -> dict[str, Row]:
    """{name: row} of an earlier result."""
    if not path or not os.path.exists(path):
        return {}
    with open(path) as file:
        return {row["name"]: row for row in json.load(file)["rows"]}


def chosen(options: Options) -> list[Case]:
    """The cases to run, in their order."""
    cases = [
        case
        for case in grid(options.device).values()
        if wanted(case.name, options) and case.is_held_out == options.holdout
    ]
    ordered = in_fair_order(cases, options.seed)
    return ordered[: max(1, round(len(ordered) * options.share))]


@suite("census")
def census(options: Options, result: Row) -> Iterator[Row]:
    """Small kernels that nobody chose, a fair sample of them, beside eager and torch.compile."""
    kept = read_rows(options.json if options.resume else None)
    result |= {"device": options.device, "seed": options.seed, "holdout": options.holdout}
    yield from kept.values()
    cases = [case for case in chosen(options) if case.name not in kept]
    jobs = options.jobs if options.jobs > 1 else os.cpu_count() or 1
    keep_freed_memory()
    with tempfile.TemporaryDirectory(prefix="census-", ignore_cleanup_errors=True) as folder:
        variables = cache_environment(folder)
        os.environ.update(variables)
        miniinductor.config.cache_dir = variables["MINIINDUCTOR_CACHE"]
        threads = torch.get_num_threads()
        with Workers(options.device, threads, folder, jobs) as workers:
            load_compilers(options)
            for row in timed(cases, workers, options):
                print(shown(row), flush=True)
                yield row
    result["summary"] = summary(result["rows"])
    result["against eager"] = summary(result["rows"], "eager / ours")
    print_summary(result)


def load_compilers(options: Options) -> None:
    """Each imports much when it is first used: here, while the workers do the same."""
    with torch.no_grad():
        for compiler, reset in compilers(not options.no_peer).values():
            compiler(lambda x: x + 1)(torch.ones(8, device=options.device))
            reset()


def timed(cases: list[Case], workers: Workers, options: Options) -> Iterator[Row]:
    """Rows: some cases are compiled side by side, then each of them is timed alone, and so on until
    the time is up."""
    end, size = time.monotonic() + (options.seconds or 200), 2 * len(workers.processes)
    while cases and time.monotonic() < end:
        batch, cases = cases[:size], cases[size:]
        compiled = compile_ahead(workers, [case.name for case in batch], "ours", end)
        names = [] if options.no_peer else list(compiled)
        with_peer = compile_ahead(workers, names, "torch.compile", end)
        for case in batch:
            if case.name not in compiled or time.monotonic() > end:
                continue
            if "failed" in compiled[case.name]:
                failed = {"ours": compiled[case.name]["failed"]}
                yield {"name": case.name, "class": case.kind, "failed": failed}
                continue
            peer = "failed" not in with_peer.get(case.name, {"failed": "not begun"})
            yield one_row(case, peer, options)
        size = 3 * len(workers.processes)


def compile_ahead(workers: Workers, names: list[str], label: str, end: float) -> dict[str, dict]:
    """What came of it, until 0.6 of the time that is left has passed."""
    start = time.monotonic()
    found = workers.compile(names, label, until=start + 0.6 * (end - start))
    each = [answer["seconds"] for answer in found.values() if "seconds" in answer]
    print(
        f"-- {label}: {len(each)} of {len(names)} compiled in {time.monotonic() - start:.1f} s, "
        f"each in {statistics.median(each or [0]):.1f} s",
        flush=True,
    )
    return found


def one_row(case: Case, peer: bool, options: Options) -> Row:
    try:
        with torch.no_grad():
            row = measure(case, options.device, peer=peer)
            return row | {"why": why(row, options.device)}
    except Exception as problem:
        text = f"{type(problem).__name__}: {problem}"[:300]
        return {"name": case.name, "class": case.kind, "failed": {"all": text}}
    finally:
        if options.device == "cuda":
            torch.cuda.empty_cache()


def shown(row: Row) -> str:
    seconds = row.get("seconds", {})
    figures = "".join(
        f"{seconds[label] * 1e6:10.1f}" if label in seconds else f"{'-':>10}"
        for label in ("eager", "ours", "torch.compile", "copy")
    )
    peer, eager = (
        row.get(f"{label} / ours", [float("nan")])[0] for label in ("torch.compile", "eager")
    )
    about = row.get("why") or str(row.get("failed", ""))
    return f"{row['name'][:64]:64}{figures} us {peer:6.2f} {eager:6.2f}  {about[:110]}"


def print_summary(result: Row) -> None:
    rows = {row["name"]: row for row in result["rows"]}
    found, eager = result["summary"], result["against eager"]
    print("\nclass: cases, torch.compile / ours, eager / ours, share of the copy (geometric means)")
    for kind, value in found["classes"].items():
        shares = [
            row["share of the copy"]
            for row in rows.values()
            if row["class"] == kind and "share of the copy" in row
        ]
        print(
            f"{kind:28} {found['counts'][kind]:4} {value:7.3f} {eager['classes'][kind]:7.3f} "
            f"{statistics.geometric_mean(shares):7.3f}"
        )
    print("\nthe worst:")
    for name in found["worst"]:
        row = rows[name]
        print(f"{shown(row)}  {row.get('bytes', 0) / 1e6:.1f} of {row['least bytes'] / 1e6:.1f} MB")
    for label, value in found.items():
        if label not in ("classes", "counts", "worst"):
            print(f"{label}: {value}")
