"""Several ways to compute the same, of which one is chosen when their kernels are built.

In:   the steps of a call, among them `Choice`s.  Out: steps alone, whose kernels are built.

    class Alternatives:                     # products.py: a product by us, or by the library
        def parts(self): ...                # the steps of all ways
        def chosen(self, schedule, device, record): ...
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from ..kernels import KernelStep, Step, build_all, build_kernels, recorded
from ..nodes import ExternNode, Schedule
from ..records import CompileRecord


STEPS = (KernelStep, ExternNode)


class Choice(Protocol):
    def parts(self) -> list[Step]:
        """The steps of all ways."""
        ...

    def chosen(
        self, schedule: Schedule, device: torch.device, record: CompileRecord
    ) -> list[Step]: ...


@build_kernels.replaced
def build_and_choose(
    written: Sequence[Step | Choice],
    schedule: Schedule,
    device: torch.device,
    record: CompileRecord,
) -> list[Step]:
    parts: list[Step] = []
    for step in written:
        parts += [step] if isinstance(step, STEPS) else step.parts()
    build_all(parts, schedule)
    steps: list[Step] = []
    for step in written:
        steps += [step] if isinstance(step, STEPS) else step.chosen(schedule, device, record)
    return recorded(steps, schedule, record)
