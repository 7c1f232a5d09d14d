"""The table of the programs of styles.py, and what they share.

In:   functions that take a compiler and give `step`.   Out: `PROGRAMS`, see styles.py.

    @program
    def neural_ode(compile: Compile) -> Step: ...
"""

import math

import torch
from torch import nn

from benchmarks.programs import Program

PROGRAMS: dict[str, Program] = {}


def program(make: Program) -> Program:
    """Decorator: put `make` into the table under its name."""
    PROGRAMS[make.__name__] = make
    return make


def numbers(*shape: int, grad: bool = False) -> torch.Tensor:
    """Values of both signs that are no round ones."""
    values = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
    return torch.sin(values * 1.7 + 0.3).requires_grad_(grad)


def trained(model: nn.Module, loss: torch.Tensor) -> list[torch.Tensor]:
    """The loss and the gradients of all parameters, which are cleared."""
    loss.backward()
    found = [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]
    model.zero_grad()
    return found
