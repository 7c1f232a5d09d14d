"""A custom function whose `backward` raises: the graph runs eagerly, and raises when it is asked.

In:   a program whose backward half is being traced.  Out: CannotTrace where the program's own code
      raised; autograd calls it while tracing, long before anybody asks for gradients.

    y = compiled(x)         # eager: a value, whatever `backward` does
    y.sum().backward()      # here the error comes

What comes from outside, and TimeoutError and MemoryError of whomever, leaves the call at once.
"""

import torch

from ...exceptions import CannotTrace
from ...foreign import is_fault, ours
from ...hooks import extends
from ..joint import ProgramTrace


@extends(ProgramTrace)
class RaisingBackward(ProgramTrace):
    def differentiate(self) -> list[torch.Tensor | None]:
        try:
            return super().differentiate()
        except ours(Exception) as error:
            needs_data = getattr(error, "needs_data", False)
            if isinstance(error, CannotTrace) or needs_data or is_fault(error):
                raise
            name = type(error).__name__
            raise CannotTrace(f"backward of the program's own raises {name}") from error
