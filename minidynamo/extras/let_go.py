"""What the attempts at a frame held is let go, once the work on it is over.

In:   a conversion that has ended, whether it gave an entry or not.
Out:  the program's objects, which its attempts held, do not live on with the frame's record.

Without this file they live until Python collects garbage, and some for ever: fake tensors hold the
shape environment through C++, where the collector sees no cycle.
"""

from typing import Any

from miniinductor.more.swapped_tensors import let_go

from .. import hooks
from ..conversion import Conversion
from ..graph_capture import OutputGraph


@hooks.ENDED.append
def let_attempts_go(conversion: Conversion) -> None:
    for output in conversion.attempts:
        forget(output)
        let_go(output.fake_mode)


def forget(output: OutputGraph) -> None:
    """Empty the tables that hold each other in cycles."""
    shape_env: Any = output.shape_env
    shape_env.where = str  # in place of `output.line`; str() is ""
    frame, output.root, output.frame = output.root, None, None
    for table in (
        output.memo,
        output.pinned_memo,
        output.by_fake,
        output.sourced,
        output.globals,
        *((frame.locals, frame.bound, frame.cells, frame.stack) if frame else ()),
    ):
        table.clear()
