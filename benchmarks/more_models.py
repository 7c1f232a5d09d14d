"""Architectures beyond the public list, tiny like those: what `--suite capture-more` tries.

In, out: tables that `public_models.build` reads; names are `transformers` classes or timm's names.

    >>> model, inputs, targets = build("MambaForCausalLM")
"""

from typing import Any
import torch

from .public_models import (
    Draw,
    Inputs,
    AUDIO,
    COMMON,
    DECODER,
    ENCODER,
    GPT,
    HEADS,
    HIDDEN,
    LAYERS,
    SEQ2SEQ,
    VISION,
    VOCABULARY,
    ids,
    image,
    speech,
    text,
    text_and_image,
    translation,
)

SMALL = dict(vocab_size=VOCABULARY, d_model=HIDDEN)
T5 = dict(SMALL, d_kv=16, d_ff=128, num_layers=LAYERS, num_heads=HEADS, decoder_start_token_id=0)
STAGES = dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1])
WINDOWS = dict(
    image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
)
ATTENTION = dict(relative_attention=True, pos_att_type=["c2p", "p2c"])


def without(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in names}


def tokens(draw: Draw, config: Any) -> Inputs:
    return {"input_ids": ids(draw)}, {"labels": ids(draw)}


def pixels(draw: Draw, config: Any) -> Inputs:
    return image(draw, config)[0], {}


def words(draw: Draw, config: Any) -> Inputs:
    return text(draw, config, 4 * draw.sequence)[0], {"labels": draw.classes()}


def features(draw: Draw, config: Any) -> Inputs:
    length = 2 * draw.sequence
    inputs = {
        "input_features": draw.normal(length, config.input_feat_per_channel),
        "attention_mask": torch.ones(draw.batch, length, dtype=torch.long),
    }
    return dict(inputs, decoder_input_ids=ids(draw, draw.decoded)), {
        "labels": ids(draw, draw.decoded)
    }


TRANSFORMERS = {
    "BartForConditionalGeneration": ("BartConfig", SEQ2SEQ, translation),
    "BloomForCausalLM": (
        "BloomConfig",
        dict(COMMON, hidden_size=HIDDEN, n_layer=LAYERS, n_head=HEADS),
        text,
    ),
    "CanineForSequenceClassification": (
        "CanineConfig",
        dict(ENCODER, num_hash_buckets=64, local_transformer_stride=16),
        words,
    ),
    "CohereForCausalLM": ("CohereConfig", DECODER, text),
    "ConvBertForMaskedLM": ("ConvBertConfig", dict(ENCODER, embedding_size=32), text),
    "ConvNextV2ForImageClassification": ("ConvNextV2Config", STAGES, image),
    "DebertaForMaskedLM": ("DebertaConfig", dict(ENCODER, **ATTENTION), text),
    "DebertaV2ForMaskedLM": (
        "DebertaV2Config",
        dict(
            ENCODER, **ATTENTION, position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True
        ),
        text,
    ),
    "DeepseekV3ForCausalLM": (
        "DeepseekV3Config",
        dict(
            DECODER,
            num_key_value_heads=4,
            moe_intermediate_size=32,
            n_routed_experts=4,
            n_shared_experts=1,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            q_lora_rank=16,
            kv_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=16,
            first_k_dense_replace=1,
        ),
        text,
    ),
    "Dinov2ForImageClassification": ("Dinov2Config", without(VISION, "intermediate_size"), image),
    "FNetForMaskedLM": ("FNetConfig", without(ENCODER, "num_attention_heads"), tokens),
    "FalconForCausalLM": (
        "FalconConfig",
        dict(COMMON, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS),
        text,
    ),
    "FunnelForMaskedLM": (
        "FunnelConfig",
        dict(SMALL, block_sizes=[1, 1], n_head=HEADS, d_head=16, d_inner=128, num_decoder_layers=1),
        text,
    ),
    "Gemma2ForCausalLM": ("Gemma2Config", dict(DECODER, head_dim=16, sliding_window=8), text),
    "GPTBigCodeForCausalLM": ("GPTBigCodeConfig", GPT, text),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", ENCODER, text),
    "GroupViTModel": (
        "GroupViTConfig",
        dict(
            text_config=ENCODER,
            vision_config=dict(
                hidden_size=HIDDEN,
                image_size=32,
                patch_size=4,
                num_attention_heads=HEADS,
                depths=[1, 1, 1],
                intermediate_size=128,
                num_group_tokens=[8, 4, 0],
                num_output_groups=[8, 4, 0],
            ),
            projection_dim=HIDDEN,
            projection_intermediate_dim=HIDDEN,
        ),
        text_and_image,
    ),
    "HubertForCTC": ("HubertConfig", AUDIO, speech),
    "IBertForMaskedLM": ("IBertConfig", ENCODER, text),
    "JambaForCausalLM": (
        "JambaConfig",
        dict(
            DECODER,
            num_experts=2,
            mamba_d_state=8,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
        ),
        text,
    ),
    "LEDForConditionalGeneration": (
        "LEDConfig",
        dict(
            without(SEQ2SEQ, "max_position_embeddings"),
            max_encoder_position_embeddings=64,
            max_decoder_position_embeddings=64,
            attention_window=8,
        ),
        translation,
    ),
    "LlamaForCausalLM": ("LlamaConfig", DECODER, text),
    "LongT5ForConditionalGeneration": (
        "LongT5Config",
        dict(T5, local_radius=4, encoder_attention_type="transient-global", global_block_size=4),
        translation,
    ),
    "MambaForCausalLM": (
        "MambaConfig",
        dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, state_size=8),
        text,
    ),
    "Mamba2ForCausalLM": (
        "Mamba2Config",
        dict(
            vocab_size=VOCABULARY,
            hidden_size=HIDDEN,
            num_hidden_layers=LAYERS,
            state_size=8,
            num_heads=8,
            head_dim=16,
            n_groups=1,
            chunk_size=8,
        ),
        text,
    ),
    "MistralForCausalLM": ("MistralConfig", dict(DECODER, sliding_window=8), text),
    "MixtralForCausalLM": ("MixtralConfig", dict(DECODER, num_local_experts=4), text),
    "MptForCausalLM": (
        "MptConfig",
        dict(SMALL, n_layers=LAYERS, n_heads=HEADS, max_seq_len=64),
        text,
    ),
    "PegasusForConditionalGeneration": ("PegasusConfig", SEQ2SEQ, translation),
    "PerceiverForMaskedLM": (
        "PerceiverConfig",
        dict(
            SMALL,
            d_latents=HIDDEN,
            num_latents=16,
            num_self_attends_per_block=2,
            num_self_attention_heads=HEADS,
            num_cross_attention_heads=HEADS,
            qk_channels=32,
            v_channels=HIDDEN,
            max_position_embeddings=16,
        ),
        text,
    ),
    "ProphetNetForConditionalGeneration": (
        "ProphetNetConfig",
        dict(
            COMMON,
            hidden_size=HIDDEN,
            encoder_ffn_dim=128,
            num_encoder_layers=LAYERS,
            num_encoder_attention_heads=HEADS,
            decoder_ffn_dim=128,
            num_decoder_layers=LAYERS,
            num_decoder_attention_heads=HEADS,
            max_position_embeddings=64,
            decoder_start_token_id=0,
        ),
        translation,
    ),
    "Qwen2MoeForCausalLM": (
        "Qwen2MoeConfig",
        dict(
            DECODER,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
        ),
        text,
    ),
    "ReformerModelWithLMHead": (
        "ReformerConfig",
        dict(
            vocab_size=VOCABULARY,
            attention_head_size=16,
            attn_layers=["local", "lsh"],
            axial_pos_embds=False,
            hidden_size=HIDDEN,
            num_attention_heads=HEADS,
            feed_forward_size=128,
            is_decoder=True,
            local_attn_chunk_length=4,
            lsh_attn_chunk_length=4,
            num_buckets=4,
            max_position_embeddings=64,
            hash_seed=0,
        ),
        text,
    ),
    "RoFormerForMaskedLM": ("RoFormerConfig", ENCODER, text),
    "RwkvForCausalLM": (
        "RwkvConfig",
        dict(
            vocab_size=VOCABULARY,
            hidden_size=HIDDEN,
            num_hidden_layers=LAYERS,
            attention_hidden_size=HIDDEN,
            intermediate_size=128,
            context_length=64,
        ),
        tokens,
    ),
    "SiglipModel": (
        "SiglipConfig",
        dict(text_config=ENCODER, vision_config=VISION),
        text_and_image,
    ),
    "Speech2TextForConditionalGeneration": (
        "Speech2TextConfig",
        dict(
            without(SEQ2SEQ, "max_position_embeddings"),
            max_source_positions=64,
            max_target_positions=64,
            num_mel_bins=16,
            input_feat_per_channel=16,
            conv_channels=32,
        ),
        features,
    ),
    "SwinForImageClassification": ("SwinConfig", WINDOWS, image),
    "Swinv2ForImageClassification": ("Swinv2Config", WINDOWS, image),
    "SwitchTransformersForConditionalGeneration": (
        "SwitchTransformersConfig",
        dict(T5, num_decoder_layers=LAYERS, num_experts=4),
        translation,
    ),
    "ViTMAEForPreTraining": (
        "ViTMAEConfig",
        dict(
            VISION,
            decoder_hidden_size=32,
            decoder_num_hidden_layers=1,
            decoder_num_attention_heads=HEADS,
            decoder_intermediate_size=64,
        ),
        pixels,
    ),
    "WavLMForCTC": ("WavLMConfig", AUDIO, speech),
    "XGLMForCausalLM": (
        "XGLMConfig",
        dict(
            COMMON,
            d_model=HIDDEN,
            ffn_dim=128,
            num_layers=LAYERS,
            attention_heads=HEADS,
            max_position_embeddings=64,
        ),
        text,
    ),
    "XLMWithLMHeadModel": (
        "XLMConfig",
        dict(
            vocab_size=VOCABULARY,
            emb_dim=HIDDEN,
            n_layers=LAYERS,
            n_heads=HEADS,
            max_position_embeddings=64,
        ),
        text,
    ),
    "YosoForMaskedLM": ("YosoConfig", ENCODER, text),
}
TIMM = {
    "coat": ("coat_tiny", dict(img_size=32), 32),
    "convit": ("convit_tiny", dict(img_size=32, depth=3), 32),
    "crossvit": ("crossvit_9_240", {}, 240),
    "densenet": ("densenet121", dict(block_config=(2, 2, 2, 2)), 32),
    "edgenext": ("edgenext_xx_small", {}, 64),
    "efficientnet": ("efficientnet_lite0", {}, 32),
    "gcvit": ("gcvit_xxtiny", dict(img_size=64), 64),
    "levit": ("levit_128s", dict(img_size=64), 64),
    "maxvit": ("maxvit_rmlp_pico_rw_256", dict(img_size=64), 64),
    "mixer": ("mixer_s32_224", dict(img_size=64), 64),
    "mobilevit": ("mobilevit_xxs", {}, 64),
    "pvt": ("pvt_v2_b0", {}, 64),
    "regnet": ("regnetx_002", {}, 32),
    "resnest": ("resnest14d", {}, 32),
    "sequencer": ("sequencer2d_s", dict(layers=(1, 1, 1, 1)), 64),
    "swin": (
        "swin_tiny_patch4_window7_224",
        dict(img_size=32, window_size=4, embed_dim=24, depths=(1, 1, 2, 1), num_heads=(2, 2, 4, 4)),
        32,
    ),
    "tnt": ("tnt_s_legacy_patch16_224", dict(img_size=32, depth=2), 32),
    "visformer": ("visformer_tiny", dict(img_size=64), 64),
    "volo": ("volo_d1_224", dict(img_size=64), 64),
    "xcit": ("xcit_nano_12_p16_224", dict(img_size=32, depth=2), 32),
}
NAMES = [*TRANSFORMERS, *TIMM]
