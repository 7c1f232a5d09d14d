"""--suite dynamic: the public models with `dynamic=True` over three (batch, sequence) pairs, and
what a growing sequence costs.

For each model: compilations (graphs) and breaks after three sizes, outputs against eager at each,
ours with backend inductor and torch.compile beside it.  Images: batch and side change where the
architecture allows it, else the batch alone.  Then GPT-2 generating from a prompt of 16 to 128
tokens, and what a sweep of sizes costs with dynamic=False, None and True.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import minidynamo

from minidynamo.explain import compilations
from ..public_models import NAMES, build, load_torchvision
from ..runner import tensors_of
from .capture import difference
from .common import COUNTED, Options, Row, model_rows, suite

SIZES = ((2, 16), (3, 12), (5, 20))  # (batch, sequence), the list's own first


def resized(
    inputs: dict[str, Any], batch: int, length: int, generator: torch.Generator
) -> dict[str, Any]:
    """The model's inputs at another batch and sequence: every dimension that is the batch, and
    those as long as `input_ids`."""
    was = next(v for v in inputs.values() if isinstance(v, torch.Tensor)).shape[0]
    sequence = inputs["input_ids"].shape[1] if "input_ids" in inputs else None

    def resize(name, tensor):
        shape = list(tensor.shape)
        if shape[0] == was:
            shape[0] = batch
        if (
            sequence is not None
            and len(shape) > 1
            and shape[1] == sequence
            and name in ("input_ids", "attention_mask", "token_type_ids", "bbox")
        ):
            shape[1] = length * sequence // SIZES[0][1]
        if name == "input_values":
            shape[1] = shape[1] * length // SIZES[0][1]
        if name == "decoder_input_ids":
            shape[1] = max(2, shape[1] * length // SIZES[0][1])
        if name == "attention_mask":
            mask = torch.ones(shape, dtype=tensor.dtype)
            mask[1, shape[1] - 4 :] = 0
            return mask
        if tensor.is_floating_point():
            return torch.randn(shape, generator=generator)
        corner = torch.randint(3, 400, shape, generator=generator)
        return (
            corner + torch.tensor([0, 0, 100, 100])
            if name == "bbox" and corner.copy_(corner[..., [0, 1, 0, 1]]) is corner
            else corner
        )

    return {name: resize(name, value) for name, value in inputs.items()}


def calls_of(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    return [resized(inputs, batch, length, generator) for batch, length in SIZES]


def outputs_of(model: Callable, calls: list[dict[str, Any]]) -> list[list[torch.Tensor]]:
    found = []
    for inputs in calls:
        torch.manual_seed(1)
        with torch.no_grad():
            found.append(tensors_of(model(**inputs)))
    return found


def good(found: Row) -> bool:
    """One compilation for all sizes, every output right, nothing ran eagerly."""
    return (
        found.get("graphs") == 1
        and not found["breaks"]
        and found["difference"] < 1e-4
        and not found.get("eager")
        and not found.get("errors")
    )


def measure(name: str, options: Options) -> list[Row]:
    """The row of one model of the public list."""
    model, inputs, _ = build(name)
    model.eval()
    row: Row = {"name": name}
    calls = calls_of(inputs)
    try:
        expected = outputs_of(model, calls)
    except Exception as error:  # not every architecture takes every sequence
        row["sizes"] = f"batch only: {type(error).__name__}: {str(error).splitlines()[0][:80]}"
        generator = torch.Generator().manual_seed(1)
        calls = [resized(inputs, batch, SIZES[0][1], generator) for batch, _ in SIZES]
        expected = outputs_of(model, calls)
    for label in ("ours",) if options.no_peer else COUNTED:
        try:
            outputs, row[label] = COUNTED[label](
                lambda compile: outputs_of(compile(model, dynamic=True), calls)
            )
            row[label]["difference"] = max(difference(a, b) for a, b in zip(expected, outputs))
        except Exception as error:  # one that fails leaves the other
            row[label] = {
                "graphs": 0,
                "breaks": [],
                "difference": float("nan"),
                "seconds": float("nan"),
                "errors": [
                    f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                ],
            }
        row[label]["one"] = good(row[label])
    return [row]


@suite("dynamic")
def dynamic(options: Options, result: Row) -> Iterator[Row]:
    """Public models over three sizes, generation, sweeps."""
    warnings.filterwarnings("ignore")
    print(
        f"{'model':42}{'ours':>12}{'difference':>12}{'torch.compile':>16}{'difference':>12}"
        f"{'seconds':>16}"
    )
    yield from model_rows("dynamic", NAMES, measure, show, options)
    ran = [row for row in result["rows"] if "skipped" not in row]
    for label in ("ours",) if options.no_peer else ("ours", "peer"):
        found = {row["name"]: row[label] for row in ran if label in row}
        wrong = [name for name, about in found.items() if not about["difference"] < 1e-4]
        print(
            f"{label}: one compilation and right outputs: "
            f"{sum(about.get('one', False) for about in found.values())} of {len(ran)}; "
            f"wrong outputs: {wrong or 'none'}"
        )
    if not options.only:
        result |= {"generation": generation(), "sweep": sweep()}


def show(row: Row) -> str:
    def part(label):
        found = row.get(label)
        if found is None:
            return f"{'-':>12}{'-':>12}"
        graphs = "1 graph" if found["graphs"] == 1 else f"{found['graphs']} graphs"
        return f"{graphs:>12}{found['difference']:12.1e}"

    seconds = " / ".join(f"{row[k]['seconds']:.1f}" for k in ("ours", "peer") if k in row)
    text = f"{row['name']:42}{part('ours')}    {part('peer')}{seconds:>16}" + (
        f"\n        {row['sizes']}" if "sizes" in row else ""
    )
    for key in ("breaks", "again", "eager", "errors"):
        text += "".join(
            f"\n        ours {key}: {line[:170]}" for line in row.get("ours", {}).get(key, [])[:3]
        )
    return text + "".join(
        f"\n        torch.compile: {line[:170]}"
        for line in row.get("peer", {}).get("errors", [])[:1]
    )


def generation(start: int = 16, end: int = 128) -> Row:
    """GPT-2 extends a prompt token by token, without a cache: compilations, and tokens equal to
    eager's."""
    load_torchvision()
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=4, n_embd=64, vocab_size=1000, n_positions=128)
    ).eval()
    prompt = torch.randint(0, 1000, (1, start))

    def extend(step):
        ids = prompt
        with torch.no_grad():
            while ids.shape[1] < end:
                ids = torch.cat([ids, step(ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
        return ids

    minidynamo.reset()
    tokens = extend(minidynamo.compile(model))
    graphs = minidynamo.counters["graphs"].total()
    equal = torch.equal(tokens, extend(model))
    print(
        f"GPT-2 generation, {start} to {end} tokens: {graphs} compilations, tokens "
        f"{'equal' if equal else 'DIFFER'}"
    )
    return {"graphs": graphs, "equal": equal}


def sweep(
    sizes: tuple[int, ...] = tuple(range(2, 18)), backend: str = "eager"
) -> dict[str, list[int]]:
    """Compilations that a layer needs for a sweep of batch sizes."""
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8))
    found = {}
    for mode in (False, None, True):
        with minidynamo.config.patch(recompile_limit=len(sizes)):
            found[str(mode)] = compilations(
                layer, [(torch.randn(n, 8),) for n in sizes], dynamic=mode, backend=backend
            )
        print(
            f"batch {sizes[0]} to {sizes[-1]}, dynamic={mode}: {found[str(mode)][-1]} compilations"
        )
    return found
