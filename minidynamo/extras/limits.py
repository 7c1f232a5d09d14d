"""An analysis that does not end: the graph breaks there.

In:   each instruction that is traced in a call, each step of what walks.
Out:  a graph break where there are too many.

    for _ in itertools.repeat(None): ...        # plain Python is to run it

Without this file such a program is traced for ever.
"""

from dataclasses import dataclass

from .extending import extends, noted
from .. import config
from ..exceptions import Break
from ..graph_capture import OutputGraph


@dataclass
class Steps:
    """Those that one attempt has traced."""

    count: int = 0


@extends(OutputGraph)
def count_step(output: OutputGraph) -> None:
    steps = noted(output, Steps)
    steps.count += 1
    if steps.count > config.step_limit:
        raise Break(
            "limit",
            f"more than {config.step_limit} instructions in the calls of one frame "
            "(config.step_limit)",
        )
