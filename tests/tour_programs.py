"""The five programs that the core alone must run, and that no refactoring may change.

    for name, tour in TOURS.items():
        results = tour(lambda f, **options: minidynamo.compile(f, **options))
        expected = tour(lambda f, **options: f)

A tour takes a function that compiles (or hands back its argument, for eager) and returns tensors
and numbers.  `WHOLE` names those that must be captured in one graph and give fused kernels.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("softmax_of_a_product", "gpt_forward", "gpt_training")


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.project(x).split(width, dim=2)
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, length, width)
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 61, width: int = 32, heads: int = 4, layers: int = 2):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(64, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def softmax_of_a_product(compile: Callable) -> list[Any]:
    def f(x, y):
        return torch.softmax(x @ y, -1)

    torch.manual_seed(0)
    x, y = torch.randn(48, 33), torch.randn(33, 65)
    compiled = compile(f)
    with torch.no_grad():
        return [compiled(x, y), compiled(y.t(), x.t())]


def gpt_forward(compile: Callable) -> list[Any]:
    torch.manual_seed(0)
    model = GPT().eval()
    ids = torch.randint(0, 61, (2, 17))
    compiled = compile(model)
    with torch.no_grad():
        return [compiled(ids), compiled(ids.flip(1))]


def gpt_training(compile: Callable) -> list[Any]:
    torch.manual_seed(0)
    model = GPT()
    ids = torch.randint(0, 61, (2, 18))
    compiled = compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        logits = compiled(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *[p.grad for p in model.parameters()]]


def breaks_writes_recompilations(compile: Callable) -> list[Any]:
    log = []

    class Counter:
        calls = 0

    counter = Counter()

    def helper(x, rows):
        rows.append(x.sum())
        return x * 2

    def f(x, scale, table):
        counter.calls += 1
        y = helper(x, log) + scale
        table["seen"] = y.shape[0]
        print("a graph break:", tuple(y.shape))
        y.mul_(0.5)
        if y.sum() > 0:
            y = torch.relu(y)
        x.add_(1)
        for name in sorted(table):
            y = y + len(name)
        return y, counter.calls

    torch.manual_seed(0)
    compiled = compile(f)
    results, table = [], {}
    for n, scale in ((3, 1.0), (3, 1.0), (5, 2), (3, -4.0)):
        x = torch.randn(n, 7)
        results += [*compiled(x, scale, table), x, dict(table)]
    return [*results, *log]


def dynamic_sizes(compile: Callable) -> list[Any]:
    def f(x, w):
        halves = x.view(x.shape[0] // 2, 2, x.shape[1])
        y = torch.softmax(halves.sum(1) @ w, -1)
        if y.shape[0] > 4:
            y = torch.cat([y, y.mean(0, keepdim=True)])
        return y * y.shape[0]

    torch.manual_seed(0)
    w = torch.randn(9, 6)
    compiled = compile(f, dynamic=True)
    with torch.no_grad():
        return [compiled(torch.randn(n, 9), w) for n in (4, 6, 8, 12, 40)]


TOURS: dict[str, Callable] = {
    tour.__name__: tour
    for tour in (
        *(softmax_of_a_product, gpt_forward, gpt_training, breaks_writes_recompilations),
        dynamic_sizes,
    )
}
