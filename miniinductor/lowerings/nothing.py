"""Results without elements: there is nothing to compute.

In:   a call whose result is empty, which the op's own rule leaves to eager's kernel.
Out:  an empty value.
"""

from collections.abc import Callable
from typing import Any

from ..lowering.pointwise import full
from ..lowering.registry import LOWERINGS, Call, Rule, aten
from . import pooling  # noqa: F401  (its rules are wrapped here)

MAY_BE_EMPTY = (
    aten.cat.default,
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
    aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default,
)


def knows_nothing(rule: Rule) -> Callable[..., Any]:
    def wrapped(call: Call, *args: Any, **kwargs: Any) -> Any:
        shape = call.value.size
        if 0 in tuple(shape):
            return full(call, shape, 0)
        return rule(call, *args, **kwargs)

    return wrapped


LOWERINGS.update({op: knows_nothing(LOWERINGS[op]) for op in MAY_BE_EMPTY})
