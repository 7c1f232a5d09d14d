"""Views of the arena are made once per workspace, not in each call.

    torch_mm(buf0_view0, arg1, out=buf1)        # (buf0, buf0_view0, buf1,) = workspace

In:   what eager kernels take of buffers that lie in the arena (wrapper.py).  Out: names of tensors
      that a workspace has beside its buffers.  # PyTorch: reinterpret_tensor in each call.
"""

from typing import Any

from ..hooks import extends
from ..ir import BufferView
from ..sizes.symbols import size, sizes
from ..wrapper import WrapperWriter


@extends(WrapperWriter)
class KeepsViews(WrapperWriter):
    """views: (buffer, size, stride, offset) -> the name of a view of the arena."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.views: dict[tuple, str] = {}

    def view(self, view: BufferView, exact: bool = False) -> str:
        root = self.memory.root(view.name)
        if root not in self.memory.in_arena or self.is_whole(view, exact):
            return super().view(view, exact)
        key = (root, tuple(view.size), tuple(view.stride), view.offset)
        if key not in self.views:
            self.views[key] = f"{root}_view{sum(k[0] == root for k in self.views)}"
        return self.views[key]

    def workspace_plan(self) -> dict[str, tuple]:
        plan = super().workspace_plan()
        for (name, shape, stride, offset), view in self.views.items():
            dtype, place, *_ = plan[name]
            plan[view] = (dtype, place, sizes(shape), sizes(stride), size(offset))
        return plan
