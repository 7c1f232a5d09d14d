"""--suite gpu-kernels: memory-bound kernels against the copy bandwidth of the same run.  --suite gpu-models: whole models.

    rows of gpu-kernels: GB/s = bytes that must move (each input read once, each output written once) / time

Times are medians of CUDA events (kernels) or of host clocks around synchronised batches (models), all variants of a row
interleaved.  A result is compared with float64 before it is timed: its error may be twice eager's.
"""
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

import minidynamo

from ..models import MODELS
from ..runner import FreshCaches, largest_difference, tensors_of
from .common import machine, suite

BF16, FP32 = torch.bfloat16, torch.float32


def randn(*shape, dtype=FP32):
    return torch.randn(shape, device="cuda", dtype=dtype)


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def kernel_rows():
    """name, function, inputs, bytes that must move."""
    n, rows, columns = 1 << 26, 16384, 4096

    def size(*tensors):
        return sum(t.numel() * t.element_size() for t in tensors)
    x, y = randn(n), randn(n)
    yield "gelu(2x+1)*sigmoid(y), 64M", lambda x, y: F.gelu(2 * x + 1) * torch.sigmoid(y), (x, y), 3 * size(x)
    del x, y
    for dtype, label in ((FP32, "fp32"), (BF16, "bf16")):
        x, w, b = randn(rows, columns, dtype=dtype), randn(columns, dtype=dtype), randn(columns, dtype=dtype)
        yield f"softmax {label}", lambda x: torch.softmax(x, -1), (x,), 2 * size(x)
        yield f"layer norm {label}", lambda x, w, b: F.layer_norm(x, (columns,), w, b), (x, w, b), 2 * size(x)
        yield f"RMSNorm {label}", rms_norm, (x, w), 2 * size(x)
        yield f"sum dim 0 {label}", lambda x: x.sum(0), (x,), size(x)
        a, b = randn(8192, 8192, dtype=dtype), randn(8192, 8192, dtype=dtype)
        yield f"transpose + add {label}", lambda a, b: a.t() + b, (a, b), 3 * size(a)
    x, t = randn(8192, 32000, dtype=BF16), torch.randint(0, 32000, (8192,), device="cuda")
    yield "cross entropy bf16", lambda x, t: F.cross_entropy(x, t), (x, t), size(x)


def gpu_machine():
    import triton
    about = machine() | {"triton": triton.__version__, "cuda": torch.version.cuda}
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        about["driver"] = subprocess.run(query, capture_output=True, text=True).stdout.split("\n")[0]
    except OSError:
        pass
    return about


def event_times(variants, rounds=25):
    """Milliseconds per call of each variant, by CUDA events, interleaved: {name: [ms, ...]}."""
    pairs = {name: [] for name in variants}
    for function in variants.values():
        for _ in range(3):
            function()
    for _ in range(rounds):
        for name, function in variants.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(400_000)      # the host gets ahead, so that launch gaps are not counted
            start.record()
            function()
            end.record()
            pairs[name].append((start, end))
    torch.cuda.synchronize()
    return {name: [s.elapsed_time(e) for s, e in found] for name, found in pairs.items()}


def relative_error(result, exact):
    return ((result.double() - exact).norm() / exact.norm()).item()


@suite("gpu-kernels")
def gpu_kernels(options):
    """The memory-bound rows, a fused matmul, and the overhead of a small call."""
    about, result = gpu_machine(), []
    print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    print(f"{'':28} {'copy':>6} {'eager':>6} {'ours':>6} {'peer':>6} GB/s   ours/copy ours/peer   error: eager, ours, peer", flush=True)
    source = randn(1 << 26)
    target = torch.empty_like(source)
    for name, function, inputs, nbytes in kernel_rows():
        if options.only not in name:
            continue
        with torch.no_grad():
            row = measure_kernel(name, function, inputs, nbytes, lambda: target.copy_(source), 2 * source.nbytes, options)
        result.append(row)
        rates = " ".join(f"{row['GB/s'].get(k, float('nan')):6.0f}" for k in ("copy", "eager", "ours", "torch.compile"))
        print(f"{name:28} {rates}        {row.get('ours / copy', float('nan')):8.3f} {row.get('ours / torch.compile', float('nan')):9.3f}"
              f"   {' '.join(f'{v:.1e}' for v in row['error'].values())}  {row.get('note', '')}", flush=True)
    if options.only in "matmul":
        result.append(measure_matmul(options))
    if options.only in "small call":
        result.append(measure_small_call(options))
    return {"machine": about, "command": f"python -m minidynamo.bench --suite {options.suite}", "rows": result}


def compilers(options, mode=None):
    return {"ours": lambda f: minidynamo.compile(f, mode=mode)} | (
        {} if options.no_peer else {"torch.compile": lambda f: torch.compile(f, mode=mode)})


def measure_kernel(name, function, inputs, nbytes, copy, copy_bytes, options):
    minidynamo.reset()
    torch.compiler.reset()
    wide = [t.double() if t.is_floating_point() else t for t in inputs]
    exact = function(*wide)
    del wide
    variants, row = {"copy": copy, "eager": lambda: function(*inputs)}, {"name": name, "bytes": nbytes}
    row["error"] = {"eager": relative_error(function(*inputs), exact)}
    for label, compiler in compilers(options).items():
        try:
            compiled = compiler(function)
            start = time.perf_counter()
            out = compiled(*inputs)
            torch.cuda.synchronize()
            row[f"{label} compile s"] = time.perf_counter() - start
            row["error"][label] = relative_error(out, exact)
            if row["error"][label] <= 2 * row["error"]["eager"] + 1e-6:
                variants[label] = lambda compiled=compiled: compiled(*inputs)
            else:
                row["note"] = f"{label} is wrong"
        except Exception as error:
            row["note"] = f"{label}: {type(error).__name__} {str(error)[:300]}"
    del exact
    times = event_times(variants)
    row["ms"] = {k: statistics.median(v) for k, v in times.items()}
    row["ms quartiles"] = {k: statistics.quantiles(v, n=4)[::2] for k, v in times.items()}
    row["GB/s"] = {k: (copy_bytes if k == "copy" else nbytes) / ms / 1e6 for k, ms in row["ms"].items()}
    if "ours" in times:
        row["ours / copy"] = row["GB/s"]["ours"] / row["GB/s"]["copy"]
        if "torch.compile" in times:
            row["ours / torch.compile"] = row["ms"]["torch.compile"] / row["ms"]["ours"]
    return row


def measure_matmul(options):
    a, b, c = (randn(4096, 4096, dtype=BF16) for _ in range(3))

    def function(a, b, c):
        return F.gelu(a @ b + c)
    variants, row = {"eager": lambda: function(a, b, c)}, {"name": "gelu(a@b+c) 4096^3 bf16"}
    for mode in (None, "max-autotune"):
        for label, compiler in compilers(options, mode).items():
            minidynamo.reset()
            if mode and label != "ours":
                continue            # the peer's search takes minutes
            try:
                compiled = compiler(function)
                torch.testing.assert_close(compiled(a, b, c), function(a, b, c), rtol=0.05, atol=0.5)
                variants[label + (f" {mode}" if mode else "")] = lambda compiled=compiled: compiled(a, b, c)
            except Exception as error:
                row["note"] = f"{label}: {type(error).__name__} {str(error)[:300]}"
    times = event_times(variants)
    row["ms"] = {k: statistics.median(v) for k, v in times.items()}
    row["TFLOP/s"] = {k: 2 * 4096**3 / ms / 1e9 for k, ms in row["ms"].items()}
    print(row["name"], {k: round(v) for k, v in row["TFLOP/s"].items()}, "TFLOP/s", row.get("note", ""), flush=True)
    return row


def measure_small_call(options):
    """Microseconds of one call of four operations on 16 numbers: the host's time."""
    x, row = randn(16), {"name": "four pointwise ops on 16 elements"}

    def function(x):
        return torch.relu(x * 2 + 1) - 3
    variants = {"eager": function}
    with torch.no_grad():
        for mode in (None, "reduce-overhead"):
            for label, compiler in compilers(options, mode).items():
                if mode is None or label != "ours":
                    variants[label + (f" {mode}" if mode else "")] = compiler(function)
        row["us"] = {k: v * 1e3 for k, v in host_times({k: (lambda f=f: f(x)) for k, f in variants.items()}, 200, 15).items()}
    print(row["name"], {k: round(v, 2) for k, v in row["us"].items()}, "us", flush=True)
    return row


def host_times(variants, batch, rounds):
    """Milliseconds per call, by the host's clock around synchronised batches, interleaved: {name: median}."""
    seconds = {name: [] for name in variants}
    for function in variants.values():
        for _ in range(5):
            function()
    for _ in range(rounds):
        for name, function in variants.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(batch):
                function()
            torch.cuda.synchronize()
            seconds[name].append((time.perf_counter() - start) / batch)
    return {name: 1e3 * statistics.median(values) for name, values in seconds.items()}


def llama(batch, sequence):
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16,
                         num_key_value_heads=4, use_cache=False)
    return LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(0, config.vocab_size, (batch, sequence))}


def vision(architecture):
    def build(batch):
        import transformers
        torch.manual_seed(0)
        model = getattr(transformers, f"{architecture}ForImageClassification")(getattr(transformers, f"{architecture}Config")())
        return model.eval(), {"pixel_values": torch.randn(batch, 3, 224, 224)}
    return build


BUILDERS = MODELS | {"llama": llama, "vit": vision("ViT"), "convnext": vision("ConvNext"), "mobilenet": vision("MobileNetV2")}
MODEL_ROWS = [      # name, how to build it, dtype, mode ("training ...": forward and backward in that mode)
    ("GPT-2 b1 s64 bf16", "gpt2", dict(batch=1, sequence=64), BF16, None),
    ("GPT-2 b1 s64 bf16, CUDA graphs", "gpt2", dict(batch=1, sequence=64), BF16, "reduce-overhead"),
    ("GPT-2 b8 s512 bf16", "gpt2", dict(batch=8, sequence=512), BF16, None),
    ("BERT b8 s512 bf16", "bert", dict(batch=8, sequence=512), BF16, None),
    ("ResNet-50 b32 bf16, CUDA graphs", "resnet", dict(batch=32), BF16, "reduce-overhead"),
    ("ResNet-50 b32 fp32, CUDA graphs", "resnet", dict(batch=32), FP32, "reduce-overhead"),
    ("ResNet-50 b32 bf16", "resnet", dict(batch=32), BF16, None),
    ("Llama 16 layers b4 s512 bf16", "llama", dict(batch=4, sequence=512), BF16, None),
    ("ViT-B/16 b32 bf16", "vit", dict(batch=32), BF16, None),
    ("ConvNeXt-T b32 bf16", "convnext", dict(batch=32), BF16, None),
    ("MobileNetV2 b32 bf16, CUDA graphs", "mobilenet", dict(batch=32), BF16, "reduce-overhead"),
    ("GPT-2 b8 s512 bf16 training", "gpt2", dict(batch=8, sequence=512), BF16, "training"),
    ("BERT b8 s512 bf16 training", "bert", dict(batch=8, sequence=512), BF16, "training"),
    ("ResNet-50 b32 bf16 training", "resnet", dict(batch=32), BF16, "training"),
    ("GPT-2 b1 s64 bf16 training, CUDA graphs", "gpt2", dict(batch=1, sequence=64), BF16, "training reduce-overhead"),
    ("GPT-2 b8 s512 bf16 training, CUDA graphs", "gpt2", dict(batch=8, sequence=512), BF16, "training reduce-overhead"),
]


@suite("gpu-models")
def gpu_models(options):
    """Inference of whole models: eager, ours, torch.compile in the same mode; compile times with empty caches."""
    about, result = gpu_machine(), []
    print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    for name, model, build, dtype, mode in MODEL_ROWS:
        if options.only in name:
            row = measure_model(name, model, build, dtype, mode, options)
            result.append(row)
            print(f"{name:34}", {k: round(v, 3) for k, v in row["ms"].items()}, "ms; compile", row["compile s"], "difference",
                  {k: f"{v:.1e}" for k, v in row["difference"].items()}, row.get("note", ""), flush=True)
    return {"machine": about, "command": f"python -m minidynamo.bench --suite {options.suite}", "rows": result}


def measure_model(name, model, build, dtype, mode, options):
    minidynamo.reset()
    torch.compiler.reset()
    model, inputs = BUILDERS[model](**build)
    model = model.to("cuda", dtype)
    inputs = {k: v.to("cuda", dtype) if v.is_floating_point() else v.to("cuda") for k, v in inputs.items()}
    training, row = (mode or "").startswith("training"), {"name": name, "compile s": {}, "difference": {}}
    mode = mode.removeprefix("training").strip() or None if training else mode

    def step(function):
        if not training:
            return lambda: function(**inputs)

        def forward_and_backward():
            model.zero_grad()
            out = function(**inputs)
            wide = tensors_of(out)[0].float()           # no loss that a layer norm keeps constant: its gradients are rounding errors
            (wide.square() * torch.linspace(0, 1, wide.shape[-1], device=wide.device)).mean().backward()
            return [p.grad for p in model.parameters() if p.grad is not None][:20]
        return forward_and_backward
    with torch.set_grad_enabled(training):
        variants = {"eager": step(model)}
        want = variants["eager"]()
        scale = max(t.abs().max().item() for t in tensors_of(want))
        for label, compiler in compilers(options, mode).items():
            try:
                run = step(compiler(model))
                with FreshCaches():
                    start = time.perf_counter()
                    got = run()
                    torch.cuda.synchronize()
                    row["compile s"][label] = round(time.perf_counter() - start, 2)
                    for _ in range(3):
                        got = run()
                row["difference"][label] = largest_difference(want, got) / scale
                variants[label] = run
            except Exception as error:
                row["note"] = f"{label}: {type(error).__name__} {str(error)[:300]}"
        row["ms"] = host_times(variants, 10, 9)
    return row
