"""The models of `--suite paper`, as large as fills a GPU, with random weights.

In:   a name of `MODELS`.  Out: (model, inputs, targets) as `public_models.build` returns them.

Three groups, as in the paper: architectures of `transformers` (the public list, enlarged by
`enlarged`), of timm (the families of the paper's third suite, at their own sizes), and others:
torchvision's detection, segmentation and video, torchaudio's, graph nets, and models that are
written in `others.py`.  What is not installed raises ImportError, and is counted as absent.
"""

import random
from typing import Any

import torch

from .. import public_models
from .others import OTHERS

# An argument of a configuration, by its name -> how many times larger than in the tiny model.
TIMES = {
    12: """hidden_size d_model n_embd projection_dim word_embed_proj_dim true_hidden_size
        intra_bottleneck_size embedding_size""",
    24: "intermediate_size ffn_dim d_ff d_inner encoder_ffn_dim decoder_ffn_dim",
    3: """num_attention_heads n_head n_heads num_heads encoder_attention_heads
        decoder_attention_heads num_key_value_heads num_hidden_layers n_layer n_layers num_layers
        num_decoder_layers encoder_layers decoder_layers""",
    4: "head_dim d_kv rotary_dim",
    16: """max_position_embeddings max_source_positions max_target_positions n_positions n_ctx
        max_seq_len""",
    30: "vocab_size decoder_vocab_size",
    7: "image_size",
    2: "patch_size",
    8: "attention_window local_attention sliding_window window_size block_size",
}
FACTORS = {name: times for times, names in TIMES.items() for name in names.split()}
SIZES = dict(batch=8, sequence=256, decoded=128, vocabulary=30_000, image=224, speech=32_000)
WINDOWS = dict(
    image_size=224,
    patch_size=4,
    embed_dim=96,
    depths=[2, 2, 6, 2],
    num_heads=[3, 6, 12, 24],
    window_size=7,
)
# What the rules above do not fit: a configuration's own arguments, and inputs' own sizes.
OWN: dict[str, dict[str, Any]] = {
    "ConvNextV2ForImageClassification": dict(hidden_sizes=[96, 192, 384, 768], depths=[3, 3, 9, 3]),
    "PoolFormerForImageClassification": dict(hidden_sizes=[64, 128, 320, 512], depths=[2, 2, 6, 2]),
    "ResNetForImageClassification": dict(
        embedding_size=64, hidden_sizes=[256, 512, 1024, 2048], depths=[3, 4, 6, 3]
    ),
    "SwinForImageClassification": WINDOWS,
    "Swinv2ForImageClassification": WINDOWS,
}
OWN_SIZES = {  # loops over time that are unrolled
    "MambaForCausalLM": dict(sequence=64)
}


def enlarged(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a base model of the same architecture."""
    return {name: larger(name, value) for name, value in arguments.items()}


def larger(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return enlarged(value)
    if name in ("hidden_sizes", "depths") and isinstance(value, list):
        return [(4 if name == "hidden_sizes" else 2) * part for part in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return value * FACTORS.get(name, 1)
    return value


TIMM = """
    adv_inception_v3 beit_base_patch16_224 botnet26t_256 cait_xxs24_224 coat_lite_mini
    convit_base convmixer_768_32 convnext_base crossvit_9_240 cspdarknet53
    deit_base_distilled_patch16_224 dla102 dm_nfnet_f0 dpn107 eca_botnext26ts_256
    eca_halonext26ts ese_vovnet19b_dw fbnetc_100 fbnetv3_b gernet_l ghostnet_100 gmixer_24_224
    gmlp_s16_224 hrnet_w18 inception_v3 nest_base lcnet_050 levit_128 mixer_b16_224 mixnet_l
    mnasnet_100 mobilenetv2_100 mobilenetv3_large_100 mobilevit_s nfnet_l0 pit_b_224
    pnasnet5large poolformer_m36 regnety_002 repvgg_a2 res2net101_26w_4s res2net50_14w_8s
    res2next50 resmlp_12_224 resnest101e rexnet_100 sebotnet33ts_256 selecsls42b spnasnet_100
    swin_base_patch4_window7_224 resnext101_32x16d tf_efficientnet_b0 tf_mixnet_l tinynet_a
    tnt_s_legacy_patch16_224 twins_pcpvt_base visformer_small vit_base_patch16_224 volo_d1_224
    xcit_small_12_p8_224
""".split()
MODELS = {
    **{name: "transformers" for name in public_models.NAMES},
    **{name: "timm" for name in TIMM},
    **{name: "others" for name in OTHERS},
}


def fair_order(seed: int = 0) -> list[str]:
    """Every model, so that each beginning holds the groups in their shares.

    Each model stands where it would if its group, shuffled, were spread evenly over the whole.
    """
    order = random.Random(seed)
    places = {}
    for group in ("transformers", "timm", "others"):
        names = sorted(name for name in MODELS if MODELS[name] == group)
        order.shuffle(names)
        places |= {name: (place + 0.5) / len(names) for place, name in enumerate(names)}
    return sorted(places, key=lambda name: (places[name], name))


def build(name: str, small: bool = False) -> tuple:
    """(model in eval mode, inputs, targets) on the CPU.

    small: tiny transformers, and a batch of 2 of the others: for capture, where speed is not asked.
    Raises ImportError where its package is missing, KeyError for an unknown name.
    """
    if MODELS[name] == "transformers":
        if small:
            return public_models.build(name)
        change = lambda arguments: enlarged(arguments) | OWN.get(name, {})  # noqa: E731
        sizes = SIZES | OWN_SIZES.get(name, {})
        return public_models.build(name, arguments_of=change, **sizes)
    torch.manual_seed(0)
    batch = 2 if small else 32
    if MODELS[name] == "others":
        model, inputs = OTHERS[name](2 if small else None)
        return model.eval(), inputs, {}
    public_models.load_torchvision()
    import timm

    model = timm.create_model(name).eval()
    return model, {"x": torch.randn(batch, *model.default_cfg["input_size"])}, {}
