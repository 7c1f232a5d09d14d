"""`torch.utils.checkpoint`: the program says which values its backward half computes again.

In:   nodes of a joint graph that the front end has marked, `node.meta["checkpointed"]`.  Out: what
      the partition (partition.py) does not save, and where the backward half computes it.

    y = checkpoint(block, x)        # x and y are kept; what `block` computes is not
"""

from torch import fx

from ..partition import in_wanted_order, wants_again, wants_kept


@wants_again.replaced
def is_checkpointed(node: fx.Node) -> bool:
    """Does the program want this value computed again?"""
    return node.meta.get("checkpointed") == "body" and not node.meta.get("backward")


@wants_kept.replaced
def is_result(node: fx.Node) -> bool:
    return node.meta.get("checkpointed") == "result"


@in_wanted_order.replaced
def in_order_of_use(nodes: list[fx.Node]) -> list[fx.Node]:
    """The nodes in their order, but what is computed again for a checkpoint right before it is
    read, so that one checkpoint's values lie in memory at a time."""
    late = set(filter(is_checkpointed, nodes))
    if not late:
        return nodes
    found: dict[fx.Node, None] = {}
    rest = set(nodes)
    for node in [n for n in nodes if n not in late] + nodes:
        work = [node]
        while work:
            missing = [s for s in work[-1].all_input_nodes if s in rest and s not in found]
            if not missing:
                found.setdefault(work.pop())
            work += missing
    return list(found)
