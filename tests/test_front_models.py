"""Real models (transformers, random weights) through the front half: the loop IR's interpreter
against eager, no fallbacks."""

import pytest
import torch
import transformers as tf
from front_helpers import fallbacks, interpret, lower
from benchmarks.error_bound import assert_near

ids = torch.randint(0, 90, (2, 13))
SMALL = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=99
)


def t5():
    config = tf.T5Config(num_layers=1, d_model=32, d_kv=8, d_ff=48, num_heads=4, vocab_size=99)
    model = tf.T5ForConditionalGeneration(config).eval()
    return lambda a, b: model(input_ids=a, decoder_input_ids=b, use_cache=False).logits


def logits(model):
    model.eval()
    return lambda *args: model(*args).to_tuple()[0]


MODELS = {
    "gpt2": lambda: (
        logits(tf.GPT2LMHeadModel(tf.GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=99))),
        [ids],
    ),
    "bert": lambda: (logits(tf.BertModel(tf.BertConfig(**SMALL))), [ids]),
    "llama": lambda: (
        logits(tf.LlamaForCausalLM(tf.LlamaConfig(**SMALL, num_key_value_heads=2))),
        [ids],
    ),
    "t5": lambda: (t5(), [ids, ids.flip(0)]),
    "vit": lambda: (
        logits(tf.ViTModel(tf.ViTConfig(**{**SMALL, "image_size": 32, "patch_size": 8}))),
        [torch.randn(2, 3, 32, 32)],
    ),
    "resnet": lambda: (
        logits(
            tf.ResNetForImageClassification(
                tf.ResNetConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 32], embedding_size=8)
            )
        ),
        [torch.randn(2, 3, 37, 41)],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    torch.manual_seed(0)
    run, args = MODELS[name]()
    (got,), record = interpret(run, args)  # before the first eager call
    with torch.no_grad():
        want = run(*args)
    assert_near(got, want)
    assert fallbacks(record) == []


def test_lowering_gpt2_costs_little():
    """Twelve layers: trace, functionalize, optimise, lower, verify in seconds, not minutes."""
    run, args = logits(tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=48, vocab_size=99))), [ids]
    graph, record = lower(run, args)
    assert len(record.aten_graph.graph.nodes) > 800
    stored = [o for o in graph.operations if type(o).__name__ == "ComputedBuffer"]
    assert len(stored) < 200  # about 12 per layer: what is not stored was inlined
