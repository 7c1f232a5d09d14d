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
    # (frames of torch's own functions are left alone)
    return lambda x, t: F.cross_entropy(x, t), [*_inputs((2048, 8000)), target]


def mlp() -> Workload:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)]
    return torch.nn.Sequential(*layers).eval(), _inputs((256, 512))


def of_shapes(function: Callable, *shapes: tuple[int, ...]) -> Callable[[], Workload]:
    return lambda: (function, _inputs(*shapes))


MATRIX, ROW, SQUARE = (4096, 1024), (1024,), (2048, 2048)
WORKLOADS: dict[str, Callable[[], Workload]] = {  # by name
    "gelu*sigmoid": of_shapes(lambda x, y: F.gelu(2 * x + 1) * torch.sigmoid(y), MATRIX, MATRIX),
    "tanh chain": of_shapes(lambda x, y: torch.tanh(x * y) + torch.tanh(x - y), MATRIX, MATRIX),
    "bias+gelu+residual": of_shapes(lambda x, b, r: F.gelu(x + b) + r, MATRIX, ROW, MATRIX),
    "softmax": of_shapes(lambda x: torch.softmax(x, -1), MATRIX),
    "layer norm": of_shapes(lambda x, w, b: F.layer_norm(x, (1024,), w, b), MATRIX, ROW, ROW),
    "sum dim 0": of_shapes(lambda x: x.sum(0), MATRIX),
    "sum dim 1": of_shapes(lambda x: x.sum(1), MATRIX),
    "cross entropy": cross_entropy,
    "transpose+add": of_shapes(lambda x, y: x.t() + y, SQUARE, SQUARE),
    "MLP": mlp,
    "tiny (per call)": of_shapes(lambda x: torch.relu(x * 2 + 1) - 3, (16,)),  # overhead alone
}
