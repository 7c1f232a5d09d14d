"""A backward half that cannot be compiled runs with eager kernels; where the program's own
`backward` raises, the graph runs eagerly, and raises when it is asked.

In:   a `Backward`, whose forward half runs already.  Out: the same, which always gives a callable;
      the record of the half, and a warning, say why its kernels are eager ones.

A half may refuse for a reason of its own: its sizes' guards were settled with the forward half.
Without this file a half that cannot be compiled raises, and nobody looks for such guards.

Autograd calls a custom function's `backward` while the backward half is traced, long before anybody
asks for gradients:

    y = compiled(x)         # eager: a value, whatever `backward` does
    y.sum().backward()      # here the error comes

What comes from outside, and TimeoutError and MemoryError of whomever, leaves the call at once.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ... import config
from ...eager_graphs import runnable
from ...exceptions import CannotLower, CannotTrace, CompilerError
from ...foreign import faults, is_fault, ours
from ...hooks import extends
from ...records import CompileRecord, first_line, tell
from ..joint import ProgramTrace
from ..runtime import Backward


@extends(Backward)
class FallsBack(Backward):
    def compile(self) -> Callable:
        """The callable; with eager kernels where the half cannot be compiled."""
        try:
            return super().compile()
        except (CannotLower, CompilerError) as error:
            reason = str(error)
        except faults() as error:  # of ours: the step goes on with the right numbers
            if config.raise_internal_errors:
                raise
            reason = f"internal error, {type(error).__name__}: {error}"
        half: Any = self.record.backward
        half.notes.append(f"runs with eager kernels: {reason}")
        graph = self.graph()
        tell(f"the backward half of {first_line(graph)} runs with eager kernels: {reason}")
        run = runnable(graph)
        return lambda tensors: run(*tensors)[0]

    def compiled(self, graph: fx.GraphModule, half: CompileRecord) -> Any:
        before = guards_of(graph)
        program = super().compiled(graph, half)
        if guards_of(graph) != before:
            raise CannotLower(
                "compiling it would assume something of symbolic sizes, but the guards were "
                "settled with the forward half"
            )
        return program


def guards_of(graph: fx.GraphModule) -> list[str]:
    """What was assumed of the graph's symbolic sizes so far."""
    values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    sizes = [value for value in values if isinstance(value, torch.SymInt)]
    return list(map(str, sizes[0].node.shape_env.guards())) if sizes else []


# --- programs whose own backward raises -----------------------------------------------------------
@extends(ProgramTrace)
class RaisingBackward(ProgramTrace):
    def differentiate(self) -> list[torch.Tensor | None]:
        try:
            return super().differentiate()
        except ours(Exception) as error:
            if isinstance(error, CannotTrace) or is_fault(error):
                raise
            name = type(error).__name__
            raise CannotTrace(f"backward of the program's own raises {name}") from error
