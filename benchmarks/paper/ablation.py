"""The paper's ablation: a model's inference without each optimisation of miniinductor alone.

In:   a model's name, a device.  Out: a row: seconds with everything on, without each optimisation,
      without all of them; "slower without": time without / time with all.

The graph is captured once and compiled once for each switch, so nothing but the switch differs.  On
a GPU the model runs in bfloat16, and there is a variant whose launches are one CUDA graph; on a
CPU in float32.  A variant whose result is not eager's has no time, and stands under "problem".
"""

import time
from collections.abc import Callable
from typing import Any

import torch

import minidynamo
import miniinductor
from miniinductor import config

from ..runner import fresh_caches, interleave, ratio, relative_error
from .alone import alone
from .measure import NEAR, Row, Step, on_gpu, release, results
from .models import MODELS

ABLATION, WITH_ALL, WITHOUT_ALL, CUDA_GRAPH = "ablation", "all on", "all", "(with a CUDA graph)"
SWITCHES: dict[str, dict[str, Any]] = {
    "fusion": {"fusion": False},
    "inlining": {"inlining": False},
    "fusion and inlining": {"fusion": False, "inlining": False},
    "reuse of memory": {"buffer_reuse": False, "in_place": False},
    "channels last": {"channels_last": False},
}
ON_CPU: dict[str, dict[str, Any]] = {
    "vectorisation": {"vectorize": False},
    "threads": {"openmp": False},
    "tiling, lane tables, rows": {"tiling": False, "row_reductions": False},
    "loop reordering": {"loop_reordering": False},
    "oneDNN's products": {"onednn_products": False},
}
ON_GPU: dict[str, dict[str, Any]] = {"split reductions": {"split_reductions": False}}


def switches(device: str) -> dict[str, dict[str, Any]]:
    """{what is off: its options}, everything on first, everything off last."""
    found = SWITCHES | (ON_CPU if device == "cpu" else ON_GPU)
    everything = {name: value for options in found.values() for name, value in options.items()}
    return {WITH_ALL: {}} | found | {WITHOUT_ALL: everything}


def ablated(name: str, column: str, device: str, peer: bool = False) -> Row:
    """One row; like `measure.measure`, whose arguments it has."""
    row: Row = {"name": name, "group": MODELS[name], "column": column, "problem": {}}
    try:
        step = Step(name, "inference fp32" if device == "cpu" else "inference bf16", device)
        with torch.no_grad():
            calls, row["kernels"] = variants(step, row["problem"])
            release(device)
            with alone():
                return row | timed(calls, device)
    except torch.OutOfMemoryError:
        raise
    except ImportError as missing:
        return row | {"absent": str(missing)}
    except minidynamo.Unsupported as broken:  # an ablation compiles one graph
        return row | {"left out": str(broken).splitlines()[0][:200]}
    except Exception as problem:
        return row | {"failed": f"{type(problem).__name__}: {problem}"[:300]}


def variants(step: Step, problems: dict[str, str]) -> tuple[dict[str, Callable], dict[str, int]]:
    """({label: call}, {label: kernels}) of eager and of each variant that is right."""
    from ..suites.common import captured

    gm, inputs = captured(step.model, [], step.arguments)
    calls, kernels = {"eager": lambda: gm(*inputs)}, {}
    expected = results(calls["eager"])
    modes = {label: (None, options) for label, options in switches(step.device).items()}
    if step.device == "cuda":
        modes[CUDA_GRAPH] = ("reduce-overhead", {})
    for label, (mode, options) in modes.items():
        with fresh_caches(), config.patch(**options):
            compiled = miniinductor.compile_fx(gm, inputs, **({"mode": mode} if mode else {}))
            run = lambda compiled=compiled: compiled(*inputs)  # noqa: E731
            apart = relative_error(results(run), expected)
        if apart > NEAR[expected[0].dtype]:
            problems[label] = f"{apart:.2g} from eager"
            continue
        calls[label], kernels[label] = run, len(compiled.record.kernels)
    return calls, kernels


def timed(calls: dict[str, Callable], device: str) -> Row:
    """Seconds, and how much slower than with everything on."""
    if device == "cpu":
        one = torch.get_num_threads() == 1  # its own time, whatever else the machine does
        clock = time.process_time if one else time.perf_counter
        timings = interleave(calls, budget=6.0, rounds=(5, 15), shuffled=True, clock=clock)
    else:
        timings = on_gpu(calls, rounds=7)
    row: Row = {"seconds": {label: timing.median for label, timing in timings.items()}}
    if WITH_ALL in calls:
        row["slower without"] = {
            label: ratio(timings, label, WITH_ALL) for label in calls if label != WITH_ALL
        }
    return row
