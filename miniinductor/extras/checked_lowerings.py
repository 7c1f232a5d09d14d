"""What a lowering rule has made is looked at: is it what torch says that the op gives?

In:   a box, and the FX node that it stands for.  Out: the box, or a LoweringError.

    LoweringError: aten.sum gave torch.float32 (4,), torch says torch.float32 () (model.py:12)
"""

from torch import fx

from ..hooks import extends
from ..ir import Layout, TensorBox, layouts_of
from ..lowering.graph import GraphLowering
from ..sizes.symbols import same_sizes


class LoweringError(Exception):
    """A rule produced something impossible: a bug of ours, named with the op and the user's
    line."""


@extends(GraphLowering)
class CheckedLowering(GraphLowering):
    def finish_value(self, box: TensorBox, node: fx.Node) -> None:
        value = layouts_of(node.meta["val"])
        is_one = isinstance(value, Layout)
        if is_one and (not same_sizes(box.get_size(), value.size) or box.dtype != value.dtype):
            raise LoweringError(
                f"{node.target} gave {box.dtype} {box.get_size()}, torch says {value.dtype} "
                f"{value.size} ({node.meta.get('source_line', '')})"
            )
        super().finish_value(box, node)
