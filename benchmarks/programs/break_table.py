"""The table of the programs of breaks.py, and what they share.

In:   functions that make a program.   Out: `PROGRAMS` and `COUNTS`, see breaks.py.

    @program(graphs=2, breaks=1)
    def locks() -> Program: ...
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.programs import numbers

# A program and its arguments.
Program = tuple[Callable[..., Any], tuple[Any, ...]]
Make = Callable[[], Program]
PROGRAMS: dict[str, Make] = {}
COUNTS: dict[str, tuple[int, int]] = {}


def program(make: Make | None = None, *, graphs: int = 1, breaks: int = 0) -> Any:
    """Decorator: `make` gives a program and its arguments, the same each time."""
    if make is None:
        return functools.partial(program, graphs=graphs, breaks=breaks)
    PROGRAMS[make.__name__] = make
    COUNTS[make.__name__] = graphs, breaks
    return make


def X(*shape: int, grad: bool = True) -> torch.Tensor:
    return numbers(*(shape or (3, 4)), grad=grad)


def linear(inputs: int = 4, outputs: int = 4) -> nn.Linear:
    torch.manual_seed(7)
    return nn.Linear(inputs, outputs)
