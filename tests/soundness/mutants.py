"""Proof that the generators can fail: each mutant removes one check of the compilers.

    python -m tests.soundness.mutants [--only NAME] [--jobs 2] [--at-once 1]

A mutant is a function that replaces one small part of the packages while it runs (one kind of
guard, one alias check, one dependency edge, one mask).  The generators that are named with it run
with `--mutant NAME`; at least one of them must find a difference.  A mutant that none of them
finds is printed as SURVIVED, and the exit status is 1.  `--jobs` are the processes of one
generator, `--at-once` the mutants that run side by side.
"""

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import minidynamo.functions  # noqa: F401

DIFFERENCES = 3  # a generator's exit status when it found some; 1 and 2 are Python's own


@dataclass(frozen=True)
class Mutant:
    name: str
    change: Callable[[], None]
    killers: tuple[str, ...]  # command lines behind `python -m tests.soundness.`


MUTANTS: dict[str, Mutant] = {}


def mutant(name: str, *killers: str) -> Callable:
    """Register a function that breaks the compilers in one way.

    killers: generators with their options that should notice, such as "names --count 50".
    """

    def register(change: Callable[[], None]) -> Callable[[], None]:
        assert name not in MUTANTS, name
        MUTANTS[name] = Mutant(name, change, killers)
        return change

    return register


def load() -> None:
    """Import the files that register mutants: `mutants_*.py` beside this one."""
    for file in sorted(Path(__file__).parent.glob("mutants_*.py")):
        importlib.import_module(f"tests.soundness.{file.stem}")


def apply(name: str) -> None:
    """Break the compilers of this process.

    Coverage comes first: what it adds when it is loaded would take the place of the mutant."""
    load()
    MUTANTS[name].change()


def killed_by(found: Mutant, jobs: int) -> str:
    """The generator that noticed; "SURVIVED", or which generator itself failed, otherwise."""
    failures = []
    for killer in found.killers:
        module, *options = killer.split()
        command = [sys.executable, "-m", f"tests.soundness.{module}", *options]
        command += ["--mutant", found.name, "--stop", "1", "--jobs", str(jobs)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == DIFFERENCES:
            return f"killed by {killer}"
        if done.returncode:
            failures.append(f"; {killer} itself failed: {done.stderr.strip()[-200:]}")
    return "SURVIVED" + "".join(failures)


def tried_on(found: Mutant, jobs: int) -> tuple[str, str, float]:
    """The mutant's name, what became of it, and how many seconds that took."""
    begin = time.time()
    return found.name, killed_by(found, jobs), time.time() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1)
    options = parser.parse_args()
    load()
    survivors = []
    chosen = [found for name, found in MUTANTS.items() if options.only in name]
    with ThreadPoolExecutor(options.at_once) as pool:
        for tried in as_completed([pool.submit(tried_on, found, options.jobs) for found in chosen]):
            name, answer, seconds = tried.result()
            if answer.startswith("SURVIVED"):
                survivors.append(name)
            print(f"{name:40} {answer} ({seconds:.0f} s)", flush=True)
    print(f"{len(chosen)} mutants, {len(survivors)} survived {survivors}")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    # `python -m` makes this file a second module: the registry is the imported one's.
    importlib.import_module("tests.soundness.mutants").main()
