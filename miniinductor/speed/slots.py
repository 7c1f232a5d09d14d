"""Memory of symbolic sizes: a slot for buffers that are equally large for all sizes.

In:   the memory plan of a graph with symbolic sizes (memory.py).  Out: one whose intermediates lie
      in slots.  A wrapper keeps the slots of a few sizes between its calls:

    workspaces = workspaces_for(s0)
    workspace = workspaces.pop() if workspaces else new_workspace(s0)

Without this file each such intermediate is a tensor of its own in each call.
# PyTorch: plans bytes as expressions, too, in one pool.
"""

from collections.abc import Sequence

import sympy

from ..hooks import extends
from ..memory import MemoryPlan, Occupied, storage_bytes
from ..sizes.prover import is_nonnegative
from ..sizes.symbols import Size
from ..wrapper import WrapperWriter


@extends(MemoryPlan)
class InSlots(MemoryPlan):
    """Where one size is an expression, every buffer takes a slot."""

    symbolic = False

    def find_lives(self) -> None:
        super().find_lives()
        self.symbolic = any(
            isinstance(storage_bytes(self.buffers[name]), sympy.Expr)
            for step in self.steps
            for name in step.made()
        )

    def share(self, name: str, nbytes: Size, born: int, dies: int) -> str:
        if not self.symbolic:
            return super().share(name, nbytes, born, dies)
        number, before = place_in_slot(self.slots, self.arena, nbytes, born, dies)
        self.in_arena[name] = (number, 0)
        self.arena.append(Occupied(number, 1, born, dies, name))
        return f"reuse of {before}" if before else "new"


def place_in_slot(
    slots: list[Size], arena: Sequence[Occupied], nbytes: Size, born: int, dies: int
) -> tuple[int, str | None]:
    """(number of a slot that is free during [born, dies] and as large for all sizes, or of a new
    one; the name of a dead buffer that lay there)"""
    for k, have in enumerate(slots):
        users = [other for other in arena if other.start == k]
        is_free = all(other.dies < born or dies < other.born for other in users)
        if is_free and is_nonnegative(sympy.sympify(have - nbytes)):
            return k, max(users, key=lambda other: other.born).name
    slots.append(nbytes)
    return len(slots) - 1, None


@extends(WrapperWriter)
class WithSlots(WrapperWriter):
    def workspace_list(self, symbols: str) -> list[str]:
        if not symbols:
            return super().workspace_list(symbols)
        self.scope["workspaces_for"] = WorkspacesBySize()
        if self.device.type == "cuda":
            symbols = f"stream, {symbols}"
        return [f"workspaces = workspaces_for({symbols})"]


class WorkspacesBySize(dict):
    """sizes -> the list of workspaces for them.  Beyond `most`, the oldest sizes are forgotten."""

    def __call__(self, *sizes: int, most: int = 4) -> list:
        workspaces = self.get(sizes)
        if workspaces is None:
            if len(self) >= most:
                self.pop(next(iter(self)), None)
            workspaces = self[sizes] = []
        return workspaces
