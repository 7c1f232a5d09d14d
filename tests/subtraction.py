"""The subtraction test: the tour programs without coverage.

    python tests/subtraction.py                 # all coverage hidden
    python tests/subtraction.py --each          # one file at a time, with those that need it
    python tests/subtraction.py --hide miniinductor.speed.lanes

With all of it hidden the five programs of `tour_programs.py` give eager's results, and the first
three are captured in one graph each and get fused C++ kernels.  With one file hidden they give
eager's results, too: with a graph break, an eager kernel or less speed instead.
"""

import argparse
import concurrent.futures
import contextlib
import importlib.abc
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("minidynamo", "miniinductor")


def coverage_folders() -> list[str]:
    """The dotted names of the folders beside the core, as the packages name them."""
    import minidynamo.coverage
    import miniinductor.coverage

    folders = {"minidynamo": minidynamo.coverage.FOLDERS}
    folders["miniinductor"] = miniinductor.coverage.FOLDERS
    return [f"{package}.{folder}" for package in PACKAGES for folder in folders[package]]


def coverage_files() -> list[str]:
    """The dotted name of every module in those folders."""
    found = []
    for folder in coverage_folders():
        for path in sorted((ROOT / folder.replace(".", "/")).rglob("*.py")):
            if path.name != "__init__.py":
                found.append(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return found


class Hider(importlib.abc.MetaPathFinder):
    """Modules of these names, and those inside them, are not there."""

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if any(name == hidden or name.startswith(hidden + ".") for hidden in self.names):
            raise ModuleNotFoundError(f"{name} is hidden", name=name)


def difference(results: list[Any], expected: list[Any]) -> str | None:
    """What is not eager's, or None."""
    import torch

    from benchmarks import error_bound

    if len(results) != len(expected):
        return f"{len(results)} results instead of {len(expected)}"
    for n, (found, right) in enumerate(zip(results, expected)):
        if not isinstance(right, torch.Tensor):
            if found != right:
                return f"result {n} is {found!r} instead of {right!r}"
            continue
        if problem := error_bound.too_far(found, right):
            return f"result {n}: {problem}"
    return None


def run_tours(whole: bool) -> list[str]:
    """What went wrong with the tour programs in this process.

    whole: those of `WHOLE` must be captured in one graph, and compiled to fused kernels.
    """
    import tour_programs

    import minidynamo
    from minidynamo import records

    problems = []
    for name, tour in tour_programs.TOURS.items():
        with contextlib.redirect_stdout(io.StringIO()):
            expected = tour(lambda function, **options: function)
            minidynamo.reset()
            kept: list[Any] = []  # the records of what has died are gone
            results = tour(lambda function, **options: keep(kept, function, options))
        found = difference(results, expected)
        if found:
            problems.append(f"{name}: {found}")
        if whole and name in tour_programs.WHOLE:
            problems += [f"{name}: {text}" for text in not_whole(list(records.frames))]
    return problems


def keep(kept: list[Any], function: Any, options: dict[str, Any]) -> Any:
    """The function compiled, and held in `kept`."""
    import minidynamo

    kept.append(minidynamo.compile(function, **options))
    return kept[-1]


def not_whole(frames: Sequence[Any]) -> list[str]:
    """Why these frames are not one graph each with fused C++ kernels."""
    problems = []
    if not any(frame.graph is not None for frame in frames):
        problems.append("no graph was captured")
    for frame in frames:
        problems += [f"graph break: {found}" for found in frame.graph_breaks]
        if frame.skipped:
            problems.append(f"skipped: {frame.skipped}")
    compiled = [frame.backend_record for frame in frames if frame.backend_record is not None]
    if not any(record.kernels for record in compiled):
        problems.append("no kernel was generated")
    return problems


def hidden_run(names: Sequence[str], whole: bool, kernels: str = "") -> str:
    """The tours in a process of their own without these modules: what went wrong, or nothing.

    kernels: a folder of built kernels that several runs share, which halves their time.  (Graphs
    are not kept then: each run is to make its own.)"""
    command = [sys.executable, __file__, "--hide", ",".join(names)]
    if whole:
        command.append("--whole")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MINIINDUCTOR_CACHE": kernels or folder}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--hide", default="", help="dotted names, separated by commas")
    parser.add_argument("--whole", action="store_true", help="one graph each, with kernels")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    if options.hide:
        sys.meta_path.insert(0, Hider(options.hide.split(",")))
        problems = run_tours(options.whole)
        print("\n".join(problems))
        sys.exit(bool(problems))
    tasks = [([file], False) for file in coverage_files()] if options.each else []
    tasks.append((coverage_folders(), True))
    failed = 0
    with (
        tempfile.TemporaryDirectory() as kernels,
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
    ):
        answers = pool.map(lambda task: hidden_run(*task, kernels), tasks)
        for (names, _), answer in zip(tasks, answers):
            failed += bool(answer)
            label = names[0] if len(names) == 1 else "all coverage"
            print(f"{label:50} {'FAILED' if answer else 'ok'}\n{answer}".rstrip(), flush=True)
    print(f"{len(tasks)} runs, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
