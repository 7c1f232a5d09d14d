"""What decides between two forms of a value: the language that its kernels are written in.

>>> recomputes(torch.device("cpu"))
False
"""

import torch

from ..devices import language_of


def recomputes(device: torch.device) -> bool:
    """Is a value with several readers rather computed again than stored?  Kernels of a GPU wait
    for memory, and not for arithmetic."""
    try:
        return language_of(device).name == "triton"
    except NotImplementedError:
        return False
