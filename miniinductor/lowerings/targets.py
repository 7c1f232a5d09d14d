"""What decides between two forms of a value: the language that its kernels are written in.

>>> recomputes(torch.device("cpu"))
False
"""

from typing import Any

import torch

from ..devices import language_of
from ..lowering.graph import GraphLowering


def recomputes(device: torch.device) -> bool:
    """Is a value with several readers rather computed again than stored?  Kernels of a GPU wait
    for memory, and not for arithmetic."""
    try:
        return language_of(device).name == "triton"
    except NotImplementedError:
        return False


def is_forward(lowering: GraphLowering) -> bool:
    """Without training, or the half of a joint graph whose meta says how many results it has?"""
    graph: Any = lowering.module
    return lowering.record.joint_graph is None or "results" in graph.meta
