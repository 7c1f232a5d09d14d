"""A graph that raised: plain Python runs the frame, unless the graph writes or draws.

In:   the `OutputGraph` and its GraphModule, before a backend sees it.
Out:  the `handler` in the replacement code, which calls `raised` where the graph raises: it returns
      if plain Python may run the frame from the start, up to the error with its own message and
      line, or to the program's own handler.

        try:
            y = x[index]        # out of range: plain Python runs, and the handler gets the error
        except IndexError: ...

Once a graph that writes to the program's tensors or draws random numbers has started, its error
goes to the user, whatever `try` stands around the operation; what was written stays.
PyTorch: every error of a graph leaves the frame.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

from miniinductor.errors import is_foreign, ours

from .. import config, records
from ..bytecode import Instruction
from ..errors import BackendError, SkipFrame
from ..evaluate.evaluator import RootFrame
from ..frame import frame_hook
from ..graph.graph_module import draws, storage
from ..graph.output_graph import OutputGraph
from ..graph.thread_state import push_state, restoring
from ..rebuild.reconstruct import Codegen
from ..rebuild.resume import is_resume_code

# What torch.utils.checkpoint's hooks raise once they have recomputed all that backward needs: no
# error of the graph's, and what was written stays, as in eager.
STOPPED = getattr(torch.utils.checkpoint, "_StopRecomputationError", None)


class GraphErrors:
    """What is known of one graph.  changes: does it write or draw?"""

    def __init__(self, output: OutputGraph, gm: torch.fx.GraphModule) -> None:
        root = output.root
        self.function = root.code.co_name if is_resume_code(root.code) else root.function.name
        self.changes = bool(changed_inputs(output)) or any(map(draws, output.graph.nodes))
        self.asks = config.raise_internal_errors and output.generates_code
        self.eager = restoring(gm.forward, dict(output.state.before))

    def around(self, compiled: Callable) -> Callable:
        """With `raise_internal_errors` on, the graph in PyTorch's own kernels is asked whether an
        error is the program's."""
        if not self.asks or self.changes:
            return compiled

        def run(*args: Any) -> Any:
            try:
                return compiled(*args)
            except ours(Exception) as error:
                vars(error)["of_program"] = raises(self.eager, args)
                raise

        return run

    def handler(self, frame: RootFrame, call: list[Instruction]) -> list[Instruction]:
        """Nothing has happened yet but what the graph did, so plain Python repeats it."""
        handler = Codegen(frame)
        handler.emit("PUSH_EXC_INFO")
        handler.call_object(frame_hook.disabled(self.raised))
        # `raised` raises: no longer handled
        cleanup = [Instruction("COPY", 3), Instruction("POP_EXCEPT"), Instruction("RERAISE", 1)]
        for instruction in handler.instructions:
            instruction.exc = cleanup[0], 1, True
        for op in ("POP_TOP", "POP_TOP", "POP_EXCEPT"):
            handler.emit(op)
        push_state(handler, frame.output.state.before)
        for instruction in call:
            instruction.exc = handler.instructions[0], 0, False
        return cleanup + handler.instructions

    def raised(self) -> None:
        """The graph raised: return if the frame may run as plain Python, else raise again."""
        error: Any = sys.exc_info()[1]
        if type(error) is STOPPED or isinstance(error, BackendError) or is_foreign(error):
            raise
        if self.asks and not vars(error).pop("of_program", False):
            raise
        records.counters["raised_after_write" if self.changes else "raised"][
            f"{self.function}: {type(error).__name__}: {error}"
        ] += 1
        if self.changes:
            raise


def changed_inputs(output: OutputGraph) -> list[torch.fx.Node]:
    """The inputs and parameters that the graph writes, perhaps through a view."""
    written = {storage(fake) for _, fake in output.written}
    given = [node for node in output.graph.nodes if node.op in ("placeholder", "get_attr")]
    fakes = [(node, node.meta["example_value"]) for node in given]
    return [n for n, fake in fakes if isinstance(fake, torch.Tensor) and storage(fake) in written]


def refuse(output: OutputGraph) -> None:
    """What plain Python is to raise: a write to what was made in inference mode, outside of it,
    where a generated kernel would not raise."""
    changed = changed_inputs(output)
    for variable in output.inputs:
        made_there = variable.node in changed and variable.value.is_inference()
        if made_there and not torch.is_inference_mode_enabled():
            raise SkipFrame("a write to what was made in inference mode, outside of it")


def raises(graph: Callable, args: tuple) -> bool:
    try:
        graph(*args)
    except ours(Exception):
        return True
    return False
