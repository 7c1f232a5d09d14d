"""What the record says of the values that a forward half keeps for its backward half.

In:   the two halves of a joint graph (autograd/partition.py).  Out: `record.saved`, which explain
      draws.

    primal0    float32[2, 3]  input             # of relu(x @ w): it is in memory anyway
    le_scalar  bool[2, 4]     smallest cut
"""

import operator

from torch import fx

from ..autograd.joint import Joint
from ..autograd.partition import Parts, base, element_bytes
from ..compile import Compilation
from ..hooks import extends
from ..records import SavedActivation


@extends(Compilation)
class RecordsSaved(Compilation):
    def parts_of(self, joint: Joint, primals: int) -> Parts:
        parts = super().parts_of(joint, primals)
        placeholders = list(joint.graph.graph.find_nodes(op="placeholder"))
        overwritten = {placeholders[write.primal].target for write in joint.writes}
        self.record.saved = [activation(n, parts.reasons[n], overwritten) for n in parts.saved]
        return parts


def activation(node: fx.Node, reason: str, overwritten: set[str]) -> SavedActivation:
    """What the record says of a saved value."""
    value, source = node.meta["val"], base(node)
    return SavedActivation(
        node.name,
        "getitem" if node.target is operator.getitem else str(node.target),
        f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}",
        element_bytes(value),
        source.op == "placeholder" and source.target not in overwritten,
        reason or "smallest cut",
        node.meta.get("source_line", ""),
    )
