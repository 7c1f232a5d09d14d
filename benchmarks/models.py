"""Real models with random weights, built from their configuration classes (nothing is downloaded).

>>> model, inputs = MODELS["gpt2"]()
>>> model(**inputs).logits.shape
torch.Size([1, 128, 50257])
"""

from collections.abc import Callable
from typing import Any

import torch

Build = Callable[..., tuple[Any, dict[str, Any]]]  # makes a model of transformers, its inputs


def builder(kind: str, config: str, depth: str | None = None, **fixed: Any) -> Build:
    """A function that makes (model, inputs) of transformers' class `kind`; depth: what its
    configuration calls the number of layers."""

    def build(layers=12, batch=1, sequence=128, size=224):
        import transformers

        torch.manual_seed(0)
        settings = getattr(transformers, config)(**fixed, **({depth: layers} if depth else {}))
        model = getattr(transformers, kind)(settings).eval()
        if model.main_input_name == "pixel_values":
            return model, {"pixel_values": torch.randn(batch, 3, size, size)}
        return model, {"input_ids": torch.randint(0, settings.vocab_size, (batch, sequence))}

    return build


def vision(architecture: str, depth: str | None = None) -> Build:
    return builder(f"{architecture}ForImageClassification", f"{architecture}Config", depth)


# GPT-2 small and BERT base: 12 layers, hidden size 768
gpt2 = builder("GPT2LMHeadModel", "GPT2Config", "n_layer")
bert = builder("BertModel", "BertConfig", "num_hidden_layers")
resnet = vision("ResNet")  # ResNet-50, transformers' default
LLAMA: dict[str, Any] = dict(
    hidden_size=1024,
    intermediate_size=2816,
    num_attention_heads=16,
    num_key_value_heads=4,
    use_cache=False,
)
MODELS = {"gpt2": gpt2, "bert": bert, "resnet": resnet}
