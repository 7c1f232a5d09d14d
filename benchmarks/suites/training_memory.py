"""--suite training-memory: peak memory and time of one training step (forward, loss, backward) of
real sizes.

rows       GPT-2 and BERT with 12 layers, ResNet-50, in float32 and under bfloat16 autocast; eager,
           ours and torch.compile.
on a GPU   peak bytes that torch's allocator had handed out during a step (weights, gradients and
           activations, one copy of the model on the device at a time, less what was allocated
           before that copy came), milliseconds per step by CUDA events, largest difference of any
           gradient from eager's (same seed; dropout draws the same numbers), relative to that
           gradient's largest element, with the name of the parameter.  ResNet-50 draws none and is
           compared with its float64 copy instead, eager too; convolutions are not rounded to TF32
           in that step.
on a CPU   bytes saved for backward (saved-tensor hooks; parameters, buffers and inputs are not
           counted); no times.

    python -m benchmarks --suite training-memory --only gpt2 --json memory.json

Ours runs in four ways: as it is, with the partitions "save-everything" and "recompute-all", and
with `fallback_random=False` (dropout masks are computed again instead of being kept).  That last
one and torch.compile draw numbers of their own, so their gradients are compared for ResNet-50 only.
"""

import copy
import gc
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch

import minidynamo
import miniinductor.config

from ..models import bert, gpt2, resnet
from ..public_models import loss_of
from ..runner import peer_compile
from .common import Options, Row, suite, wanted
from .training import counting_saved, with_labels

SIZES = {
    "gpt2": with_labels(gpt2, batch=4, sequence=512),
    "bert": with_labels(bert, batch=8, sequence=512),
    "resnet50": with_labels(resnet, batch=32),
}
SMALL = {
    "gpt2": with_labels(gpt2),
    "bert": with_labels(bert),
    "resnet50": with_labels(resnet, batch=2),
}
OURS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, save-everything": {"partition": "save-everything"},
    "ours, recompute-all": {"partition": "recompute-all"},
    "ours, own random numbers": {"fallback_random": False},
}
ROUNDS = 10


def step(model: torch.nn.Module, run: Callable, inputs: dict[str, Any], mixed: bool) -> None:
    """Gradients are made anew, as after `zero_grad(set_to_none=True)`."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    with torch.autocast(next(iter(inputs.values())).device.type, torch.bfloat16, enabled=mixed):
        loss = loss_of(run(**inputs))
    loss.backward()


def saved_bytes(model: torch.nn.Module, run: Callable, inputs: dict[str, Any], mixed: bool) -> int:
    with counting_saved(model, inputs) as saved:
        step(model, run, inputs, mixed)
    return sum(saved.values())


def gradients(
    model: torch.nn.Module, run: Callable, inputs: dict[str, Any], mixed: bool
) -> dict[str, torch.Tensor]:
    """{name: gradient} of a step, on the CPU."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        step(model, run, inputs, mixed)
    return {
        name: p.grad.cpu().double() for name, p in model.named_parameters() if p.grad is not None
    }


def on_gpu(
    model: torch.nn.Module, run: Callable, inputs: dict[str, Any], mixed: bool, before: int
) -> Row:
    """{peak, milliseconds, quartiles}: after the steps that compile.  before: bytes allocated
    before the model came."""
    for _ in range(3):
        step(model, run, inputs, mixed)
    model.zero_grad(set_to_none=True)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step(model, run, inputs, mixed)
    peak, times = torch.cuda.max_memory_allocated() - before, []
    for _ in range(ROUNDS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step(model, run, inputs, mixed)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    low, middle, high = statistics.quantiles(times, n=4)
    return {"peak": peak, "milliseconds": middle, "quartiles": [low, high]}


def differences(
    found: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]
) -> tuple[float, str]:
    """(largest difference, parameter) of two {name: gradient}, relative to the largest element of
    that parameter's reference, or to a hundred-thousandth of the largest of all where that is more:
    attention's key bias has no gradient but rounding errors."""
    least = 1e-5 * max(wanted.abs().max() for wanted in reference.values())
    return max(
        (((found[name] - wanted).abs().max() / wanted.abs().max().clamp(min=least)).item(), name)
        for name, wanted in reference.items()
    )


@suite("training-memory")
def training_memory(options: Options, result: Row) -> Iterator[Row]:
    """Peak memory of a training step on a GPU; bytes saved for backward on a CPU."""
    gpu = torch.cuda.is_available()
    compilers = (
        {"eager": lambda m: m}
        | dict.fromkeys(OURS, minidynamo.compile)
        | ({} if options.no_peer else {"torch.compile": peer_compile})
    )
    for name, make in (SIZES if gpu else SMALL).items():
        for mixed in (False, True):
            label = f"{name} {'bfloat16 autocast' if mixed else 'float32'}"
            if not wanted(label, options):
                continue
            print(label, flush=True)
            original, inputs = make()
            original.train()
            row: Row = {"name": label, "inputs": {k: list(v.shape) for k, v in inputs.items()}}
            reference = None
            if gpu:
                inputs = {k: v.cuda() for k, v in inputs.items()}
                if name == "resnet50":
                    exact = copy.deepcopy(original).cuda().double()
                    reference = gradients(
                        exact,
                        exact,
                        {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()},
                        False,
                    )
                    del exact
            for variant, compiler in compilers.items():
                minidynamo.reset()
                model = copy.deepcopy(original)
                gc.collect()  # what the variant before it left
                before = torch.cuda.memory_allocated() if gpu else 0
                if gpu:
                    model.cuda()
                run = compiler(model)
                try:
                    with miniinductor.config.patch(**OURS.get(variant, {})):
                        row[variant] = (
                            on_gpu(model, run, inputs, mixed, before)
                            if gpu
                            else {"saved": saved_bytes(model, run, inputs, mixed)}
                        )
                        if gpu and (
                            name == "resnet50"
                            or variant == "eager"
                            or variant in OURS
                            and "fallback_random" not in OURS[variant]
                        ):
                            found = gradients(model, run, inputs, mixed)
                            reference = reference or found
                            row[variant]["gradients"] = differences(found, reference)
                except Exception as error:  # one variant that fails leaves the others
                    row[variant] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
                del model, run
                gc.collect()
                if gpu:
                    torch.cuda.empty_cache()
                print(f"    {variant}: {_show(row[variant])}", flush=True)
            yield row


def _show(cell: Row) -> str:
    if "error" in cell:
        return cell["error"]
    if "saved" in cell:
        text = f"{cell['saved'] / 2**20:.1f} MiB saved"
    else:
        low, high = cell["quartiles"]
        text = f"peak {cell['peak'] / 2**20:.0f} MiB, {cell['milliseconds']:.2f} ms "
        text += f"[{low:.2f}-{high:.2f}]"
    return text + (
        f", gradients off by at most {cell['gradients'][0]:.1e} ({cell['gradients'][1]})"
        if "gradients" in cell
        else ""
    )
