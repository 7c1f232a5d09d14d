"""--suite cpu-models: inference of transformers architectures and ResNet on the CPU: eager, ours
and torch.compile, interleaved.

Four layers each at the real hidden sizes (BERT, GPT-2, ViT 768, Llama 1024, T5 512; ResNet-50
whole), random weights, batch 1.  All variants run in one process and so under one allocator policy:
malloc keeps what is freed.  `--threads 1` and `--threads 4` are two runs: torch.compile writes the
number into its kernels.  `--freezing` freezes parameters in both compilers.  Last line: the
geometric mean of eager / ours, and the rows that are below eager or below torch.compile.
"""

import statistics
from collections.abc import Iterator
from typing import Any

import torch

from ..models import LLAMA, bert, builder, gpt2, resnet
from ..runner import keep_freed_memory
from .common import Options, Row, Workload, measure_all, suite, wanted

LAYERS = 4


def t5(layers: int) -> tuple[torch.nn.Module, dict[str, Any]]:
    model, inputs = builder("T5Model", "T5Config", "num_layers", use_cache=False)(layers)
    return model, inputs | {
        "decoder_input_ids": torch.randint(0, model.config.vocab_size, inputs["input_ids"].shape)
    }


ROWS = {
    "BERT": bert,
    "GPT-2": gpt2,
    "Llama": builder("LlamaModel", "LlamaConfig", "num_hidden_layers", vocab_size=32000, **LLAMA),
    "T5": t5,
    "ViT": builder("ViTModel", "ViTConfig", "num_hidden_layers"),
    "ResNet-50": resnet,
}


def models(options: Options) -> Iterator[Workload]:
    for name, build in ROWS.items():
        if wanted(name, options):
            model, inputs = build(LAYERS)
            yield name, model, [], inputs


@suite("cpu-models")
def cpu_models(options: Options, result: Row) -> Iterator[Row]:
    """Inference of six architectures."""
    keep_freed_memory()
    yield from measure_all(models(options), options)
    gains = [row["eager / ours"][0] for row in result["rows"] if "eager / ours" in row]
    if gains:
        below = {
            label: [row["name"] for row in result["rows"] if key in row and row[key][0] < 1]
            for label, key in (("eager", "eager / ours"), ("torch.compile", "torch.compile / ours"))
        }
        print(
            f"geometric mean of eager / ours: {statistics.geometric_mean(gains):.3f} over "
            f"{len(gains)} rows; "
            + "; ".join(
                f"below {label}: {', '.join(names) or 'none'}" for label, names in below.items()
            )
        )
