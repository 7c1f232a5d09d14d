"""Small models of many kinds whose explanations the tests of the explorer look at."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import minidynamo

MODELS = {}


def model(make):
    MODELS[make.__name__] = make
    return make


def inference(module, *arguments, **options):
    with torch.no_grad():
        return minidynamo.explain(module.eval())(*arguments, **options).to_json()


def training(module, *arguments, loss=lambda result: result.square().mean(), **options):
    e = minidynamo.explain(module)(*arguments, **options)
    loss(e.result).backward()
    return e.to_json()


def transformer(name, config, **options):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, config)(**options))


def tokens(*shape):
    return torch.randint(0, 90, shape or (2, 8))


def gpt2_model():
    sizes = dict(n_layer=2, n_head=2, n_embd=16, vocab_size=96, n_positions=16)
    special = dict(bos_token_id=0, eos_token_id=0)
    return transformer("GPT2LMHeadModel", "GPT2Config", **sizes, **special)


@model
def gpt2():
    return inference(gpt2_model(), tokens(), use_cache=False)


@model
def gpt2_training():
    ids = tokens()
    return training(gpt2_model(), ids, labels=ids, use_cache=False, loss=lambda result: result.loss)


@model
def bert_training():
    sizes = dict(num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=32)
    bert = transformer("BertForMaskedLM", "BertConfig", vocab_size=96, **sizes)
    return training(bert, tokens(), loss=lambda result: result.logits.square().mean())


@model
def llama():
    sizes = dict(num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=32)
    return inference(
        transformer("LlamaForCausalLM", "LlamaConfig", vocab_size=96, **sizes),
        tokens(),
        use_cache=False,
    )


@model
def vision_transformer():
    sizes = dict(num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=32)
    vit = transformer("ViTModel", "ViTConfig", image_size=16, patch_size=8, **sizes)
    return inference(vit, torch.randn(1, 3, 16, 16))


@model
def resnet_training():
    sizes = dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    resnet = transformer("ResNetModel", "ResNetConfig", **sizes)
    loss = lambda result: result.pooler_output.square().mean()  # noqa: E731
    return training(resnet, torch.randn(2, 3, 32, 32), loss=loss)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(8, 32), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x):
        return self.down(F.dropout(F.gelu(self.norm(self.up(x))), 0.1, self.training))


@model
def mlp_training():
    return training(MLP(), torch.randn(16, 8))


@model
def optimizer_step():
    parameters = [nn.Parameter(torch.randn(n, 4)) for n in (3, 5, 7)]
    optimizer = torch.optim.Adam(parameters, lr=1e-2, foreach=True)
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return minidynamo.explain(optimizer.step)().to_json()


@model
def breaks_and_recompilations():
    def helper(x):
        print(end="")
        return x.cos() + 1

    def program(x):
        for _ in range(2):
            x = helper(x.sin() * 2)
        return x.exp()

    with torch.no_grad():
        return minidynamo.explain(program)(torch.randn(4, 4)).to_json()


@model
def detector():
    """Pooling, upsampling, indices, sorting, scatter."""

    def program(image, boxes):
        pooled = F.interpolate(F.max_pool2d(image, 2), scale_factor=2.0, mode="bilinear")
        scores = (image * pooled).flatten(1).softmax(-1)
        best, place = scores.topk(3)
        counts = torch.zeros(2, 5).scatter_add(1, boxes, torch.ones(2, 3))
        return best * 0.5 + counts[:, :3], place, torch.sort(scores[:, :7]).values.flip(-1)

    boxes = torch.tensor([[0, 1, 4], [2, 2, 3]])
    with torch.no_grad():
        return minidynamo.explain(program)(torch.rand(2, 3, 8, 8), boxes).to_json()
