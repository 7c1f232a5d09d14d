"""Small functions with their inputs: what kernels are measured on.

    >>> function, inputs = WORKLOADS["softmax"]()
"""
import torch
import torch.nn.functional as F


def _inputs(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def gelu_sigmoid():
    """A chain of pointwise operations with erf."""
    return lambda x, y: F.gelu(2 * x + 1) * torch.sigmoid(y), _inputs((4096, 1024), (4096, 1024))


def tanh_chain():
    return lambda x, y: torch.tanh(x * y) + torch.tanh(x - y), _inputs((4096, 1024), (4096, 1024))


def bias_gelu_residual():
    return lambda x, b, r: F.gelu(x + b) + r, _inputs((4096, 1024), (1024,), (4096, 1024))


def softmax():
    return lambda x: torch.softmax(x, -1), _inputs((4096, 1024))


def layer_norm():
    return lambda x, w, b: F.layer_norm(x, (1024,), w, b), _inputs((4096, 1024), (1024,), (1024,))


def sum_dim0():
    return lambda x: x.sum(0), _inputs((4096, 1024))


def sum_dim1():
    return lambda x: x.sum(1), _inputs((4096, 1024))


def cross_entropy():
    (x,) = _inputs((2048, 8000))
    target = torch.randint(0, 8000, (2048,), generator=torch.Generator().manual_seed(1))
    return lambda x, t: F.cross_entropy(x, t), [x, target]


def transpose_add():
    return lambda x, y: x.t() + y, _inputs((2048, 2048), (2048, 2048))


def mlp():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).eval()
    return model, _inputs((256, 512))


def tiny():
    """Four operations on sixteen numbers: nothing but overhead."""
    return lambda x: (torch.relu(x * 2 + 1) - 3), _inputs((16,))


WORKLOADS = {
    "gelu*sigmoid": gelu_sigmoid, "tanh chain": tanh_chain, "bias+gelu+residual": bias_gelu_residual, "softmax": softmax,
    "layer norm": layer_norm, "sum dim 0": sum_dim0, "sum dim 1": sum_dim1, "cross entropy": cross_entropy,
    "transpose+add": transpose_add, "MLP": mlp, "tiny (per call)": tiny,
}
