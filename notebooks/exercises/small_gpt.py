"""The model of the capstone: a small GPT, in plain PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Causal attention of several heads."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        mask = torch.full((length, length), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) -> (batch, heads, length, width of a head)"""
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            self.split(self.query(x)),
            self.split(self.key(x)),
            self.split(self.value(x)),
        )
        scores = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5 + self.mask
        mixed = (torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(batch, length, width)
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.first_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, length)
        self.second_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first_norm(x))
        return x + self.down(F.gelu(self.up(self.second_norm(x)), approximate="tanh"))


class GPT(nn.Module):
    """tokens, targets (batch, length) -> the loss, a number."""

    def __init__(
        self, tokens: int = 64, width: int = 64, heads: int = 4, layers: int = 2, length: int = 32
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Block(width, heads, length) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
