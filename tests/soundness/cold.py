"""Cold models: compiled before their first eager call, several calls each, beside an eager twin.

    python -m tests.soundness.cold --modes eager,inductor

What a model does only in its first call (installing hooks, filling caches, setting flags that were
absent) happens in compiled frames, then.  The twin is built from the same seed and runs eagerly;
outputs of all calls must agree: their names, how many there are, and their values.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.error_bound import too_far
import transformers as tf

from . import runner
from .modes import Mode

TEXT = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    vocab_size=99,
    max_position_embeddings=64,
)
GROUPED = dict(TEXT, num_key_value_heads=2)
VISION = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    image_size=32,
    patch_size=8,
)
T5 = dict(d_model=32, d_ff=48, num_layers=2, num_heads=4, d_kv=8, vocab_size=99)
STAGES = dict(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1])
BART = dict(
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    vocab_size=99,
    max_position_embeddings=64,
)


def text() -> dict:
    return {"input_ids": torch.randint(5, 90, (2, 7))}


def translation() -> dict:
    return {**text(), "decoder_input_ids": torch.randint(5, 90, (2, 5))}


def image() -> dict:
    return {"pixel_values": torch.randn(1, 3, 32, 32)}


def larger_image() -> dict:
    return {"pixel_values": torch.randn(1, 3, 64, 64)}


# model's class, its configuration's class, arguments of that, inputs
MODELS: dict[str, tuple[str, str, dict, Callable[[], dict]]] = {
    "bert": ("BertModel", "BertConfig", TEXT, text),
    "roberta": ("RobertaModel", "RobertaConfig", TEXT, text),
    "electra": ("ElectraModel", "ElectraConfig", {**TEXT, "embedding_size": 32}, text),
    "distilbert": (
        "DistilBertModel",
        "DistilBertConfig",
        dict(dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=99),
        text,
    ),
    "albert": ("AlbertModel", "AlbertConfig", {**TEXT, "embedding_size": 16}, text),
    "mpnet": ("MPNetModel", "MPNetConfig", TEXT, text),
    "deberta": ("DebertaV2Model", "DebertaV2Config", TEXT, text),
    "gpt2": (
        "GPT2Model",
        "GPT2Config",
        dict(n_embd=32, n_layer=2, n_head=4, vocab_size=99, n_positions=64),
        text,
    ),
    "gpt_neox": ("GPTNeoXModel", "GPTNeoXConfig", TEXT, text),
    "opt": (
        "OPTModel",
        "OPTConfig",
        dict(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=48,
            vocab_size=99,
            max_position_embeddings=64,
            word_embed_proj_dim=32,
        ),
        text,
    ),
    "bloom": (
        "BloomModel",
        "BloomConfig",
        dict(hidden_size=32, n_layer=2, n_head=4, vocab_size=99),
        text,
    ),
    "llama": ("LlamaModel", "LlamaConfig", GROUPED, text),
    "mistral": ("MistralModel", "MistralConfig", GROUPED, text),
    "mixtral": ("MixtralModel", "MixtralConfig", {**GROUPED, "num_local_experts": 4}, text),
    "qwen2": ("Qwen2Model", "Qwen2Config", GROUPED, text),
    "gemma": ("GemmaModel", "GemmaConfig", {**GROUPED, "head_dim": 8}, text),
    "phi": ("PhiModel", "PhiConfig", TEXT, text),
    "t5_encoder": ("T5EncoderModel", "T5Config", T5, text),
    "t5": ("T5Model", "T5Config", T5, translation),
    "bart": ("BartModel", "BartConfig", BART, text),
    "clip_text": ("CLIPTextModel", "CLIPTextConfig", TEXT, text),
    "clip_vision": ("CLIPVisionModel", "CLIPVisionConfig", VISION, image),
    "vit": ("ViTModel", "ViTConfig", VISION, image),
    "deit": ("DeiTModel", "DeiTConfig", VISION, image),
    "beit": ("BeitModel", "BeitConfig", VISION, image),
    "dinov2": (
        "Dinov2Model",
        "Dinov2Config",
        dict(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
        ),
        image,
    ),
    "segformer": (
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        dict(
            hidden_sizes=[8, 16, 16, 16],
            num_attention_heads=[1, 2, 2, 2],
            depths=[1, 1, 1, 1],
            decoder_hidden_size=16,
        ),
        image,
    ),
    "swin": (
        "SwinModel",
        "SwinConfig",
        dict(
            embed_dim=8, depths=[1, 1], num_heads=[2, 2], image_size=32, patch_size=4, window_size=4
        ),
        image,
    ),
    "convnext": ("ConvNextModel", "ConvNextConfig", STAGES, larger_image),
    "resnet": (
        "ResNetModel",
        "ResNetConfig",
        {**STAGES, "embedding_size": 8, "layer_type": "basic"},
        larger_image,
    ),
}
WITHOUT_ATTENTION = ("convnext", "resnet")
CALLS = 4


def build(name: str) -> Any:
    model, config, arguments, _ = MODELS[name]
    torch.manual_seed(0)
    made = getattr(tf, config)(**arguments)
    made._attn_implementation = "eager"  # the others give no attention weights
    return getattr(tf, model)(made).eval()


def leaves(value: Any, name: str = "output") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for n, item in enumerate(value):
            yield from leaves(item, f"{name}[{n}]")


def cases(count: int, first: int) -> list[str]:
    return [*MODELS]


def check(case: str, mode: Mode) -> str:
    model, twin = build(case), build(case)
    compiled = mode.compile(model)
    options = {"output_hidden_states": True}
    if case not in WITHOUT_ATTENTION:
        options["output_attentions"] = True
    with torch.no_grad():
        for call in range(CALLS):
            torch.manual_seed(call)
            inputs = MODELS[case][-1]()
            asked = options if call != 2 else {}
            expected = dict(leaves(twin(**inputs, **asked)))
            found = dict(leaves(compiled(**inputs, **asked)))
            if [*found] != [*expected]:
                return f"call {call}: {[*expected]} are {[*found]}"
            for name, value in expected.items():
                if too_far(found[name], value, 4, "several layers"):
                    return f"call {call}: {name} differs"
    return ""


if __name__ == "__main__":
    runner.main("tests.soundness.cold", default_modes="eager,inductor")
