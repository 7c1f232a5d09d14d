"""Hugging Face models, default layers: one graph, zero breaks, eager's outputs, second call from
the cache.  GPT-2 and Bert come a second time, with a mask and four layers."""

import pytest
import torch

import minidynamo
from benchmarks.error_bound import assert_near
from tests.soundness.tables import rows

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("anew")


def tokens():
    return torch.randint(5, 1000, (1, 128), generator=torch.Generator().manual_seed(0))


def masked():
    mask = torch.ones(1, 128, dtype=torch.long)
    mask[0, 100:] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


SMALL = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
MODELS = {  # name -> what makes the model, what makes its inputs
    name: [eval(f"lambda: {text}", globals()) for text in texts]
    for name, *texts in rows("""
GPT2LMHeadModel :: transformers.GPT2LMHeadModel(transformers.GPT2Config()) ::
    {"input_ids": tokens()}
GPT2Model-mask :: transformers.GPT2Model(transformers.GPT2Config(n_layer=4)) :: masked()
BertModel :: transformers.BertModel(transformers.BertConfig()) :: {"input_ids": tokens()}
BertModel-mask :: transformers.BertModel(transformers.BertConfig(num_hidden_layers=4)) :: masked()
ResNet :: transformers.ResNetForImageClassification(transformers.ResNetConfig()) ::
    {"pixel_values": torch.randn(1, 3, 224, 224)}
Llama :: transformers.LlamaForCausalLM(
    transformers.LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=1000)) :: masked()
T5 :: transformers.T5ForConditionalGeneration(
    transformers.T5Config(
    vocab_size=1000, d_model=64, d_kv=16, d_ff=64, num_layers=2, num_heads=4)) ::
    dict(masked(), decoder_input_ids=tokens()[:, :9])
ViT :: transformers.ViTForImageClassification(
    transformers.ViTConfig(**SMALL, image_size=32, patch_size=8)) ::
    {"pixel_values": torch.randn(2, 3, 32, 32)}
""")
}


@pytest.mark.parametrize("name", ["Llama", "T5", "ViT"])
def test_cold(name):
    """Compiled before its first eager call: what it does only then happens in compiled frames."""
    make, inputs = MODELS[name]
    inputs, twins = inputs(), []
    for _ in range(2):
        torch.manual_seed(0)
        twins.append(make().eval())
    compiled = minidynamo.compile(twins[0], backend="eager")
    with torch.no_grad():
        for _ in range(3):
            got, expected = compiled(**inputs), twins[1](**inputs)
            assert list(got) == list(expected)
            assert_near(got["logits"], expected["logits"])


@pytest.mark.parametrize("name", MODELS)
def test_one_graph(name):
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model, inputs = make().eval(), inputs()
    compiled = minidynamo.compile(model, backend="eager")
    with torch.no_grad():
        expected = model(**inputs)
        for _ in range(2):
            got = compiled(**inputs)
            assert type(got) is type(expected) and list(got) == list(expected)
            for key, value in expected.items():
                if isinstance(value, torch.Tensor):
                    assert_near(got[key], value)
                elif hasattr(value, "layers"):
                    for ours, theirs in zip(got[key].layers, value.layers):
                        assert list(vars(ours)) == list(vars(theirs))
                        assert_near(ours.keys, theirs.keys)
    assert minidynamo.counters["frames"].total() == minidynamo.counters["graphs"].total() == 1
    assert not minidynamo.counters["graph_breaks"] and not minidynamo.counters["errors"]
