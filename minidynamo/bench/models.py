"""Real models with random weights, built from their configuration classes (nothing is downloaded).

    >>> model, inputs = MODELS["gpt2"]()
    >>> model(**inputs).logits.shape
    torch.Size([1, 128, 50257])
"""
import torch


def gpt2(layers=12, batch=1, sequence=128):
    """GPT-2 small: 12 layers, hidden size 768."""
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers)).eval()
    return model, {"input_ids": torch.randint(0, model.config.vocab_size, (batch, sequence))}


def bert(layers=12, batch=1, sequence=128):
    """BERT base: 12 layers, hidden size 768."""
    from transformers import BertConfig, BertModel
    torch.manual_seed(0)
    model = BertModel(BertConfig(num_hidden_layers=layers)).eval()
    return model, {"input_ids": torch.randint(0, model.config.vocab_size, (batch, sequence))}


def resnet(batch=1, size=224):
    """ResNet-50 (transformers' default configuration)."""
    from transformers import ResNetConfig, ResNetForImageClassification
    torch.manual_seed(0)
    model = ResNetForImageClassification(ResNetConfig()).eval()
    return model, {"pixel_values": torch.randn(batch, 3, size, size)}


MODELS = {"gpt2": gpt2, "bert": bert, "resnet": resnet}
