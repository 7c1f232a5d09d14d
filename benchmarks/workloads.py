"""Small functions with their inputs: what kernels are measured on.

>>> function, inputs = WORKLOADS["softmax"]()
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

Workload = tuple[Callable, list[torch.Tensor]]  # a function and its inputs


def _inputs(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def cross_entropy() -> Workload:
    target = torch.randint(0, 8000, (2048,), generator=torch.Generator().manual_seed(1))
    return lambda x, t: F.cross_entropy(x, t), [
        *_inputs((2048, 8000)),
        target,
    ]  # (frames of torch's own functions are left alone)


def mlp() -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)
    ).eval()
    return model, _inputs((256, 512))


MATRIX, ROW = (4096, 1024), (1024,)
WORKLOADS: dict[str, Callable[[], Workload]] = {  # by name
    "gelu*sigmoid": lambda: (
        lambda x, y: F.gelu(2 * x + 1) * torch.sigmoid(y),
        _inputs(MATRIX, MATRIX),
    ),  # pointwise, with erf
    "tanh chain": lambda: (
        lambda x, y: torch.tanh(x * y) + torch.tanh(x - y),
        _inputs(MATRIX, MATRIX),
    ),
    "bias+gelu+residual": lambda: (lambda x, b, r: F.gelu(x + b) + r, _inputs(MATRIX, ROW, MATRIX)),
    "softmax": lambda: (lambda x: torch.softmax(x, -1), _inputs(MATRIX)),
    "layer norm": lambda: (
        lambda x, w, b: F.layer_norm(x, (1024,), w, b),
        _inputs(MATRIX, ROW, ROW),
    ),
    "sum dim 0": lambda: (lambda x: x.sum(0), _inputs(MATRIX)),
    "sum dim 1": lambda: (lambda x: x.sum(1), _inputs(MATRIX)),
    "cross entropy": cross_entropy,
    "transpose+add": lambda: (lambda x, y: x.t() + y, _inputs((2048, 2048), (2048, 2048))),
    "MLP": mlp,
    "tiny (per call)": lambda: (
        lambda x: torch.relu(x * 2 + 1) - 3,
        _inputs((16,)),
    ),  # nothing but overhead
}
