"""--suite cpu-kernels: single kernels on the CPU, with one thread and with all: eager,
torch.compile and ours interleaved.

Each row names the ratio to torch.compile that is to be reached; no row may be slower than eager
("as eager": the quartiles of the ratio are on both sides of 1).  All three keep the memory they
free (runner.keep_freed_memory).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..runner import keep_freed_memory
from ..workloads import WORKLOADS
from .common import Options, Row, measure, show_ratio, suite, wanted


Tensors = list[torch.Tensor] | tuple[torch.Tensor, ...]


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def batch_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, w, b, True)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def adam(
    parameters: Tensors, gradients: Tensors, first: Tensors, second: Tensors
) -> tuple[Tensors, ...]:
    """One step on every parameter, by foreach operations, as torch.optim.Adam(foreach=True) does,
    functionally."""
    first = torch._foreach_lerp(first, gradients, 0.1)
    second = torch._foreach_add(
        torch._foreach_mul(second, 0.999),
        torch._foreach_mul(torch._foreach_mul(gradients, gradients), 0.001),
    )
    denominator = torch._foreach_add(torch._foreach_sqrt(second), 1e-8)
    return torch._foreach_addcdiv(parameters, first, denominator, -0.001), first, second


def adam_inputs() -> list[list[torch.Tensor]]:
    shapes = [(256, 256), (256,), (1024, 256), (1024,), (256, 1024), (64, 3, 7, 7)] * 5
    return [
        [randn(*s, seed=seed).abs() if seed == 3 else randn(*s, seed=seed) for s in shapes]
        for seed in range(4)
    ]


MATRIX = lambda **options: randn(4096, 1024, **options)  # noqa: E731
# name -> (function, inputs, goal: torch.compile / ours)
ROWS: dict[str, tuple[Callable, Callable[[], Sequence[Any]], float]] = {
    "gelu (erf)": (lambda x, y: F.gelu(2 * x + 1) * y, lambda: [MATRIX(), MATRIX(seed=1)], 1.3),
    "tanh": (
        lambda x, y: torch.tanh(x * y) + torch.tanh(x - y),
        lambda: [MATRIX(), MATRIX(seed=1)],
        2.0,
    ),
    "softmax": (lambda x: torch.softmax(x, -1), lambda: [MATRIX()], 1.2),
    "layer norm": (*WORKLOADS["layer norm"]()[:1], lambda: WORKLOADS["layer norm"]()[1], 1.4),
    "RMS norm": (rms_norm, lambda: [MATRIX(), randn(1024)], 1.0),
    "cross entropy": (
        *WORKLOADS["cross entropy"]()[:1],
        lambda: WORKLOADS["cross entropy"]()[1],
        1.05,
    ),
    "sum dim 0": (lambda x: x.sum(0), lambda: [MATRIX()], 2.0),
    "sum dim 1": (lambda x: x.sum(1), lambda: [MATRIX()], 1.0),
    "sum all": (lambda x: x.sum(), lambda: [MATRIX()], 1.0),
    "mean, variance": (lambda x: torch.var_mean(x, -1), lambda: [MATRIX()], 1.0),
    "amax": (lambda x: x.amax(1), lambda: [MATRIX()], 1.0),
    "argmax": (lambda x: x.argmax(1), lambda: [MATRIX()], 1.0),
    "transpose + add": (
        lambda x, y: x.t() + y,
        lambda: [randn(2048, 2048), randn(2048, 2048, seed=1)],
        1.0,
    ),
    "batch norm (train)": (batch_norm, lambda: [randn(32, 64, 28, 28), randn(64), randn(64)], 1.0),
    "foreach Adam": (adam, adam_inputs, 1.0),
    "bf16 pointwise": (
        lambda x, y: F.gelu(x) * y + 1,
        lambda: [MATRIX(dtype=torch.bfloat16), MATRIX(dtype=torch.bfloat16, seed=1)],
        1.4,
    ),
    "x + 1": (lambda x: x + 1, lambda: [MATRIX()], 1.0),
    "sin, cos": (lambda x: torch.sin(x) * torch.cos(x), lambda: [MATRIX()], 1.0),
    "sin": (lambda x: torch.sin(x), lambda: [MATRIX()], 1.0),
    "tan": (lambda x: torch.tan(x), lambda: [MATRIX()], 1.0),
    "exp2": (lambda x: torch.exp2(x), lambda: [MATRIX()], 1.0),
    "log2": (lambda x: torch.log2(x), lambda: [MATRIX().abs()], 1.0),
    "log10": (lambda x: torch.log10(x), lambda: [MATRIX().abs()], 1.0),
    "fmod": (lambda x: torch.fmod(x, 0.3), lambda: [MATRIX()], 1.0),
    "softmax dim 0": (lambda x: torch.softmax(x, 0), lambda: [MATRIX()], 1.0),
    "amax dim 0": (lambda x: x.amax(0), lambda: [MATRIX()], 1.0),
    "argmax dim 0": (lambda x: x.argmax(0), lambda: [MATRIX()], 1.0),
    "per call": (
        lambda x: torch.relu(x * 2 + 1) - 3,
        lambda: [randn(16)],
        5.0,
    ),  # nothing but overhead: a fifth of torch.compile's
}


@suite("cpu-kernels")
def cpu_kernels(options: Options, result: Row) -> Iterator[Row]:
    """Every row with 1 thread and with all (or with --threads N alone)."""
    available = torch.get_num_threads()
    keep_freed_memory()
    for threads in [options.threads] if options.threads else sorted({1, available}):
        torch.set_num_threads(threads)
        print(
            f"{f'{threads} threads':20}{'eager ms':>10}{'ours ms':>10}{'peer ms':>10}   "
            f"{'eager / ours':22}{'peer / ours':22}{'goal':>5}  verdict"
        )
        for name, (function, inputs, goal) in ROWS.items():
            if wanted(name, options):
                with torch.no_grad():
                    row = measure(name, function, inputs(), {}, peer=not options.no_peer) | {
                        "threads": threads,
                        "goal": goal,
                    }
                print(format_kernel(row), flush=True)
                yield row
    torch.set_num_threads(available)


def format_kernel(row: Row) -> str:
    seconds = [
        f"{row['seconds'][k] * 1e3:10.3f}" if k in row["seconds"] else f"{'wrong':>10}"
        for k in ("eager", "ours", "torch.compile")
    ]
    over_eager, over_peer = row.get("eager / ours"), row.get("torch.compile / ours")
    faults = [
        text
        for text, bad in (
            ("slower than eager", over_eager and over_eager[2] < 1),
            ("as eager", over_eager and over_eager[0] < 1 <= over_eager[2]),
            ("below goal", over_peer and over_peer[0] < row["goal"]),
        )
        if bad
    ]
    return (
        f"{row['name']:20}{''.join(seconds)}   {show_ratio(over_eager)} {show_ratio(over_peer)} "
        f"{row['goal']:5.2f}  "
        f"{', '.join(faults) or 'ok'}"
    )
