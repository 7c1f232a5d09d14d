"""--suite gpu-kernels: memory-bound kernels against the copy bandwidth of the same run.  --suite
gpu-models: whole models.

    gpu-kernels    GB/s = bytes that must move (each input read once, each output written once) /
                   time
    gpu-models     milliseconds of a forward pass ("training": and backward) per call
    both           relative error against float64; with more than twice eager's, ours has no time;
                   seconds of the first call with empty caches (models: after one call of ours with
                   other caches, which loads libraries)

Times are medians of CUDA events (kernels) or of host clocks around synchronised batches (models).
Every round runs all variants of a row, each round in an order of its own.  Before a kernel is timed
more is read than the GPU's cache holds: what the last one left there does not help it, and is not
written while it runs.
"""

import contextlib
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import minidynamo

from ..error_bound import allowed_error
from ..models import LLAMA, MODELS, builder, vision
from ..paper.measure import batch_of, moved, on_gpu
from ..runner import fresh_caches, relative_error, tensors_of
from ..workloads import WORKLOADS
from .common import Options, Row, suite, wanted

DEVICE, BF16, FP32 = "cuda", torch.bfloat16, torch.float32
Calls = dict[str, Callable[[], Any]]
Timer = Callable[[Calls], dict[str, list[float]]]
COMPILERS = {
    "ours": (minidynamo.compile, minidynamo.reset),
    "torch.compile": (torch.compile, torch.compiler.reset),
}


# --- one row: any function ------------------------------------------------------------------------
def measure(
    name: str,
    function: Callable,
    call: Callable[[Callable], Callable[[], Any]],
    exact: Any,
    options: Options,
    timer: Timer,
    modes: Sequence[str | None] = (None,),
    others: Mapping[str, Callable[[], Any]] | tuple[()] = (),
) -> Row:
    """A row.  call(f): a function without arguments that calls f; exact: the result in float64;
    timer: event_times or host_times; others: more variants.

    Variants are called by their compiler and, where there are several, by their mode."""
    variants = {**dict(others), "eager": call(function)}
    error = {"eager": relative_error(variants["eager"](), exact)}
    row: Row = {"name": name, "error": error, "compile s": {}}
    for label, (compiler, reset) in COMPILERS.items():
        reset()
        for mode in modes if label == "ours" else modes[:1] if not options.no_peer else ():
            key = f"{label} {mode}" if len(modes) > 1 and mode else label
            try:
                with fresh_caches():
                    run = call(compiler(function, mode=mode))
                    row["compile s"][key] = batch_of(run, 1)
                    for _ in range(3):
                        result = run()
                error[key] = relative_error(result, exact)
                right = error[key] <= allowed_error(error["eager"], tensors_of(result)[0].dtype)
                if right or label != "ours":
                    variants[key] = run
                if not right:
                    row["note"] = f"the error of {key} is more than twice eager's"
            except Exception as problem:
                row["note"] = f"{key}: {type(problem).__name__} {str(problem)[:300]}"
    times = timer(variants)
    row["ms"] = {key: statistics.median(v) for key, v in times.items()}
    row["ms quartiles"] = {key: statistics.quantiles(v, n=4)[::2] for key, v in times.items()}
    return row


def event_times(variants: Calls, rounds: int = 30) -> dict[str, list[float]]:
    """Milliseconds of each call, by CUDA events: {name: [ms, ...]}."""
    pairs: dict[str, list[tuple]] = {name: [] for name in variants}
    larger_than_cache = torch.zeros(1 << 26, device=DEVICE)
    for function in variants.values():
        for _ in range(3):
            function()
    order = random.Random(0)
    every = [*variants.items()]
    for name, function in (one for _ in range(rounds) for one in order.sample(every, len(every))):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        larger_than_cache.amax()
        torch.cuda._sleep(400_000)  # the host gets ahead, so that launch gaps are not counted
        start.record()
        function()
        end.record()
        pairs[name].append((start, end))
    torch.cuda.synchronize()
    return {name: [s.elapsed_time(e) for s, e in found] for name, found in pairs.items()}


def host_times(variants: Calls, rounds: int = 9, most: int = 20) -> dict[str, list[float]]:
    """Milliseconds per call, by the host's clock around synchronised batches: {name: [ms, ...]}."""
    found = on_gpu(variants, rounds, span=0.1, most=most)
    return {name: [1e3 * second for second in timing.seconds] for name, timing in found.items()}


def shown(row: Row, unit: str = "ms", digits: int = 3) -> str:
    texts = [
        f"{what} " + ", ".join(f"{label} {value:{form}}" for label, value in figures.items())
        for what, figures, form in (
            ("", row[unit], f".{digits}f"),
            ("compile s", row["compile s"], ".2f"),
            ("error", row["error"], ".1e"),
        )
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
    gated = lambda x, y: F.gelu(2 * x + 1) * torch.sigmoid(y)  # noqa: E731
    yield "gelu(2x+1)*sigmoid(y), 64M", gated, (x, y), 3 * size(x)
    del x, y
    normed = lambda x, w, b: F.layer_norm(x, w.shape, w, b)  # noqa: E731
    for dtype, label in ((FP32, "fp32"), (BF16, "bf16")):
        x, w, b = (
            randn(*shape, dtype=dtype) for shape in ((rows, columns), (columns,), (columns,))
        )
        yield f"softmax {label}", lambda x: torch.softmax(x, -1), (x,), 2 * size(x)
        yield f"layer norm {label}", normed, (x, w, b), 2 * size(x)
        yield f"RMSNorm {label}", rms_norm, (x, w), 2 * size(x)
        yield f"sum dim 0 {label}", lambda x: x.sum(0), (x,), size(x)
        yield f"cumsum {label}", lambda x: x.cumsum(-1), (x,), 2 * size(x)
        a, b = randn(8192, 8192, dtype=dtype), randn(8192, 8192, dtype=dtype)
        yield f"transpose + add {label}", lambda a, b: a.t() + b, (a, b), 3 * size(a)
    x, t = randn(8192, 32000, dtype=BF16), torch.randint(0, 32000, (8192,), device=DEVICE)
    yield "cross entropy bf16", lambda x, t: F.cross_entropy(x, t), (x, t), size(x)


def measure_kernel(
    name: str, function: Callable, inputs: Sequence[torch.Tensor], options: Options, **how: Any
) -> Row:
    exact = function(*[t.double() if t.is_floating_point() else t for t in inputs])
    return measure(name, function, lambda f: lambda: f(*inputs), exact, options, **how)


@suite("gpu-kernels")
def gpu_kernels(options: Options, result: Row) -> Iterator[Row]:
    """Memory-bound kernels beside a copy of the same run, a fused matmul, a small call: a GPU."""
    source = randn(1 << 26)
    target = torch.empty_like(source)
    copy = {"copy": lambda: target.copy_(source)}
    with torch.no_grad():
        for name, function, inputs, nbytes in kernel_rows():
            if not wanted(name, options):
                continue
            row = measure_kernel(name, function, inputs, options, others=copy, timer=event_times)
            moved_bytes = dict.fromkeys(row["ms"], nbytes) | {"copy": 2 * source.nbytes}
            row["bytes"] = nbytes
            row["GB/s"] = {k: moved_bytes[k] / ms / 1e6 for k, ms in row["ms"].items()}
            for other in ("copy", "torch.compile"):
                if "ours" in row["ms"] and other in row["ms"]:
                    row[f"ours / {other}"] = row["GB/s"]["ours"] / row["GB/s"][other]
            ratios = {k: round(v, 3) for k, v in row.items() if k.startswith("ours / ")}
            print(f"{shown(row, 'GB/s', 0)}\n{'':42} {ratios}", flush=True)
            yield row
        if options.only in "matmul":
            inputs = tuple(randn(4096, 4096, dtype=BF16) for _ in range(3))
            modes = (None, "max-autotune")  # the peer's search takes minutes
            name, function = "gelu(a@b+c) 4096^3 bf16", lambda a, b, c: F.gelu(a @ b + c)
            row = measure_kernel(name, function, inputs, options, modes=modes, timer=event_times)
            row["TFLOP/s"] = {k: 2 * 4096**3 / ms / 1e9 for k, ms in row["ms"].items()}
            print(shown(row, "TFLOP/s", 0), flush=True)
            yield row
        if options.only in "small call":
            name, function = "four pointwise ops on 16 elements", WORKLOADS["tiny (per call)"]()[0]
            timer = lambda variants: host_times(variants, 15, 200)  # noqa: E731
            row = measure_kernel(name, function, [randn(16)], options, timer=timer)
            row["us"] = {k: v * 1e3 for k, v in row["ms"].items()}
            print(shown(row, "us", 2), flush=True)
            yield row


# --- models ---------------------------------------------------------------------------------------
BUILDERS = MODELS | {
    "llama": builder("LlamaForCausalLM", "LlamaConfig", num_hidden_layers=16, **LLAMA),
    "vit": vision("ViT"),
    "convnext": vision("ConvNext"),
}
SHORT, TEXT, IMAGES = dict(batch=1, sequence=64), dict(batch=8, sequence=512), dict(batch=32)
SIZES: dict[str, tuple[str, dict[str, int]]] = {
    "GPT-2 b1 s64": ("gpt2", SHORT),
    "GPT-2 b8 s512": ("gpt2", TEXT),
    "BERT b8 s512": ("bert", TEXT),
    "ResNet-50 b32": ("resnet", IMAGES),
    "Llama 16 layers b4 s512": ("llama", dict(batch=4, sequence=512)),
    "ViT-B/16 b32": ("vit", IMAGES),
    "ConvNeXt-T b32": ("convnext", IMAGES),
}
WITH_GRAPHS = ("GPT-2 b1 s64", "ResNet-50 b32")


# a row's name, one of `SIZES`, dtype, mode, and: training (forward and backward)?
ModelRow = tuple[str, str, torch.dtype, str | None, bool]


def model_rows() -> Iterator[ModelRow]:
    for training in (False, True):
        for dtype, label in ((BF16, "bf16"), (FP32, "fp32")):
            for size in SIZES:
                name = f"{size} {label}{' training' * training}"
                yield name, size, dtype, None, training
                if size in WITH_GRAPHS:
                    yield f"{name}, CUDA graphs", size, dtype, "reduce-overhead", training


@suite("gpu-models")
def gpu_models(options: Options, result: Row) -> Iterator[Row]:
    """Whole models on a GPU: eager, ours, torch.compile in the same mode; error, first call."""
    for about in model_rows():
        if wanted(about[0], options):
            row = measure_model(about, options)
            print(shown(row), flush=True)
            yield row
    for label in COMPILERS:
        times = [row["ms"] for row in result["rows"] if label in row["ms"]]
        if times:
            mean = statistics.geometric_mean(ms["eager"] / ms[label] for ms in times)
            print(f"{label}: {len(times)} rows, geometric mean of eager / {label}: {mean:.3f}")


def measure_model(about: ModelRow, options: Options) -> Row:
    name, size, dtype, mode, training = about

    def call(function):
        return lambda: trained(model, function(**inputs)) if training else function(**inputs)

    builder, build = SIZES[size]
    with torch.set_grad_enabled(training):
        with torch.device(DEVICE):
            model, inputs = BUILDERS[builder](**build)
        model = model.to(DEVICE, dtype).double()  # the numbers that dtype holds
        rounded = moved(inputs, DEVICE, dtype)
        inputs = moved(rounded, DEVICE, torch.float64)
        exact = [t.detach() for t in tensors_of(call(model)())]
        model.zero_grad()
        model, inputs = model.to(dtype), rounded
        torch.cuda.empty_cache()
        with fresh_caches(), contextlib.suppress(Exception):  # what fails is reported below
            # not counted: libraries' kernels are loaded when they first run, which the first
            # compiler would pay
            call(minidynamo.compile(model, mode=mode))()
        return measure(name, model, call, exact, options, modes=(mode,), timer=host_times)


def trained(model: torch.nn.Module, output: Any) -> list[torch.Tensor]:
    """Gradients of a loss that no layer norm keeps constant: they would be rounding errors."""
    model.zero_grad()
    first = tensors_of(output)[0]
    wide = first.float() if first.dtype == BF16 else first
    (wide.square() * torch.linspace(0, 1, wide.shape[-1], device=wide.device)).mean().backward()
    return [p.grad for p in model.parameters() if p.grad is not None][:20]
