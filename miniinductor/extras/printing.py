"""When a graph is compiled, its stages are printed as MINI_DEBUG asks (more/debug_levels.py)."""

from collections.abc import Sequence

from torch import fx

from ..compile import Compilation
from ..hooks import extends
from ..more.debug_levels import print_stages
from ..records import CompileRecord
from ..runtime.program import Program


@extends(Compilation)
class Printing(Compilation):
    def generate(
        self, functional: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]]
    ) -> Program:
        program = super().generate(functional, record, written)
        print_stages(record)
        return program
