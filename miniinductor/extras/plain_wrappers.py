"""Wrappers that are plainer to read, and tensors that only other devices have.

In:   what the wrapper calls (wrapper.py).  Out: its lines, in which

    torch_topk(arg0, 2, float('-inf'))          # numbers, texts and dtypes stand as they are
    # relu_0: nothing to compute, its buffers are empty
    buf1 = empty_strided((8,), (1,), dtype=float32, device=cuda0)
    mkldnn_linear(arg0, weight)                 # a constant in a library's own memory format

Without this file each number has a name, and empty tensors have kernels, too.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from ..codegen.cpp_expressions import TYPES
from ..hooks import extends
from ..ir import Layout
from ..kernels import KernelStep
from ..lowering.graph import GraphLowering
from ..wrapper import WrapperWriter


@dataclass
class Opaque:
    """A constant in a library's own memory format: only extern kernels read it
    (`Graph.constants[name]` is the real tensor)."""

    name: str


@extends(GraphLowering)
class OpaqueLowering(GraphLowering):
    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        tensor = self.fetch_attr(target)
        if tensor.layout is torch.strided:
            return super().get_attr(target, args, kwargs)
        name = target.replace(".", "_")
        self.lowered.constants[name] = tensor
        return Opaque(name)


@extends(WrapperWriter)
class PlainWrapper(WrapperWriter):
    def argument(self, value: object) -> str:
        if isinstance(value, Opaque):
            return value.name
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if isinstance(value, torch.dtype):
            return self.named(value)
        return super().argument(value)

    def emit_kernel(self, step: KernelStep) -> None:
        stored = step.kernel.stored
        if not stored or any(self.buffers[name].layout.numel != 0 for name in stored):
            return super().emit_kernel(step)
        for name in stored:
            self.allocate(name)
        self.lines.append(f"# {step.name}: nothing to compute, its buffers are empty")

    def new_tensor(self, layout: Layout) -> str:
        if layout.device.type == "cpu" and layout.dtype in TYPES:
            return super().new_tensor(layout)
        what = f"{self.tuple_of(layout.size)}, {self.tuple_of(layout.stride)}"
        self.scope["empty_strided"] = torch.empty_strided
        dtype, device = self.named(layout.dtype), self.named(layout.device)
        return f"empty_strided({what}, dtype={dtype}, device={device})"
