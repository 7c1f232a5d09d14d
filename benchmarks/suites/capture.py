"""--suite capture (and capture-more): the public models, captured by ours and by TorchDynamo: whole
graphs, breaks, equal outputs, capture time."""

import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch

import minidynamo

from .. import more_models
from ..models import bert, gpt2
from ..public_models import NAMES, build, load_torchvision, loss_of
from ..runner import largest_difference, tensors_of
from .common import COUNTED, Options, Row, counted, model_rows, suite


def run(model: Callable, inputs: dict[str, Any], train: bool) -> Any:
    torch.manual_seed(1)
    numpy.random.seed(1)  # masks of BigBird and Wav2Vec2 in train mode
    with torch.set_grad_enabled(train):
        return model(**inputs)


def difference(expected: Any, output: Any) -> float:
    """Largest difference relative to the largest value; 0 where both hold the same NaNs."""
    scale = max(
        (
            t.abs().double().nan_to_num(0, 0, 0).max().item()
            for t in tensors_of(expected)
            if t.numel()
        ),
        default=1,
    )
    found = largest_difference(expected, output)
    return found / max(scale, 1e-30)


def measure(name: str, options: Options) -> list[Row]:
    """Two rows of a model: in inference, and as a forward with labels in train mode."""
    return [measure_mode(name, mode, options) for mode in ("infer", "train")]


def measure_mode(name: str, mode: str, options: Options) -> Row:
    row: Row = {"name": name, "mode": mode}
    outputs: dict[str, Any] = {}
    model, inputs, targets = build(name)
    model.train(mode == "train")
    inputs = dict(inputs, **targets) if mode == "train" else inputs
    state = {k: v.clone() for k, v in model.state_dict().items()}
    for label in ("eager", "ours", "inductor", "peer")[: 3 if options.no_peer else 4]:
        model.load_state_dict(state)
        backend = "inductor" if label == "inductor" else "eager"
        compiled = lambda compile: run(compile(model, backend=backend), inputs, mode == "train")  # noqa: E731
        try:
            if label in COUNTED:
                outputs[label], row[label] = COUNTED[label](compiled)
                row[label]["whole"] = row[label]["graphs"] == 1 and not row[label]["breaks"]
            else:
                outputs[label] = (
                    run(model, inputs, mode == "train")
                    if label == "eager"
                    else counted(compiled)[0]
                )
        except Exception as error:  # one that fails leaves the others
            row[label] = {"error": f"{type(error).__name__}: {error}", "whole": False}
    for label in ("ours", "inductor", "peer"):
        if label in outputs and "eager" in outputs:
            expected, got = (
                (outputs["eager"], outputs[label])
                if mode == "infer"
                else (loss_of(outputs["eager"]).detach(), loss_of(outputs[label]).detach())
            )
            row[f"{label} difference"] = difference(expected, got)
    if mode == "infer" and "eager" in outputs:
        try:
            row["cold difference"] = cold_difference(name, outputs["eager"])
        except Exception as error:
            row["cold error"] = f"{type(error).__name__}: {error}"
    return row


def cold_difference(name: str, expected: Any) -> float:
    """The largest of two calls of a model that was compiled before its first eager call."""
    model, inputs, _ = build(name)
    compiled = minidynamo.compile(model, backend="eager")
    return max(difference(expected, run(compiled, inputs, False)) for _ in range(2))


@suite("capture-more")
def capture_more(options: Options, result: Row) -> Iterator[Row]:
    """The same for architectures that are not on the public list."""
    return capture(options, result, "capture-more", more_models.NAMES)


@suite("capture")
def capture(
    options: Options, result: Row, name: str = "capture", names: Iterable[str] = NAMES
) -> Iterator[Row]:
    """Each public model in inference and as a forward with labels in train mode."""
    warnings.filterwarnings("ignore")
    print(
        f"{'model':42}{'mode':6}{'ours':>16}{'torch.compile':>16}{'outputs':>10}{'inductor':>10}"
        f"{'capture s':>16}"
    )
    yield from model_rows(name, names, measure, format_capture, options)
    print(summary(result["rows"]))
    if not options.only and names is NAMES:
        result["capture times"] = capture_times()


def format_capture(row: Row) -> str:
    def graphs(label):
        found = row.get(label)
        if found is None or "error" in found:
            return "-" if found is None else "error"
        return "whole" if found["whole"] else f"{found['graphs']} of {found['ops']} ops"

    numbers = [
        f"{row[k]:10.1e}" if k in row else f"{'-':>10}"
        for k in ("ours difference", "inductor difference")
    ]
    seconds = " / ".join(
        f"{row[k]['seconds']:.2f}" for k in ("ours", "peer") if "seconds" in row.get(k, {})
    )
    text = f"{row['name']:42}{row['mode']:6}{graphs('ours'):>16}{graphs('peer'):>16}"
    text += f"{''.join(numbers)}{seconds:>16}"
    for label in ("ours", "peer"):
        found = row.get(label, {})
        text += "".join(
            f"\n        {label}: {line.splitlines()[0][:150]}"
            for line in ([found["error"]] if "error" in found else found.get("breaks", [])[:2])
        )
    return text


def summary(rows: list[Row]) -> str:
    lines = []
    for mode in ("infer", "train"):
        of_mode = [r for r in rows if r.get("mode", mode) == mode and "skipped" not in r]
        whole = Counter(
            {
                label: sum(r.get(label, {}).get("whole", False) for r in of_mode)
                for label in ("ours", "peer")
            }
        )
        wrong = [r["name"] for r in of_mode if not r.get("ours difference", 1) <= 1e-4]
        wrong_code = [r["name"] for r in of_mode if not r.get("inductor difference", 1) <= 1e-4]
        lines.append(
            f"{mode}: whole graphs ours {whole['ours']}, torch.compile {whole['peer']}, of "
            f"{len(of_mode)}; outputs of ours that differ: "
            f"{wrong or 'none'}; with backend inductor: {wrong_code or 'none'}"
        )
        if mode == "infer":
            cold = [r["name"] for r in of_mode if not r.get("cold difference", 1) <= 1e-4]
            lines.append(f"compiled cold, two calls: outputs that differ: {cold or 'none'}")
    return "\n".join(lines)


def capture_times(rounds: int = 5) -> dict[str, dict[str, float]]:
    """Median seconds of a first call with backend "eager", GPT-2 and BERT with 12 layers, ours and
    TorchDynamo."""
    load_torchvision()
    result = {}
    for name, make in (("GPT-2", gpt2), ("BERT", bert)):
        model, inputs = make()
        times: dict[str, list[float]] = {"ours": [], "peer": []}
        for _ in range(rounds):
            for label, count in COUNTED.items():
                times[label].append(
                    count(lambda compile: run(compile(model, backend="eager"), inputs, False))[1][
                        "seconds"
                    ]
                )
        result[name] = {label: statistics.median(values) for label, values in times.items()}
        print(
            f"{name}: first call with backend eager: ours {result[name]['ours']:.2f} s, "
            f"torch.compile {result[name]['peer']:.2f} s"
        )
    return result
