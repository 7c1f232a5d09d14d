"""--suite gpu-kernels: memory-bound kernels against the copy bandwidth of the same run.  --suite
gpu-models: whole models.

    rows of gpu-kernels: GB/s = bytes that must move (each input read once, each output written
    once) / time rows of gpu-models:  milliseconds of a forward pass ("training": and backward) per
    call
    both:                relative error against float64; with more than twice eager's, ours has no
                         time; seconds of the first call with empty caches (models: after one call
                         of ours with other caches, which loads libraries, and a small one of the
                         peer's), and ("warm") once more with what the first left on disk

Times are medians of CUDA events (kernels) or of host clocks around synchronised batches (models).
Every round runs all variants of a row, each round in an order of its own.  Before a kernel is timed
more is read than the GPU's cache holds: what the last one left there does not help it, and is not
written while it runs.  gpu-models --jobs N compiles N rows at once, in processes of their own; then
each is timed alone.
"""

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import minidynamo

from ..error_bound import allowed_error
from ..models import LLAMA, MODELS, builder, vision
from ..runner import fresh_caches, relative_error, tensors_of, turn
from .common import Options, Row, model_rows, suite, wanted

DEVICE, BF16, FP32 = "cuda", torch.bfloat16, torch.float32
Timer = Callable[[dict[str, Callable[[], Any]]], dict[str, list[float]]]
COMPILERS = {
    "ours": (minidynamo.compile, minidynamo.reset),
    "torch.compile": (torch.compile, torch.compiler.reset),
}


# --- one row: any function ------------------------------------------------------------------------
def measure(name: str, *what: Any, timer: Timer, **how: Any) -> Row:
    """A row, see `prepare`.  timer: event_times or host_times."""
    return timed(*prepare(name, *what, **how), timer)


def timed(row: Row, variants: dict[str, Callable[[], Any]], timer: Timer) -> Row:
    times = timer(variants)
    row["ms"] = {key: statistics.median(v) for key, v in times.items()}
    row["ms quartiles"] = {key: statistics.quantiles(v, n=4)[::2] for key, v in times.items()}
    return row


def prepare(
    name: str,
    function: Callable,
    call: Callable[[Callable], Callable[[], Any]],
    exact: Any,
    options: Options,
    modes: Sequence[str | None] = (None,),
    others: Mapping[str, Callable[[], Any]] | tuple[()] = (),
    warm: bool = False,
) -> tuple[Row, dict[str, Callable[[], Any]]]:
    """(row without times, its variants, compiled and right).  call(f): a function without arguments
    that calls f; exact: the result in float64.

    others: more variants.  Variants are called by their compiler and, where there are several, by
    their mode."""
    variants = {**dict(others), "eager": call(function)}
    row: Row = {
        "name": name,
        "error": {"eager": relative_error(variants["eager"](), exact)},
        "compile s": {},
    } | ({"warm compile s": {}} if warm else {})
    # not counted: the libraries' kernels are loaded when they first run, which the first compiler
    # would pay; each compiler's own imports
    if warm:
        with fresh_caches():
            try:
                call(minidynamo.compile(function, mode=modes[0]))()
                _ = options.no_peer or torch.compile(lambda x: x + 1)(torch.ones(8, device=DEVICE))
            except Exception:  # is reported below
                pass
    for label, (compiler, reset) in COMPILERS.items():
        reset()
        for mode in modes if label == "ours" else modes[:1] if not options.no_peer else ():
            key = f"{label} {mode}" if len(modes) > 1 and mode else label
            try:
                with fresh_caches():
                    run = call(compiler(function, mode=mode))
                    row["compile s"][key] = seconds(run)
                    if warm:
                        reset()
                        run = call(compiler(function, mode=mode))
                        row["warm compile s"][key] = seconds(run)
                    for _ in range(3):
                        result = run()
                row["error"][key] = relative_error(result, exact)
                dtype = tensors_of(result)[0].dtype
                right = row["error"][key] <= allowed_error(row["error"]["eager"], dtype)
                if right or label != "ours":
                    variants[key] = run
                if not right:
                    row["note"] = f"the error of {key} is more than twice eager's"
            except Exception as problem:
                row["note"] = f"{key}: {type(problem).__name__} {str(problem)[:300]}"
    return row, variants


def seconds(function: Callable) -> float:
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def rounds_of(
    variants: dict[str, Callable[[], Any]], rounds: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    for function in variants.values():
        for _ in range(3):
            function()
    order = random.Random(0)
    for _ in range(rounds):
        yield from order.sample([*variants.items()], len(variants))


def event_times(variants: dict[str, Callable[[], Any]], rounds: int = 30) -> dict[str, list[float]]:
    """Milliseconds of each call, by CUDA events: {name: [ms, ...]}."""
    pairs: dict[str, list[tuple]] = {name: [] for name in variants}
    larger_than_cache = torch.zeros(1 << 26, device=DEVICE)
    for name, function in rounds_of(variants, rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        larger_than_cache.amax()
        torch.cuda._sleep(400_000)  # the host gets ahead, so that launch gaps are not counted
        start.record()
        function()
        end.record()
        pairs[name].append((start, end))
    torch.cuda.synchronize()
    return {name: [s.elapsed_time(e) for s, e in found] for name, found in pairs.items()}


def host_times(
    variants: dict[str, Callable[[], Any]], batch: int = 10, rounds: int = 9
) -> dict[str, list[float]]:
    """Milliseconds per call, by the host's clock around synchronised batches (of a tenth of a
    second at most): {name: [ms, ...]}."""
    found: dict[str, list[float]] = {name: [] for name in variants}
    for name, function in rounds_of(variants, rounds):
        torch.cuda.synchronize()
        count = batch if not found[name] else max(1, min(batch, round(100 / found[name][0])))
        found[name].append(1e3 * seconds(lambda: [function() for _ in range(count)]) / count)
    return found


def shown(row: Row, unit: str = "ms", digits: int = 3) -> str:
    figures = {
        "": row[unit],
        "compile s": row["compile s"],
        "warm": row.get("warm compile s", {}),
        "error": row["error"],
    }
    texts = [
        f"{what} "
        + ", ".join(
            f"{k} {v:.1e}" if what == "error" else f"{k} {v:.{digits if not what else 2}f}"
            for k, v in some.items()
        )
        for what, some in figures.items()
        if some
    ]
    return f"{row['name']:42} {'; '.join(texts)} {row.get('note', '')}"


# --- kernels --------------------------------------------------------------------------------------
def randn(*shape: int, dtype: torch.dtype = FP32) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=dtype)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float() if x.dtype != torch.float64 else x
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def kernel_rows() -> Iterator[tuple[str, Callable, tuple[torch.Tensor, ...], int]]:
    """name, function, inputs, bytes that must move."""
    n, rows, columns = 1 << 26, 16384, 4096

    def size(*tensors):
        return sum(t.numel() * t.element_size() for t in tensors)

    x, y = randn(n), randn(n)
    yield (
        "gelu(2x+1)*sigmoid(y), 64M",
        lambda x, y: F.gelu(2 * x + 1) * torch.sigmoid(y),
        (x, y),
        3 * size(x),
    )
    del x, y
    for dtype, label in ((FP32, "fp32"), (BF16, "bf16")):
        x, w, b = (
            randn(rows, columns, dtype=dtype),
            randn(columns, dtype=dtype),
            randn(columns, dtype=dtype),
        )
        yield f"softmax {label}", lambda x: torch.softmax(x, -1), (x,), 2 * size(x)
        yield (
            f"layer norm {label}",
            lambda x, w, b: F.layer_norm(x, (columns,), w, b),
            (x, w, b),
            2 * size(x),
        )
        yield f"RMSNorm {label}", rms_norm, (x, w), 2 * size(x)
        yield f"sum dim 0 {label}", lambda x: x.sum(0), (x,), size(x)
        yield f"cumsum {label}", lambda x: x.cumsum(-1), (x,), 2 * size(x)
        a, b = randn(8192, 8192, dtype=dtype), randn(8192, 8192, dtype=dtype)
        yield f"transpose + add {label}", lambda a, b: a.t() + b, (a, b), 3 * size(a)
    x, t = randn(8192, 32000, dtype=BF16), torch.randint(0, 32000, (8192,), device=DEVICE)
    yield "cross entropy bf16", lambda x, t: F.cross_entropy(x, t), (x, t), size(x)


@suite("gpu-kernels")
def gpu_kernels(options: Options, result: Row) -> Iterator[Row]:
    """The memory-bound rows, a fused matmul, and the overhead of a small call."""
    source = randn(1 << 26)
    target = torch.empty_like(source)
    with torch.no_grad():
        for name, function, inputs, nbytes in kernel_rows():
            if wanted(name, options):
                wide = [t.double() if t.is_floating_point() else t for t in inputs]
                row = measure(
                    name,
                    function,
                    lambda f: lambda: f(*inputs),
                    function(*wide),
                    options,
                    others={"copy": lambda: target.copy_(source)},
                    timer=event_times,
                )
                del wide
                row |= {
                    "bytes": nbytes,
                    "GB/s": {
                        k: (2 * source.nbytes if k == "copy" else nbytes) / ms / 1e6
                        for k, ms in row["ms"].items()
                    },
                }
                for other in ("copy", "torch.compile"):
                    if "ours" in row["ms"] and other in row["ms"]:
                        row[f"ours / {other}"] = row["GB/s"]["ours"] / row["GB/s"][other]
                print(shown(row, "GB/s", 0))
                print(
                    " " * 42,
                    {k: round(v, 3) for k, v in row.items() if k.startswith("ours / ")},
                    flush=True,
                )
                yield row
        if options.only in "matmul":
            a, b, c = (randn(4096, 4096, dtype=BF16) for _ in range(3))
            function = lambda a, b, c: F.gelu(a @ b + c)  # noqa: E731
            row = measure(
                "gelu(a@b+c) 4096^3 bf16",
                function,
                lambda f: lambda: f(a, b, c),
                function(a.double(), b.double(), c.double()),
                options,
                modes=(None, "max-autotune"),
                timer=event_times,
            )  # the peer's search takes minutes
            row["TFLOP/s"] = {k: 2 * 4096**3 / ms / 1e9 for k, ms in row["ms"].items()}
            print(shown(row, "TFLOP/s", 0), flush=True)
            yield row
        if options.only in "small call":
            x, function = randn(16), lambda x: torch.relu(x * 2 + 1) - 3  # noqa: E731
            row = measure(
                "four pointwise ops on 16 elements",
                function,
                lambda f: lambda: f(x),
                function(x.double()),
                options,
                timer=lambda variants: host_times(variants, 200, 15),
            )
            row["us"] = {k: v * 1e3 for k, v in row["ms"].items()}
            print(shown(row, "us", 2), flush=True)
            yield row


# --- models ---------------------------------------------------------------------------------------
def mobilenet(batch: int) -> tuple[torch.nn.Module, dict[str, Any]]:
    from ..public_models import load_torchvision

    load_torchvision()
    import timm

    torch.manual_seed(0)
    return timm.create_model("mobilenetv3_large_100").eval(), {"x": torch.randn(batch, 3, 224, 224)}


BUILDERS = MODELS | {
    "llama": builder("LlamaForCausalLM", "LlamaConfig", num_hidden_layers=16, **LLAMA),
    "vit": vision("ViT"),
    "convnext": vision("ConvNext"),
    "mobilenet": mobilenet,
}
TEXT, IMAGES = dict(batch=8, sequence=512), dict(batch=32)
SIZES = {
    "GPT-2 b8 s512": ("gpt2", TEXT),
    "BERT b8 s512": ("bert", TEXT),
    "ResNet-50 b32": ("resnet", IMAGES),
    "Llama 16 layers b4 s512": ("llama", dict(batch=4, sequence=512)),
    "ViT-B/16 b32": ("vit", IMAGES),
    "ConvNeXt-T b32": ("convnext", IMAGES),
    "MobileNetV3 b32": ("mobilenet", IMAGES),
}
GRAPHS = "reduce-overhead"
# name, how to build it, dtype, mode, training (forward and backward)?
MODEL_ROWS: list[tuple[str, str, dict[str, int], torch.dtype, str | None, bool]] = [
    ("GPT-2 b1 s64 bf16", "gpt2", dict(batch=1, sequence=64), BF16, None, False),
    ("GPT-2 b1 s64 bf16, CUDA graphs", "gpt2", dict(batch=1, sequence=64), BF16, GRAPHS, False),
    *[(f"{name} bf16", *how, BF16, None, False) for name, how in SIZES.items()],
    *[
        (f"{name} {label}, CUDA graphs", *SIZES[name], dtype, GRAPHS, False)
        for name, label, dtype in (
            ("ResNet-50 b32", "bf16", BF16),
            ("ResNet-50 b32", "fp32", FP32),
            ("MobileNetV3 b32", "bf16", BF16),
        )
    ],
    *[(f"{name} fp32", *how, FP32, None, False) for name, how in SIZES.items()],
    *[(f"{name} bf16 training", *how, BF16, None, True) for name, how in SIZES.items()],
    ("GPT-2 b8 s512 bf16 training, CUDA graphs", "gpt2", TEXT, BF16, GRAPHS, True),
    (
        "GPT-2 b1 s64 bf16 training, CUDA graphs",
        "gpt2",
        dict(batch=1, sequence=64),
        BF16,
        GRAPHS,
        True,
    ),
    *[(f"{name} fp32 training", *how, FP32, None, True) for name, how in SIZES.items()],
]


@suite("gpu-models")
def gpu_models(options: Options, result: Row) -> Iterator[Row]:
    """Whole models: eager, ours, torch.compile in the same mode."""
    chosen = [row[0] for row in MODEL_ROWS if wanted(row[0], options)]
    with tempfile.TemporaryDirectory() as folder:
        if options.jobs > 1:
            os.environ.setdefault("MINIDYNAMO_TURNS", os.path.join(folder, ""))
        for start in range(
            0, len(chosen), options.jobs
        ):  # the next ones start when all of these are done: their compilers would disturb
            yield from model_rows(
                "gpu-models", chosen[start : start + options.jobs], measure_model, shown, options
            )
    for label in COMPILERS:
        ratios = [
            row["ms"]["eager"] / row["ms"][label] for row in result["rows"] if label in row["ms"]
        ]
        print(
            f"{label}: {len(ratios)} rows, geometric mean of eager / {label}: "
            f"{statistics.geometric_mean(ratios or [1]):.3f}, "
            f"lowest {min(ratios, default=1):.3f}",
            flush=True,
        )


def measure_model(name: str, options: Options) -> list[Row]:
    [(_, builder, build, dtype, mode, training)] = [row for row in MODEL_ROWS if row[0] == name]

    def call(function):
        if not training:
            return lambda: function(**inputs)

        def forward_and_backward():
            model.zero_grad()
            wide = tensors_of(function(**inputs))[0]
            wide = (
                wide.float() if wide.dtype == BF16 else wide
            )  # no loss that a layer norm keeps constant: its gradients are rounding errors
            (
                wide.square() * torch.linspace(0, 1, wide.shape[-1], device=wide.device)
            ).mean().backward()
            return [p.grad for p in model.parameters() if p.grad is not None][:20]

        return forward_and_backward

    with torch.set_grad_enabled(training):
        with turn("time", alone=False):
            with turn("exact", alone=True):  # float64 takes much memory
                with torch.device(DEVICE):
                    model, inputs = BUILDERS[builder](**build)
                model = model.to(DEVICE, dtype).double()  # the numbers that dtype holds
                inputs = {
                    k: v.to(DEVICE, dtype) if v.is_floating_point() else v.to(DEVICE)
                    for k, v in inputs.items()
                }
                inputs, rounded = (
                    {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()},
                    inputs,
                )
                exact = [t.detach() for t in tensors_of(call(model)())]
                model.zero_grad()
                model, inputs = model.to(dtype), rounded
                torch.cuda.empty_cache()
            prepared = prepare(name, model, call, exact, options, modes=(mode,), warm=True)
            torch.cuda.empty_cache()
        with turn("time", alone=True):
            return [timed(*prepared, host_times)]
