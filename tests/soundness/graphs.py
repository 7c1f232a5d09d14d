"""Random FX graphs (tests/sweeps/graphs.py) as a generator: kernels against eager.

    python -m tests.soundness.graphs --count 1000 --modes inductor,inductor-dynamic,triton

A case is the first seed of a batch, whose programs share one graph and one call of the compiler.
Where the batch differs, its programs are run alone, so that each difference has its seed.  The
graphs go to `miniinductor.compile_fx` without the front end: only a mode's options of
miniinductor matter, not whether it is dynamic or trains.
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")  # triton reads it when it is imported

from ..sweeps import graphs as sweep  # noqa: E402
from . import runner  # noqa: E402
from .modes import Mode  # noqa: E402

BATCH = 6  # programs in one graph


def cases(count: int, first: int) -> list[int]:
    """First seeds of `count` batches."""
    return [first + BATCH * number for number in range(count)]


def check(case: int, mode: Mode) -> str:
    """The interpreter of the loop IR runs beside C++ kernels; Triton's own is slow enough."""
    is_triton = mode.inductor.get("cpu_backend") == "triton"
    found = sweep.check(list(range(case, case + BATCH)), interpreter=not is_triton)
    return "\n".join(f"seed {seed}: {problem}" for seed, problem in found)


if __name__ == "__main__":
    runner.main("tests.soundness.graphs", default_modes="inductor,triton")
