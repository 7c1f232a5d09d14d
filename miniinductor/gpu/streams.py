"""The wrapper of a graph on a GPU: its kernels are launched on the stream that is current.

In:   the steps of a call, as for any wrapper (wrapper.py).  Out: the same lines, and before them

    if current_device() != 0:
        with on_device(0):
            return call(arg0, arg1)
    stream = current_stream(0)

A kernel takes the stream as last argument, and each stream has workspaces of its own: calls on one
stream run in order, so they may share what lies between them.
"""

import torch

from ..hooks import extends
from ..kernels import KernelStep
from ..wrapper import WrapperWriter


@extends(WrapperWriter)
class OnStream(WrapperWriter):
    @property
    def has_streams(self) -> bool:
        return self.device.type == "cuda"

    def kernel_arguments(self, step: KernelStep) -> list[str]:
        arguments = super().kernel_arguments(step)
        return [*arguments, "stream"] if step.device.type == "cuda" else arguments

    def with_workspace(self, lines: list[str]) -> list[str]:
        """With the device's stream at hand; called on another device, it changes to its own."""
        body = super().with_workspace(lines)
        if not self.has_streams:
            return body
        number = self.device.index or 0
        self.scope.update(
            current_stream=torch._C._cuda_getCurrentRawStream,
            current_device=torch._C._cuda_getDevice,
            on_device=torch.cuda.device,
        )
        return [
            f"if current_device() != {number}:",
            f"    with on_device({number}):",
            f"        return call({', '.join(self.graph.inputs)})",
            f"stream = current_stream({number})",
            *body,
        ]

    def workspace_list(self, symbols: str) -> list[str]:
        if not self.has_streams:
            return super().workspace_list(symbols)
        if symbols:
            return super().workspace_list(f"stream, {symbols}")
        self.scope["workspaces_of"] = {}
        return ["workspaces = workspaces_of.setdefault(stream, [])"]
