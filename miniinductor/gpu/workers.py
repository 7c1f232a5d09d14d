"""Processes that compile Triton kernels side by side.

In:   jobs for worker.py: dictionaries that become JSON.  Out: {cubin: error} of those that failed.

    start_workers(4)            # as soon as somebody knows that kernels will come
    compile_all(jobs)

Mirrors torch/_inductor/async_compile.py.
"""

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from .. import config
from ..foreign import ours

WORKER = os.path.join(os.path.dirname(__file__), "worker.py")
_workers: list[subprocess.Popen] = []
_lock = threading.RLock()


def start_workers(count: int) -> None:
    """Start worker processes, at most one per processor.  Started before kernels are written they
    are ready when those are: Triton takes a second to import and to look at itself."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    with _lock:
        while len(_workers) < min(count, os.cpu_count() or 1):
            _workers.append(
                subprocess.Popen(
                    [sys.executable, WORKER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env=environment,
                )
            )


@atexit.register
def stop_workers() -> None:
    while _workers:
        worker = _workers.pop()
        if worker.stdin is not None:
            worker.stdin.close()
        worker.wait()


def compile_all(jobs: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Compile in parallel: {cubin: error} of the jobs that failed."""
    if not jobs:
        return {}
    with _lock:
        start_workers(len(jobs))
        waiting = Jobs(jobs)
        threads = [threading.Thread(target=waiting.serve, args=(worker,)) for worker in _workers]
        try:
            for thread in threads:
                thread.start()
            end = time.monotonic() + config.compiler_seconds
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
            if any(thread.is_alive() for thread in threads):
                waiting.late = f"Triton did not end within {config.compiler_seconds} seconds"
                for worker in _workers:
                    worker.kill()  # then their answers end, and the threads
            for thread in threads:
                thread.join()
            if waiting.late:  # a process that dies still counts as alive for a moment
                for worker in _workers:
                    worker.wait()
        except BaseException:  # the threads go on: no later job may get an answer that is theirs
            for worker in _workers:
                worker.kill()
            _workers.clear()
            raise
        _workers[:] = [w for w in _workers if w.poll() is None]
    return waiting.errors


class Jobs:
    """What several threads take from, each for a worker of its own."""

    def __init__(self, jobs: Iterable[dict[str, Any]]):
        self.waiting, self.turn = iter(jobs), threading.Lock()
        self.errors: dict[str, str] = {}  # cubin -> why there is none
        self.late = ""  # why the workers were killed

    def serve(self, worker: subprocess.Popen) -> None:
        """Give the worker one job after the other, until there are none."""
        assert worker.stdin is not None and worker.stdout is not None
        while (job := self.next()) is not None:
            try:
                worker.stdin.write(json.dumps(job) + "\n")
                worker.stdin.flush()
                answer = worker.stdout.readline()
            except ours(OSError):  # it was killed
                answer = ""
            died = self.late or "the compiler process died"
            error = json.loads(answer).get("error") if answer else died
            if error:
                self.errors[job["cubin"]] = error

    def next(self) -> dict[str, Any] | None:
        with self.turn:
            return next(self.waiting, None)
