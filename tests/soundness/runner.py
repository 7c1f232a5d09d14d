"""Run a generator's cases in worker processes: a case that ends its process, or hangs, is told.

    # at the end of a generator
    if __name__ == "__main__":
        runner.main("tests.soundness.names", default_modes="eager,inductor")

A generator is a module with

    def cases(count: int, first: int) -> list      # enumerated ones ignore both numbers
    def check(case, mode: Mode) -> str             # what differs from eager; "" where nothing does

Cases must be picklable (numbers, strings, tuples).  `sample(count)` runs a few cases in this
process, for pytest.
"""

import argparse
import gc
import importlib
import multiprocessing
import multiprocessing.connection
import random
import re
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from . import modes, mutants


@dataclass
class Worker:
    process: multiprocessing.Process
    pipe: Connection
    task: tuple | None = None
    since: float = 0.0


def attempt(generator: Any, case: Any, mode: modes.Mode) -> str:
    """What differs; an exception of the harness or of the compiler is a difference, too."""
    try:
        with mode.active():
            return generator.check(case, mode)
    except Exception:
        return traceback.format_exc(limit=-8)


def sample(generator: Any, count: int, mode_names: str, first: int = 0) -> list[str]:
    """The reports of `count` cases, drawn evenly, each in one of the modes in turn (for pytest)."""
    everything = generator.cases(count, first)
    if len(everything) > count:
        everything = random.Random(first).sample(everything, count)
    chosen = modes.chosen(mode_names)
    reports = []
    frozen = gc.get_freeze_count()  # tests/conftest.py does so, too, and nobody thaws that
    if not frozen:
        gc.freeze()  # a case that collects garbage need not look at all that was there before
    try:
        for number, case in enumerate(everything):
            mode = chosen[number % len(chosen)]
            report = attempt(generator, case, mode)
            if report:
                reports.append(f"{case!r} in mode {mode.name}: {report}")
    finally:
        if not frozen:
            gc.unfreeze()
    return reports


def _work(pipe: Connection, module: str, mutant: str | None) -> None:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if mutant is not None:
        mutants.apply(mutant)
    generator = importlib.import_module(module)
    gc.freeze()  # as in `sample`
    while True:
        case, mode = pipe.recv()
        pipe.send(attempt(generator, case, modes.MODES[mode]))


def _start(module: str, mutant: str | None) -> Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, module, mutant), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours)


def run(
    module: str,
    tasks: list[tuple[Any, str]],
    jobs: int = 1,
    stop: int = 20,
    limit: float = 120.0,
    mutant: str | None = None,
    seconds: float | None = None,
) -> tuple[int, list[str]]:
    """(number of cases that were run, reports) of [(case, mode name)].

    stop: the number of reports after which no further case is started.
    limit: seconds after which a case counts as hung.
    seconds: no further case is started after this time.
    """
    begin = time.monotonic()
    waiting, reports, done = list(reversed(tasks)), [], 0
    workers = [_start(module, mutant) for _ in range(min(jobs, max(1, len(tasks))))]
    while True:
        if seconds is not None and time.monotonic() - begin > seconds:
            waiting.clear()
        for worker in workers:
            if worker.task is None and waiting and len(reports) < stop:
                worker.task, worker.since = waiting.pop(), time.monotonic()
                worker.pipe.send(worker.task)
        busy = [worker for worker in workers if worker.task is not None]
        if not busy:
            break
        ready = multiprocessing.connection.wait([worker.pipe for worker in busy], timeout=5)
        for number, worker in enumerate(workers):
            if worker.task is None:
                continue
            report = None
            if worker.pipe in ready:
                try:
                    report = worker.pipe.recv()
                except EOFError:
                    worker.process.join()
                    report = f"THE PROCESS ENDED with exit code {worker.process.exitcode}"
                    workers[number] = _start(module, mutant)
            elif time.monotonic() - worker.since > limit:
                worker.process.kill()
                report = f"HUNG: no answer within {limit:.0f} s"
                workers[number] = _start(module, mutant)
            if report is None:
                continue
            done += 1
            if report:
                case, mode = worker.task
                reports.append(f"{case!r} in mode {mode}:\n{report}")
                print(reports[-1], flush=True)
            worker.task = None
    for worker in workers:
        worker.process.kill()
    return done, reports


def main(module: str, default_modes: str, default_count: int = 1000) -> None:
    """The command line of a generator; exit status 3 if a case differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=default_count)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--stop", type=int, default=20, help="end after so many differences")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one case")
    parser.add_argument("--seconds", type=float, help="draw the cases, for so long")
    parser.add_argument("--modes", default=default_modes)
    parser.add_argument("--only", default="", help="cases in whose text this pattern is found")
    parser.add_argument("--mutant", default=None, help="break the compilers like this first")
    options = parser.parse_args()
    begin = time.time()
    generator = importlib.import_module(module)
    names = [mode.name for mode in modes.chosen(options.modes)]
    chosen = [
        case
        for case in generator.cases(options.count, options.first)
        if re.search(options.only, repr(case))
    ]
    tasks = [(case, name) for case in chosen for name in names]
    if options.seconds is not None:
        random.Random(options.first).shuffle(tasks)
    done, reports = run(
        module, tasks, options.jobs, options.stop, options.limit, options.mutant, options.seconds
    )
    seconds = time.time() - begin
    print(f"{module}: {done} of {len(tasks)} cases, {len(reports)} differences, {seconds:.0f} s")
    sys.exit(mutants.DIFFERENCES if reports else 0)
