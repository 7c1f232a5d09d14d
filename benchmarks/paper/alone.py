"""Timing alone while other models compile: what else this sitting runs is stopped meanwhile.

In:   a `with` block around what is timed.  Out: nothing else of this sitting ran meanwhile on its
      GPU, nor on that GPU's share of the processors.

    with alone():
        figures = timed(...)

The suite enters each of its processes into the folder MINIDYNAMO_PAPER_JOBS, as an empty file that
is named by the process's number.  Waiting until nobody compiles, as the other suites do
(`runner.turn`), would leave most processors idle: the slowest model of twelve is waited for.  To
stop the others (SIGSTOP) costs them no more than the time that the timing needs.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # not Linux: the suite runs its models there one after another
    fcntl = None

FOLDER = "MINIDYNAMO_PAPER_JOBS"
SETTLE = 0.03  # seconds in which the kernels that the stopped processes had launched come to an end


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process times, then stop the others for the length of the block."""
    folder = os.environ.get(FOLDER)
    if not folder or fcntl is None:
        yield
        return
    with open(os.path.join(folder, "lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            signal_all(folder, signal.SIGSTOP)
            time.sleep(SETTLE)
            yield
        finally:  # before the lock is free: the next one stops this process too
            signal_all(folder, signal.SIGCONT)


def signal_all(folder: str, what: int) -> None:
    """Send a signal to every process group of the sitting but this one's own."""
    for name in os.listdir(folder):
        if name.isdigit() and int(name) != os.getpgrp():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(name), what)
