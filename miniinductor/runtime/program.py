"""A compiled graph as plain data, and the function that is made of it.

In:   what wrapper.py printed.  Out: a `Program`: it can be pickled, and `start()` gives the
      callable.  Kernels that are not built yet are built then, or found on disk.

    >>> program = build_program(graph, record)
    >>> call = program.start()
    >>> [out] = call(x)

The file also has what a wrapper calls beside kernels: workspaces, `in_layout`.
Mirrors torch/_inductor/output_code.py (`CompiledFxGraph`).
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..devices import LANGUAGES
from ..sizes.symbols import Size, fill
from .build import CompilerError
from . import launch

if TYPE_CHECKING:
    from ..codegen.common import Kernel
    from ..passes.freezing import Frozen

ALIGNMENT = 64


@dataclass
class Program:
    """All that it takes to run a compiled graph, in this process or another."""

    source: str  # of the wrapper
    # the wrapper's globals but for its kernels: ops, dtypes, parameters, workspaces
    scope: dict[str, object]
    kernels: list[tuple]  # (language, device, [(name, codegen.common.Kernel, bytes that it moves)])
    device: torch.device
    inputs: list[str]  # names, in order
    constants: dict[str, torch.Tensor]  # name -> parameter, buffer or constant
    mutations: list[str]  # names of inputs and constants that are written
    functions: dict[str, Callable] | None = None  # name -> kernel, where they are built already
    frozen: "Frozen | None" = None  # what freezing made of parameters
    refused: str | None = None  # why it must not be recorded as a CUDA graph

    def start(self) -> Callable:
        """The callable.  Raises CompilerError where a kernel is not on disk any more and cannot be
        built."""
        if self.functions is None:
            self.functions = {}
            for language, device, members in self.kernels:
                names, kernels, moved = zip(*members)
                self.functions.update(zip(names, build_functions(language, device, kernels, moved)))
        scope: dict[str, Any] = self.scope | self.functions
        if "empty_cpu(" in self.source:
            scope["empty_cpu"] = launch.empty_cpu
        exec(compile(self.source, "<miniinductor wrapper>", "exec"), scope)
        call = scope["call"]
        call.owned, call.workspaces_of = scope.get("call_owned"), scope.get("workspaces_of", {})
        return self.frozen.guarded(call) if self.frozen else call


def build_functions(
    language: str, device: torch.device, kernels: Sequence["Kernel"], moved: Sequence[int]
) -> list[Callable]:
    """The kernels' functions, in the same order.  Raises CompilerError."""
    if language not in LANGUAGES:  # a program from disk, of a process that had it
        raise CompilerError(f"there is no code generator for {language}")
    return LANGUAGES[language].build(device, kernels, moved)


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
