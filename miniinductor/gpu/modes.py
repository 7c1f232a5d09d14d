"""mode="max-autotune": every block size of every kernel is timed.

In:   a `Compilation` (compile.py).  Out: the same, whose kernels are built under
      `config.max_autotune`.
"""

from collections.abc import Sequence
from typing import Any

from torch import fx

from .. import config
from ..compile import Compilation
from ..hooks import extends
from ..records import CompileRecord


@extends(Compilation)
class Autotuned(Compilation):
    def compile_functional(
        self, functional: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]]
    ) -> Any:
        max_autotune = config.max_autotune or self.mode == "max-autotune"
        with config.patch(max_autotune=max_autotune):
            return super().compile_functional(functional, record, written)
