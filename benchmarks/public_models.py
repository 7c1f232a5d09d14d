"""The public list: architectures of `transformers`, tiny, with random weights, that capture and
compilation are measured on.

In:   a name of `NAMES`.  Out: (model in eval mode, inputs, targets): 2 layers, hidden size 64, 4
      heads, sequence 16, batch 2 with a padded second row, images 32x32 (a few architectures need
      more).  `model(**inputs)` is inference;
`model(**inputs, **targets)` returns a loss first where the class computes one, else
`loss_of(output)` is the mean of squares of the first floating tensor.

    >>> model, inputs, targets = build("GPT2LMHeadModel")
    >>> model(**inputs).logits.shape
    torch.Size([2, 16, 1000])

Nothing is downloaded.
"""

from typing import Any, TypeAlias
import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch

VOCABULARY, HIDDEN, LAYERS, HEADS, SEQUENCE, BATCH, IMAGE = 1000, 64, 2, 4, 16, 2, 32

# ---- configuration arguments that families share
COMMON = dict(vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=1, eos_token_id=2)
ENCODER = dict(
    COMMON,
    hidden_size=HIDDEN,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=128,
    max_position_embeddings=64,
)
DECODER = dict(ENCODER, num_key_value_heads=2)
VISION = dict(
    hidden_size=HIDDEN,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=128,
    image_size=IMAGE,
    patch_size=8,
)
GPT = dict(COMMON, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_positions=64)
SEQ2SEQ = dict(
    COMMON,
    d_model=HIDDEN,
    encoder_layers=LAYERS,
    decoder_layers=LAYERS,
    encoder_attention_heads=HEADS,
    decoder_attention_heads=HEADS,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    max_position_embeddings=64,
    decoder_start_token_id=2,
)

AUDIO = dict(
    vocab_size=32,
    hidden_size=HIDDEN,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=128,
    conv_dim=[32, 32],
    conv_stride=[5, 4],
    conv_kernel=[10, 8],
    num_feat_extract_layers=2,
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4,
)


# ---- inputs: (inputs, targets), from one generator
# the arguments of a call, and with labels what else they are
Inputs: TypeAlias = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Draw:
    """Where inputs come from, and how large they are: samples in a batch, tokens (and those of a
    decoder), words of the vocabulary, pixels of an image's side, samples of speech."""

    generator: torch.Generator
    batch: int = BATCH
    sequence: int = SEQUENCE
    decoded: int = 9
    vocabulary: int = VOCABULARY
    image: int = IMAGE
    speech: int = 2000

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(self.batch, *shape, generator=self.generator)

    def below(self, end: int, *shape: int, start: int = 0) -> torch.Tensor:
        return torch.randint(start, end, (self.batch, *shape), generator=self.generator)

    def classes(self) -> torch.Tensor:
        return torch.arange(self.batch) % 2


def ids(draw: Draw, length: int | None = None) -> torch.Tensor:
    return draw.below(draw.vocabulary, length or draw.sequence, start=3)


def text(draw: Draw, config: Any, length: int | None = None) -> Inputs:
    length = length or draw.sequence
    mask = torch.ones(draw.batch, length, dtype=torch.long)
    mask[1:, length - 4 :] = 0
    tokens = ids(draw, length).masked_fill(mask == 0, 0)
    return {"input_ids": tokens, "attention_mask": mask}, {
        "labels": tokens.masked_fill(mask == 0, -100)
    }


def translation(draw: Draw, config: Any) -> Inputs:
    inputs, _ = text(draw, config)
    target = ids(draw, draw.decoded)
    return dict(inputs, decoder_input_ids=target), {"labels": target}


def image(draw: Draw, config: Any, size: int | None = None) -> Inputs:
    side = size or draw.image
    return {"pixel_values": draw.normal(3, side, side)}, {"labels": draw.classes()}


def text_and_image(draw: Draw, config: Any) -> Inputs:
    inputs, _ = text(draw, config)
    return dict(inputs, **image(draw, config)[0]), {}


def layout(draw: Draw, config: Any) -> Inputs:
    inputs, targets = text(draw, config)
    corner = draw.below(500, draw.sequence, 2)
    return dict(inputs, bbox=torch.cat([corner, corner + 100], -1)), targets


def speech(draw: Draw, config: Any) -> Inputs:
    return {"input_values": draw.normal(draw.speech)}, {}


def spectrogram(draw: Draw, config: Any) -> Inputs:
    features = draw.normal(config.num_mel_bins, 2 * config.max_source_positions)
    target = ids(draw, draw.decoded)
    return {"input_features": features, "decoder_input_ids": target}, {"labels": target}


def tokens(draw: Draw, config: Any) -> Inputs:
    return {"input_ids": ids(draw)}, {"labels": ids(draw)}


def blocks(draw: Draw, config: Any) -> Inputs:
    return text(draw, config, 4 * draw.sequence)


SMALL = dict(vocab_size=VOCABULARY, d_model=HIDDEN)
T5 = dict(SMALL, d_kv=16, d_ff=128, num_layers=LAYERS, num_heads=HEADS, decoder_start_token_id=0)
STAGES = dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1])
WINDOWS = dict(
    image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
)


def without(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in names}


# ---- the table: class name -> (configuration class, its arguments, inputs)
TRANSFORMERS = {
    "AlbertForMaskedLM": ("AlbertConfig", dict(ENCODER, embedding_size=32), text),
    "BartForConditionalGeneration": ("BartConfig", SEQ2SEQ, translation),
    "BeitForImageClassification": ("BeitConfig", VISION, image),
    "BigBirdForMaskedLM": (
        "BigBirdConfig",
        dict(ENCODER, max_position_embeddings=128, block_size=4, num_random_blocks=1),
        blocks,
    ),
    "BlenderbotSmallForConditionalGeneration": ("BlenderbotSmallConfig", SEQ2SEQ, translation),
    "BloomForCausalLM": (
        "BloomConfig",
        dict(COMMON, hidden_size=HIDDEN, n_layer=LAYERS, n_head=HEADS),
        text,
    ),
    "CLIPModel": (
        "CLIPConfig",
        dict(
            text_config=dict(ENCODER, projection_dim=HIDDEN),
            vision_config=dict(VISION, projection_dim=HIDDEN),
            projection_dim=HIDDEN,
        ),
        text_and_image,
    ),
    "CodeGenForCausalLM": ("CodeGenConfig", dict(GPT, n_ctx=64, rotary_dim=8), text),
    "CohereForCausalLM": ("CohereConfig", DECODER, text),
    "ConvBertForMaskedLM": ("ConvBertConfig", dict(ENCODER, embedding_size=32), text),
    "ConvNextV2ForImageClassification": ("ConvNextV2Config", STAGES, image),
    "DebertaForMaskedLM": (
        "DebertaConfig",
        dict(ENCODER, relative_attention=True, pos_att_type=["c2p", "p2c"]),
        text,
    ),
    "DeiTForImageClassification": ("DeiTConfig", VISION, image),
    "Dinov2ForImageClassification": ("Dinov2Config", without(VISION, "intermediate_size"), image),
    "ElectraForMaskedLM": ("ElectraConfig", dict(ENCODER, embedding_size=32), text),
    "FalconForCausalLM": ("FalconConfig", without(ENCODER, "intermediate_size"), text),
    "FNetForMaskedLM": ("FNetConfig", without(ENCODER, "num_attention_heads"), tokens),
    "Gemma2ForCausalLM": ("Gemma2Config", dict(DECODER, head_dim=16, sliding_window=8), text),
    "GPT2LMHeadModel": ("GPT2Config", GPT, text),
    "GPTBigCodeForCausalLM": ("GPTBigCodeConfig", GPT, text),
    "GPTJForCausalLM": ("GPTJConfig", dict(GPT, rotary_dim=8), text),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", ENCODER, text),
    "HubertForCTC": ("HubertConfig", AUDIO, speech),
    "IBertForMaskedLM": ("IBertConfig", ENCODER, text),
    "LayoutLMForMaskedLM": ("LayoutLMConfig", ENCODER, layout),
    "LlamaForCausalLM": ("LlamaConfig", DECODER, text),
    "LongformerForMaskedLM": ("LongformerConfig", dict(ENCODER, attention_window=8), text),
    "M2M100ForConditionalGeneration": ("M2M100Config", SEQ2SEQ, translation),
    "MambaForCausalLM": (
        "MambaConfig",
        dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, state_size=8),
        text,
    ),
    "MarianMTModel": ("MarianConfig", dict(SEQ2SEQ, decoder_vocab_size=VOCABULARY), translation),
    "MBartForConditionalGeneration": ("MBartConfig", SEQ2SEQ, translation),
    "MistralForCausalLM": ("MistralConfig", dict(DECODER, sliding_window=8), text),
    "MixtralForCausalLM": ("MixtralConfig", dict(DECODER, num_local_experts=4), text),
    "MobileBertForMaskedLM": (
        "MobileBertConfig",
        dict(ENCODER, embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32),
        text,
    ),
    "ModernBertForMaskedLM": (
        "ModernBertConfig",
        dict(ENCODER, cls_token_id=1, sep_token_id=2, local_attention=8),
        text,
    ),
    "MPNetForMaskedLM": ("MPNetConfig", ENCODER, text),
    "MptForCausalLM": (
        "MptConfig",
        dict(SMALL, n_layers=LAYERS, n_heads=HEADS, max_seq_len=64),
        text,
    ),
    "Olmo2ForCausalLM": ("Olmo2Config", DECODER, text),
    "OPTForCausalLM": (
        "OPTConfig",
        dict(without(ENCODER, "intermediate_size"), ffn_dim=128, word_embed_proj_dim=HIDDEN),
        text,
    ),
    "PegasusForConditionalGeneration": ("PegasusConfig", SEQ2SEQ, translation),
    "Phi3ForCausalLM": ("Phi3Config", DECODER, text),
    "PhiForCausalLM": ("PhiConfig", DECODER, text),
    "PoolFormerForImageClassification": ("PoolFormerConfig", STAGES, image),
    "Qwen2ForCausalLM": ("Qwen2Config", DECODER, text),
    "Qwen3ForCausalLM": ("Qwen3Config", dict(DECODER, head_dim=16), text),
    "ResNetForImageClassification": ("ResNetConfig", dict(STAGES, embedding_size=16), image),
    "RoFormerForMaskedLM": ("RoFormerConfig", ENCODER, text),
    "SiglipModel": (
        "SiglipConfig",
        dict(text_config=ENCODER, vision_config=VISION),
        text_and_image,
    ),
    "SqueezeBertForMaskedLM": ("SqueezeBertConfig", dict(ENCODER, embedding_size=HIDDEN), text),
    "StableLmForCausalLM": ("StableLmConfig", DECODER, text),
    "Starcoder2ForCausalLM": ("Starcoder2Config", DECODER, text),
    "SwinForImageClassification": ("SwinConfig", WINDOWS, image),
    "Swinv2ForImageClassification": ("Swinv2Config", WINDOWS, image),
    "SwitchTransformersForConditionalGeneration": (
        "SwitchTransformersConfig",
        dict(T5, num_decoder_layers=LAYERS, num_experts=4),
        translation,
    ),
    "T5ForConditionalGeneration": ("T5Config", dict(T5, use_cache=True), translation),
    "Wav2Vec2ForCTC": ("Wav2Vec2Config", AUDIO, speech),
    "WavLMForCTC": ("WavLMConfig", AUDIO, speech),
    "WhisperForConditionalGeneration": (
        "WhisperConfig",
        dict(
            without(SEQ2SEQ, "max_position_embeddings"),
            max_source_positions=SEQUENCE,
            max_target_positions=64,
            begin_suppress_tokens=None,
        ),
        spectrogram,
    ),
    "XLNetLMHeadModel": (
        "XLNetConfig",
        dict(COMMON, d_model=HIDDEN, n_layer=LAYERS, n_head=HEADS, d_inner=128),
        text,
    ),
    "YosoForMaskedLM": ("YosoConfig", ENCODER, text),
}
NAMES = list(TRANSFORMERS)


def build(
    name: str,
    seed: int = 0,
    arguments_of: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    **sizes: int,
) -> tuple:
    """(model in eval mode, inputs, targets).  KeyError for an unknown name.

    arguments_of: changes a configuration's arguments (a larger model).  sizes: fields of `Draw`.
    """
    draw = Draw(torch.Generator().manual_seed(seed), **sizes)
    torch.manual_seed(seed)
    load_torchvision()
    import transformers

    config_name, arguments, inputs_of = TRANSFORMERS[name]
    config = getattr(transformers, config_name)(**arguments_of(arguments))
    model = getattr(transformers, name)(config).eval()
    return model, *inputs_of(draw, config)


def loss_of(output: Any) -> torch.Tensor:
    """A scalar to differentiate: the loss that the model computed, else one of its first floating
    tensor (not the mean square: a layer norm keeps that constant, and gradients are rounding
    errors)."""
    if getattr(output, "loss", None) is not None:
        return output.loss
    if isinstance(output, dict):
        output = output.values()
    values = [output] if isinstance(output, torch.Tensor) else output
    first = next(v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point())
    return first.tanh().square().mean()


def load_torchvision() -> None:
    """transformers and timm import torchvision where it is installed.  One that was built for
    another torch fails, because its operators do not load; no model here calls one, so they are
    declared by name.  Nothing happens where it loads, or where it is missing."""
    while "torchvision" not in sys.modules and importlib.util.find_spec("torchvision"):
        try:
            importlib.import_module("torchvision")
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None:
                raise
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(f"{missing[1]}() -> ()")
            DECLARED.append(library)  # its operators live as long as it does
            for module in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
                del sys.modules[module]


DECLARED = []
