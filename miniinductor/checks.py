"""Which calls may raise because of what their tensors hold: a position out of range, say.

In:   a node of an ATen graph.  Out: may its call raise, whatever the shapes and dtypes are?

Such a call is an effect: plain Python raises though nobody reads the result.  So no pass removes
it as dead code (`is_needed` in autograd/functionalize.py asks here), the partition keeps it in the
half to which it belongs, and lowering runs it for all of its elements (lowering/graph.py).
extras/value_checks.py knows the ops; without it such a call may be left out where nobody reads it.
"""

from torch import fx

from .replaceable import replaceable


@replaceable
def may_raise(node: fx.Node) -> bool:
    """Can this call raise because of what its tensors hold?"""
    return False
