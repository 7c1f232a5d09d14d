"""Inputs that a kernel writes straight into: autograd is told.

In:   a wrapper whose kernels have overwritten inputs (in_place.py).  Out: the same with a line

    increment_version((arg0,))          # as eager's in-place ops do: autograd notices a write by it
"""

import torch

from ..hooks import extends
from ..wrapper import WrapperWriter


@extends(WrapperWriter)
class CountsWrites(WrapperWriter):
    def result_lines(self) -> list[str]:
        lines = super().result_lines()
        if not self.overwritten:
            return lines
        self.scope["increment_version"] = torch.autograd.graph.increment_version
        written = ", ".join(self.overwritten.values())
        return [f"increment_version(({written},))", *lines]
