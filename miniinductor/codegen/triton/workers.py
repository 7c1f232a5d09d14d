"""Processes that compile Triton kernels side by side.

In:   jobs for worker.py: dictionaries that become JSON.  Out: {cubin: error} of those that failed.

    start_workers(4)            # as soon as somebody knows that kernels will come
    compile_all(jobs)

Mirrors torch/_inductor/async_compile.py.
"""

import atexit
import concurrent.futures
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ... import config
from ...errors import ours

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
    """Compile in parallel: {cubin: error} of the jobs that failed.  A thread for each worker gives
    it one job after the other."""
    errors: dict[str, str] = {}
    waiting, turn = iter(jobs), threading.Lock()

    def serve(worker: subprocess.Popen) -> None:
        while True:
            with turn:
                job = next(waiting, None)
            if job is None:
                return
            if error := error_of(worker, job):
                errors[job["cubin"]] = error

    with _lock:
        start_workers(len(jobs))
        done = False
        with concurrent.futures.ThreadPoolExecutor(max(1, len(_workers))) as pool:
            try:
                running = [pool.submit(serve, worker) for worker in _workers]
                late = concurrent.futures.wait(running, config.compiler_seconds).not_done
                done = not late
            finally:  # no later job may get an answer that is meant for these
                if not done:
                    for worker in _workers:
                        worker.kill()  # then their answers end, and the threads
                    _workers.clear()
        if late:
            text = f"Triton did not end within {config.compiler_seconds} seconds"
            return dict.fromkeys([job["cubin"] for job in jobs], text)
        _workers[:] = [w for w in _workers if w.poll() is None]
    return errors


def error_of(worker: subprocess.Popen, job: dict[str, Any]) -> str | None:
    """Why the worker could not compile this, or None."""
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(json.dumps(job) + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
    except ours(OSError):  # it was killed
        answer = ""
    return json.loads(answer).get("error") if answer else "the compiler process died"
