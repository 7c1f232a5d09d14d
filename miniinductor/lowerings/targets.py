"""What decides between two forms of a value: the language that its kernels are written in.

>>> recomputes(torch.device("cpu"))
False
"""

from typing import Any

from ..devices import recomputes
from ..lowering.graph import GraphLowering

__all__ = ["is_forward", "recomputes"]


def is_forward(lowering: GraphLowering) -> bool:
    """Without training, or the half of a joint graph whose meta says how many results it has?"""
    graph: Any = lowering.module
    return lowering.record.joint_graph is None or "results" in graph.meta
