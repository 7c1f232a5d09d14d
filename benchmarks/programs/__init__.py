"""Programs in the style of public ones, small, for `--suite programs` and for the tests.

Files: breaks*.py (one feature of Python or torch each), storms.py (numbers that change in each
call), settling.py (many breaks, objects that each call makes), vision.py (image sizes that change),
styles.py (what libraries and examples do).
"""

import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

Compile = Callable[[Callable], Callable]  # minidynamo.compile, or another compiler
Step = Callable[[int], Any]  # call number n of a program, and what is to be compared
Program = Callable[[Compile], Step]


def joining(table: dict[str, Program]) -> Callable[[Program], Program]:
    """A decorator that puts a program into the table under its name."""

    def program(make: Program) -> Program:
        table[make.__name__] = make
        return make

    return program


def numbers(*shape: int, grad: bool = False) -> torch.Tensor:
    """Values of both signs that are no round ones."""
    values = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
    return torch.sin(values * 1.7 + 0.3).requires_grad_(grad)


def results(make: Program, compile: Compile, calls: int, behind: Callable = list) -> list[Any]:
    """What the calls give.  behind: is called after each."""
    torch.manual_seed(0)
    step, found = make(compile), []
    for n in range(calls):
        found.append(step(n))
        behind()
    return found


def check_all(names: Iterable[str], check: Callable[[str, Compile], tuple[str, bool]]) -> None:
    """Ends the process: a line for each name and backend (of the command line; both), status 1 if
    any is not well.  check: (what to print, is it well?)."""
    import minidynamo

    bad = 0
    for backend in sys.argv[1:] or ["eager", "inductor"]:
        for name in names:
            minidynamo.reset()
            text, well = check(name, lambda f: minidynamo.compile(f, backend=backend))
            bad += not well
            print(f"{backend} {name:28} {text}", flush=True)
    sys.exit(min(bad, 1))
