"""A compiled graph, and the function that is made of it.

In:   what wrapper.py printed.  Out: a `Program`; `start()` gives the callable.

    >>> program = build_program(graph, record)
    >>> call = program.start()
    >>> [out] = call(x)

The file also has what a wrapper calls beside kernels: workspaces, `in_layout`.
Mirrors torch/_inductor/output_code.py (`CompiledFxGraph`).
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..sizes.symbols import Size, fill
from . import launch

ALIGNMENT = 64


@dataclass
class Program:
    """All that it takes to run a compiled graph."""

    source: str  # of the wrapper
    scope: dict[str, object]  # its globals: kernels, ops, dtypes, parameters, workspaces
    device: torch.device
    inputs: list[str]  # names, in order
    constants: dict[str, torch.Tensor]  # name -> parameter, buffer or constant
    mutations: list[str]  # names of inputs and constants that are written
    refused: str | None = None  # why it must not be recorded as a CUDA graph

    def start(self) -> Callable:
        """The callable."""
        scope: dict[str, Any] = {**self.scope}
        if "empty_cpu(" in self.source:
            scope["empty_cpu"] = launch.empty_cpu
        exec(compile(self.source, "<miniinductor wrapper>", "exec"), scope)
        call = scope["call"]
        call.owned, call.workspaces_of = scope.get("call_owned"), scope.get("workspaces_of", {})
        return call


@dataclass
class NewWorkspace:
    """A function of the size symbols that makes the arena and every intermediate (and view of one)
    in it."""

    plan: list[tuple]  # (dtype, (slot, offset), size, stride, offset of the view)
    slots: list[Size]  # bytes
    symbols: list[str]  # names
    device: torch.device

    @functools.cached_property
    def numbers(self) -> Callable:
        return fill((self.plan, self.slots), self.symbols)

    # tensors made in inference mode could not be written outside of it
    @torch.inference_mode(False)
    def __call__(self, *symbols: int) -> tuple[torch.Tensor, ...]:
        plan, slots = self.numbers(*symbols)
        *starts, total = itertools.accumulate(
            (-(-n // ALIGNMENT) * ALIGNMENT for n in slots), initial=0
        )
        arena = torch.empty(total + ALIGNMENT, dtype=torch.uint8, device=self.device)
        start = -arena.data_ptr() % ALIGNMENT
        arena, tensors = arena[start : start + total], []
        for dtype, (slot, offset), size, stride, view_offset in plan:
            offset += starts[slot]
            usable = (total - offset) // dtype.itemsize * dtype.itemsize
            typed = arena[offset : offset + usable].view(dtype)
            tensors.append(typed.as_strided(size, stride, typed.storage_offset() + view_offset))
        return tuple(tensors)


def in_layout(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """The tensor, copied if its strides are others; strides of dimensions of size 1 do not
    matter."""
    if (
        tensor.stride() == stride
        or not tensor.numel()
        or all(n == 1 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), stride))
    ):
        return tensor
    return torch.empty_strided(
        tensor.shape, stride, dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)
