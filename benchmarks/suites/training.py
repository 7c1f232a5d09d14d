"""--suite training: one step on the public list; --suite training-curves: real sizes.

training          loss, every gradient and every buffer of one step (train mode, dropout on) against
                  eager, ours and torch.compile side by side.  The reference is the same step in
                  float64; a tensor is right if its error is at most 1e-4 of the reference, or
                  twice eager's own error.
training-curves   GPT-2, BERT, ResNet-50: 20 steps of AdamW, eager's loss curve and ours; bytes
                  saved for backward.

Dropout: torch.compile runs with fallback_random, so that all of them draw eager's numbers.
"""

import contextlib
import copy
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

import minidynamo
from minidynamo import records

from ..models import bert, gpt2, resnet
from ..public_models import NAMES, build, loss_of
from ..runner import peer_compile
from .common import Options, Row, model_rows, suite, wanted

TOLERANCE = 1e-4
Tensors = dict[str, torch.Tensor | None]  # without a gradient: None
Built = tuple[torch.nn.Module, dict[str, Any]]  # a model and its inputs


def step(
    model: torch.nn.Module,
    run: Callable,
    inputs: dict[str, Any],
    targets: dict[str, Any],
    seed: int = 0,
) -> Tensors:
    """{name: tensor}: the loss, every gradient and every buffer after one step."""
    model.zero_grad()
    torch.manual_seed(seed)
    numpy.random.seed(seed)  # transformers masks speech with it
    loss = loss_of(run(**inputs, **targets))
    loss.backward()
    return {
        "loss": loss.detach(),
        **{f"grad {n}": p.grad for n, p in model.named_parameters()},
        **{f"buffer {n}": b.detach().clone() for n, b in model.named_buffers()},
    }


def wide(values: dict[str, Any]) -> dict[str, Any]:
    return {
        k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        for k, v in values.items()
    }


def errors(found: Tensors, reference: Tensors) -> dict[str, float]:
    """{name: relative error}; infinite where a tensor is missing, or has another shape or dtype."""
    norms = {
        k: v.double().norm().item() / max(v.numel(), 1) ** 0.5
        for k, v in reference.items()
        if v is not None
    }
    scale = {
        kind: max((n for k, n in norms.items() if k.startswith(kind)), default=0.0)
        for kind in ("grad", "buffer")
    }  # some are zero but for rounding
    result = {}
    for name, want in reference.items():
        have = found[name]
        if want is None or have is None:
            result[name] = 0.0 if want is have else float("inf")
            continue
        difference = (have.double() - want.double()).norm().item() / max(want.numel(), 1) ** 0.5
        floor = 1e-2 * scale.get(name.split()[0], 0.0)
        result[name] = difference / max(norms[name], floor, 1e-12)
        if have.shape != want.shape or result[name] != result[name]:
            result[name] = float("inf")
    return result


def judge(found: Tensors, reference: Tensors, eager: Tensors) -> tuple[bool, float, str]:
    """(right?, worst error, its name)."""
    ours, eagers = errors(found, reference), errors(eager, reference)
    wrong = {k: e for k, e in ours.items() if not (e <= TOLERANCE or e <= 2 * eagers[k])}
    name = max(wrong or ours, key=lambda k: ours[k])
    return not wrong, ours[name], name


def measure(name: str, options: Options) -> list[Row]:
    """The row of one model of the public list."""
    model, inputs, targets = build(name)
    model.train()
    row: Row = {"name": name}
    double = copy.deepcopy(model).double()
    eager_model = copy.deepcopy(model)
    try:
        eager = step(eager_model, eager_model, inputs, targets)
    except Exception as error:
        return [row | {"skipped": f"eager: {type(error).__name__}: {str(error)[:100]}"}]
    try:
        reference = step(double, double, wide(inputs), wide(targets))
    except RuntimeError:  # a model that insists on float32 somewhere: eager itself is the reference
        reference, row["reference"] = eager, "eager"
    if (
        max(errors(eager, reference).values()) > 5e-2
    ):  # float64 took another path: other random numbers, other choices
        reference, row["reference"] = eager, "eager"
    compilers = {"ours": minidynamo.compile} | (
        {} if options.no_peer else {"torch.compile": peer_compile}
    )
    for label, compiler in compilers.items():
        minidynamo.reset()
        own = copy.deepcopy(model)
        start = time.perf_counter()
        try:
            found = step(own, compiler(own), inputs, targets)
        except Exception as error:
            row[label] = {
                "right": False,
                "error": f"{type(error).__name__}: "
                f"{str(error).splitlines()[0][:120] if str(error) else ''}",
            }
            continue
        right, worst, where = judge(found, reference, eager)
        row[label] = {
            "right": right,
            "worst": worst,
            "where": where,
            "seconds": time.perf_counter() - start,
        }
        if label == "ours":
            made = [r.backend_record for r in records.frames if r.backend_record is not None]
            row["graphs"] = len(made)
            row["breaks"] = sum(minidynamo.counters["graph_breaks"].values())
            row["eager graphs"] = [note for r in made for note in r.notes_of("runs eagerly")]
            row["failures"] = list(minidynamo.counters["errors"])
            row["fallbacks"] = sorted(
                {
                    f.op
                    for r in made
                    for half in (r, r.backward)
                    if half
                    for f in half.fallbacks
                    if f.kind == "fallback"
                }
            )
    return [row]


def show(row: Row) -> str:
    return (
        f"{row['name']:38} {show_cell(row.get('ours')):50} {show_cell(row.get('torch.compile')):50}"
        f" {row.get('graphs', 0):6} {row.get('breaks', 0):6}  "
        f"{'; '.join(row.get('eager graphs', []) + row.get('failures', []))[:120]} "
        f"{' '.join(row.get('fallbacks', []))}"
    )


def show_cell(cell: Row | None) -> str:
    if cell is None:
        return "-"
    return (
        f"FAILED {cell['error'][:50]}"
        if "error" in cell
        else f"{'right' if cell['right'] else 'WRONG ' + cell['where'][-30:]} {cell['worst']:.1e}"
    )


@suite("training")
def training(options: Options, result: Row) -> Iterator[Row]:
    """One training step of every model of the public list."""
    warnings.simplefilter("ignore")
    if not options.no_peer:
        import torch._inductor.config as peer_config

        peer_config.fallback_random = True
    print(f"{'model':38} {'ours':50} {'torch.compile':50} graphs breaks  run eagerly / fallbacks")
    yield from model_rows("training", NAMES, measure, show, options)
    ran = [r for r in result["rows"] if "skipped" not in r]
    for label in ("ours",) if options.no_peer else ("ours", "torch.compile"):
        print(
            f"{label}: {sum(r.get(label, {}).get('right', False) for r in ran)} of {len(ran)} right"
        )


# --- real sizes -----------------------------------------------------------------------------------
def with_labels(make: Callable[..., Built], **options: Any) -> Callable[[], Built]:
    """`make`, with labels among the inputs where the model computes a loss of them (BERT's base
    class does not)."""

    def built():
        model, inputs = make(**options)
        if (
            getattr(model, "loss_type", "") is None
        ):  # transformers does not know GPT-2's and warns: a graph break in any compiler
            model.loss_type = "ForCausalLM"
        if make is resnet:
            inputs["labels"] = torch.randint(
                0, model.config.num_labels, (inputs["pixel_values"].shape[0],)
            )
        elif make is gpt2:
            inputs["labels"] = inputs["input_ids"]
        return model, inputs

    return built


SIZES = {
    "gpt2": with_labels(gpt2),
    "bert": with_labels(bert),
    "resnet50": with_labels(resnet, batch=4),
}


@contextlib.contextmanager
def counting_saved(model: torch.nn.Module, inputs: dict[str, Any]) -> Iterator[dict[int, int]]:
    """Gives {storage: bytes} of what autograd keeps meanwhile; parameters, buffers and inputs are
    not counted."""
    own = {
        t.untyped_storage()._cdata
        for t in [*model.parameters(), *model.buffers(), *inputs.values()]
    }
    saved, alive = {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage.nbytes()
            alive.append(tensor)  # addresses are not used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved


def curve(
    model: torch.nn.Module, run: Callable, inputs: dict[str, Any], steps: int = 20
) -> tuple[list[float], int]:
    """(losses, bytes saved for backward in one step): AdamW, the same data in each step."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    losses, saved_bytes = [], 0
    for number in range(steps):
        torch.manual_seed(number)
        optimizer.zero_grad()
        # the second step: compiled already
        counting: contextlib.AbstractContextManager[dict[int, int]] = contextlib.nullcontext({})
        if number == 1:
            counting = counting_saved(model, inputs)
        with counting as saved:
            loss = loss_of(run(**inputs))
        saved_bytes += sum(saved.values())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, saved_bytes


@suite("training-curves")
def curves(options: Options, result: Row) -> Iterator[Row]:
    """20 steps of AdamW: the loss curve and what is saved for backward."""
    for name, make in SIZES.items():
        if not wanted(name, options) or name == "mlp":
            continue
        model, inputs = make()
        model.train()
        reference, disturbed = copy.deepcopy(model), copy.deepcopy(model)
        with torch.no_grad():
            for p in disturbed.parameters():
                p.mul_(1 + 1e-7 * torch.randn_like(p))
        minidynamo.reset()
        eager, eager_bytes = curve(reference, reference, inputs)
        ours, our_bytes = curve(model, minidynamo.compile(model), inputs)
        worst, rounding = (
            max(abs(a - b) for a, b in zip(found, eager)) / abs(eager[0])
            for found in (ours, curve(disturbed, disturbed, inputs)[0])
        )
        print(
            f"{name:10} loss {eager[0]:.4f} -> {eager[-1]:.4f} (eager), {ours[0]:.4f} -> "
            f"{ours[-1]:.4f} (ours), largest difference {worst:.1e} "
            f"of the first loss (eager with its weights disturbed by 1e-7: {rounding:.1e}); saved "
            f"for backward {eager_bytes / 2**20:.1f} MiB (eager), {our_bytes / 2**20:.1f} MiB "
            "(ours), "
            f"ratio {our_bytes / eager_bytes:.2f}",
            flush=True,
        )
        yield {
            "name": name,
            "eager": eager,
            "ours": ours,
            "eager bytes": eager_bytes,
            "our bytes": our_bytes,
            "largest difference": worst,
            "eager, weights disturbed by 1e-7": rounding,
        }
