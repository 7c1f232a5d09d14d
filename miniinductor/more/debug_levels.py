"""What MINI_DEBUG asks for, on stderr.

MINI_DEBUG=2 python model.py        # the functional graph, the loop IR before and after fusion
"""

import sys
from collections.abc import Callable

from .. import config
from ..records import CompileRecord


def print_stages(record: CompileRecord) -> None:
    """What MINI_DEBUG asks for, on stderr."""
    stages: tuple[tuple[int, Callable[[], list]], ...] = (
        (1, lambda: [getattr(record.functional_graph, "graph", None)]),
        (2, lambda: [record.loop_ir, record.fused_ir]),
        (3, lambda: record.fusions),
        (4, lambda: [kernel.source for kernel in record.kernels]),
    )
    for level, texts in stages:
        if config.debug >= level:
            print(*texts(), sep="\n", file=sys.stderr)
