"""Everything that draws programs, with seeds that nobody has tried: `make nightly`.

    python tests/nightly.py [--seconds 3600] [--jobs 2] [--seed 123] [--only graphs,writes]

In:   a time, which is shared out among the parts; a seed, which is drawn if none is given.
Out:  the seed; a line for each part, the output of those that found something, and exit status 1 if
      any did.  The same seed gives each part the same programs in the same order; how many of them
      depends on the time.

Where the time is too short for all parts, the seed chooses some of them.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.soundness.__main__ import GENERATORS  # noqa: E402

START = 8.0  # seconds in which a process imports torch
LEAST = 30.0  # seconds of a part
GRACE = 120.0  # seconds after which a part that does not end by itself is stopped

DRAWS = " --first {seed} --seconds {seconds} --jobs {jobs}"
# part -> command; {seed} and {seconds} are filled in.  What knows no time is called again until its
# time is over, each time with the next seeds, as many as {count} says.
PARTS = {
    name: f"-m tests.soundness.{name} {options}{DRAWS}" for name, (_, options) in GENERATORS.items()
} | {
    "programs": "-m tests.fuzz.run_programs --count {count=40} --first {seed} --jobs {jobs}",
    "kernels": "-m tests.fuzz.run_programs --backend inductor --count {count=5} --first {seed}",
    "sweeps/graphs": "tests/sweeps/graphs.py --count {count=12} --seed {seed} --jobs 1",
    "sweeps/triton": "tests/sweeps/graphs.py --triton --count {count=6} --seed {seed} --jobs 1",
    "sweeps/symbolic": "tests/sweeps/symbolic.py --count {count=6} --seed {seed}",
    "sweeps/shapes": "tests/sweeps/shapes.py --count {count=5} --seed {seed}",
    "sweeps/ops": "tests/sweeps/ops.py {ops} --samples 4 --processes {jobs}",
    "storms": "-m benchmarks.programs.storms eager",
    "settling": "-m benchmarks.programs.settling",
    "soak": "tests/soak.py --alone --seconds {seconds} --seed {seed}",
    "faults": "tests/faults.py --sample 40 --seed {seed} --jobs {jobs}",
}
OPS = 3  # operators of each call of `sweeps/ops`


def some_ops(seed: int) -> str:
    """Names of a few OpInfos."""
    from torch.testing._internal.common_methods_invocations import op_db

    return " ".join(random.Random(seed).sample(sorted({op.name for op in op_db}), OPS))


def filled_in(command: str, seed: int, seconds: float, jobs: int) -> tuple[list[str], int]:
    """The command as a list, and how many seeds one call uses; 0 if it is called only once."""
    count = 0
    if "{count=" in command:
        begin, rest = command.split("{count=")
        number, end = rest.split("}", 1)
        command, count = begin + number + end, int(number)
    if "{ops}" in command:
        command, count = command.replace("{ops}", some_ops(seed)), 1
    text = command.format(seed=seed, seconds=round(seconds), jobs=jobs)
    return [sys.executable, *text.split()], count


def call(command: list[str], seconds: float) -> tuple[int | None, str, str]:
    """(exit status, or None if it was stopped; what it printed; its errors and warnings)."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
    )
    try:
        text, errors = process.communicate(timeout=seconds)
        return process.returncode, text, errors
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, *process.communicate()


def run(name: str, seed: int, seconds: float, jobs: int) -> bool:
    """Call a part until its time is over: has it found nothing?"""
    begin, calls, last = time.monotonic(), 0, ""
    while True:
        left = seconds - (time.monotonic() - begin)
        command, count = filled_in(PARTS[name], seed, max(left - START, 1), jobs)
        status, text, errors = call(command, max(left, 0) + min(GRACE, seconds / 2))
        calls, last = calls + 1, (text.strip().splitlines() or [""])[-1]
        if status:
            print(f"{name}: FOUND SOMETHING\n{text}{errors}again: {' '.join(command)}", flush=True)
            return False
        seed += count
        if not count or status is None or time.monotonic() - begin > seconds:
            break
    stopped = " (stopped)" if status is None else ""
    print(f"{name}: {calls} calls, {time.monotonic() - begin:.0f} s{stopped}; {last}", flush=True)
    return True


def chosen(seed: int, seconds: float, only: str) -> list[str]:
    """Parts in an order of the seed: as many as have the least time."""
    names = only.split(",") if only else list(PARTS)
    random.Random(seed).shuffle(names)
    return names[: max(1, int(seconds // LEAST))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6, 10**9))
    parser.add_argument("--only", default="", help="parts, separated by commas")
    options = parser.parse_args()
    parts = chosen(options.seed, options.seconds, options.only)
    begin, found = time.monotonic(), []
    print(f"seed {options.seed}: {', '.join(parts)}", flush=True)
    for number, name in enumerate(parts):
        left = options.seconds - (time.monotonic() - begin)
        if left <= 0:
            print(f"no time left for {', '.join(parts[number:])}")
            break
        if not run(name, options.seed, left / (len(parts) - number), options.jobs):
            found.append(name)
    again = f"python tests/nightly.py --seed {options.seed} --seconds {options.seconds:.0f}"
    print(f"{len(found)} parts found something {found}; again: {again}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
