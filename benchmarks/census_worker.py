"""Processes that compile the census's cases ahead of their timing: all share one folder of caches.

In:   `Workers(device, threads, folder, jobs)`; names.  Out: which of them are in the caches now.

    >>> with Workers("cpu", 4, folder, jobs=8) as workers:
    ...     done = workers.compile(names, "ours", until=time.monotonic() + 60)

Times are never taken while they work.  What a compiler *measured* meanwhile (which block sizes are
the fastest) is forgotten, for both alike: `forget_choices`; whoever times a case alone measures
that again, on machine code that is there.
"""

import glob
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

LIMIT, LEAST = 45, 10  # seconds for one case, at most and at least
FIRST = 60  # more for the first of a process, which imports the compiler


def cache_environment(folder: str) -> dict[str, str]:
    """Variables that make both compilers share `folder`, each with one compiling process."""
    return {
        "MINIINDUCTOR_CACHE": os.path.join(folder, "ours"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "peer"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def forget_choices(folder: str) -> None:
    """Delete which block sizes, and which of several ways, were the fastest."""
    for ending in ("best", "race", "best_config"):
        for path in glob.glob(os.path.join(folder, "**", f"*.{ending}"), recursive=True):
            os.unlink(path)


class Workers:
    """`jobs` processes; compile() gives each the next name as soon as it has done one."""

    def __init__(self, device: str, threads: int, folder: str, jobs: int):
        command = [sys.executable, "-W", "ignore", "-m", __name__, device, str(threads)]
        self.command, self.folder = command, folder
        self.processes = [self.start() for _ in range(jobs)]
        self.used: set[tuple[int, str]] = set()  # (process, compiler): what was imported

    def start(self) -> subprocess.Popen:
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # threads that wait do not turn: there are many times more than processors
            env=os.environ | cache_environment(self.folder) | {"OMP_WAIT_POLICY": "passive"},
        )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def compile(self, names: Iterable[str], label: str, until: float) -> dict[str, dict[str, Any]]:
        """{name: seconds of the first call, or what failed}.  label: which compiler is meant.  What
        is not begun at `until` (of time.monotonic) is left out."""
        remaining, found, lock = iter(list(names)), {}, threading.Lock()

        def feed(number: int) -> None:
            while time.monotonic() < until:
                with lock:
                    name = next(remaining, "")
                if not name:
                    return
                limit = min(LIMIT, max(LEAST, until + LEAST - time.monotonic()))
                limit += 0 if (number, label) in self.used else FIRST
                found[name] = self.ask(number, {"name": name, "label": label}, limit)

        threads = [threading.Thread(target=feed, args=(n,)) for n in range(len(self.processes))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        forget_choices(self.folder)
        return found

    def ask(self, number: int, about: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """One case in one process, which is started again where it died or took `limit` seconds."""
        process = self.processes[number]
        too_long = threading.Timer(limit, process.kill)
        too_long.start()
        try:
            process.stdin.write(json.dumps(about) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            self.used.add((number, about["label"]))
            return answer
        except (OSError, ValueError):
            process.kill()
            self.processes[number] = self.start()
            self.used -= {(number, "ours"), (number, "torch.compile")}
            return {"failed": f"the compiling process ended, or took {limit:.0f} s"}
        finally:
            too_long.cancel()


def first_calls(device: str, threads: int) -> None:
    """Compile what is named on the standard input, a JSON object a line."""
    import torch

    from .census import compilers
    from .census_grid import grid

    torch.set_num_threads(threads)
    if device == "cuda":  # one process for Triton beside each of ours: there are `jobs` of us
        os.cpu_count = lambda: 1
    cases = grid(device)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is not an answer
    for line in sys.stdin:
        about, answer = json.loads(line), {}
        with torch.no_grad():
            compiler, reset = compilers(about["label"] != "ours")[about["label"]]
            start = time.perf_counter()
            try:
                reset()
                case = cases[about["name"]]
                compiler(case.function)(*case.inputs(device))
            except Exception as problem:
                answer["failed here"] = f"{type(problem).__name__}: {problem}"[:300]
            answer["seconds"] = time.perf_counter() - start
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    first_calls(sys.argv[1], int(sys.argv[2]))
