"""--suite xla: kernels that users write, beside XLA (jax.jit): a CPU with one thread, or a GPU.

    taskset -c 1 python -m benchmarks --suite xla --threads 1        # after `pip install jax`
    XLA_PYTHON_CLIENT_PREALLOCATE=false python -m benchmarks --suite xla --device cuda

A program is written once, over `n`: torch, or what jax calls the same.  Each result is compared
with eager's.  A row is one of --suite smoke, then XLA / ours.  On a GPU the first dimension is 8
times as large, and so is each of 1024.
"""

import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from ..runner import agrees, keep_freed_memory
from .common import Options, Row, format_row, measure, show_ratio, suite, wanted


def norm(n: Any, x: Any, axes: Any = -1) -> Any:
    x = x - x.mean(axes, keepdims=True)
    return x / n.sqrt((x * x).mean(axes, keepdims=True) + 1e-5)


def gelu(n: Any, x: Any, y: Any) -> Any:
    return 0.5 * x * (1 + n.tanh(0.797885 * (x + 0.044715 * x * x * x))) * y


WIDE, ROW, IMAGE, HEADS = (1024, 1024), (1024,), (16, 64, 32, 32), (8, 256, 64)
HALF, FLAT, INDEX = (16, 512, 32), (256, 64), ()
KERNELS: dict[str, tuple[Callable, tuple]] = {  # a program, the shapes of its arguments
    "softmax": (lambda n, x: n.softmax(x, -1), (WIDE,)),
    "logsumexp": (lambda n, x: n.logsumexp(x, -1), (WIDE,)),
    "layer norm": (lambda n, x, w, b: norm(n, x) * w + b, (WIDE, ROW, ROW)),
    "rms norm": (lambda n, x, w: x / n.sqrt((x * x).mean(-1)[:, None] + 1e-5) * w, (WIDE, ROW)),
    "group norm": (lambda n, x: norm(n, x.reshape(16, 8, -1)), (IMAGE,)),
    "batch norm": (lambda n, x: norm(n, x, (0, 2, 3)), (IMAGE,)),
    "gelu": (gelu, (WIDE, WIDE)),
    "gelu, bfloat16": (gelu, (WIDE, WIDE)),
    "gelu, float16": (gelu, (WIDE, WIDE)),
    "clamp, where": (lambda n, x: n.where(x > 0, n.clip(x * 2, -1, 1), x * 0.1), (WIDE,)),
    "cross entropy": (lambda n, x, i, j: n.log_softmax(x, -1)[i, j], (WIDE, INDEX, INDEX)),
    "attention": (lambda n, q, k, v: n.softmax(q @ k.mT * 0.125, -1) @ v, (HEADS,) * 3),
    "rotary": (lambda n, a, b, c, s: n.stack([a * c - b * s, b * c + a * s]), (HALF,) * 4),
    "cumsum": (lambda n, x: n.cumsum(x, -1), (WIDE,)),
    "argmax": (lambda n, x: n.argmax(x, -1), (WIDE,)),
    "sum over rows": (lambda n, x: x.sum(0), (WIDE,)),
    "sum over columns": (lambda n, x: x.sum(1), (WIDE,)),
    "outer products": (lambda n, x, y: x[:, :, None] * y[:, None] + 1, (FLAT, FLAT)),
    "transpose, add": (lambda n, x, y: x + y.T, (WIDE, WIDE)),
    "gather": (lambda n, x, i: x[i] * 2, (WIDE, INDEX)),
    "scatter add": (lambda n, x, i, y: n.index_add(x, 0, i, y), (WIDE, INDEX, WIDE)),
    "pairwise distance": (lambda n, x, y: ((x[:, None] - y) ** 2).sum(-1), (FLAT, FLAT)),
}


@suite("xla")
def xla(options: Options, result: Row) -> Iterator[Row]:
    """Kernels that users write beside XLA (jax.jit); needs jax."""
    import jax

    keep_freed_memory()
    result["machine"]["jax"] = jax.__version__
    on_gpu = options.device == "cuda"  # where all wait once, behind many calls
    scale, wait = (8, lambda result: result) if on_gpu else (1, jax.block_until_ready)
    jax.config.update("jax_enable_x64", True)  # places are int64 here and there
    add = lambda x, axis, index, rows: x.at[index].add(rows)  # noqa: E731
    names = SimpleNamespace(**vars(jax.numpy) | vars(jax.nn), index_add=add)
    for name, (kernel, shapes) in KERNELS.items():
        if wanted(name, options):
            half = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(name[6:])
            index = torch.randint(1024, (1024 * scale,))
            grown = lambda n, place: n * scale if n == 1024 or not place else n  # noqa: E731
            wide = [[grown(n, place) for place, n in enumerate(shape)] for shape in shapes]
            args = [torch.randn(size, dtype=half) if size else index for size in wide]
            args = [argument.to(options.device) for argument in args]
            ours = functools.partial(kernel, torch)
            jitted = jax.jit(functools.partial(kernel, names))
            given = [jax.numpy.from_dlpack(each) for each in args]
            theirs = lambda: wait(jitted(*given))  # noqa: B023, E731
            with torch.no_grad(), jax.default_matmul_precision("highest"):  # no TF32, as torch
                more = {"XLA": theirs} if agrees(torch.from_dlpack(theirs()), ours(*args)) else {}
                row = measure(name, ours, args, {}, not options.no_peer, more=more)
            print(format_row(row), show_ratio(row.get("XLA / ours")), flush=True)
            yield row
