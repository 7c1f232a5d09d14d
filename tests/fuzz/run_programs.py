"""Differential fuzzing: random programs, plain against compiled; a difference is shrunk to a few
statements.

    python -m tests.fuzz.run_programs --count 10000 --jobs 2 [--first SEED] [--backend eager]

Each program is executed twice as a module of its own (its own globals); f is called four times, the
second time with inputs like the first one's (a cache hit), then with other values, types and shapes
(guards).  The same objects live through all calls of a side.
"""

import argparse
import ast
import collections
import concurrent.futures
import copy
import multiprocessing
import signal
import sys
import time
import warnings

import torch

import minidynamo
from minidynamo import config

from .compare import difference, outcome
from .programs import CALLS, arguments, program

STATE = ["G", "H", "LOG", "TABLE", "W", "NET"]


def side(text, seed, backend, calls=CALLS, digits=None):
    """Outcomes of the calls, plain (backend None) or compiled."""
    file = f"<program {seed}>"
    space = {"__name__": "program"}
    exec(compile(text, file, "exec"), space)
    function = space["f"] if backend is None else minidynamo.compile(space["f"], backend=backend)
    outcomes = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for call in range(calls):
            args, kwargs = arguments(seed, call, space)
            watched = [space[name] for name in STATE] + [space["Box"].scale]
            outcomes.append(outcome(function, args, kwargs, watched, file, digits))
            if minidynamo.counters["raised_after_write"]:  # docs/limits.md: what is raised counts
                return outcomes[:-1] + [{"result": outcomes[-1]["result"]}]
    return outcomes


def check(text, seed, backend="eager", digits=None):
    """What differs, or ''.  Compiler failures count as differences."""
    minidynamo.reset()
    plain = side(text, seed, None, digits=digits)
    with config.patch(raise_internal_errors=True):
        compiled = side(text, seed, backend, digits=digits)
    return "\n".join(
        f"call {n}: {found}"
        for n, (a, b) in enumerate(zip(plain, compiled))
        if (found := difference({key: a[key] for key in b}, b))
    )


def shrink(text, fails, tries=300):
    """A smaller text that still fails: drop statements, or put a block's body in its place."""
    tree, changed = ast.parse(text), True

    def blocks(tree):
        function = next(
            node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f"
        )
        return [
            getattr(node, field)
            for node in ast.walk(function)
            for field in ("body", "orelse", "finalbody")
            if isinstance(getattr(node, field, None), list)
        ]

    while changed and tries > 0:
        changed = False
        for b in range(len(blocks(tree)) - 1, -1, -1):
            n = len(blocks(tree)[b]) if b < len(blocks(tree)) else 0
            for s in range(n - 1, -1, -1):
                for way in ("drop", "body", "orelse"):
                    candidate = copy.deepcopy(tree)
                    all_blocks = blocks(candidate)
                    if b >= len(all_blocks) or s >= len(all_blocks[b]):
                        break
                    statement = all_blocks[b][s]
                    inner = [] if way == "drop" else getattr(statement, way, None)
                    if (
                        inner is None
                        or way != "drop"
                        and not inner
                        or way == "drop"
                        and isinstance(statement, ast.Pass)
                    ):
                        continue
                    all_blocks[b][s : s + 1] = inner
                    if not all_blocks[b]:
                        all_blocks[b].append(ast.Pass())
                    try:
                        smaller = ast.unparse(ast.fix_missing_locations(candidate))
                        compile(smaller, "", "exec")
                    except SyntaxError:
                        continue
                    tries -= 1
                    if tries > 0 and fails(smaller):
                        tree, changed = candidate, True
                        break
    return ast.unparse(tree)


def function_text(text):
    return text[text.rindex("\ndef f(") :].strip()


def one(seed, backend, minimise=True, digits=None):
    """(seed, report or None, counts)."""
    text = program(seed)

    def fails(text):
        try:
            signal.setitimer(signal.ITIMER_PROF, 20)  # of processor time: the machine may be busy
            return check(text, seed, backend, digits)
        except Exception as error:
            return f"the compiler failed: {type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    found = fails(text)
    counts = {
        "graphs": sum(minidynamo.counters["graphs"].values()),
        "breaks": sum(minidynamo.counters["graph_breaks"].values()),
        "recompiles": sum(minidynamo.counters["recompiles"].values()),
        "skipped": list(minidynamo.counters["skipped"]),
    }
    if not found:
        return seed, None, counts
    if minimise:
        text = shrink(text, fails)
        found = fails(text) or found
    return seed, f"seed {seed}\n{function_text(text)}\n{found}", counts


def _hung(signum, frame):
    raise TimeoutError("the program did not end")


def _worker(task):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _hung)
    return one(*task)


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("--count", 10000), ("--jobs", 1), ("--first", 0), ("--stop", 20)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    digits = None if options.backend == "eager" else 4
    tasks = [
        (seed, options.backend, not options.no_shrink, digits)
        for seed in range(options.first, options.first + options.count)
    ]
    begin, bad, totals, skipped = time.time(), 0, collections.Counter(), collections.Counter()
    with concurrent.futures.ProcessPoolExecutor(
        options.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=2000
    ) as pool:
        for seed, report, counts in pool.map(_worker, tasks, chunksize=20):
            totals.update({name: value for name, value in counts.items() if name != "skipped"})
            totals["compiled"] += counts["graphs"] > 0
            skipped.update(
                reason.partition(": ")[2].partition(" at ")[0][:70] for reason in counts["skipped"]
            )
            if report:
                bad += 1
                print(report, flush=True)
                if bad >= options.stop:
                    break
        pool.shutdown(cancel_futures=True)
    print(
        f"{len(tasks)} programs, {bad} with a difference, "
        f"{time.time() - begin:.0f} s; {dict(totals)}"
    )
    for reason, count in skipped.most_common(8):
        print(f"  skipped {count:6} {reason}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
