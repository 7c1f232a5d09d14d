"""Buffers that another frame replaces: statistics that a module counts behind a graph break.

In:   the entries of a frame that did not fit, and the guards that said so.
Out:  names of tensors that are placeholders of the next graph.

    if self.low > -1e-5:                # a branch on a tensor: the graph breaks
        self.low = self.low + x.min()   # the resume function makes another tensor of each call

The graph holds a module's tensors, guarded by their identity.  One that is replaced in the frame
itself is a placeholder from the start (variables/more/module_operations.py).  One that is replaced
elsewhere is seen here, when its guard has failed: it and the other buffers of its module become
placeholders, guarded by what they look like.

PyTorch: parameters and buffers are all placeholders (`inline_inbuilt_nn_modules`).
"""

from typing import Any

from .extending import extends
from ..conversion import Conversion
from ..dynamic import SizePolicy
from ..entries import entries_before, owner_of
from ..graph_capture import OutputGraph
from ..sources import Source
from ..symbolic_eval.evaluator import RootFrame


trace, is_state = Conversion.trace, OutputGraph.is_held


def inputs_of(policy: SizePolicy) -> set[str]:
    """Names of buffers that are placeholders, in all attempts at a frame."""
    return vars(policy).setdefault("replaced_buffers", set())


@extends(OutputGraph)
def is_held(output: OutputGraph, source: Source) -> bool:
    return is_state(output, source) and source.name() not in inputs_of(output.policy)


@extends(Conversion)
class WithReplacedBuffers(Conversion):
    def trace(self) -> RootFrame:
        if not self.attempts:
            inputs_of(self.policy).update(replaced(self))
        return trace(self)


def replaced(conversion: Conversion) -> set[str]:
    """Names of buffers that are placeholders of earlier entries already, and of those beside the
    one that the last entry did not find."""
    before = entries_before(conversion.code, conversion.compiler, owner_of(conversion.args))
    known = [source for entry in before for source in entry.record.input_sources]
    names = {source.name() for source in known if table_of(source)}
    failed = conversion.record.failed_guard
    changed = table_of(failed.source) if failed and failed.kind == "ID" else None
    if changed is not None:
        held = [guard.source for guard in before[-1].record.guards if guard.kind == "ID"]
        names |= {source.name() for source in held if table_of(source) == changed}
    return names


def table_of(source: Any) -> str | None:
    """The name of the table of buffers in which a tensor lies, if it does."""
    table = source.base if isinstance(source, Source) else None
    if table is None or table.kind != "item" or table.key != "_buffers":
        return None
    return table.name()
